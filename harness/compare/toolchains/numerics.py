"""The errors that tests record (`record_property`: `max_abs_err`, `max_ulp`), before and after. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from harness.records import TargetRun, Verdict

_NAME = re.compile(r"(^|_)(err(or)?|ulps?|rmse?|diff)(_|$)")
_NOISE = 0.01  # a share; a smaller change of an error is another order of additions


@dataclass(frozen=True)
class ChangedError:
    """One number that a test recorded on one target, where both runs passed. It is the author's own, in the author's unit."""

    target: str
    id: str
    name: str
    before: float
    after: float

    @property
    def worse(self) -> bool:
        """Whether the error grew."""
        return self.after > self.before


def changed_errors(base: Sequence[TargetRun], head: Sequence[TargetRun]) -> tuple[ChangedError, ...]:
    """Return each recorded error that changed by more than 1%, those that grew most first."""
    sides = [{key: value for run in runs for key, value in _recorded(run)} for runs in (base, head)]
    found = [ChangedError(*key, sides[0][key], sides[1][key]) for key in sides[0] if key in sides[1]]
    moved = [one for one in found if abs(one.after - one.before) > _NOISE * max(one.before, one.after)]
    return tuple(sorted(moved, key=lambda one: (-one.after / one.before if one.before else -math.inf, one.target, one.id, one.name)))


def _recorded(run: TargetRun) -> list[tuple[tuple[str, str, str], float]]:
    found = []
    for case in run.cases:
        for name, text in case.properties.items() if case.verdict is Verdict.PASSED else ():
            try:
                value = float(text) if _NAME.search(name) else math.nan
            except ValueError:
                continue
            if math.isfinite(value) and value >= 0:
                found.append(((run.record.target, case.id, name), value))
    return found
