"""What a launch gives to a kernel, its arguments and the memory behind them; and what it does with undefined lanes."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import gc
import traceback
import zlib
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Union

import torch
from triton.runtime.cache import get_cache_manager

from warpwave.inside.codegen.passes import FRONT_END, After, changes, first_other, one_by_one, snapshot
from warpwave.inside.codegen.undefined import Followed, follow, leaves_lanes_open
from warpwave.inside.fake_gpu.driver import SOME_NUMBER
from warpwave.inside.fake_gpu.orders import Buffer
from warpwave.inside.fake_gpu.unknown import UnknownInt
from warpwave.inside.process.outcomes import describe
from warpwave.records import CODE, PASSES

Given = Iterator[tuple[str, Any]]


def flatten(signature: Iterable[Any], values: Iterable[Any], descriptor: Union[Callable[[str, Any], Given], None] = None) -> Given:
    """Yield type and value of each argument that the kernel has at run time, in the kernel's order.

    `signature` holds Triton's names of types: `*fp32`, `i32`, `constexpr`, `tensordesc<fp16[64, 64]>`, or a tuple of such.
    `descriptor` yields what stands for a tensor descriptor; by default, as on a card without hardware for it.
    """
    for kind, value in zip(signature, values, strict=True):
        if isinstance(kind, tuple):
            yield from flatten(kind, value, descriptor)
        elif kind.startswith("tensordesc"):
            yield from (descriptor or _descriptor)(kind, value)
        elif kind != "constexpr":
            yield kind, value


def _descriptor(kind: str, value: Any) -> Given:
    """Yield what stands for a tensor descriptor on a card: base, shape, strides, flags; shape and strides again."""
    yield "*", value.base
    yield from (("i64", size) for size in (*value.shape, *value.strides))
    yield "i1", value.padding == "nan"
    if any(field.name == "round_f32_to_tf32" for field in dataclasses.fields(value)):  # since Triton 3.7
        yield "i1", value.round_f32_to_tf32
    yield from (("i32", size) for size in value.shape)
    yield from (("i64", stride) for stride in value.strides)


def address(value: Any) -> int:
    """Return the address that a pointer argument holds."""
    if value is None:
        return 0
    return int(value.data_ptr() if hasattr(value, "data_ptr") else value)


# Which memory a launch may touch: the storage of each tensor that it was given, and of those whose addresses it was given.

# A table of addresses has an entry for each tensor of a list: it is short.
_LONGEST_TABLE = 1 << 16
# Programs are mapped from 4 MiB on, their heap above them; user space ends at 128 TiB. What the JIT passes in 32 bits is no address.
_LOWEST, _HIGHEST = 1 << 22, 1 << 47
_WIDE = ("i64", "u64")


def buffers(values: Iterable[tuple[str, Any]]) -> list[Buffer]:
    """Return address and size in bytes of all memory that a kernel with these arguments may touch, without repeats.

    `values` are types and values, as `flatten` yields them. A tensor stands for its whole storage, because a view may be made to look
    beyond itself. A 64-bit number, and a tensor of such, may hold addresses: if one is in the storage of a living tensor, the kernel may
    touch that, too.
    """
    given = [("", kind, value) for kind, value in values]
    own = [tensor for _, _, value in given if (tensor := _tensor_of(value)) is not None]
    found = dict.fromkeys(map(_storage, [*own, *(tensor for _, tensor in behind(given))]))
    return [buffer for buffer in found if buffer[1]]


def behind(given: Iterable[tuple[str, str, Any]]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the living tensors that a launch has only the addresses of, as `*table[3]` or `*number`.

    `given` are name, type and value of each argument.
    """
    own, suspects = dict[Buffer, None](), dict[int, str]()
    for name, kind, value in given:
        tensor = _tensor_of(value)
        if tensor is not None:
            own[_storage(tensor)] = None
            if tensor.dtype in (torch.int64, torch.uint64) and tensor.numel() <= _LONGEST_TABLE:
                suspects |= {number: f"*{name}[{at}]" for at, number in enumerate(tensor.detach().flatten().tolist())}
        elif hasattr(value, "data_ptr"):
            suspects[int(value.data_ptr())] = name
        elif isinstance(value, int) and (kind in _WIDE or kind.startswith("*")):
            suspects[value] = name if kind.startswith("*") else f"*{name}"
    suspects = {number: name for number, name in suspects.items() if _LOWEST <= number < _HIGHEST and not _within(number, own)}
    for tensor in _living(suspects) if suspects else ():
        yield next(name for number, name in suspects.items() if _within(number, [_storage(tensor)])), tensor


