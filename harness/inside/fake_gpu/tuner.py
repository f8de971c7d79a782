"""Autotuning without a card: nothing can be timed, so one configuration is taken, and the test says which."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from triton.runtime.autotuner import Autotuner

from harness.inside.fake_gpu.torch_device import Patch


class Choice:
    """Which of an autotuner's configurations is taken: number `turn`, or the last one that is left after pruning.

    `chosen` names what was taken since `begin`, by kernel; `most` is the largest number of configurations that an autotuner had.
    """

    def __init__(self) -> None:
        self.turn, self.most = 0, 1
        self.chosen: dict[str, str] = {}
        self._tuners: list[Autotuner] = []

    def begin(self, turn: int) -> None:
        """Take other configurations from here on, also where an autotuner has decided before."""
        for tuner in self._tuners:
            tuner.cache.clear()
        self._tuners.clear()
        self.turn, self.most, self.chosen = turn, 1, {}

    def patches(self) -> list[Patch]:
        """Return what makes every autotuner take this choice."""
        return [(Autotuner, "prune_configs", self._prune(Autotuner.prune_configs)), (Autotuner, "_bench", _untimed)]

    def _prune(self, prune: Callable[..., Any]) -> Callable[..., Any]:
        def one(tuner: Any, kwargs: Any) -> Any:
            left = list(prune(tuner, kwargs))
            place = min(self.turn, len(left) - 1)
            self._tuners.append(tuner)
            self.most = max(self.most, len(left))
            self.chosen[tuner.base_fn.__name__] = f"{left[place]} ({place + 1} of {len(left)})"
            return [left[place]]

        return one


def _untimed(tuner: Any, *args: Any, config: Any, **meta: Any) -> list[float]:
    return [0.0, 0.0, 0.0]
