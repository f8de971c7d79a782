"""Stand in for what scripts measure with: `do_bench`, `do_bench_cudagraph`, torch's `Timer`, and `Mark.run` of a `perf_report`.

The stand-ins are set once, before any module of the package is imported, because modules keep what they import. While a script runs, each
call of it goes to a `Meter` with its name. Any other call, such as an autotuner's, does what it did before.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from warpwave.inside.benchmarks import Point, mark_points
from warpwave.inside.scripts.script import Call, Names, Script, caller_is_a_library

TIMER_METHODS = ("timeit", "blocked_autorange", "adaptive_autorange")


@dataclass(frozen=True)
class Measurement:
    """A call that measures. `kind` is what was called: `do_bench`, `do_bench_cudagraph`, or a method of torch's `Timer`.

    `plain` does what was called, with these `options` by their names. For a method, `function` is the timer itself.
    """

    kind: str
    plain: Callable[..., Any]
    function: Any
    options: dict[str, Any] = field(default_factory=dict)


class Meter(Protocol):
    """What a stage does with the measurements of a script. The results are those that the script gets."""

    def take(self, call: Call, measurement: Measurement) -> Any:
        """Measure a call."""

    def sweep(self, points: list[Point]) -> dict[str, Any]:
        """Measure the points of a `perf_report`. Return what its function returned, by the point's id."""