def _tensor_of(value: Any) -> Union[torch.Tensor, None]:
    """Return the tensor that an argument is or stands for: Triton takes anything with `data_ptr`, such as a package's own view."""
    if isinstance(value, torch.Tensor):
        return value
    held = vars(value).values() if hasattr(value, "__dict__") else ()
    tensors = [each for each in (getattr(value, "base", None), *held) if isinstance(each, torch.Tensor)]
    usual = tensors[0] if tensors and hasattr(value, "base") else None
    if not hasattr(value, "data_ptr"):
        return usual
    return next((each for each in tensors if _within(int(value.data_ptr()), [_storage(each)])), usual)


def _storage(tensor: torch.Tensor) -> Buffer:
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.nbytes()


def _within(number: int, found: Iterable[Buffer]) -> bool:
    return any(start <= number < start + size for start, size in found)


def _living(addresses: Collection[int]) -> list[torch.Tensor]:
    """Return living tensors that these addresses are in, one of a storage. torch keeps no list of its tensors; Python's collector does."""
    tensors = [entry for entry in gc.get_objects() if issubclass(type(entry), torch.Tensor)]
    known = dict[Buffer, torch.Tensor]()
    for tensor in tensors:
        with suppress(RuntimeError, NotImplementedError):  # of a tensor without memory, such as one that torch's compiler traces with
            # The tensor's own device is "cpu" also where its storage has no memory. Its size may be a formula then, which has no hash.
            is_here = tensor.device.type == "cpu" and tensor.untyped_storage().device.type == "cpu"
            if is_here and (_storage(tensor) not in known or tensor.data_ptr() in addresses):
                known[_storage(tensor)] = tensor
    ordered = sorted(known)
    starts = [start for start, _ in ordered]
    nearest = {ordered[place - 1] for number in addresses if (place := bisect_right(starts, number))}
    return [known[each] for each in nearest if any(_within(number, [each]) for number in addresses)]


# Undefined lanes: `codegen/undefined.py` follows a launch, once for all launches that are alike.

_MOST_KEPT, _MOST_READ = 4096, 1 << 20
_kept: dict[Any, Followed] = {}


@functools.lru_cache(maxsize=256)
def first_code_of(name: str, binary: str) -> str:
    """Return the first code of a compiled kernel from Triton's cache: TTIR, of a Gluon kernel its source; empty if it has none."""
    files = map(get_cache_manager(binary).get_file, (f"{name[:150]}.ttir", f"{name[:150]}.source"))
    file = next(filter(None, files), None)
    return Path(file).read_text(encoding="utf-8") if file else ""


def lanes_of(ttir: str, signature: Mapping[str, Any], values: Sequence[Any], grid: Sequence[Any], has_data: bool = True) -> Followed:
    """Return what a launch does with undefined lanes. Launches of one kernel with the same numbers, also in tensors of them, are alike.

    `signature` and `values` are those of all parameters, constants too. Without data, no memory is read.
    """
    try:
        return _followed(ttir, signature, values, grid, has_data) if leaves_lanes_open(ttir) else Followed()
    except Exception as error:  # our reading failed; the author's kernel may be right
        traceback.print_exc()
        return Followed(why=f"a launch could not be followed: {describe(error)}")


