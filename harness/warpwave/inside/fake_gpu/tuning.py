"""Autotuning without a card: nothing can be timed, so each launch takes one configuration, and the test says which.

A card runs every configuration on the memory of the first call. Here that call runs once more before its own, with the tuner's hooks.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from triton.compiler.errors import CompileTimeAssertionFailure
from triton.runtime.autotuner import Autotuner

from warpwave.inside.fake_gpu.compiled import Contents
from warpwave.inside.fake_gpu.launches import Asked, as_asked, configuration_text
from warpwave.inside.fake_gpu.streams import wait
from warpwave.inside.process.outcomes import as_on_a_card
from warpwave.records import Architecture


class Tuning:
    """Takes one of the configurations that an autotuner's own pruning leaves: the first, or number `turn`, or else the last.

    Those that break the kernel's own static assertions are left out, and where `fits` can say so, those that do not fit the card, as an
    autotuner leaves out what it cannot launch.
    `chosen` names those taken since `begin`, by kernel. `most` is the largest number that a kernel had to choose from since then.
    `in_place` says which kernels changed what they were tuned on. `trying` is set during launches that only tune.
    `asked` leaves out all other configurations. With `every`, each test begins anew, as it runs with each configuration; without, a tuner
    keeps what it chose, as on a card, also a choice that its key should not share.
    """

    def __init__(self) -> None:
        self.chosen: dict[str, str] = {}
        self.in_place: list[str] = []
        self.turn, self.most, self.trying = 0, 0, False
        self.asked: Asked = {}
        self.every = False
        self.fits: Callable[[Any, dict[str, Any], Any], bool] | None = None  # tuner, arguments of the launch, configuration
        self._tuners: list[Autotuner] = []
        self._tuned: set[Any] = set()  # before the test
        self._tuned_now: set[Any] = set()
        self._kept: dict[Any, str] = {}  # by key: the words for what was chosen
        self._call = threading.local()  # the innermost one of a tuner: its arguments, and how it was tuned

    def begin(self) -> None:
        """Name what is chosen from here on: every test names its own configurations, also those that an earlier test has tuned."""
        for tuner in self._tuners if self.every else ():
            # An author's own autotuner may have a cache that cannot be emptied: a database of earlier runs.
            getattr(tuner.cache, "clear", lambda: None)()
        self._tuners.clear()
        self.chosen, self.most, self.in_place = {}, 0, []
        # On a card, what fixtures and earlier tests tuned is tuned. The next turn of a test has another configuration to tune.
        if self.turn == 0:
            self._tuned |= self._tuned_now
        self._tuned_now = set()

    def running(self, run: Callable[..., Any], tuner: Any, *args: Any, **kwargs: Any) -> Any:
        """Launch through an autotuner, and note what tuning changed."""
        outer = getattr(self._call, "innermost", None)
        self._call.innermost = call = _Call(tuner, args)
        try:
            while True:
                try:
                    launched = run(tuner, *args, **kwargs)
                    break
                except CompileTimeAssertionFailure:  # such a configuration is left out, as an autotuner does
                    if not call.others:
                        raise
                    call.refused.add(call.number)
                    getattr(tuner.cache, "pop", lambda *_: None)(call.key[1:], None)
        finally:
            self._call.innermost = outer
            with contextlib.suppress(TypeError):  # of a key without a hash
                if kept := self._kept.get(_key(tuner, dict(zip(tuner.arg_names, args, strict=False)), kwargs)):
                    self.chosen.setdefault(tuner.base_fn.__name__, kept)
        if call.tuned and (names := self._trial(call.tuned.in_place)):
            self.in_place.append(
                f"autotuning changed {' and '.join(f'`{name}`' for name in names)}: `{tuner.base_fn.__name__}` reads and then writes "
                f"there. Give @triton.autotune restore_value={names}, or reset_to_zero for a sum that starts at zero: "
                "the first call on a card runs every configuration on the same memory"
            )
        return launched

    def choosing(self, prune: Callable[..., Any], tuner: Any, kwargs: Any) -> Any:
        """Leave one of the configurations that the tuner's own pruning leaves."""
        left = as_asked(self.asked, tuner, pruned := list(prune(tuner, kwargs)))
        call = getattr(self._call, "innermost", None) or _Call(None, ())
        asked = min(self.turn, len(left) - 1)
        possible = [number for number in range(asked, len(left)) if number not in call.refused]
        fitting = (number for number in possible if len(left) == 1 or self.fits is None or self.fits(tuner, kwargs, left[number]))
        number = call.number = next(fitting, asked)
        call.others = len(possible) > 1
        self._tuners.append(tuner)
        self.most = max(self.most, len(left))
        place = f" ({pruned.index(left[number]) + 1} of {len(pruned)})" if len(pruned) > 1 else ""
        text = self.chosen[tuner.base_fn.__name__] = f"{configuration_text(left[number])}{place}"
        if call.tuner is tuner:
            key = call.key = _key(tuner, tuner.nargs, kwargs)
            self._kept[key] = text
            if len(left) > 1 and key not in self._tuned and key not in self._tuned_now:
                if conflicts := kwargs.keys() & left[number].kwargs.keys():
                    words = f"Conflicting meta-parameters: {', '.join(conflicts)}. Make sure that you don't re-define auto-tuned symbols."
                    raise as_on_a_card(ValueError(words))
                wait()  # as the timings of a card do
                self._tuned_now.add(key)
                tuner.configs_timings = {config: [0.0, 0.0, 0.0] for config in left}
                call.tuned = self._trial(lambda: _Tuned(tuner, call.args, kwargs, left[number]))
        return left[number : number + 1]

    def _trial(self, launch: Callable[[], Any]) -> Any:
        self.trying = True
        try:
            return launch()
        finally:
            self.trying = False


