"""How long a stage used its card, from the events of its workers."""

from __future__ import annotations

from harness.inside.process.audit import Event


class Used:
    """The `seconds` in which at least one test ran and did not compile. Events of several workers may arrive in any order."""

    def __init__(self) -> None:
        self._began: dict[str, float] = {}
        self._spans: list[tuple[float, float]] = []

    def note(self, event: Event) -> None:
        """Take one event."""
        kind, identity, at = event["event"], str(event.get("id")), event.get("at")
        if not isinstance(at, (int, float)):
            return
        if kind == "start":
            self._began[identity] = at
        elif kind in ("finish", "poisoned", "postponed") and identity in self._began:
            compiling = event.get("compiling_s", 0.0)
            began = self._began.pop(identity) + (compiling if isinstance(compiling, (int, float)) else 0.0)
            if began < at:
                self._spans.append((began, at))

    @property
    def seconds(self) -> float:
        """The length of all spans together; where they overlap, once."""
        total = until = 0.0
        for began, ended in sorted(self._spans):
            total += max(0.0, ended - max(began, until))
            until = max(until, ended)
        return total
