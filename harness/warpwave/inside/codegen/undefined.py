"""Execute a launch's first code (TTIR) with marks on the lanes that a masked load left undefined, to where they decide something.

`tl.load(p, mask=m)` without `other` gives any value where `m` is false. That is harmless if nothing stored, and no address, depends on
such a lane. So each value has its numbers, as this launch computes them, and for each such load the lanes that depend on it. Elementwise
operations pass marks on lane by lane, a choice takes those of what it chose, a reduction or a product spreads them. Marked lanes that a
store writes, or that an access uses as an address, are reported.

An undefined lane may still be harmless as an address: `tl.minimum`, a remainder or a mask made of it keeps each access inside. So the
numbers are computed several times, each with others in these lanes, and an address is reported if one of them leads out of the tensors.

Numbers come from the launch's arguments and its tensors. What is not known (a tensor without data, memory that the launch itself has
written, an operation without a rule) is guessed; what is found because of a guess is only `possible`.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import linecache
import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias, Union

import numpy as np
from numpy.typing import NDArray

from warpwave.inside.codegen.ttir import PASSED, TENSOR, VALUE, Block, Module, Operation
from warpwave.inside.process.outcomes import statement
from warpwave.records import Defect, Finding

# A load with a mask and nothing else; an atomic with a mask, whose result may be used.
_OPEN_LOAD = re.compile(r"tt\.load %[\w$.-]+(?:#\d+)?, %[\w$.-]+(?:#\d+)?(?![\w$.#,-])")
_ATOMIC = re.compile(r"(%[\w$.-]+) = tt\.atomic_rmw [^:]*?, (%[\w$.-]+) : ")
_MOST_PROGRAMS = 64
# An operation costs 1, and 1 more for each 4096 lanes. A program that costs more is given up; after so much, no further one is begun.
_MOST_OF_PROGRAM, _ENOUGH = 100_000, 10_000
_MOST_GUESSED = 32  # rounds of a loop whose condition is not known: a lock that is waited for is never free in memory that stays as it is
_TRIES = 8  # of other numbers in undefined lanes
_NEAR = 1 << 20  # Without memory, addresses that stay so close to each other, in bytes, are those of one tensor


class Undefined(NamedTuple):
    """A load (or `access`) whose undefined lanes reach something: `what`, at `use` (`file.py:12`). `file` and `line` are the load's."""

    function: str
    file: str
    line: int
    what: str
    use: str
    access: str = "load"

    @property
    def place(self) -> str:
        """The load's `file.py:12`."""
        return f"{self.file.rpartition('/')[2]}:{self.line}"

    @property
    def reaches(self) -> str:
        """What reaches what, without the place of the load."""
        return f"lanes that the mask of this {self.access} switches off reach {self.what} at {self.use}"

    @property
    def sentence(self) -> str:
        """What reaches what."""
        return f"{self.place}: {self.reaches}"

    @property
    def finding(self) -> Finding:
        """The row of a test that launches the kernel, without the test."""
        nowhere = {"tensor": "", "shape": (), "index": 0, "indices": (), "lane": 0, "lanes": 1, "block": (), "program": ()}
        where = {"function": self.function, "file": self.file, "line": self.line, "text": statement(self.file, self.line)}
        return Finding(case="", kernel="", defect=Defect.UNDEFINED, access=self.access, other=self.reaches, **nowhere, **where)  # type: ignore[arg-type]


class Followed(NamedTuple):
    """What a launch does with undefined lanes: those `found`, those `possible` (by a guess), and why it was not followed to its end."""

    function: str = ""
    found: tuple[Undefined, ...] = ()
    possible: tuple[Undefined, ...] = ()
    why: str = ""

    @property
    def not_checked(self) -> str:
        """What could not be told of this launch, and why; empty if all could."""
        return "; ".join(filter(None, (self.unsure, self.why)))

    @property
    def unsure(self) -> str:
        """What may happen in this launch; empty if nothing may."""
        return "; ".join(f"{each.sentence}, if a number that is not known here allows it" for each in self.possible)


class NotFollowedError(Exception):
    """A launch cannot be followed; the message says why."""


# Values.


class Mark(NamedTuple):
    """What made lanes undefined: a load (or atomic: `access`), and where other lanes first got into them (`mixed`).

    `known`: no guess was needed.
    """

    load: str
    mixed: str = ""
    known: bool = True
    access: str = "load"


Lanes: TypeAlias = "NDArray[np.bool_]"
Marks = Mapping[Mark, Lanes]
NOTHING: Marks = {}


class Value(NamedTuple):
    """The numbers of a value (pointers: addresses), its marked lanes, and whether the numbers are `known`, or partly guessed.

    `pairs`: each lane is what two lanes of another value are together by `xor`, along an axis. `tl.flip` and `tl.sort` are made of that.
    `tries`: the numbers, several times (first dimension), as they are with other ones in the undefined lanes; None if any may be there.
    """

    data: NDArray[Any]
    marks: Marks = NOTHING
    known: bool = True
    pairs: tuple[str, int] = ("", -1)
    tries: Union[NDArray[Any], None] = None

    def moved(self, move: Callable[[NDArray[Any]], NDArray[Any]]) -> Value:
        """Return it with its lanes elsewhere."""
        tries = None if self.tries is None else np.stack([move(each) for each in self.tries])
        return Value(move(self.data), {mark: move(lanes) for mark, lanes in self.marks.items()}, self.known, tries=tries)

    @property
    def undefined(self) -> Lanes:
        """The lanes that have a mark."""
        return np.asarray(np.logical_or.reduce([np.zeros(self.data.shape, bool), *self.marks.values()]))

    def is_surely(self, number: int) -> Lanes:
        """The lanes that have this value whatever the undefined ones are."""
        return np.asarray((self.data == number) & ~self.undefined)


def _alike(left: Value, right: Value) -> Lanes:
    """Return the lanes in which two values have the same bits, whatever the undefined lanes are."""
    same = left.data == right.data
    if left.data.dtype.kind == "f":
        same &= np.signbit(left.data) == np.signbit(right.data)
    return np.asarray(same & ~left.undefined & ~right.undefined)


