"""Autotuning without a card: nothing can be timed, so each launch takes one configuration, and the test says which."""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import textwrap
from collections.abc import Callable
from types import CodeType
from typing import Any

from triton.runtime.autotuner import Autotuner

from harness.inside.fake_gpu.torch_device import Patch
from harness.records import Architecture


class Tuning:
    """Takes one of the configurations that an autotuner's own pruning leaves: the first, or number `turn`, or else the last.

    Those that break the kernel's own static assertions are left out, and where `fits` can say so, those that do not fit the card, as an
    autotuner leaves out what it cannot launch.
    `chosen` names those taken since `begin`, by kernel. `most` is the largest number that a kernel had to choose from since then.
    """

    def __init__(self) -> None:
        self.chosen: dict[str, str] = {}
        self.turn, self.most = 0, 0
        self.fits: Callable[[Any, dict[str, Any], Any], bool] | None = None  # tuner, arguments of the launch, configuration
        self._tuners: list[Autotuner] = []

    def begin(self) -> None:
        """Forget what was chosen: every test names its own configurations."""
        for tuner in self._tuners:
            # An author's own autotuner may have a cache that cannot be emptied: a database of earlier runs. It names what it chooses once.
            getattr(tuner.cache, "clear", lambda: None)()
        self._tuners.clear()
        self.chosen, self.most = {}, 0

    def patches(self) -> list[Patch]:
        """Return what makes every autotuner do so."""
        return [(Autotuner, "prune_configs", self._one(Autotuner.prune_configs)), (Autotuner, "_bench", _untimed)]

    def _one(self, prune: Callable[..., Any]) -> Callable[..., Any]:
        def one(tuner: Any, kwargs: Any) -> Any:
            left = list(prune(tuner, kwargs))
            number = self._first_that_fits(tuner, kwargs, left)
            self._tuners.append(tuner)
            self.most = max(self.most, len(left))
            self.chosen[tuner.base_fn.__name__] = f"{left[number]} ({number + 1} of {len(left)})"
            return left[number : number + 1]

        return one

    def _first_that_fits(self, tuner: Any, kwargs: Any, left: list[Any]) -> int:
        asked = min(self.turn, len(left) - 1)
        if len(left) == 1:
            return asked
        possible = [number for number in range(asked, len(left)) if _keeps_assertions(tuner, kwargs, left[number])]
        return next((number for number in possible if self.fits is None or self.fits(tuner, kwargs, left[number])), asked)


def _keeps_assertions(tuner: Any, kwargs: dict[str, Any], config: Any) -> bool:
    """Return whether `tl.static_assert` at the top of a kernel holds for a configuration, as far as constants decide it.

    The compiler refuses a configuration for which it does not, and an autotuner leaves that one out.
    """
    function = tuner.base_fn
    if not inspect.isfunction(function):
        return True
    defaults = {name: each.default for name, each in inspect.signature(function).parameters.items()}
    values = {**function.__globals__, **defaults, **(getattr(tuner, "nargs", None) or {}), **kwargs, **config.all_kwargs()}
    for condition in _assertions(function):
        with contextlib.suppress(Exception):  # it needs what only a launch knows
            if not eval(condition, values):  # noqa: S307 - the package's own code, in its own module
                return False
    return True


@functools.cache
def _assertions(function: Callable[..., Any]) -> list[CodeType]:
    """Return the conditions that a kernel asserts at its top, compiled."""
    try:
        kernel = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, SyntaxError, IndexError):
        return []
    calls = [each.value for each in getattr(kernel, "body", ()) if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call)]
    asserted = [call.args[0] for call in calls if call.args and ast.unparse(call.func).rpartition(".")[2] == "static_assert"]
    return [compile(ast.Expression(condition), function.__code__.co_filename, "eval") for condition in asserted]


def has_threads(card: Architecture) -> Callable[[Any, dict[str, Any], Any], bool]:
    """Return what says whether the programs of a configuration have no more threads than the card launches."""
    return lambda tuner, kwargs, config: config.num_warps * card.warp_size <= card.program_threads


def fits_on(card: Architecture) -> Callable[[Any, dict[str, Any], Any], bool]:
    """Return what compiles a configuration, and says whether the card has the threads and the shared memory that it needs."""

    def fits(tuner: Any, kwargs: dict[str, Any], config: Any) -> bool:
        given = {name: value for name, value in kwargs.items() if name != "warmup"}
        try:
            kernel = tuner.fn.warmup(*tuner.nargs.values(), **{**given, **config.all_kwargs(), "grid": (1,)})
            threads = kernel.metadata.num_warps * card.warp_size
            return bool(threads <= card.program_threads and kernel.metadata.shared <= card.properties["max_shared_mem"])
        except Exception:  # the launch itself says what is wrong
            return True

    return fits


def _untimed(tuner: Any, *args: Any, config: Any, **meta: Any) -> list[float]:
    """Stand in for the timing, which Triton 3.6 asks for even if only one configuration is left."""
    return [0.0, 0.0, 0.0]
