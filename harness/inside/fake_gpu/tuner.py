"""Autotuning without a card: nothing can be timed, so one configuration is taken, and the test says which."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from triton.runtime.autotuner import Autotuner

from harness.inside.fake_gpu.torch_device import Patch


class Tuning:
    """Takes the first configuration that an autotuner's own pruning leaves. `chosen` names those taken since `begin`, by kernel."""

    def __init__(self) -> None:
        self.chosen: dict[str, str] = {}
        self._tuners: list[Autotuner] = []

    def begin(self) -> None:
        """Forget what was chosen: every test names its own configurations."""
        for tuner in self._tuners:
            tuner.cache.clear()
        self._tuners.clear()
        self.chosen = {}

    def patches(self) -> list[Patch]:
        """Return what makes every autotuner do so."""
        return [(Autotuner, "prune_configs", self._first(Autotuner.prune_configs)), (Autotuner, "_bench", _untimed)]

    def _first(self, prune: Callable[..., Any]) -> Callable[..., Any]:
        def first(tuner: Any, kwargs: Any) -> Any:
            left = list(prune(tuner, kwargs))
            self._tuners.append(tuner)
            self.chosen[tuner.base_fn.__name__] = f"{left[0]} (1 of {len(left)})"
            return left[:1]

        return first


def _untimed(tuner: Any, *args: Any, config: Any, **meta: Any) -> list[float]:
    """Stand in for the timing, which Triton 3.6 asks for even if only one configuration is left."""
    return [0.0, 0.0, 0.0]
