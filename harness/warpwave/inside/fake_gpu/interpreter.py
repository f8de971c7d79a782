"""A pretended card in Triton's interpreter: tensors live on the CPU, and kernels run there."""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib
import inspect
import operator
import pkgutil
import re
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType, ModuleType, SimpleNamespace, TracebackType
from typing import Any, TypeGuard

import numpy as np
import torch
import triton
import triton.language as tl
import triton.language.extra as extra
from triton.compiler.errors import CompilationError, CompileTimeAssertionFailure
from triton.runtime.errors import InterpreterError, OutOfResources

from warpwave.inside.fake_gpu.arithmetic import narrow_floats
from warpwave.inside.fake_gpu.card import PretendedDriver, Tuning, card_with_data, has_threads
from warpwave.inside.fake_gpu.device_library import library
from warpwave.inside.fake_gpu.host_side import refused, taken_apart, tensors_in
from warpwave.inside.fake_gpu.language import language_gaps, language_members, note_types, typed
from warpwave.inside.fake_gpu.launches import Launched, check_grid
from warpwave.inside.fake_gpu.promises import promises
from warpwave.inside.fake_gpu.redirect import Redirect
from warpwave.inside.fake_gpu.streams import Graph
from warpwave.inside.fake_gpu.torch_device import Patch, apply
from warpwave.inside.fake_gpu.waiting import waiting_programs
from warpwave.inside.process.outcomes import NotPretended, raised_in_kernel
from warpwave.records import Architecture

# Let Triton compile in a process whose kernels run in its interpreter: for `kernel.asm`, and for what is made for a card alone.
#
# The interpreter replaces the functions of `triton.language`, and does not put all of them back: what a call from a kernel replaces
# stays. So
# do warpwave's own additions. The compiler gets the language without either.

_REPLACED = (tl, tl.core, tl.math, tl.core.dtype, tl.core.tensor, tl.core.tensor_descriptor_base)


def compiling(additions: Sequence[Patch]) -> list[Patch]:
    """Return what compiles a kernel with Triton's own language; `additions` are warpwave's, which are not there yet."""
    import triton
    from triton.compiler import compiler

    ours = {(id(owner), name) for owner, name, _ in additions}
    owners: dict[int, Any] = {id(owner): owner for owner in (*_REPLACED, *(owner for owner, *_ in additions if _is_of_the_language(owner)))}
    own = [(owner, dict(vars(owner))) for owner in owners.values()]
    compile_kernel: Any = compiler.compile

    def run(*args: Any, **kwargs: Any) -> Any:
        with contextlib.ExitStack() as undo:
            for owner, members in own:
                for name, value in list(vars(owner).items()):
                    if value is not members.get(name) and ((id(owner), name) in ours or _is_the_interpreters(value)):
                        setattr(owner, name, members[name]) if name in members else delattr(owner, name)
                        undo.callback(setattr, owner, name, value)
            return compile_kernel(*args, **kwargs)

    return [(owner, "compile", run) for owner in (triton, triton.compiler, compiler)]


def _is_of_the_language(owner: Any) -> bool:
    """Whether it is a module or class of `triton.language`."""
    return str(getattr(owner, "__module__", None) or getattr(owner, "__name__", "")).startswith("triton.language")


def _is_the_interpreters(value: Any) -> bool:
    """Whether the interpreter has put it into the language. A package may put something there, too."""
    function = value.fget if isinstance(value, property) else value
    return function is print or getattr(function, "__module__", "") == "triton.runtime.interpreter"


# What kernels ask of the card itself (`tl.extra.cuda.smid()`, `gdc_wait()`), and what its compiler refuses, in Triton's interpreter.

WARPS = 4  # what a launch has if it does not say


def hardware(processors: int, card: Architecture) -> Iterator[Patch]:
    """Yield answers: programs run one after another, each on one of the `processors`; one launch ends before the next begins.

    The interpreter multiplies matrices of every size. The card's compiler says which one is too small for it.
    """
    from triton.runtime.interpreter import InterpreterOptions, interpreter_builder

    def smid() -> Any:
        return _number(int(np.dot(interpreter_builder.grid_idx, (1, 7, 31))) % processors, tl.int32)

    answers: dict[str, Callable[[], Any]] = {"smid": smid}
    answers |= dict.fromkeys(("globaltimer", "memrealtime"), lambda: _number(time.perf_counter_ns(), tl.int64))
    answers |= dict.fromkeys(("gdc_wait", "gdc_launch_dependents"), lambda: None)
    for module in _modules():
        for name, function in vars(module).items():
            if getattr(function, tl.core.TRITON_BUILTIN, False):
                yield module, name, answers.get(name) or _within_the_interpreter(function)
    for name, value in (("num_warps", WARPS), ("warp_size", card.warp_size)):
        if not hasattr(InterpreterOptions, name):
            yield InterpreterOptions, name, value
    of_compiler = _of_compiler(card)
    if "min_dot_size" in of_compiler:
        functions = {**interpreter_builder.codegen_fns, "min_dot_size": of_compiler["min_dot_size"]}
        yield interpreter_builder, "codegen_fns", functions