def _marked(marks: Marks, where: Any) -> Marks:
    """Return the marks of the lanes `where` something holds."""
    found = {mark: lanes & where for mark, lanes in marks.items()}
    return {mark: lanes for mark, lanes in found.items() if lanes.any()}


def _united(*several: Marks) -> Marks:
    """Return the marks of several values of one shape."""
    found: dict[Mark, Lanes] = {}
    for mark, lanes in itertools.chain.from_iterable(each.items() for each in several):
        found[mark] = found[mark] | lanes if mark in found else lanes
    return found


def _tried(given: Sequence[Value], compute: Callable[[Sequence[NDArray[Any]]], Any]) -> Union[NDArray[Any], None]:
    """Return what is computed lane by lane from the tries of values; None if they are not needed, or one has none."""
    tries = [each.tries if each.marks else np.broadcast_to(each.data, (_TRIES, *each.data.shape)) for each in given]
    if any(each is None for each in tries) or not any(each.marks for each in given):
        return None
    dimensions = max(each.data.ndim for each in given)
    aligned = [each.reshape(_TRIES, *[1] * (dimensions + 1 - each.ndim), *each.shape[1:]) for each in tries if each is not None]
    return np.asarray(compute(aligned))


_BOUNDS = frozenset(("andi", "ori", "shli", "shrsi", "shrui", "minsi", "maxsi", "minui", "maxui"))


def _without_settled(value: Value, given: Sequence[Value]) -> Value:
    """Return whole numbers without the marks of lanes that have one number, whatever the undefined ones among the `given` are.

    Of what sets, clears, moves or bounds bits, the tries tell: all bits clear, all set, the least and the largest number are among them.
    """
    if value.tries is None or value.data.dtype.kind != "i":
        return value
    varied = [(each.tries != each.tries[:1]).any(0) for each in given if each.marks and each.tries is not None]
    settled = (value.tries == value.data).all(0) & np.logical_or.reduce(varied)
    return value._replace(marks=_marked(value.marks, ~settled))


