"""What a call launches: the bytes of the tensors that it gives to Triton kernels, and the configurations that autotuners chose.

The bytes are the least that the call has to move, if each is used once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_MOST, _LONGEST = 20, 400  # configurations of a call, and characters of each


class Touched:
    """The distinct tensors that were given to kernels, by where their memory begins. `tuned` are configurations by kernel."""

    def __init__(self) -> None:
        self._found: dict[int, int] = {}
        self.tuned: dict[str, str] = {}

    def note(self, values: Any) -> None:
        """Note the tensors among a launch's arguments. A view of a whole, or an expanded one, counts what it has in memory."""
        import torch

        for value in values:
            if isinstance(value, torch.Tensor) and value.numel():
                size = min(value.numel() * value.element_size(), value.untyped_storage().nbytes())
                self._found[value.data_ptr()] = max(size, self._found.get(value.data_ptr(), 0))

    @property
    def nbytes(self) -> int | None:
        """Bytes of all of them; None if there was no launch with a tensor."""
        return sum(self._found.values()) or None


@contextmanager
def touched() -> Iterator[Touched]:
    """Note the arguments of every launch inside, and what autotuners chose. Other code than Triton's kernels is not seen."""
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    found, run, tune = Touched(), JITFunction.run, Autotuner.run

    def choosing(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = tune(self, *args, **kwargs)
        if (chosen := getattr(self, "best_config", None)) is not None and len(found.tuned) < _MOST:
            found.tuned[getattr(getattr(self, "base_fn", self.fn), "__name__", "kernel")] = str(chosen)[:_LONGEST]
        return result

    def noting(self: Any, *args: Any, **kwargs: Any) -> Any:
        found.note((*args, *kwargs.values()))
        return run(self, *args, **kwargs)

    JITFunction.run, Autotuner.run = noting, choosing
    try:
        yield found
    finally:
        JITFunction.run, Autotuner.run = run, tune