def _followed(ttir: str, signature: Mapping[str, Any], values: Sequence[Any], grid: Sequence[Any], has_data: bool) -> Followed:
    given = [*flatten(signature.values(), values, _in_first_code if "!tt.tensordesc" in ttir else None)]
    numbers, unknown = list[Any](), set[int]()
    for at, (kind, value) in enumerate(given):
        is_known = not isinstance(value, UnknownInt) and (has_data or kind.startswith("*") or value != SOME_NUMBER)
        unknown |= set() if is_known else {at}
        numbers.append((address(value) if has_data else 0) if kind.startswith("*") else value if is_known else 1)
    memory = buffers(given) if has_data else []
    integers = [number for number, (kind, _) in zip(numbers, given, strict=True) if kind.startswith(("*i", "*u"))]
    may_matter = [each for each in memory if each[1] <= _MOST_READ and any(each[0] <= number < sum(each) for number in integers)]
    read = tuple(_digest(*each) for each in may_matter)
    plain = tuple(str(number) for number, (kind, _) in zip(numbers, given, strict=True) if not kind.startswith("*"))
    key = ttir, plain, tuple(grid), read
    if key not in _kept:
        if len(_kept) >= _MOST_KEPT:
            _kept.clear()
        sizes = [1 if isinstance(size, UnknownInt) else int(size) for size in (*grid, 1, 1)[:3]]
        _kept[key] = follow(ttir, numbers, sizes, memory, unknown)
    return _kept[key]


def _in_first_code(kind: str, value: Any) -> Given:
    """Yield a descriptor as it is, and its sizes and strides behind it."""
    yield kind, [*value.shape]
    yield from (("i32", size) for size in value.shape)
    yield from (("i64", stride) for stride in value.strides)


def _digest(start: int, size: int) -> int:
    return zlib.crc32((ctypes.c_char * size).from_address(start))


# The first pass of the compiler after which a launch computes something else: `codegen/passes.py` executes the code behind each.

_MOST_BYTES = 1 << 26  # of the tensors of a launch
_DTYPES = {"*fp16": "f2", "*bf16": "bf16", "*fp32": "f4", "*fp64": "f8", "*i16": "i2", "*i32": "i4", "*i64": "i8"}


class Passes:
    """Keeps what each compilation made, executes the first launch of each kernel in a test again, and says what it found."""

    def __init__(self) -> None:
        import triton.compiler

        self.found: dict[str, str] = {}  # properties of the test
        self._codes: dict[str, list[After]] = {}
        compile_kernel = triton.compiler.compile

        def compiling(*args: Any, **options: Any) -> Any:
            codes: list[After] = []
            with one_by_one(codes.append):
                compiled = compile_kernel(*args, **options)
            self._codes[compiled.hash] = codes
            return compiled

        triton.compiler.compile = compiling

    def before(self, name: str, binary: str, values: Sequence[tuple[str, Any]], grid: Sequence[int]) -> Union[Callable[[], None], None]:
        """Return what to call after a launch. None if the kernel was launched before, or its compilation was not seen."""
        memory = buffers(values)
        codes = self._codes.get(binary)
        if not codes or f"{PASSES}{name}" in self.found:
            return None
        self.found[f"{CODE}{name}"] = changes(codes)
        if sum(size for _, size in memory) > _MOST_BYTES or codes[0].name != FRONT_END:
            self.found[f"{PASSES}{name}"] = "not executed: it has no first code, or its tensors are too large"
            return None
        kept = snapshot(memory)
        numbers = [address(value) if kind.startswith("*") else value for kind, value in values]
        kinds = [(_storage(tensor), _DTYPES.get(kind, "u1")) for kind, value in values if (tensor := _tensor_of(value)) is not None]

        def after() -> None:
            told = first_other(codes, numbers, grid, kept, snapshot(memory), dict(kinds))
            self.found[f"{PASSES}{name}"] = told

        return after