def _others(dtype: np.dtype[Any], shape: tuple[int, ...], turn: int) -> NDArray[Any]:
    """Return what undefined lanes may be, `_TRIES` times; in another order each `turn`, so that those of two loads are not the same."""
    if dtype.kind == "f":
        numbers = [0, np.nan, np.inf, -np.inf, 1, -1, 1e9, 0.3]
    elif dtype.kind == "b":
        numbers = [0, 1] * (_TRIES // 2)
    else:
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        numbers = [0, -1, 1, low, high, high // 3, low // 5, 77]
    picked = np.array(numbers).astype(dtype)[(np.arange(_TRIES) * (2 * turn + 1) + turn) % _TRIES]
    return np.broadcast_to(picked.reshape(-1, *[1] * len(shape)), (_TRIES, *shape))


class Type(NamedTuple):
    """What a type's values are here: bf16 and narrower floats are float32, pointers int64. `element` is the name in the code."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    element: str


@functools.lru_cache(maxsize=4096)
def _type(kind: str) -> Type:
    found = TENSOR.search(kind)
    element = (found[2] if found else kind).strip()
    shape = tuple(int(size) for size in found[1].split("x") if size) if found else ()
    known = {"i1": "?", "f16": "f2", "f32": "f4", "f64": "f8", "index": "i8"}
    of_bits = re.fullmatch(r"i(8|16|32|64)", element)
    dtype = f"i{int(of_bits[1]) // 8}" if of_bits else known.get(element, "i8" if element.startswith("!tt.ptr") else "f4")
    return Type(shape, np.dtype(dtype), element)


def _bytes(element: str) -> int:
    """Return the size in bytes of an element in memory."""
    narrow = {"i1": 1, "bf16": 2}
    return 1 if element.startswith("f8") else narrow.get(element) or _type(element).dtype.itemsize


def pointee(kind: str) -> str:
    """Return the type of what pointers of a type point to."""
    return re.sub(r"!tt\.ptr<([^,<>]+)(?:, \d+)?>", r"\1", kind)


def element_of(kind: str) -> tuple[str, np.dtype[Any], int]:
    """Return the name of an element's type, what it is here, and its size in memory."""
    _, dtype, element = _type(kind)
    return element, dtype, _bytes(element)


# Arithmetic. Whole numbers have no sign in the code: the operation says how it reads them.


def _unsigned(data: NDArray[Any]) -> NDArray[Any]:
    return data if data.dtype.kind == "b" else data.view(f"u{data.itemsize}")


def _quotient(left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    quotient = left // right
    return np.asarray(quotient + ((left - quotient * right != 0) & ((left < 0) != (right < 0))))  # towards zero


def _without_sign(operation: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: operation(*map(_unsigned, args))


def _as_number(data: NDArray[Any]) -> NDArray[Any]:
    return -data.astype("i1") if data.dtype == bool else data


_COMPUTE: dict[str, Callable[..., Any]] = {
    "addi": np.add, "subi": np.subtract, "muli": np.multiply, "andi": np.bitwise_and, "ori": np.bitwise_or, "xori": np.bitwise_xor,
    "shli": np.left_shift, "shrsi": np.right_shift, "shrui": _without_sign(np.right_shift),
    "divsi": _quotient, "divui": _without_sign(np.floor_divide), "remsi": np.fmod, "remui": _without_sign(np.fmod),
    "minsi": np.minimum, "maxsi": np.maximum, "minui": _without_sign(np.minimum), "maxui": _without_sign(np.maximum),
    "addf": np.add, "subf": np.subtract, "mulf": np.multiply, "divf": np.divide, "negf": np.negative, "remf": np.fmod,
    "maxnumf": np.fmax, "minnumf": np.fmin, "maximumf": np.maximum, "minimumf": np.minimum,
    "absi": np.abs, "absf": np.abs, "floor": np.floor, "ceil": np.ceil, "sqrt": np.sqrt, "exp": np.exp, "exp2": np.exp2, "log": np.log,
    "log2": np.log2, "sin": np.sin, "cos": np.cos, "rsqrt": lambda data: 1 / np.sqrt(data), "precise_sqrt": np.sqrt,
    "precise_divf": np.divide, "fma": lambda one, two, three: one * two + three,
    **dict.fromkeys(("extui", "uitofp"), _without_sign(lambda data: data)), **dict.fromkeys(("extsi", "sitofp"), _as_number),
    **dict.fromkeys(("index_cast", "extf", "truncf", "fptosi", "fptoui", "fp_to_fp", "int_to_ptr", "ptr_to_int"), lambda data: data),
    "trunci": lambda data: data,
}  # fmt: skip
_COMPARE = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}


def _compared(predicate: str, left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    """Return a comparison: `slt`, `ult` of whole numbers; `olt`, `ult` (true also of NaN) of floats."""
    is_float, word = left.dtype.kind == "f", predicate[-2:]
    if predicate in ("ord", "uno") or word not in _COMPARE:
        has_nan = np.isnan(left) | np.isnan(right)
        return np.asarray(has_nan if predicate == "uno" else ~has_nan)
    if predicate[0] == "u" and not is_float and left.dtype != bool:
        left, right = _unsigned(left), _unsigned(right)
    elif left.dtype == bool:
        left, right = (left, right) if predicate[0] == "u" else (_as_number(left), _as_number(right))
    found = _COMPARE[word](left, right)
    nan = np.isnan(left) | np.isnan(right) if is_float else False
    return np.asarray(found | nan if is_float and predicate[0] == "u" else found & ~np.asarray(nan))


def _constant(text: str, dtype: np.dtype[Any]) -> Union[NDArray[Any], None]:
    """Return a constant, or the number that is in each lane of it; None if the lanes differ."""
    text = text.removeprefix("dense<").partition(">")[0].partition(" ")[0]
    if text in ("true", "false"):
        return np.asarray(text == "true")
    if text.startswith("0x"):
        bits = np.asarray(int(text, 16)).astype(f"u{max(2, dtype.itemsize) if len(text) > 4 else 1}")
        return bits.view(dtype) if bits.itemsize == dtype.itemsize and len(text) == 2 + 2 * dtype.itemsize else None
    try:
        return np.asarray(float(text) if dtype.kind == "f" else int(text)).astype(dtype)
    except ValueError:
        return None


# The launch.

_ELEMENTWISE = re.compile(
    r"arith\.|math\.|tt\.(fp_to_fp|int_to_ptr|ptr_to_int|mulhiui|clampf|precise_\w+|extern_elementwise|elementwise_inline_asm|map_elementwise)$"
)
_SILENT = ("tt.print", "tt.assert", "llvm.intr.assume")  # what is undefined in them decides nothing that is stored
_USES = {"tt.store": "tl.store", "tt.load": "tl.load", "tt.dot": "tl.dot", "tt.reduce": "a reduction", "tt.scan": "a scan"}


class Launch:
    """Executes programs of one launch. `found` has the first use of each load, and whether it is known."""

    def __init__(self, ttir: str, memory: Sequence[tuple[int, int]], grid: Sequence[int]) -> None:
        self.module, self.memory, self.grid = _module(ttir), sorted(memory), grid
        self.kernel = self.module.kernels[0]
        self.found: dict[str, tuple[bool, Undefined]] = {}
        self.written: dict[tuple[int, int], tuple[int, int]] = {}  # of each storage: from where to where
        self.cost = self.opened = 0

    def run(self, program: Sequence[int], arguments: Sequence[Value]) -> None:
        """Execute one program.

        Raises:
            NotFollowedError: an operation has no rule, or there are too many.
        """
        self.program, self.values = program, dict[str, Value]()
        self.known, self.deciding = True, list[Marks]()  # of the conditions that led here
        self.call = ""  # where the function that runs was called
        self.limit = self.cost + _MOST_OF_PROGRAM
        self.region(self.module.functions[self.kernel], arguments)

    def region(self, blocks: list[Block], arguments: Sequence[Value]) -> list[Value]:
        """Execute blocks from the first one on. Return what leaves them."""
        known, deciding = self.known, [*self.deciding]
        left = self.blocks(blocks, blocks[0].label, arguments)
        self.known, self.deciding = known, deciding
        return left

    def blocks(self, blocks: list[Block], label: str, arguments: Sequence[Value]) -> list[Value]:
        """Execute blocks from one on; both ways, where the condition of a branch is undefined."""
        while True:
            block = next(each for each in blocks if each.label == label)
            self.values.update(zip((name for name, _ in block.arguments), arguments, strict=False))
            ways: list[tuple[str, list[Value]]] = []
            for operation in block.operations:
                if operation.name in ("cf.br", "cf.cond_br"):
                    found = re.findall(r"(\^\w+)(?:\(([^)]*)\))?", operation.text)
                    ways = [(to, self.given(VALUE.findall(passed.partition(" : ")[0]))) for to, passed in found]
                    if len(ways) == 2:
                        (way,) = self.given(operation.operands[:1])
                        self.decide(way)
                        ways = ways if way.marks else [ways[0 if way.data else 1]]
                elif operation.name in ("scf.yield", "tt.return", "scf.condition") or operation.name.endswith(".return"):
                    return self.given(operation.operands)
                else:
                    self.operation(operation)
            if not ways:
                return []
            for to, passed in ways[1:]:
                self.blocks(blocks, to, passed)
            label, arguments = ways[0]

    def decide(self, way: Value) -> None:
        """Note what the rest of a region depends on."""
        self.known = self.known and way.known
        self.deciding.append(way.marks)

    def given(self, names: Iterable[str]) -> list[Value]:
        """Return values by their names."""
        return [self.values[name] for name in names if name in self.values]

    def operation(self, operation: Operation) -> None:
        """Compute the results of an operation."""
        name, given = operation.name, self.given(operation.operands)
        if self.call:
            operation = replace(operation, location=f"callsite({operation.location} at {self.call})")
        self.cost += 1 + sum(each.data.size for each in given) // 4096
        if self.cost > self.limit:
            raise NotFollowedError("takes too long to follow")
        if rule := getattr(self, name.replace(".", "_"), None):
            results = rule(operation, *given)
            results = results if isinstance(results, list) else [results]
        elif name.startswith("tt.atomic"):
            results = [self.atomic(operation, *given)]
        elif _ELEMENTWISE.match(name):
            results = self.elementwise(operation, given)
        elif name not in _SILENT and any(each.marks for each in given):
            raise NotFollowedError(f"has {name}, which is not followed")
        else:
            results = [self.guess(kind) for kind in operation.types]
        self.values.update(zip(operation.results, results, strict=False))

    def guess(self, kind: str, marks: Marks = NOTHING) -> Value:
        """Return a value of which nothing is known: ones."""
        shape, dtype, _ = _type(kind)
        return Value(np.ones(shape, dtype), marks, known=False)

    # One lane at a time.

    def elementwise(self, operation: Operation, given: Sequence[Value]) -> list[Value]:
        """Compute lane by lane; a lane is undefined if it is in an operand."""
        marks, dtype = _united(*(each.marks for each in given)), _type(operation.types[0]).dtype
        compute = _COMPUTE.get(operation.name.rpartition(".")[2])
        if compute is None or len(operation.results) > 1:
            return [self.guess(each, marks) for each in operation.types]

        def computed(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
            data = np.asarray(compute(*arrays))
            return (data & 1).astype(dtype) if dtype.kind == "b" and data.dtype.kind == "i" else data.astype(dtype)

        known = all(each.known for each in given)
        found = Value(computed([each.data for each in given]), marks, known, tries=_tried(given, computed))
        return [_without_settled(found, given) if operation.name.rpartition(".")[2] in _BOUNDS else found]

    def arith_constant(self, operation: Operation) -> Value:
        """A number, or the same one in each lane."""
        shape, dtype, _ = _type(operation.types[0] if operation.types else "i1")
        data = _constant(operation.text, dtype)
        shape = shape or _type(operation.text.rpartition(" : ")[2]).shape
        return self.guess(operation.types[0]) if data is None else Value(np.broadcast_to(data, shape))

    def _masking(self, operation: Operation, left: Value, right: Value, number: int) -> Value:
        """Of two operands, one that surely has a certain number makes the other one meaningless."""
        marks = _united(_marked(left.marks, ~right.is_surely(number)), _marked(right.marks, ~left.is_surely(number)))
        return _without_settled(self.elementwise(operation, [left, right])[0]._replace(marks=marks), [left, right])

    def arith_andi(self, operation: Operation, left: Value, right: Value) -> Value:
        """A zero with anything is zero. That is so for whole numbers only: a float may be NaN."""
        return self._masking(operation, left, right, 0)

    arith_muli = arith_andi

    def arith_ori(self, operation: Operation, left: Value, right: Value) -> Value:
        """What has all bits has them with anything."""
        return self._masking(operation, left, right, 1 if left.data.dtype == bool else -1)

    def arith_xori(self, operation: Operation, left: Value, right: Value) -> Value:
        """Of a lane and what a pair is together, it is the other lane of the pair."""
        name, axis = right.pairs
        if name == operation.operands[0]:
            return left.moved(lambda data: np.flip(data, axis))
        return self.elementwise(operation, [left, right])[0]

    def arith_select(self, operation: Operation, which: Value, left: Value, right: Value) -> Value:
        """One of two, lane by lane. Which one decides nothing where both have the same bits."""
        marks = _united(_marked(left.marks, which.data), _marked(right.marks, ~which.data), _marked(which.marks, ~_alike(left, right)))
        data = np.where(which.data, left.data, right.data)
        marks = {mark: np.broadcast_to(lanes, data.shape) for mark, lanes in marks.items()}
        tries = _tried([which, left, right], lambda arrays: np.where(*arrays))
        return Value(data, marks, which.known and left.known and right.known, tries=tries)

    def _compare(self, operation: Operation, left: Value, right: Value) -> Value:
        compared = functools.partial(_compared, operation.text.partition(",")[0].strip())
        tries = _tried([left, right], lambda arrays: compared(*arrays))
        return Value(compared(left.data, right.data), _united(left.marks, right.marks), left.known and right.known, tries=tries)

    arith_cmpi = arith_cmpf = _compare

    def tt_addptr(self, operation: Operation, pointer: Value, offset: Value) -> Value:
        """An address, so many elements further."""
        size = _bytes(_type(operation.types[0]).element.removeprefix("!tt.ptr<").removesuffix(">").partition(", ")[0])
        data = pointer.data + offset.data.astype("i8") * size
        tries = _tried([pointer, offset], lambda arrays: arrays[0] + arrays[1].astype("i8") * size)
        return Value(data, _united(pointer.marks, offset.marks), pointer.known and offset.known, tries=tries)

    def tt_bitcast(self, operation: Operation, value: Value) -> Value:
        """The same bits as another type."""
        shape, dtype, element = _type(operation.types[0])
        size = _bytes(element)
        if value.data.itemsize == size == dtype.itemsize:
            return value.moved(lambda data: np.ascontiguousarray(data).view(dtype).reshape(shape) if data.dtype != bool else data)
        return self.guess(operation.types[0], value.marks)  # of bf16 and narrower

    arith_bitcast = tt_bitcast

    # Lanes that move.

    def tt_make_range(self, operation: Operation) -> Value:
        """From `start` on."""
        return Value(np.arange(operation.number("start"), operation.number("end"), dtype="i4"))

    def tt_get_program_id(self, operation: Operation) -> Value:
        """The program's place in the grid."""
        return Value(np.asarray(self.program["xyz".index(operation.text.split()[0])], "i4"))

    def tt_get_num_programs(self, operation: Operation) -> Value:
        """The size of the grid."""
        return Value(np.asarray(self.grid["xyz".index(operation.text.split()[0])], "i4"))

    def tt_broadcast(self, operation: Operation, value: Value) -> Value:
        """Dimensions of size one become larger."""
        shape = _type(operation.types[0]).shape
        return value.moved(lambda data: np.broadcast_to(data, shape))._replace(pairs=value.pairs)

    tt_splat = tt_broadcast

    def tt_reshape(self, operation: Operation, value: Value) -> Value:
        """The same lanes in another shape; with `allow_reorder` nobody knows where each is."""
        shape = _type(operation.types[0]).shape
        if "allow_reorder" in operation.text:
            value = self.mixed(operation, value, range(value.data.ndim))
        return value.moved(lambda data: np.reshape(data, shape))

    tt_unsplat = tt_reshape

    def ttg_convert_layout(self, operation: Operation, value: Value) -> Value:
        """The same lanes in other threads."""
        return value

    gluon_set_auto_layout = ttg_convert_layout

    def tt_expand_dims(self, operation: Operation, value: Value) -> Value:
        """A dimension of size one more."""
        axis = operation.number("axis")
        found = value.moved(lambda data: np.expand_dims(data, axis))
        return found._replace(pairs=value.pairs) if value.pairs[1] == axis else found

    def tt_trans(self, operation: Operation, value: Value) -> Value:
        """Dimensions in another order."""
        order = [int(each) for each in re.findall(r"\d+", operation.text.partition("i32:")[2])]
        return value.moved(lambda data: np.transpose(data, order))

    def tt_split(self, operation: Operation, value: Value) -> list[Value]:
        """Two halves of the last dimension."""
        return [value.moved(lambda data, half=half: data[..., half]) for half in (0, 1)]  # type: ignore[misc]

    def tt_join(self, operation: Operation, *given: Value) -> Value:
        """Two values, side by side in a new last dimension."""
        return self._together(given, lambda arrays: np.stack(arrays, -1))

    def tt_cat(self, operation: Operation, *given: Value) -> Value:
        """The lanes of two values, in any order."""
        return self.mixed(operation, self._together(given, np.concatenate), [0])

    def _together(self, given: Sequence[Value], join: Callable[[Sequence[NDArray[Any]]], NDArray[Any]]) -> Value:
        keys = dict.fromkeys(mark for each in given for mark in each.marks)
        marks = {mark: join([each.marks.get(mark, np.zeros(each.data.shape, bool)) for each in given]) for mark in keys}
        tries = _tried(given, lambda arrays: np.stack([join(each) for each in zip(*arrays, strict=True)]))
        return Value(join([each.data for each in given]), marks, all(each.known for each in given), tries=tries)

    def tt_gather(self, operation: Operation, source: Value, index: Value) -> Value:
        """Lanes from where an index says."""
        axis = operation.number("axis")
        inside = np.clip(index.data, 0, source.data.shape[axis] - 1)
        found = source.moved(lambda data: np.take_along_axis(data, inside, axis))
        tries = None if index.marks else found.tries
        return found._replace(marks=_united(found.marks, index.marks), known=source.known and index.known, tries=tries)

    # Lanes that are combined.

    def mixed(self, operation: Operation, value: Value, axes: Iterable[int]) -> Value:
        """Return a value in which a lane is undefined if one along `axes` is; the marks say where other lanes got into them."""
        along, found = tuple(axes), dict[Mark, Lanes]()
        for mark, lanes in value.marks.items():
            some = lanes.any(axis=along, keepdims=True)
            is_new = not mark.mixed and (some & ~lanes).any()
            mark = mark._replace(mixed=operation.location) if is_new else mark
            found[mark] = found.get(mark, False) | np.broadcast_to(some, lanes.shape)
        return value._replace(marks=found, tries=None)

    def tt_reduce(self, operation: Operation, *given: Value) -> list[Value]:
        """All lanes of an axis become one: half of them with the other half, until one is left.

        A kernel's own combination may choose by a number beside each lane, and so leave undefined ones out.
        """
        axis = operation.number("axis")
        mixed = [self.mixed(operation, each, [axis]) for each in given]
        taken = given if all(each.known for each in given) else mixed
        values = [each.moved(lambda data: np.moveaxis(data, axis, 0)) for each in taken]
        while (size := values[0].data.shape[0]) > 1:
            rest = [_part(each, size // 2 * 2, size) for each in values]
            parts = [_part(each, start, start + size // 2) for start in (0, size // 2) for each in values]
            values = self.region(operation.regions[0], parts)
            if size % 2:
                values = [self._together(pair, np.concatenate) for pair in zip(values, rest, strict=True)]
        places = {mark.load: mark.mixed for each in mixed for mark in each.marks}

        def told(value: Value) -> Marks:
            return _united(*({mark._replace(mixed=places.get(mark.load, mark.mixed)): lanes[0]} for mark, lanes in value.marks.items()))

        results = [Value(each.data[0], told(each), each.known) for each in values]
        inner = operation.regions[0][0].operations
        if given[0].data.shape[axis] == 2 and inner and inner[0].name == "arith.xori":
            results[0] = results[0]._replace(pairs=(operation.operands[0], axis))
        return results

    def tt_scan(self, operation: Operation, *given: Value) -> list[Value]:
        """A lane gets what is before it, with `reverse` what is behind it: those that are 1 away, then 2, then 4."""
        axis, reverse, distance = operation.number("axis"), "reverse = true" in operation.text, 1

        def turned(data: NDArray[Any]) -> NDArray[Any]:
            return np.flip(np.moveaxis(data, axis, 0), 0) if reverse else np.moveaxis(data, axis, 0)

        values = [each.moved(turned) for each in given]
        while distance < (size := values[0].data.shape[0]):
            before, here = ([_part(each, *where) for each in values] for where in ((0, size - distance), (distance, size)))
            start = [_part(each, 0, distance) for each in values]
            pairs = zip(start, self.region(operation.regions[0], [*before, *here]), strict=True)
            values, distance = [self._together(pair, np.concatenate) for pair in pairs], 2 * distance
        results = [each.moved(lambda data: np.moveaxis(np.flip(data, 0) if reverse else data, 0, axis)) for each in values]
        earlier = _united(*(each.marks for each in given))

        def told(mark: Mark, lanes: Lanes) -> Mark:
            return mark if mark.mixed or np.array_equal(lanes, earlier.get(mark, False)) else mark._replace(mixed=operation.location)

        return [each._replace(marks={told(mark, lanes): lanes for mark, lanes in each.marks.items()}) for each in results]

    def tt_dot(self, operation: Operation, left: Value, right: Value, added: Value) -> Value:
        """Rows of the first times columns of the second, plus the third. Of whole numbers, zero times anything is zero."""
        if added.data.dtype.kind == "i":
            zeros = np.expand_dims(right.is_surely(0).all(-1), -2), np.expand_dims(left.is_surely(0).all(-2), -1)
            left, right = (each._replace(marks=_marked(each.marks, ~zero)) for each, zero in zip((left, right), zeros, strict=True))
        marks = _united(self._rows(operation, left, added, -1), self._rows(operation, right, added, -2), added.marks)
        data = (np.matmul(left.data.astype("f4"), right.data.astype("f4")) + added.data).astype(added.data.dtype)
        return Value(data, marks, left.known and right.known and added.known)

    def _rows(self, operation: Operation, value: Value, like: Value, axis: int) -> Marks:
        """Return the marks of a factor in the product: those of its rows or columns, which were added up along `axis`."""
        spread = self.mixed(operation, value, [value.data.ndim + axis])
        return spread.moved(lambda data: np.broadcast_to(np.take(data, [0], axis), like.data.shape)).marks

    def tt_dot_scaled(self, operation: Operation, *given: Value) -> Value:
        """As a product; a scale belongs to a row of the first or a column of the second, and to some places of the sum."""
        names = re.match(r"(%\S+?)(?: scale (%\S+?))?, (%\S+?)(?: scale (%\S+?))?, (%[^\s,]+)", operation.text)
        if names is None:
            raise NotFollowedError("has tt.dot_scaled in a form that is not followed")
        left, left_scale, right, right_scale, added = (self.values.get(name or "") for name in names.groups())
        assert added is not None
        if right_scale:  # its rows are the columns of the product
            right_scale = right_scale.moved(lambda data: np.swapaxes(data, -1, -2))
        factors = ((left, -1), (left_scale, -1), (right, -2), (right_scale, -2))
        marks = [self._rows(operation, value, added, axis) for value, axis in factors if value]
        return self.guess(operation.types[-1], _united(*marks, added.marks))

    def tt_histogram(self, operation: Operation, value: Value, *mask: Value) -> Value:
        """Counts; a mask says what is counted."""
        counted = _united(_marked(value.marks, mask[0].data if mask else True), *(each.marks for each in mask))
        found = self.guess(operation.types[0])
        mixed = self.mixed(operation, value._replace(marks=counted), range(value.data.ndim))
        return found._replace(marks={mark: np.ones(found.data.shape, bool) for mark in mixed.marks})

    # Memory.

    def read(self, address: NDArray[Any], on: Lanes, kind: str) -> Union[NDArray[Any], None]:
        """Return what memory holds at addresses, where they are `on`; None if that is not known."""
        _, dtype, element = _type(kind)
        size = _bytes(element)
        if not on.any():
            return np.zeros(on.shape, dtype)
        low, high = int(address[on].min()), int(address[on].max()) + size
        storage = next((each for each in self.memory if each[0] <= low and high <= each[0] + each[1]), None)
        if storage is None or (size != dtype.itemsize and element != "bf16"):
            return None
        first, last = self.written.get(storage, (0, 0))
        if low < last and high > first:
            return None
        raw = np.ctypeslib.as_array((ctypes.c_uint8 * (high - low)).from_address(low))
        at = np.where(on, address - low, 0)
        found = raw[at[..., None] + np.arange(size)].view(f"u{size}")[..., 0]
        return (found.astype("u4") << 16).view("f4") if element == "bf16" else found.view(dtype)

    def leads_out(self, pointer: Value, mask: Value, size: int) -> Lanes:
        """Return the lanes whose access of `size` bytes is outside of all tensors, if undefined lanes have certain numbers."""
        out = np.ones(pointer.data.shape, bool)
        if not (pointer.marks or mask.marks):
            return ~out

        def tried(arrays: Sequence[NDArray[Any]]) -> Lanes:
            address, on = arrays
            if not self.memory:
                far = np.iinfo(address.dtype)
                return np.asarray(np.where(on, address, far.min).max(0) // 2 - np.where(on, address, far.max).min(0) // 2 > _NEAR // 2)
            inside = [(start <= address) & (address + size <= start + length) for start, length in self.memory]
            return np.asarray((on & ~np.logical_or.reduce(inside)).any(0))

        found = _tried([pointer, mask], tried)
        return out if found is None else found

    def tt_load(self, operation: Operation, pointer: Value, *rest: Value) -> Value:
        """What `other` does not define is undefined where the mask is off."""
        mask, kind = _on(rest, pointer), pointee(operation.types[0])
        out = self.leads_out(pointer, mask, _bytes(_type(kind).element))
        self.reached(operation, "the address of {}", _marked(pointer.marks, out), mask)
        self.reached(operation, "the mask of {}", _marked(mask.marks, out))
        held = self.read(pointer.data, mask.data, kind) if pointer.known else None
        data = self.guess(kind).data if held is None else held

        def read(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
            again = (self.read(address, on, kind) for address, on in zip(*arrays, strict=True))
            return np.stack([data if each is None or held is None else each for each in again])

        marks = _marked(pointer.marks, mask.data | mask.undefined)
        loaded = Value(data, marks, held is not None, tries=_tried([pointer, mask], read))
        if len(rest) == 2:
            return self.arith_select(operation, mask, loaded, rest[1])
        self.opened += 1
        nothing = {Mark(operation.location, known=self.known and mask.known): np.ones(data.shape, bool)}
        other = Value(np.zeros(data.shape, data.dtype), nothing, tries=_others(data.dtype, data.shape, self.opened))
        return self.arith_select(operation, mask, loaded, other)

    def tt_store(self, operation: Operation, pointer: Value, value: Value, *rest: Value) -> list[Value]:
        """What is stored must be defined where the mask is on."""
        return self.write(operation, pointer, [value], _on(rest, pointer))

    def atomic(self, operation: Operation, pointer: Value, *values: Value) -> Value:
        """As a store; a mask is the last value."""
        masks = values[1:] if operation.name == "tt.atomic_rmw" else ()
        mask = _on(masks, pointer)
        self.write(operation, pointer, values[: len(values) - len(masks)], mask)
        if not operation.types:
            return Value(np.zeros(()))
        mark = Mark(operation.location, known=self.known and mask.known, access="atomic")
        return self.guess(operation.types[0], _marked({mark: ~mask.data}, True))

    def write(self, operation: Operation, pointer: Value, values: Sequence[Value], mask: Value) -> list[Value]:
        """Report what is undefined in a write, and note that its memory is no longer what it was. It stays as it is."""
        self.stored(operation, values, mask, pointer.marks)
        if mask.data.any():
            low, high = int(pointer.data[mask.data].min()), int(pointer.data[mask.data].max()) + 8
            for storage in self.memory:
                if storage[0] <= high and low <= storage[0] + storage[1]:
                    first, last = self.written.get(storage, (low, high))
                    self.written[storage] = min(first, low), max(last, high)
        return []

    def tt_make_tensor_descriptor(self, operation: Operation, base: Value, *rest: Value) -> Value:
        """What matters of a descriptor is the size of its tensor."""
        sizes = rest[: len(rest) // 2]
        return Value(np.array([int(each.data) for each in sizes]), NOTHING, all(each.known for each in sizes))

    def tt_descriptor_load(self, operation: Operation, descriptor: Value, *places: Value) -> Value:
        """Every lane is defined, as what is outside of the tensor is padded; but not what it is, if a place is undefined."""
        found = self.guess(operation.types[0])
        return found._replace(marks=_united(*(_of_rows(each, found.data.shape) for each in places)))

    tt_descriptor_gather = tt_descriptor_load

    def tt_descriptor_store(self, operation: Operation, descriptor: Value, *given: Value) -> list[Value]:
        """What is outside of the tensor is left out."""
        value = max(given, key=lambda each: each.data.ndim)
        places, shape = [each for each in given if each is not value], value.data.shape
        inside = np.ones(shape, bool)
        for axis, (size, place) in enumerate(zip(descriptor.data, places, strict=False)):
            lanes = place.data if place.data.ndim else np.arange(shape[axis]) + int(place.data)
            inside &= ((lanes >= 0) & (lanes < size)).reshape([-1 if each == axis else 1 for each in range(inside.ndim)])
        mask = Value(inside, NOTHING, descriptor.known and all(each.known for each in places))
        self.stored(operation, [value], mask, _united(*(_of_rows(each, shape) for each in places)))
        return []

    tt_descriptor_reduce = tt_descriptor_scatter = tt_descriptor_store

    def stored(self, operation: Operation, values: Sequence[Value], mask: Value, address: Marks = NOTHING) -> None:
        """Report what is undefined in a write."""
        for value in values:
            self.reached(operation, "{}", value.marks, mask)
        self.reached(operation, "the address of {}", address, mask)
        self.reached(operation, "the mask of {}", mask.marks)
        for marks in self.deciding:
            self.reached(operation, "the condition of {}", marks, mask)

    def reached(self, operation: Operation, what: str, marks: Marks, mask: Union[Value, None] = None) -> None:
        """Report the marks of lanes for which a mask is on."""
        for mark, lanes in sorted(marks.items(), key=lambda entry: entry[0]):
            if mask is not None and not (lanes & mask.data).any():
                continue
            known = self.known and mark.known and (mask is None or mask.known)
            if mark.load not in self.found or known > self.found[mark.load][0]:
                file, line, _ = self.module.place(mark.load)
                use, at, column = self.module.place(mark.mixed or operation.location)
                name = _called(use, at, column) or ("what mixes lanes" if mark.mixed else _USES.get(operation.name, operation.name))
                words = name if mark.mixed else what.format(name)
                self.found[mark.load] = known, Undefined(self.kernel, file, line, words, f"{use.rpartition('/')[2]}:{at}", mark.access)

    # Control flow.

    def scf_if(self, operation: Operation, way: Value) -> list[Value]:
        """One of two regions; both, if the condition is undefined."""
        known = self.known
        self.decide(way)
        sides = [
            self.region(region, []) if way.marks or bool(way.data) is (side == 0) else None for side, region in enumerate(operation.regions)
        ]
        self.deciding.pop()
        self.known = known
        taken = [each for each in sides if each is not None]
        if len(taken) == 2:
            return [self.arith_select(operation, way, left, right) for left, right in zip(*taken, strict=False)]
        return [each._replace(known=each.known and way.known) for each in taken[0]] if taken else []

    def scf_for(self, operation: Operation, *given: Value) -> list[Value]:
        """A loop over numbers; one round, if its bounds are undefined."""
        counter, *bounds = operation.operands[:4]
        first, last, step = self.given(bounds)
        passed = PASSED.findall(operation.text.partition("iter_args")[2])
        values, names = self.given(start for _, start in passed), [name for name, _ in passed]
        known = first.known and last.known and step.known
        marks = _united(first.marks, last.marks, step.marks)
        rounds = range(int(first.data), int(last.data), max(1, int(step.data)))
        outer = self.known
        self.decide(Value(np.asarray(True), marks, known))
        for number in rounds if not marks else [int(first.data)]:
            self.values[counter] = Value(np.asarray(number, first.data.dtype), NOTHING, known)
            self.values.update(zip(names, values, strict=True))
            values = self.region(operation.regions[0], [])
        self.deciding.pop()
        self.known = outer
        return [self._after(each, marks, known) for each in values]

    def scf_while(self, operation: Operation, *given: Value) -> list[Value]:
        """A loop with a condition, which hands on values to its body and to what follows.

        One round, if the condition is undefined; a limited number of them, if it is not known.
        """
        before, after = operation.regions
        passed = PASSED.findall(operation.text)
        names, values = [name for name, _ in passed], self.given(start for _, start in passed)
        outer, deciding, marks, guessed = self.known, self.deciding, NOTHING, 0
        while True:
            self.values.update(zip(names, values, strict=True))
            way, *handed = self.region(before, [])
            self.known, marks = self.known and way.known, _united(marks, way.marks)
            self.deciding = [*deciding, marks]
            guessed += not way.known
            if way.marks or way.data:
                values = self.region(after, handed)
            if way.marks or not way.data or guessed == _MOST_GUESSED:
                break
        known = self.known
        self.known, self.deciding = outer, deciding
        return [self._after(each, marks, known) for each in handed]

    def _after(self, value: Value, marks: Marks, known: bool) -> Value:
        """Return what a loop leaves behind: how often it ran may be undefined."""
        spread = {mark: np.broadcast_to(lanes, value.data.shape) for mark, lanes in marks.items()}
        value = value._replace(marks=_united(value.marks, spread), tries=None) if marks else value
        return value._replace(known=value.known and known)

    def tt_call(self, operation: Operation, *given: Value) -> list[Value]:
        """A function that is not inlined."""
        found = re.match(r'@"?([\w$.-]+)', operation.text)
        blocks = self.module.functions.get(found[1]) if found else None
        if not blocks:
            raise NotFollowedError("calls a function that is not in its code")
        outer, self.values, self.call = (self.values, self.call), {}, operation.location
        left = self.region(blocks, given)
        self.values, self.call = outer
        return left


def _part(value: Value, start: int, end: int) -> Value:
    return value.moved(lambda data: data[start:end])


def _on(mask: Sequence[Value], like: Value) -> Value:
    """Return the mask of an access: what was given, or one that is on everywhere."""
    return mask[0] if mask else Value(np.ones(like.data.shape, bool))


def _of_rows(place: Value, shape: tuple[int, ...]) -> Marks:
    """Return the marks of a descriptor's place, one for all lanes or for each row, as those of the lanes."""
    return {mark: np.broadcast_to(lanes[:, None] if lanes.ndim else lanes, shape) for mark, lanes in place.marks.items()}


def _called(file: str, line: int, column: int) -> str:
    """Return what the source calls at a place, such as `tl.sum`; empty if that cannot be told."""
    found = re.match(r"[\w.]+(?=\()", linecache.getline(file, line)[column - 1 :]) if file else None
    return found[0] if found else ""


@functools.lru_cache(maxsize=256)
def _module(ttir: str) -> Module:
    return Module(ttir)


def leaves_lanes_open(ttir: str) -> bool:
    """Return whether a kernel has a load that leaves lanes undefined, or an atomic whose result is used."""
    if _OPEN_LOAD.search(ttir):
        return True
    always = set(re.findall(r"(%[\w$.-]+) = arith\.constant (?:dense<)?true", ttir))
    return any(mask not in always and ttir.count(result) > 1 for result, mask in _ATOMIC.findall(ttir))


def values_of(launch: Launch, arguments: Sequence[Any], unknown: Iterable[int] = ()) -> list[Value]:
    """Return what a launch gives to its kernel, as values.

    Raises:
        NotFollowedError: the kernel has another number of arguments.
    """
    kinds = [kind for _, kind in launch.module.functions[launch.kernel][0].arguments]
    if len(kinds) != len(arguments):
        raise NotFollowedError(f"has {len(kinds)} arguments, the launch {len(arguments)}")
    return [
        Value(np.asarray(given).astype(_type(kind).dtype if np.ndim(given) == 0 else "i8"), NOTHING, at not in unknown)
        for at, (kind, given) in enumerate(zip(kinds, arguments, strict=True))
    ]


def follow(
    ttir: str, arguments: Sequence[Any], grid: Sequence[int], memory: Sequence[tuple[int, int]] = (), unknown: Iterable[int] = ()
) -> Followed:
    """Return what a launch does with the lanes that its masked loads leave undefined.

    Args:
        ttir: The kernel's first code.
        arguments: What the kernel has at run time: numbers, addresses, and the shapes of descriptors.
        grid: The number of programs along x, y and z. Of more than 64, some are executed: the last, the first, and others evenly.
        memory: Address and size in bytes of what may be read.
        unknown: The places of arguments that stand for numbers that are not known.
    """
    if not leaves_lanes_open(ttir):
        return Followed()
    function, why = "", ""
    launch: Union[Launch, None] = None
    try:
        launch = Launch(ttir, memory, grid)
        function = launch.kernel
        values = values_of(launch, arguments, unknown)
        with np.errstate(all="ignore"):
            for program in _programs(grid):
                launch.run(program, values)
                if launch.cost > _ENOUGH:
                    break
    except NotFollowedError as error:
        why = str(error)
    except Exception as error:  # our reading failed; the author's kernel may be right
        traceback.print_exc()
        why = f"could not be followed: {type(error).__name__}"
    rows = sorted(launch.found.values() if launch else (), key=lambda row: row[1][1:])
    found, possible = (tuple(each for known, each in rows if known is which) for which in (True, False))
    return Followed(function, found, possible, why and f"{function} {why}")


def _programs(grid: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield programs of a grid: the last, the first, then others evenly."""
    x, y, z = (*grid, 1, 1)[:3]
    total = x * y * z
    some = range(total) if total <= _MOST_PROGRAMS else [total * part // _MOST_PROGRAMS for part in range(_MOST_PROGRAMS)]
    for number in dict.fromkeys((total - 1, *some)) if total > 0 else ():
        yield number % x, number // x % y, number // (x * y)
