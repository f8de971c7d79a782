"""A pretended card in Triton's interpreter: tensors live on the CPU, and kernels run there."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import hashlib
import importlib
import inspect
import operator
import pkgutil
import sys
import textwrap
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import triton
import triton.language as tl
import triton.language.extra as extra
from triton._C import libtriton
from triton._C.libtriton import ir
from triton.backends import backends
from triton.backends.compiler import BaseBackend, GPUTarget
from triton.compiler.compiler import make_backend
from triton.compiler.errors import CompilationError, CompileTimeAssertionFailure
from triton.runtime.errors import InterpreterError, OutOfResources
from triton.runtime.interpreter import InterpreterOptions, interpreter_builder, interpreter_semantic
from triton.runtime.jit import JITFunction

from warpwave.inside.codegen.recorder import announced
from warpwave.inside.fake_gpu.host_side import may_have_chosen_the_host, refused, tensors_in
from warpwave.inside.fake_gpu.language import note_types, number, typed
from warpwave.inside.fake_gpu.launches import Launched, check_descriptors, check_grid
from warpwave.inside.fake_gpu.programs import Programs
from warpwave.inside.fake_gpu.redirect import Redirect
from warpwave.inside.fake_gpu.streams import Graph
from warpwave.inside.fake_gpu.torch_device import apply
from warpwave.inside.process.journal import Journal
from warpwave.inside.process.outcomes import NotPretended, as_on_a_card, raised_in_kernel
from warpwave.records import Architecture

# Let Triton compile in a process whose kernels run in its interpreter: for `kernel.asm`, and for what is made for a card alone.
#
# The interpreter replaces the functions of `triton.language`, and does not put all of them back: what a call from a kernel replaces stays.
# So do warpwave's own additions. The compiler gets the language without either.

_REPLACED = (tl, tl.core, tl.math, tl.core.dtype, tl.core.tensor, tl.core.tensor_descriptor_base)


def compiling(additions: Iterable[tuple[Any, str]], compile_kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return what compiles a kernel with Triton's own language; `additions` are the attributes that warpwave is about to replace."""
    ours = {(id(owner), name) for owner, name in additions}
    # The modules and classes of `triton.language`.
    of_language = [
        owner for owner, _ in additions if str(getattr(owner, "__module__", None) or owner.__name__).startswith("triton.language")
    ]
    own = [(owner, dict(vars(owner))) for owner in {id(owner): owner for owner in (*_REPLACED, *of_language)}.values()]

    def run(*args: Any, **kwargs: Any) -> Any:
        with contextlib.ExitStack() as undo:
            for owner, members in own:
                for name, value in list(vars(owner).items()):
                    function = value.fget if isinstance(value, property) else value
                    is_the_interpreters = function is print or getattr(function, "__module__", "") == "triton.runtime.interpreter"
                    # A package may put something there, too.
                    if value is not members.get(name) and ((id(owner), name) in ours or is_the_interpreters):
                        setattr(owner, name, members[name]) if name in members else delattr(owner, name)
                        undo.callback(setattr, owner, name, value)
            return compile_kernel(*args, **kwargs)

    return run


# What kernels ask of the card itself (`tl.extra.cuda.smid()`, `gdc_wait()`), and what its compiler refuses, in Triton's interpreter.

WARPS = 4  # what a launch has if it does not say


def of_hardware(processors: int) -> dict[str, Callable[[], Any]]:
    """Return answers: programs run one after another, each on one of the `processors`; one launch ends before the next begins."""

    def smid() -> Any:
        return number(int(np.dot(interpreter_builder.grid_idx, (1, 7, 31))) % processors, np.int32, tl.int32)

    answers: dict[str, Callable[[], Any]] = {"smid": smid}
    answers |= dict.fromkeys(("globaltimer", "memrealtime"), lambda: number(time.perf_counter_ns(), np.int64, tl.int64))
    return answers | dict.fromkeys(("gdc_wait", "gdc_launch_dependents"), lambda: None)