@dataclass(eq=False)
class _Call:
    """A call of a tuner, the `number` of its configuration and those that do not compile. `tuned`: it is the first one for its key."""

    tuner: Any
    args: Any
    tuned: _Tuned | None = None
    number: int = 0
    key: Any = ()
    others: bool = False
    refused: set[int] = field(default_factory=set)


class _Tuned:
    """A launch as a tuner measures it, with its hooks, on the memory of the call. It is made before the call itself."""

    def __init__(self, tuner: Any, args: Any, kwargs: dict[str, Any], config: Any) -> None:
        named = {**tuner.nargs, **kwargs, **config.all_kwargs()}
        self._launch: Callable[[], object] = lambda: tuner.fn.run(*args, **kwargs, **config.all_kwargs())
        self._prepare: Callable[[], object] = lambda: config.pre_hook(named) if config.pre_hook else None
        self._memory = Contents(named)
        self._prepare()
        tuner.pre_hook(named)
        self._before = self._memory.copy()
        try:
            self._launch()
        except Exception as error:  # the call itself says what is wrong
            self._memory.put(self._before)
            tuner.post_hook(named, exception=error)
            self._first = None
            return
        self._first = self._memory.copy()
        tuner.post_hook(named, exception=None)
        tuner.pre_hook(named, reset_only=True)
        self._left = self._memory.copy()

    def in_place(self) -> list[str]:
        """Return the arguments that the kernel reads and then writes, if that changed the result of the call, which has just ended.

        What is only written changes no result. So the launch is repeated on what it had, with one changed argument at a time.
        """
        end = self._memory.copy()
        if self._first is None or end == self._first:
            return []
        try:
            if self._changes({}):  # the launch is never the same: a clock
                return []
            changed = {start: data for start, data in self._left.items() if data != self._before[start]}
            return [
                name
                for start, data in changed.items()
                if self._changes({start: data})
                for name in self._memory.changed(start, self._before[start], data)
            ]
        except Exception:  # of a launch on what no call had
            return []
        finally:
            self._memory.put(end)

    def _changes(self, other: dict[int, bytes]) -> bool:
        self._memory.put({**self._before, **other})
        self._prepare()
        self._launch()
        return self._memory.copy() != self._first


def _key(tuner: Any, named: dict[str, Any], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Return what a launch is tuned for, as Triton does: the arguments that the author names, and the types of all."""
    given = {name: value for name, value in {**named, **kwargs}.items() if name in tuner.arg_names}
    types = [str(value.dtype) for value in given.values() if hasattr(value, "dtype")]
    return (tuner, *(given[name] for name in tuner.keys if name in given), *types)


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