def _of_compiler(card: Architecture) -> Mapping[str, Any]:
    """Return what Triton's language asks of a card's compiler; nothing if this Triton does not compile for it."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import make_backend

    try:
        backend = make_backend(GPUTarget(card.backend, card.arch, card.warp_size))
    except RuntimeError:
        return {}
    return backend.get_codegen_implementation(backend.parse_options({}))  # type: ignore[no-any-return]


@contextlib.contextmanager
def launched_with(options: Mapping[str, Any]) -> Iterator[None]:
    """Within, a kernel that asks (`tl.extra.cuda.num_warps()`) gets what its launch says."""
    from triton.runtime.interpreter import InterpreterOptions

    before = InterpreterOptions.num_warps
    InterpreterOptions.num_warps = options.get("num_warps", WARPS)
    try:
        yield
    finally:
        InterpreterOptions.num_warps = before


def _number(value: int, dtype: Any) -> Any:
    from triton.runtime.interpreter import TensorHandle

    return tl.tensor(TensorHandle(np.array([value], dtype=np.int64 if dtype is tl.int64 else np.int32), dtype), dtype)


def _modules() -> Iterator[ModuleType]:
    """Yield the vendors' folders of the language, and the modules in them beside their device libraries.

    Triton imports a vendor's folder twice: `import` finds one of the two, and `tl.extra` has the other.
    """
    for info in pkgutil.walk_packages(extra.__path__, f"{extra.__name__}."):
        if not info.name.endswith("libdevice"):
            try:
                yield (imported := importlib.import_module(info.name))
            except ImportError:  # what one vendor's Triton has and this one lacks
                continue
            if info.ispkg and (named := getattr(extra, info.name.rpartition(".")[2], imported)) is not imported:
                yield named


def _within_the_interpreter(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        from triton.runtime.interpreter import interpreter_semantic

        return function(*args, **{**kwargs, "_semantic": interpreter_semantic})

    return call


# Tensors on the host: a card's launcher refuses them, and Triton's interpreter takes them.

# How a package asks whether its kernels are interpreted. Many then choose the host: `"cpu" if is_interpreted() else "cuda"`.
_ASKS = re.compile(r"TRITON_INTERPRET|knobs\.runtime\.interpret\b|\bInterpretedFunction\b")
_OTHERS = {*sys.stdlib_module_names, "warpwave", "torch", "triton", "pytest", "_pytest", "pluggy", "numpy"}


def refuse_host_tensors(executor: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise what Triton's launchers raise on a card, unless the package has chosen the host for the interpreter.

    Such a package says so in its code, and has no tensor of a launch on the card.

    Raises:
        ValueError: an argument is a tensor that a card cannot reach.
    """
    given = {**dict(zip(executor.arg_names, args, strict=False)), **kwargs}
    named = ((name, None if name in executor.constexprs else given.get(name)) for name in executor.arg_names)
    error = refused(taken_apart(named))
    if error and (_has_some_on_card(given) or not any(map(_asks, _files(executor.fn)))):
        raise error


def _has_some_on_card(given: Mapping[str, Any]) -> bool:
    """Return whether a launch has tensors that are on the card. In a backward that is not known of those that autograd made."""
    graph: Any = torch._C
    in_backward = graph._current_graph_task_id() != -1
    card = Redirect.current
    return not in_backward and card is not None and any(map(card.is_on_card, tensors_in(list(given.values()))))


def _files(kernel: Any) -> Iterator[str]:
    """Yield the files that may have chosen the device: of the kernel, of its callers, of conftest.py, and what those import."""
    frame: FrameType | None = sys._getframe(1)
    loaded = [sys.modules.get(kernel.__module__), *(module for name, module in list(sys.modules.items()) if name.endswith("conftest"))]
    while frame is not None:
        loaded.append(sys.modules.get(frame.f_globals.get("__name__", "")))
        frame = frame.f_back
    seen: set[str] = set()
    for module in filter(_is_its_own, loaded):
        imported = map(sys.modules.get, _imports(str(module.__file__), str(module.__package__ or "")))
        for each in (module, *filter(_is_its_own, imported)):
            if (path := str(each.__file__)) not in seen:
                seen.add(path)
                yield path