def of_compiler(card: Architecture) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return what Triton's language asks of a card's compiler: functions, and options; nothing if this Triton does not compile for it."""
    with contextlib.suppress(RuntimeError):
        backend = make_backend(GPUTarget(card.backend, card.arch, card.warp_size))
        options = backend.parse_options({})
        return backend.get_codegen_implementation(options), vars(options)
    return {}, {}


def vendors_modules() -> Iterator[ModuleType]:
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


def within_the_interpreter(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function of the language with the interpreter's semantics."""
    return function(*args, **{**kwargs, "_semantic": interpreter_semantic})


# Tensors on the host: a card's launcher refuses them, and Triton's interpreter takes them.


def refuse_host_tensors(executor: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise what Triton's launchers raise on a card for a tensor of the host, unless the package has chosen the host for all of them."""
    given = {**dict(zip(executor.arg_names, args, strict=False)), **kwargs}
    named = ((name, None if name in executor.constexprs else given.get(name)) for name in executor.arg_names)
    if error := refused(named):
        graph, card = cast(Any, torch._C), Redirect.current
        in_backward = graph._current_graph_task_id() != -1  # there, it is not known of tensors that autograd made
        some_on_card = not in_backward and card is not None and any(map(card.is_on_card, tensors_in(list(given.values()))))
        if some_on_card or not may_have_chosen_the_host(executor.fn.__code__.co_filename):
            raise error


# Lets an interpreted kernel look like a compiled one to host code, which asks what it is and reads its parameters and its source.

_COMPILED, _FIRST = "_compiled", "_first_code"
_OF_FUNCTION = ("__globals__", "__qualname__", "__module__", "__doc__")  # what a compiled kernel takes over from its function


def own_attribute(self: Any, name: str) -> Any:
    """Return an attribute of its own: of the function, where a compiled kernel has the function's."""
    if name == "__class__":  # what `isinstance` asks for beside the type itself
        return JITFunction
    if name in _OF_FUNCTION and "fn" in (own := object.__getattribute__(self, "__dict__")):
        return getattr(own["fn"], name)
    return object.__getattribute__(self, name)


def attribute_of_compiled(self: Any, name: str) -> Any:
    """Return an attribute of the kernel that Triton would compile: its `params`, `src`, `cache_key` or `signature`.

    Names of Python's own, such as `__wrapped__`, are not looked for: who asks for one wants to know what the object is.
    """
    if (name.startswith("__") and name.endswith("__")) or "fn" not in vars(self):
        raise AttributeError(f"'InterpretedFunction' object has no attribute '{name}'", name=name, obj=self)
    return getattr(compiled(self), name)


def compiled(kernel: Any) -> Any:
    """Return the kernel that Triton would compile."""
    if _COMPILED not in vars(kernel):
        vars(kernel)[_COMPILED] = JITFunction(kernel.fn, **kernel.kwargs)
    return vars(kernel)[_COMPILED]


class FirstCode(NamedTuple):
    """The first code (TTIR) that Triton would make for a launch, with the types of all parameters; empty if it makes none."""

    text: str = ""
    signature: Mapping[str, Any] = {}


def first_code(kernel: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> FirstCode:
    """Return the first code of a launch; an empty one if nothing leaves lanes undefined. Raise what the compiler raises: it takes less."""
    given = (*args, *kwargs.values())
    if not any(_leaves_lanes_open(each.fn) for each in _reached([kernel, *given])):
        return FirstCode()
    if _FIRST not in vars(kernel):
        vars(kernel)[_FIRST] = _FirstCode(kernel.fn, **kernel.kwargs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return vars(kernel)[_FIRST].run(*args, **{**kwargs, "grid": (1,), "warmup": True}) or FirstCode()


def _reached(found: list[Any]) -> Iterator[Any]:
    """Yield the kernels among some objects, and all that they may call."""
    waiting, seen = [each for each in found if _is_kernel(each)], set[int]()
    while waiting:
        kernel = waiting.pop()
        if id(kernel.fn) not in seen:
            seen.add(id(kernel.fn))
            yield kernel
            waiting += [each for _, each in _named_in(kernel.fn) if _is_kernel(each)]


def _is_kernel(value: Any) -> bool:
    return isinstance(value, JITFunction) and not str(getattr(value.fn, "__module__", "")).startswith("triton.")


def _named_in(function: Any) -> Iterator[tuple[str, Any]]:
    """Yield the objects that a function's code names, in its modules and classes, too, with these names."""
    names = {*function.__code__.co_names, *function.__code__.co_freevars}
    places = [{**function.__globals__, **inspect.getclosurevars(function).nonlocals}]
    seen = set[int]()
    for members in places:
        for name in names & members.keys():
            value = members[name]
            yield name, value
            if isinstance(value, (ModuleType, type)) and id(value) not in seen:
                seen.add(id(value))
                places.append({**vars(value)})


def _own_name(value: Any) -> str:
    """Return what Triton calls one of its own functions; empty if it is not one."""
    is_own = callable(value) and str(getattr(value, "__module__", "")).startswith("triton.")
    return str(getattr(value, "__name__", "")) if is_own else ""


@functools.cache
def _leaves_lanes_open(function: Any) -> bool:
    """Return whether a function has a masked load without `other`, a masked atomic whose result it uses, or what may be one of these."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError, TypeError):
        return True
    aliases = {name: own for name, value in _named_in(function) if (own := _own_name(value)) == "load" or own.startswith("atomic_")}
    unused = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
    called = {id(each.func) for each in ast.walk(tree) if isinstance(each, ast.Call)}
    for found in ast.walk(tree):
        if isinstance(found, (ast.Name, ast.Attribute)) and isinstance(found.ctx, ast.Load) and id(found) not in called:
            if getattr(found, "attr", getattr(found, "id", "")) in aliases:  # it goes to a helper, which calls it
                return True
            continue
        if not isinstance(found, ast.Call):
            continue
        name = getattr(found.func, "attr", getattr(found.func, "id", ""))
        name = aliases.get(name, name)
        if not (name == "load" or (name.startswith("atomic_") and id(found) not in unused)):
            continue
        names, before = {keyword.arg for keyword in found.keywords}, 1 if name == "load" else 2
        is_any = None in names or any(isinstance(each, ast.Starred) for each in found.args)
        is_masked = len(found.args) > before or names & {"mask", "boundary_check"}
        is_padded = name == "load" and (len(found.args) >= 3 or names & {"other", "padding_option"})
        if is_any or (is_masked and not is_padded):
            return True
    return False


class _FirstCode(JITFunction):  # type: ignore[misc]
    """A kernel as Triton compiles it, up to its first code."""

    def create_binder(self) -> Any:
        """Compile no further."""
        made = super().create_binder()

        def compiled(src: Any, **rest: Any) -> FirstCode:
            with announced(src, Journal.from_environment()):
                return FirstCode(make_first_code(src, **rest), src.signature)

        self.compile = compiled
        return made


def make_first_code(src: Any, target: Any, options: dict[str, Any], **rest: object) -> str:
    """Do what `triton.compile` does first."""
    backend = make_backend(target)
    chosen, stages = backend.parse_options({**options, **src.parse_options()}), dict[str, Callable[..., Any]]()
    backend.add_stages(stages, chosen, src.language)
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    module = src.make_ir(target, chosen, backend.get_codegen_implementation(chosen), backend.get_module_map(), context)
    return str(stages["ttir"](module, {}))


def rename_too(self: Any, name: str, value: Any) -> None:
    """Set an attribute. A compiled kernel has a name of its own; here it is the function's."""
    object.__setattr__(*((self.fn, name, value) if name == "__name__" else (self, name, value)))


def with_source(self: Any, source: str) -> None:
    """Replace a kernel's source, as packages do that generate variants."""
    rewriter = self.rewriter

    def rewrite() -> Any:
        code = self.fn.__code__
        rewriter.filename, rewriter.def_file_lineno = code.co_filename, code.co_firstlineno
        tree = rewriter._transform_ast(textwrap.dedent(source))
        tree.body[0].name = self.fn.__name__  # the package may have renamed it
        return rewriter._compile_and_exec(tree)

    rewriter.rewrite_ast = rewrite
    self.rewritten_fn.pop(self.fn, None)
    attribute_of_compiled(self, "_unsafe_update_src")(source)


# Launches.


def warmup(self: Any, *args: Any, grid: Any, **kwargs: Any) -> Any:
    """Return an object with the attributes that occupancy code asks for, which launches through the interpreter."""
    return _InterpretedKernel(self, args, kwargs)


def not_interpreted(run: Callable[..., Any], self: Any, *args: Any, warmup: bool = False, **kwargs: Any) -> Any:
    """Refuse what Triton compiles even here: nothing would run, and a test that only launches it would pass."""
    if warmup:
        return run(self, *args, warmup=warmup, **kwargs)
    what = "a Gluon kernel" if self.is_gluon() else "made for a card alone"
    raise NotPretended(f"{self.fn.__name__} is {what}, which Triton's interpreter cannot run; an emulated target can")


def with_handle(run: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    """Launch, and return the compiled kernel as on a card. What the language refuses is the compiler's error there."""
    note_types(self)
    if unknown := [name for name in kwargs if name not in self.arg_names and name not in _options()]:
        raise as_on_a_card(KeyError(f"Keyword argument {unknown[0]} was specified but unrecognised"))  # the interpreter drops it
    try:
        run(self, *args, **kwargs)
    except InterpreterError as error:
        raise as_compiled(error) from error.__cause__
    return _InterpretedKernel(self, args, kwargs)


@functools.cache
def _options() -> frozenset[str]:
    """Return what a launch may name beside the kernel's own arguments: the options of every vendor's compiler. Another vendor's is refused
    where it is compiled."""
    compilers = [sys.modules[each.compiler.__module__] for each in backends.values()]
    kinds = [each for module in compilers for each in vars(module).values() if isinstance(each, type) and dataclasses.is_dataclass(each)]
    return frozenset({"grid", "warmup", "pre_run_hooks", *(field.name for kind in kinds for field in dataclasses.fields(kind))})


def called(call: Callable[..., Any], function: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a function from a kernel. The host may not: a kernel wants a grid, and any other function is a part of kernels."""
    if Programs.running is None:
        raise as_on_a_card(RuntimeError("Cannot call @triton.jit'd outside of the scope of a kernel"))
    return call(function, *args, **kwargs)


_OF_COMPILED = ("asm", "kernel", "name", "src")


class _InterpretedKernel:
    """A kernel in the interpreter: it can be launched, and has a compiled kernel's public attributes."""

    n_regs, n_spills = 32, 0

    def __init__(self, function: Any, args: Any, options: dict[str, Any]) -> None:
        self.function, self.args, self.options = function, args, options
        self.metadata = SimpleNamespace(shared=1024, num_warps=options.get("num_warps", WARPS), num_stages=options.get("num_stages", 1))

    @property
    def hash(self) -> str:
        """What a compiled kernel is found by: another source or other options have another."""
        return hashlib.sha256(f"{self.function.cache_key} {self.options}".encode()).hexdigest()

    @functools.cached_property
    def compiled(self) -> Any:
        """What Triton compiles for the pretended card. It compiles when it is asked."""
        options = {name: value for name, value in self.options.items() if name not in ("grid", "warmup")}
        with torch._C.DisableTorchFunction():  # Triton asks for addresses, and nothing writes there
            return compiled(self.function).warmup(*self.args, grid=(1,), **options)

    def __getattr__(self, name: str) -> Any:
        if name not in _OF_COMPILED:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'", name=name, obj=self)
        return getattr(self.compiled, name)

    def _init_handles(self) -> None:
        """There is no binary to load."""

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return self.function[grid]  # type: ignore[no-any-return]


def launched(launch: Callable[..., Any], card: Architecture) -> Callable[..., Any]:
    """Let a graph that is being captured remember a launch, and none of the calls of torch within it.

    The interpreter has one current program, so threads launch one after another. NumPy warns where numbers overflow, and a package may
    make errors of warnings; a card does not warn.
    """
    one_at_a_time = threading.RLock()

    def interpret(executor: Any, *args: Any, **kwargs: Any) -> Any:
        with one_at_a_time, np.errstate(all="ignore"), torch._C.DisableTorchFunction(), contextlib.ExitStack() as undo:
            # What a kernel gets that asks how it was launched (`tl.extra.cuda.num_warps()`).
            apply([(InterpreterOptions, "num_warps", kwargs.get("num_warps", WARPS))], undo)
            return launch(executor, *args, **kwargs)

    def run(executor: Any, *args: Any, **kwargs: Any) -> Any:
        Launched.functions[getattr(executor.fn, "__name__", "kernel")] = None
        refuse_host_tensors(executor, args, kwargs)
        _refuse_arguments(executor, args, kwargs)
        executor.grid = _as_on_a_card(executor, card, args, kwargs)
        args, kwargs = typed(executor, args, kwargs)
        return Graph.run(interpret, (executor, *args), kwargs)

    return run


def but_pointers(bring: Callable[..., Any], self: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Bring a launch's tensors to the host, as the interpreter does. What only has an address points there already."""
    args_host, kwargs_host = bring(self, *_without_pointers(args, kwargs))
    kept = [given if _is_pointer(given) else found for given, found in zip(args, args_host, strict=True)]
    return kept, {name: value if _is_pointer(value) else kwargs_host[name] for name, value in kwargs.items()}


def back_but_pointers(
    restore: Callable[..., Any], self: Any, args: Any, args_host: Any, kwargs: dict[str, Any], kwargs_host: dict[str, Any]
) -> Any:
    """Bring them back, as above."""
    args, kwargs = _without_pointers(args, kwargs)
    return restore(self, args, args_host, kwargs, kwargs_host)


def _without_pointers(args: Any, kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    named = {name: None if _is_pointer(value) else value for name, value in kwargs.items()}
    return [None if _is_pointer(value) else value for value in args], named


def _is_pointer(value: Any) -> bool:
    """Whether an argument is an object of the package with an address, as launchers take it: no tensor, and none that wraps one."""
    return hasattr(value, "data_ptr") and not isinstance(value, torch.Tensor) and not hasattr(value, "base")


def _refuse_arguments(executor: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise what Triton raises at a launch for an argument of a type that it does not know, and for a constant that has no hash."""
    specialize = getattr(libtriton, "native_specialize_impl", None)
    given = {**dict(zip(executor.arg_names, args, strict=False)), **kwargs}
    for name in given.keys() & set(executor.arg_names):
        value = given[name]
        try:
            if name in executor.constexprs:
                hash(value)
            elif specialize and type(value).__module__.partition(".")[0] not in ("torch", "triton") and not hasattr(value, "data_ptr"):
                specialize(BaseBackend, value, False, True, True)
        except (TypeError, OverflowError) as error:
            raise as_on_a_card(error) from None


def _as_on_a_card(executor: Any, card: Architecture, args: Any, kwargs: dict[str, Any]) -> tuple[int, ...]:
    """Return a launch's grid as Triton's own launchers read it: a tuple of integers, also of a list. They read three and no more.

    A function of the grid gets what the host passed. The interpreter gives it tensors of the language instead, which compute otherwise.
    Raise what Triton does for a number of warps that is no power of two, `OutOfResources` for too many threads, and `LaunchRefusedError`
    for what the card's driver refuses.
    """
    grid, names = executor.grid, executor.arg_names
    if callable(grid):
        grid = grid(inspect.getcallargs(executor.fn, *args, **{name: value for name, value in kwargs.items() if name in names}))
    sizes = tuple(map(operator.index, grid))[:3]
    if not sizes:
        raise as_on_a_card(IndexError("tuple index out of range"))
    options = {"num_warps": WARPS, **{name: value for name, value in kwargs.items() if name not in names and value is not None}}
    if options["num_warps"] < 1 or options["num_warps"] & (options["num_warps"] - 1):
        raise AssertionError("num_warps must be a power of 2")
    if (threads := options["num_warps"] * card.warp_size) > card.program_threads:
        raise OutOfResources(threads, card.program_threads, "threads")
    check_descriptors(card, executor.fn.__name__, (*args, *kwargs.values()))
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
    *_, (frame, _) = traceback.walk_tb(found.__traceback__)
    if frame.f_code.co_name == "_new_static_assert":
        return _both(CompileTimeAssertionFailure)(error.error_message)
    return _both(CompilationError)(error.error_message) if _LANGUAGE in Path(frame.f_code.co_filename).parents else error


@functools.cache
def _both(compilers: type[CompilationError]) -> type[InterpreterError]:
    def start(self: InterpreterError, message: str | None = None) -> None:
        self.error_message = self.message = message  # type: ignore[attr-defined]
        self.src = self.node = None  # type: ignore[attr-defined]

    # Another process gets a plain one.
    plain = {"__init__": start, "__reduce__": lambda self: (InterpreterError, (str(self),))}
    return type("InterpreterError", (InterpreterError, compilers), plain)