class Hooks:
    """The stand-ins, and the script that runs at the moment. `quick` keeps three sizes of each sweep."""

    def __init__(self, quick: bool = False) -> None:
        self._quick = quick
        self._meter: Meter | None = None
        self._names: Names | None = None
        self._script: Script | None = None
        self._busy = False

    def install(self, undo: contextlib.ExitStack | None = None) -> None:
        """Stand in, on top of what stands there now, until `undo` is closed."""
        import triton.testing
        from torch.utils.benchmark import Timer

        testing: Any = triton.testing
        changes: list[tuple[Any, str, Any]] = [
            (testing, "do_bench", self._function("do_bench", testing.do_bench)),
            (testing, "do_bench_cudagraph", self._function("do_bench_cudagraph", testing.do_bench_cudagraph)),
            (testing.Mark, "run", self._mark(testing.Mark.run)),
            *((Timer, name, self._method(name, getattr(Timer, name))) for name in TIMER_METHODS),
        ]
        for owner, name, value in changes:
            if undo is not None:
                undo.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, value)

    @contextlib.contextmanager
    def script(self, script: Script, names: Names, meter: Meter) -> Iterator[None]:
        """Within, calls belong to this script."""
        self._script, self._names, self._meter = script, names, meter
        try:
            yield
        finally:
            self._script = self._names = self._meter = None

    def _function(self, kind: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        known = _signature(kind)

        @functools.wraps(plain)
        def stand_in(*args: Any, **kwargs: Any) -> Any:
            if self._names is None or self._busy or caller_is_a_library():
                return plain(*args, **kwargs)
            options = dict(known.bind_partial(*args, **kwargs).arguments)
            options |= options.pop("ignored", {})
            function = options.pop("fn", None)
            if function is None:
                return plain(*args, **kwargs)  # which says what is wrong with the call
            return self._measured(self._names.of(function), Measurement(kind, plain, function, options))

        return stand_in

    def _method(self, name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        known = inspect.signature(plain)

        @functools.wraps(plain)
        def stand_in(timer: Any, *args: Any, **kwargs: Any) -> Any:
            if self._names is None or self._busy or caller_is_a_library():
                return plain(timer, *args, **kwargs)
            options = dict(known.bind(timer, *args, **kwargs).arguments)
            options.pop("self", None)
            said = timer._task_spec
            described = {"provider": said.description, "label": said.label, "sub_label": said.sub_label, "env": said.env}
            call = self._names.of(said.stmt, {key: text for key, text in described.items() if text}, timer._globals)
            return self._measured(call, Measurement(name, plain, timer, options))

        return stand_in

    def _measured(self, call: Call, measurement: Measurement) -> Any:
        assert self._meter is not None
        self._busy = True  # what is measured may measure for itself, as an autotuner does
        try:
            return self._meter.take(call, measurement)
        finally:
            self._busy = False

    def _mark(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """Measure a `perf_report` point by point, then let its author print the numbers, or get them as a table. No file is written."""

        @functools.wraps(plain)
        def run(mark: Any, show_plots: bool = False, print_data: bool = False, save_path: str = "", **options: Any) -> Any:
            if self._meter is None or self._script is None or self._busy:
                return plain(mark, show_plots, print_data, save_path, **options)
            extra = {name: value for name, value in options.items() if name not in ("return_df", "diff_col", "save_precision")}
            points = self._named_points(mark_points(mark, self._script.kernel, self._quick, extra))
            self._busy = True
            try:
                found = self._meter.sweep(points)
            finally:
                self._busy = False
            known = {_key(point.arguments): found.get(point.id, float("nan")) for point in points}
            function, mark.fn = mark.fn, lambda **arguments: known.get(_key(arguments), float("nan"))
            try:
                return plain(mark, False, print_data, "", **options)
            except ImportError:  # it prints with pandas and matplotlib, and nothing else of it needs them
                if options.get("return_df"):
                    raise
                return None
            finally:
                mark.fn = function

        return run

    def _named_points(self, points: Iterable[Point]) -> list[Point]:
        """Return the points with the script's arguments in their names, and with a number if the script makes them more than once."""
        assert self._script is not None
        assert self._names is not None
        arguments = shlex.join(self._script.arguments)
        found = []
        for point in points:
            kernel, _, rest = point.case.partition("/")
            case = "/".join(filter(None, [kernel, arguments, rest]))
            again = self._names.count(f"{case} [{point.provider}]")
            found.append(replace(point, case=f"{case}#{again}" if again > 1 else case))
        return found


def _key(arguments: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, repr(value)) for name, value in arguments.items()))


def _signature(kind: str) -> inspect.Signature:
    """Return the parameters in Triton's order; others that a version has go by name."""
    keyword, rest = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter("ignored", inspect.Parameter.VAR_KEYWORD)
    first = ("fn", "warmup", "rep") if kind == "do_bench" else ("fn", "rep")
    return inspect.Signature([*(inspect.Parameter(name, keyword) for name in (*first, "grad_to_none", "quantiles", "return_mode")), rest])


# Note which kernels a call launches.


@contextlib.contextmanager
def noted(note: Callable[[str], None]) -> Iterator[None]:
    """Call `note` with the name of each Triton function that is launched within, by its JIT or as a compiled kernel.

    Not for timed calls: noting takes the host a moment for each launch.
    """
    from triton.compiler import CompiledKernel
    from triton.runtime.jit import JITFunction

    run, bound = JITFunction.run, CompiledKernel.__getitem__

    def launch(function: Any, *args: Any, **kwargs: Any) -> Any:
        note(getattr(function, "__name__", "kernel"))
        return run(function, *args, **kwargs)

    def bind(kernel: Any, grid: Any) -> Any:
        note(getattr(kernel, "name", "kernel"))
        return bound(kernel, grid)

    JITFunction.run, CompiledKernel.__getitem__ = launch, bind  # type: ignore[method-assign,unused-ignore]
    try:
        yield
    finally:
        JITFunction.run, CompiledKernel.__getitem__ = run, bound  # type: ignore[method-assign,unused-ignore]


class Launched:
    """The names of kernels that were launched, each once, in order."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Note launches within."""
        with noted(lambda name: self.names.setdefault(name)):
            yield

    def first(self, function: Callable[[], Any]) -> Callable[[], Any]:
        """Return a function that notes the launches of its first call only, the one that compiles and warms up."""
        called = False

        def call() -> Any:
            nonlocal called
            if called:
                return function()
            called = True
            with self.noted():
                return function()

        return call