def _is_its_own(module: ModuleType | None) -> TypeGuard[ModuleType]:
    """Return whether a module is a package's: no part of torch, of Triton, of pytest, or of Python."""
    name = getattr(module, "__name__", "").partition(".")[0]
    return name not in _OTHERS and str(getattr(module, "__file__", None) or "").endswith(".py")


@functools.cache
def _asks(path: str) -> bool:
    return _ASKS.search(_text(path)) is not None


@functools.cache
def _imports(path: str, package: str) -> tuple[str, ...]:
    """Return the modules that a file names in its imports: `a.b` of `import a.b`, `a` and `a.b` of `from a import b`."""
    found: list[str] = []
    try:
        nodes = list(ast.walk(ast.parse(_text(path))))
    except (SyntaxError, ValueError):
        return ()
    for node in nodes:
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            base = ".".join(filter(None, [*above, node.module]))
            found += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return tuple(found)


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


# Lets an interpreted kernel look like a compiled one to host code, which asks what it is and reads its parameters and its source.

_COMPILED = "_compiled"
_OF_FUNCTION = ("__globals__", "__qualname__", "__module__", "__doc__")  # what a compiled kernel takes over from its function


def looking_compiled() -> list[Patch]:
    """Return what makes `isinstance(kernel, triton.JITFunction)` hold. What an interpreted kernel lacks comes from a compiled one."""
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction

    return [
        (InterpretedFunction, "__getattribute__", _own),
        (InterpretedFunction, "__getattr__", _of_compiled),
        (InterpretedFunction, "__setattr__", _rename_too),
        (InterpretedFunction, "_unsafe_update_src", _with_source),
        (InterpretedFunction, "__repr__", JITFunction.__repr__),
    ]


def _own(self: Any, name: str) -> Any:
    if name == "__class__":  # what `isinstance` asks for beside the type itself
        from triton.runtime.jit import JITFunction

        return JITFunction
    if name in _OF_FUNCTION and "fn" in (own := object.__getattribute__(self, "__dict__")):
        return getattr(own["fn"], name)
    return object.__getattribute__(self, name)


def _of_compiled(self: Any, name: str) -> Any:
    """Return an attribute of the kernel that Triton would compile: its `params`, `src`, `cache_key` or `signature`.

    Raises:
        AttributeError: It has none of that name. Names of Python's own, such as `__wrapped__`, are not looked for: who asks for one wants
            to know what the object is.
    """
    if (name.startswith("__") and name.endswith("__")) or "fn" not in vars(self):
        raise AttributeError(f"'InterpretedFunction' object has no attribute '{name}'", name=name, obj=self)
    return getattr(compiled(self), name)


def compiled(kernel: Any) -> Any:
    """Return the kernel that Triton would compile."""
    if _COMPILED not in vars(kernel):
        from triton.runtime.jit import JITFunction

        vars(kernel)[_COMPILED] = JITFunction(kernel.fn, **kernel.kwargs)
    return vars(kernel)[_COMPILED]


def _rename_too(self: Any, name: str, value: Any) -> None:
    """Set an attribute. A compiled kernel has a name of its own; here it is the function's."""
    object.__setattr__(*((self.fn, name, value) if name == "__name__" else (self, name, value)))


def _with_source(self: Any, source: str) -> None:
    """Let a kernel have another source than its file: a package writes kernels so that are the same but for a function within."""
    rewriter = self.rewriter

    def rewrite() -> Any:
        code = self.fn.__code__
        rewriter.filename, rewriter.def_file_lineno = code.co_filename, code.co_firstlineno
        tree = rewriter._transform_ast(textwrap.dedent(source))
        tree.body[0].name = self.fn.__name__  # the package may have renamed it
        return rewriter._compile_and_exec(tree)

    rewriter.rewrite_ast = rewrite
    self.rewritten_fn.pop(self.fn, None)
    _of_compiled(self, "_unsafe_update_src")(source)


# The number of multiprocessors only sizes grids, and a grid-stride loop is right for every size. A small one is fast.
_PROCESSORS = 4


def interpreted_device(card: Architecture, kinds: Sequence[str], more: Sequence[Patch] = ()) -> tuple[Tuning, Callable[[], None]]:
    """Pretend that tensors on a GPU of any of these types are on `card`. Return what autotuners choose, and what undoes it all.

    `more` is changed first, below all else.

    `warmup` answers with an object that has the attributes which occupancy code asks for and that launches through the interpreter.
    """
    from triton.runtime.interpreter import GridExecutor, InterpretedFunction
    from triton.runtime.jit import JITFunction

    below = contextlib.ExitStack()
    apply(list(more), below)
    apply(list(waiting_programs()), below)
    whole, card = card, replace(card, properties={**card.properties, "multiprocessor_count": _PROCESSORS})
    launching: list[Patch] = [
        *library(card.backend),
        *narrow_floats(),
        *language_gaps(),
        *language_members(),
        *hardware(_PROCESSORS, card),
        *looking_compiled(),
        (JITFunction, "run", _not_interpreted(JITFunction.run)),
        (InterpretedFunction, "warmup", _warmup),
        (InterpretedFunction, "run", _with_handle(InterpretedFunction.run)),
        (GridExecutor, "_init_args_hst", _but_pointers(GridExecutor._init_args_hst)),
        (GridExecutor, "_restore_args_dev", _back_but_pointers(GridExecutor._restore_args_dev)),
        (GridExecutor, "__call__", _captured(GridExecutor.__call__, whole)),
    ]
    tuning, undo = card_with_data(card, kinds, _driver, [*launching, *compiling(launching)])
    tuning.fits = has_threads(card)
    below.callback(undo)
    apply(promises(), below)
    return tuning, below.close


def _driver(card: Architecture, device: torch.device) -> PretendedDriver:
    return PretendedDriver(card, device, card.properties, lambda binary: (32, 0, card.program_threads))


def _warmup(self: Any, *args: Any, grid: Any, **kwargs: Any) -> Any:
    return _InterpretedKernel(self, args, kwargs)


def _not_interpreted(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return a launch that refuses what Triton compiles even here: nothing would run, and a test that only launches it would pass."""

    def launch(self: Any, *args: Any, warmup: bool = False, **kwargs: Any) -> Any:
        if warmup:
            return run(self, *args, warmup=warmup, **kwargs)
        what = "a Gluon kernel" if self.is_gluon() else "made for a card alone"
        raise NotPretended(f"{self.fn.__name__} is {what}, which Triton's interpreter cannot run; an emulated target can")

    return launch


def _with_handle(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return what a launch returns on a card: the compiled kernel. What the language refuses is the compiler's error there."""
    from triton.runtime.errors import InterpreterError

    def launch(self: Any, *args: Any, **kwargs: Any) -> Any:
        note_types(self)
        try:
            run(self, *args, **kwargs)
        except InterpreterError as error:
            raise as_compiled(error) from error.__cause__
        return _InterpretedKernel(self, args, kwargs)

    return launch


_OF_COMPILED = ("asm", "kernel", "name", "src")


class _Metadata(SimpleNamespace):
    """What host code reads of a compiled kernel's metadata."""


class _InterpretedKernel:
    """A kernel in the interpreter: it can be launched, and has a compiled kernel's public attributes."""

    n_regs, n_spills = 32, 0

    def __init__(self, function: Any, args: Any, options: dict[str, Any]) -> None:
        self.function, self.args, self.options = function, args, options
        self.metadata = _Metadata(shared=1024, num_warps=options.get("num_warps", 4), num_stages=options.get("num_stages", 1))

    @property
    def hash(self) -> str:
        """What a compiled kernel is found by: another source or other options have another."""
        return hashlib.sha256(f"{self.function.cache_key} {self.options}".encode()).hexdigest()

    @functools.cached_property
    def compiled(self) -> Any:
        """What Triton compiles for the pretended card. It compiles when it is asked."""
        options = {name: value for name, value in self.options.items() if name not in ("grid", "warmup")}
        return compiled(self.function).warmup(*self.args, grid=(1,), **options)

    def __getattr__(self, name: str) -> Any:
        if name not in _OF_COMPILED:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'", name=name, obj=self)
        return getattr(self.compiled, name)

    def _init_handles(self) -> None:
        """There is no binary to load."""

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return self.function[grid]  # type: ignore[no-any-return]


def _captured(launch: Callable[..., Any], card: Architecture) -> Callable[..., Any]:
    """Let a graph that is being captured remember a launch, and none of the calls of torch within it.

    The interpreter has one current program, so threads launch one after another. NumPy warns where numbers overflow, and a package may
    make errors of warnings; a card does not warn.
    """
    one_at_a_time = threading.RLock()

    def interpret(executor: Any, *args: Any, **kwargs: Any) -> Any:
        with one_at_a_time, launched_with(kwargs), np.errstate(all="ignore"), torch._C.DisableTorchFunction():
            return launch(executor, *args, **kwargs)

    def run(executor: Any, *args: Any, **kwargs: Any) -> Any:
        Launched.functions[getattr(executor.fn, "__name__", "kernel")] = None
        refuse_host_tensors(executor, args, kwargs)
        executor.grid = _as_on_a_card(executor, card, args, kwargs)
        args, kwargs = typed(executor, args, kwargs)
        return Graph.run(interpret, (executor, *args), kwargs)

    return run


def _is_pointer(value: Any) -> bool:
    """Whether an argument is an object of the package with an address, as launchers take it: no tensor, and none that wraps one."""
    return hasattr(value, "data_ptr") and not isinstance(value, torch.Tensor) and not hasattr(value, "base")


def _but_pointers(bring: Callable[..., Any]) -> Callable[..., Any]:
    """Bring a launch's tensors to the host, as the interpreter does. What only has an address points there already."""

    def brought(self: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        args_host, kwargs_host = bring(self, _without_pointers(args), dict(zip(kwargs, _without_pointers(kwargs.values()), strict=True)))
        kept = [given if _is_pointer(given) else found for given, found in zip(args, args_host, strict=True)]
        return kept, {name: value if _is_pointer(value) else kwargs_host[name] for name, value in kwargs.items()}

    return brought


def _back_but_pointers(restore: Callable[..., Any]) -> Callable[..., Any]:
    def restored(self: Any, args: Any, args_host: Any, kwargs: dict[str, Any], kwargs_host: dict[str, Any]) -> Any:
        named = dict(zip(kwargs, _without_pointers(kwargs.values()), strict=True))
        return restore(self, _without_pointers(args), args_host, named, kwargs_host)

    return restored


def _without_pointers(values: Iterable[Any]) -> list[Any]:
    return [None if _is_pointer(value) else value for value in values]


def _as_on_a_card(executor: Any, card: Architecture, args: Any, kwargs: dict[str, Any]) -> tuple[int, ...]:
    """Return a launch's grid as Triton's own launchers read it: a tuple of integers, also of a list. They read three and no more.

    A function of the grid gets what the host passed. The interpreter gives it tensors of the language instead, which compute otherwise.

    Raises:
        OutOfResources: a program has more threads than the card launches.
        LaunchRefusedError: the driver of the card refuses the grid.
    """
    grid, names = executor.grid, executor.arg_names
    if callable(grid):
        grid = grid(inspect.getcallargs(executor.fn, *args, **{name: value for name, value in kwargs.items() if name in names}))
    sizes = tuple(map(operator.index, grid))[:3]
    options = {"num_warps": WARPS, **{name: value for name, value in kwargs.items() if name not in names and value is not None}}
    if (threads := options["num_warps"] * card.warp_size) > card.program_threads:
        raise OutOfResources(threads, card.program_threads, "threads")
    check_grid(card, executor.fn.__name__, sizes, SimpleNamespace(**options))
    return sizes


# What the language refuses is the compiler's error on a card: `pytest.raises(triton.CompilationError)` holds in the interpreter, too.

_LANGUAGE = Path(triton.__file__).parent / "language"
_REFUSES = (AssertionError, NotImplementedError, TypeError, ValueError)


def as_compiled(error: InterpreterError) -> InterpreterError:
    """Return the error of a launch; if the language refused an argument, or `static_assert` failed, it is one of the compiler's as well."""
    found = raised_in_kernel(error)
    if not isinstance(found, _REFUSES) or isinstance(error, CompilationError):
        return error
    file, function = _innermost(found.__traceback__)
    if function == "_new_static_assert":
        return _both(CompileTimeAssertionFailure)(error.error_message)
    return _both(CompilationError)(error.error_message) if _LANGUAGE in Path(file).parents else error


def _innermost(trace: TracebackType | None) -> tuple[str, str]:
    """Return the file and the function in which an error was raised."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return (trace.tb_frame.f_code.co_filename, trace.tb_frame.f_code.co_name) if trace is not None else ("", "")


@functools.cache
def _both(compilers: type[CompilationError]) -> type[InterpreterError]:
    def start(self: InterpreterError, message: str | None = None) -> None:
        self.error_message = self.message = message  # type: ignore[attr-defined]
        self.src = self.node = None  # type: ignore[attr-defined]

    return type("InterpreterError", (InterpreterError, compilers), {"__init__": start, "__reduce__": lambda self: (as_plain, (str(self),))})


def as_plain(message: str) -> InterpreterError:
    """Return an error as another process gets it."""
    return InterpreterError(message)
