"""Follow the lanes that a masked load leaves undefined through a kernel's first code (TTIR), to where they decide something.

`tl.load(p, mask=m)` without `other` gives any value where `m` is false. That is harmless if nothing stored, and no address, depends on
such a lane. For each value the pass keeps what may be undefined in it: a load, and conditions on the lane under which it is undefined. An
elementwise operation passes that on, a choice or a mask adds a condition, a reduction or a product drops the conditions on the lanes that
it mixes. At a store the conditions meet its mask: if all of them can hold together, undefined bits reach memory. `masks.py` decides that.

What the pass does not know ends the way: there is no finding.
"""

from __future__ import annotations

import functools
import itertools
import linecache
import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Union

from warpwave.inside.codegen.masks import (
    FALSE,
    TRUE,
    Atom,
    Condition,
    Linear,
    Term,
    atom,
    atoms,
    both,
    dim,
    divided,
    either,
    equal,
    impossible,
    less,
    negated,
    number,
    of,
    projected,
    remainder,
    replaced,
)
from warpwave.inside.codegen.ttir import MASKED, PASSED, TENSOR, VALUE, Block, Module, Operation
from warpwave.inside.process.outcomes import statement
from warpwave.records import Defect, Finding


class Undefined(NamedTuple):
    """A load whose undefined lanes reach something: `what`, at `use` (`file.py:12`). `file` and `line` are the load's."""

    function: str
    file: str
    line: int
    what: str
    use: str

    @property
    def place(self) -> str:
        """The load's `file.py:12`."""
        return f"{self.file.rpartition('/')[2]}:{self.line}"

    @property
    def reaches(self) -> str:
        """What reaches what, without the place of the load."""
        return f"lanes that the mask of this load switches off reach {self.what} at {self.use}"

    @property
    def finding(self) -> Finding:
        """The row of a test that launches the kernel, without the test."""
        nowhere = {"tensor": "", "shape": (), "index": 0, "indices": (), "lane": 0, "lanes": 1, "block": (), "program": ()}
        where = {"function": self.function, "file": self.file, "line": self.line, "text": statement(self.file, self.line)}
        return Finding(case="", kernel="", defect=Defect.UNDEFINED, access="load", other=self.reaches, **nowhere, **where)  # type: ignore[arg-type]


# Values.


class Item(NamedTuple):
    """Lanes of a value that may be undefined: those in which all `conditions` hold. `mixed` is where other lanes first got into them.

    `chosen`: each of them is one of some defined values, and only which one is undefined. As an address, it is as good as the others.
    """

    load: str
    conditions: frozenset[Condition]
    mixed: str = ""
    chosen: bool = False


Items = frozenset[Item]
NOTHING: Items = frozenset()
_MOST_ITEMS, _MOST_CASES, _MOST_ROUNDS = 24, 8, 6
_MOST_QUESTIONS = 5000  # about conditions, of one kernel; usual ones have a few hundred


@dataclass(frozen=True)
class Value:
    """A value of the kernel: `term` is what is known of it as a function of the lane, if it is a whole number or a condition."""

    identity: int
    shape: tuple[int, ...]
    term: Union[Term, None]
    items: Items = NOTHING

    @property
    def atom(self) -> Atom:
        """The value as one about which nothing is known."""
        return _opaque(self.identity, self.shape)


def _opaque(identity: int, shape: Sequence[int]) -> Atom:
    return Atom("value", (identity, tuple(dim(axis, size) for axis, size in enumerate(shape))))


def _shape_of(kind: str) -> tuple[int, ...]:
    found = TENSOR.search(kind)
    return tuple(int(size) for size in found[1].split("x") if size) if found else ()


def _element_of(kind: str) -> str:
    found = TENSOR.search(kind)
    return (found[2] if found else kind).strip()


def _when(items: Iterable[Item], condition: Condition) -> Items:
    """Return the items where `condition` holds, too; alternatives become items of their own."""
    found: dict[Item, None] = {}
    for item in items:
        parts = condition[1:] if condition[0] == "and" else () if condition == TRUE else (condition,)
        cases = [part[1:] if part[0] == "or" else (part,) for part in parts]
        many = 1
        for case in cases:
            many *= len(case)
        combined = itertools.product(*cases) if many <= _MOST_CASES else [parts]
        for case in combined:
            conditions = item.conditions.union(*(part[1:] if part[0] == "and" else (part,) for part in case))
            if not impossible(conditions):
                found[item._replace(conditions=conditions)] = None
    return _fewest(found)


def _fewest(items: Iterable[Item]) -> Items:
    """Return the items without those that others include; of a load that has too many, one with what they have in common."""
    by_load: dict[tuple[str, bool], list[Item]] = {}
    for item in sorted(set(items), key=lambda item: (item.chosen, len(item.conditions))):
        known = by_load.setdefault((item.load, item.chosen), [])
        if not any(each.conditions <= item.conditions for each in (*known, *by_load.get((item.load, False), ()))):
            known.append(item)
    many = {key: each for key, each in by_load.items() if len(each) > _MOST_ITEMS}
    for key, each in many.items():
        by_load[key] = [each[0]._replace(conditions=frozenset.intersection(*(one.conditions for one in each)))]
    return frozenset(itertools.chain(*by_load.values()))


def _chosen_by(items: Items) -> Items:
    """Return the items of what a condition chooses, from those of the condition."""
    return frozenset(item._replace(chosen=True) for item in items)


def _united(*several: Items) -> Items:
    """Return the items of several values."""
    different = {each for each in several if each}
    return next(iter(different)) if len(different) == 1 else _fewest(itertools.chain(*different))


def _moved(items: Items, index: Sequence[Linear]) -> Items:
    """Return the items of a value whose lanes have moved: `index` says for each old dimension which position a new lane has there."""
    return _united(
        *(_when([item._replace(conditions=frozenset())], both(*(_at(each, index) for each in item.conditions))) for item in items)
    )


def _at(term: Term, index: Sequence[Linear]) -> Term:
    return replaced(term, lambda each: index[each.args[0]] if each.kind == "dim" and each.args[0] < len(index) else None)  # type: ignore[no-any-return]


def _renumbered(term: Term, numbers: Sequence[int]) -> Term:
    return replaced(  # type: ignore[no-any-return]
        term, lambda each: dim(numbers[each.args[0]], each.args[1]) if each.kind == "dim" and each.args[0] < len(numbers) else None
    )


def _depends(term: Term, axes: set[int]) -> bool:
    return any(each.kind == "dim" and each.args[0] in axes for each in atoms(term))


def _grows(condition: Condition, axis: int, reverse: bool) -> bool:
    """Return whether a condition that holds in a lane holds in all later ones along `axis` (`reverse`: in all earlier ones)."""
    return condition[0] == "le" and _slopes(condition[1], axis) <= {1 if reverse else -1}


def _slopes(linear: Linear, axis: int) -> set[int]:
    """Return in which directions the parts of a number go along an axis: 1 up, -1 down, 0 not known."""
    found = set[int]()
    for each, factor in linear.terms:
        sign = 1 if factor > 0 else -1
        if each.kind == "dim":
            found |= {sign} if each.args[0] == axis else set()
        elif each.kind == "div" and not each.args[1].terms:
            found |= {sign * slope for slope in _slopes(each.args[0], axis)}
        elif _depends(of(each), {axis}):
            found.add(0)
    return found


def _reshaped(old: Sequence[int], new: Sequence[int]) -> list[Linear]:
    """Return for each old dimension the position there of a lane of the new shape; both are in row-major order."""
    found, i, j = [number(0)] * len(old), 0, 0
    while i < len(old) or j < len(new):
        first, other, a, b = i, j, 1, 1
        while True:  # the smallest group of dimensions that has the same size on both sides
            if a <= b and i < len(old):
                a, i = a * old[i], i + 1
            elif j < len(new):
                b, j = b * new[j], j + 1
            else:
                break
            if a == b and i > first and j > other:
                break
        flat, stride = number(0), 1
        for axis in range(j - 1, other - 1, -1):
            flat += dim(axis, new[axis]).times(stride)
            stride *= new[axis]
        for axis in range(i - 1, first - 1, -1):
            found[axis] = flat if axis == first else remainder(flat, number(old[axis])) or number(0)
            flat = divided(flat, number(old[axis])) or number(0)
    return found


# The pass.

_ELEMENTWISE = re.compile(
    r"arith\.|math\.|tt\.(addptr|bitcast|fp_to_fp|int_to_ptr|ptr_to_int|mulhiui|clampf|precise_\w+|extern_elementwise|elementwise_inline_asm"
    r"|map_elementwise|unsplat|splat|broadcast)$"
)
_USES = {"tt.store": "tl.store", "tt.load": "tl.load", "tt.dot": "tl.dot", "tt.reduce": "a reduction", "tt.scan": "a scan"}


class _Pass:
    """Goes through one kernel. `found` has the first use of each load."""

    def __init__(self, module: Module, kernel: str) -> None:
        self.module, self.kernel = module, kernel
        self.values: dict[str, Value] = {}
        self.numbers = itertools.count()
        self.path: list[Condition] = []
        self.deciding: list[Items] = []  # of the conditions of the path
        self.found: dict[str, Undefined] = {}
        self.folded: dict[int, tuple[int, int]] = {}  # what two lanes are together by `xor`: of which value, along which axis
        self.most = impossible.cache_info().misses + _MOST_QUESTIONS

    def run(self) -> None:
        """Go through the kernel.

        Raises:
            RuntimeError: the kernel takes too long.
        """
        blocks = self.module.functions[self.kernel]
        self.blocks(blocks, [self.fresh(kind) for _, kind in blocks[0].arguments])

    def fresh(self, kind: str, items: Items = NOTHING, term: Union[Term, None] = None) -> Value:
        """Return a new value of a type, which is only known to be itself if no term is given."""
        identity, shape, element = next(self.numbers), _shape_of(kind), _element_of(kind)
        if term is None and element == "i1":
            term = ("is", _opaque(identity, shape))
        elif term is None and re.fullmatch(r"i\d+|index", element):
            term = of(_opaque(identity, shape))
        return Value(identity, shape, term, items)

    def blocks(self, blocks: list[Block], arguments: Sequence[Value]) -> list[Value]:
        """Go through the blocks of a region. Return what leaves it."""
        outer_path, outer_deciding = [*self.path], [*self.deciding]
        # What each block gets: the path to it, and its arguments.
        comes: dict[str, list[tuple[list[Condition], list[Items], list[Value]]]] = {
            blocks[0].label: [(outer_path, outer_deciding, [*arguments])]
        }
        left: list[list[Value]] = []
        for block in blocks:
            if not (ways := comes.get(block.label)):
                continue
            only = len(ways) == 1
            self.path = [*(ways[0][0] if only else outer_path)]
            self.deciding = [*(ways[0][1] if only else outer_deciding)]
            for place, (name, kind) in enumerate(block.arguments):
                given = [values[place] for _, _, values in ways if place < len(values)]
                self.values[name] = given[0] if len(given) == 1 else self.fresh(kind, _united(*(each.items for each in given)))
            for operation in block.operations:
                if operation.name in ("cf.br", "cf.cond_br"):
                    self.branch(operation, comes)
                elif operation.name in ("scf.yield", "tt.return", "scf.condition") or operation.name.endswith(".return"):
                    left.append([self.values[name] for name in operation.operands])
                else:
                    self.operation(operation)
        self.path, self.deciding = outer_path, outer_deciding
        if len(left) <= 1:
            return left[0] if left else []
        return [self.merged(each) for each in zip(*left, strict=False)]

    def merged(self, values: Sequence[Value]) -> Value:
        """Return what is one of several values."""
        terms = {each.term for each in values}
        term = next(iter(terms)) if len(terms) == 1 else None
        new = Value(next(self.numbers), values[0].shape, term, _united(*(each.items for each in values)))
        if term is None and isinstance(values[0].term, Linear):
            return replace(new, term=of(new.atom))
        return replace(new, term=("is", new.atom)) if term is None and values[0].term is not None else new

    def branch(self, operation: Operation, comes: dict[str, list[tuple[list[Condition], list[Items], list[Value]]]]) -> None:
        """Note the way to each successor."""
        way = self.values[operation.operands[0]] if operation.name == "cf.cond_br" else None
        for place, (label, passed) in enumerate(re.findall(r"(\^\w+)(?:\(([^)]*)\))?", operation.text)):
            given = [self.values[name] for name in VALUE.findall(passed.partition(" : ")[0])]
            path, deciding = [*self.path], [*self.deciding]
            if way is not None:
                path.append(negated(_condition(way)) if place else _condition(way))
                deciding.append(way.items)
            comes.setdefault(label, []).append((path, deciding, given))

    def operation(self, operation: Operation) -> None:
        """Find out what an operation's results are."""
        if impossible.cache_info().misses > self.most:
            raise RuntimeError(f"{self.kernel} has too many masks to follow its undefined lanes")
        name = operation.name
        special = getattr(self, name.replace(".", "_"), None)
        given = [self.values[each] for each in operation.operands if each in self.values]
        if special is not None:
            results = special(operation, given)
        elif name.startswith("tt.atomic"):
            results = self.atomic(operation, given)
        elif _ELEMENTWISE.match(name):
            items = _united(*(each.items for each in given))
            kinds = [TENSOR.sub(r"tensor<\1i1>", kind) if "tensor" in kind else "i1" for kind in operation.types]
            is_condition = name in ("arith.cmpi", "arith.cmpf")
            results = [self.fresh(kind, items, self.term(operation, given)) for kind in (kinds if is_condition else operation.types)]
        else:
            results = []
        for place, result in enumerate(operation.results):
            kind = operation.types[min(place, len(operation.types) - 1)] if operation.types else ""
            self.values[result] = results[place] if place < len(results) else self.fresh(kind)

    # Whole numbers and conditions.

    def term(self, operation: Operation, given: Sequence[Value]) -> Union[Term, None]:
        """Return what is known of an elementwise result; None if nothing is."""
        _, _, name = operation.name.rpartition(".")
        terms = [each.term for each in given]
        if name in ("splat", "broadcast", "unsplat", "extsi", "extui", "trunci", "index_cast"):
            return _widened(terms[0], operation, name)
        if len(given) != 2:
            return None
        left, right = terms
        if name == "cmpf":
            made = atom("float", operation.text.partition(" ")[0], of(given[0].atom), of(given[1].atom))
            return ("is", made) if made else None
        if isinstance(left, Linear) and isinstance(right, Linear):
            return _compared(operation.text.partition(",")[0], left, right) if name == "cmpi" else _computed(name, left, right)
        if isinstance(left, tuple) and isinstance(right, tuple):
            return self.logical(name, operation.text.partition(",")[0], left, right)
        return None

    def logical(self, name: str, predicate: str, left: Condition, right: Condition) -> Union[Condition, None]:
        """Return what is known of an operation on two conditions."""
        if name == "andi" or name == "muli" or name == "minui":
            return _small(both(left, right))
        if name == "ori" or name == "maxui":
            return _small(either(left, right))
        differs = _small(either(both(left, negated(right)), both(negated(left), right)))
        if name == "xori" or (name == "cmpi" and predicate == "ne"):
            return differs
        return negated(differs) if name == "cmpi" and predicate == "eq" and differs else None

    def arith_constant(self, operation: Operation, given: Sequence[Value]) -> list[Value]:
        """A number, or the same one in each lane."""
        kind = operation.types[0] if operation.types else ""
        text = operation.text.removeprefix("dense<").partition(">")[0].partition(" ")[0]
        if text in ("true", "false"):
            return [self.fresh(kind if "i1" in kind else "i1", term=TRUE if text == "true" else FALSE)]
        return [self.fresh(kind, term=number(int(text)) if re.fullmatch(r"-?\d+", text) else None)]

    def tt_make_range(self, operation: Operation, given: Sequence[Value]) -> list[Value]:
        """From `start` on."""
        start, end = operation.number("start"), operation.number("end")
        return [self.fresh(operation.types[0], term=dim(0, end - start) + number(start))]

    def tt_get_program_id(self, operation: Operation, given: Sequence[Value]) -> list[Value]:
        """Name the axis: each load of the same id has the same value."""
        return [self.fresh("i32", term=of(Atom("program", (operation.text.split()[0],))))]

    def tt_get_num_programs(self, operation: Operation, given: Sequence[Value]) -> list[Value]:
        """Name the axis: each load of the same number has the same value."""
        return [self.fresh("i32", term=of(Atom("program", (f"of {operation.text.split()[0]}",))))]

    def arith_andi(self, operation: Operation, given: Sequence[Value]) -> list[Value]:
        """A false condition makes the other one meaningless; so does a zero with a whole number."""
        left, right = given
        items = _united(_when(left.items, _not_zero(right)), _when(right.items, _not_zero(left)))
        return [self.fresh(operation.types[0], items, self.term(operation, given))]

    arith_muli = arith_andi

    def arith_ori(self, operation: Operation, given: Sequence[Value]) -> list[Value]:
        """A true condition makes the other one meaningless."""
        found = [
            one.items if isinstance(other.term, Linear) else _when(one.items, negated(_condition(other)))
            for one, other in (given, given[::-1])
        ]
        return [self.fresh(operation.types[0], found[0] | found[1], self.term(operation, given))]

    def arith_select(self, operation: Operation, given: Sequence[Value]) -> list[Value]:
        """One of two, lane by lane."""
        which, left, right = given
        condition = _condition(which)
        term: Union[Term, None] = None
        same = left.items & right.items
        sides = _when(left.items - same, condition), _when(right.items - same, negated(condition))
        items = _united(_chosen_by(which.items), same, *sides)
        if isinstance(left.term, Linear) and isinstance(right.term, Linear):
            term = _chosen(condition, left.term, right.term)
        elif left.term is not None and right.term is not None:
            term = _small(either(both(condition, left.term), both(negated(condition), right.term)))
        return [self.fresh(operation.types[-1], items, term)]

    def llvm_intr_assume(self, operation: Operation, given: Sequence[Value]) -> list[Value]:
        """What the author promises holds from here on."""
        self.path.append(_condition(given[0]))
        return []

    # Lanes that move.

    def moved(self, operation: Operation, value: Value, index: Sequence[Linear]) -> list[Value]:
        """Return the value with its lanes at other places."""
        kind = operation.types[0]
        term = None if value.term is None else _at(value.term, index)
        return [self.fresh(kind, _moved(value.items, index), term)]

    def tt_expand_dims(self, operation: Operation, given: Sequence[Value]) -> list[Value]:
        """A dimension of size one more."""
        axis = operation.number("axis")
        found = self.moved(operation, given[0], [dim(at + (at >= axis), size) for at, size in enumerate(given[0].shape)])
        if self.folded.get(given[0].identity, (0, -1))[1] == axis:
            self.folded[found[0].identity] = self.folded[given[0].identity]
        return found

    def tt_broadcast(self, operation: Operation, given: Sequence[Value]) -> list[Value]:
        """Dimensions of size one become larger."""
        found = self.fresh(operation.types[0], given[0].items, given[0].term)
        if given[0].identity in self.folded:
            self.folded[found.identity] = self.folded[given[0].identity]
        return [found]

    def arith_xori(self, operation: Operation, given: Sequence[Value]) -> list[Value]:
        """Of a pair of lanes and what they are together, it is the other lane: `tl.flip` and `tl.sort` are made of that."""
        left, right = given
        source, axis = self.folded.get(right.identity, (-1, 0))
        if source == left.identity:
            last = [number(1) - dim(at, size) if at == axis else dim(at, size) for at, size in enumerate(left.shape)]
            return self.moved(operation, left, last)
        return [self.fresh(operation.types[0], _united(left.items, right.items), self.term(operation, given))]

    def tt_trans(self, operation: Operation, given: Sequence[Value]) -> list[Value]:
        """Dimensions in another order."""
        order = [int(each) for each in re.findall(r"\d+", operation.text.partition("i32:")[2])]
        return self.moved(operation, given[0], [dim(order.index(at), size) for at, size in enumerate(given[0].shape)])

    def tt_reshape(self, operation: Operation, given: Sequence[Value]) -> list[Value]:
        """The same lanes in another shape; with `allow_reorder` nobody knows where each is."""
        (value,) = given
        shape = _shape_of(operation.types[0])
        if "allow_reorder" in operation.text:
            items = self.mixed(value.items, range(len(value.shape)), operation, ())
            return [self.fresh(operation.types[0], items)]
        return self.moved(operation, value, _reshaped(value.shape, shape))

    def tt_split(self, operation: Operation, given: Sequence[Value]) -> list[Value]:
        """Two halves of the last dimension."""
        before = [dim(at, size) for at, size in enumerate(given[0].shape[:-1])]
        return [self.moved(operation, given[0], [*before, number(half)])[0] for half in (0, 1)]

    def tt_join(self, operation: Operation, given: Sequence[Value]) -> list[Value]:
        """Two values, side by side in a new last dimension."""
        last = dim(len(given[0].shape), 2)
        left, right = less(last, number(1)), less(number(0), last)
        return [self.fresh(operation.types[0], _united(_when(given[0].items, left), _when(given[1].items, right)))]

    def tt_cat(self, operation: Operation, given: Sequence[Value]) -> list[Value]:
        """The lanes of two values, in any order."""
        return [self.fresh(operation.types[0], _united(*(self.mixed(each.items, [0], operation, ()) for each in given)))]

    def tt_gather(self, operation: Operation, given: Sequence[Value]) -> list[Value]:
        """Lanes from where an index says. If the index comes from memory, the kernel may know what it does."""
        source, index = given
        axis, term = operation.number("axis"), index.term
        if not isinstance(term, Linear) or any(each.kind == "value" and each.args[1] for each in atoms(term)):
            return []
        places = [term if at == axis else dim(at, size) for at, size in enumerate(index.shape)]
        return [self.fresh(operation.types[0], _united(_moved(source.items, places), index.items))]

    # Lanes that are combined.

    def mixed(self, items: Items, axes: Iterable[int], operation: Operation, new: Sequence[int]) -> Items:
        """Return the items after lanes along `axes` were combined: a lane is undefined if one of them was.

        `new` says which dimension each of the others becomes.
        """
        found: list[Item] = []
        for item in items:
            if not _when([item], both(*self.path)):
                continue
            left = projected(item.conditions, axes)
            where = item.mixed or (operation.location if left != item.conditions else "")
            found.append(item._replace(conditions=frozenset(_renumbered(each, new) for each in left), mixed=where))
        return _fewest(found)

    def tt_reduce(self, operation: Operation, given: Sequence[Value]) -> list[Value]:
        """All lanes of an axis become one."""
        axis = operation.number("axis")
        left = [at - (at > axis) for at in range(len(given[0].shape))]
        items = _united(*(self.mixed(each.items, [axis], operation, left) for each in given))
        results = [self.fresh(kind, items) for kind in operation.types]
        inner = operation.regions[0][0].operations
        if given[0].shape[axis] == 2 and inner and inner[0].name == "arith.xori":
            self.folded[results[0].identity] = given[0].identity, axis
        return results

    def tt_scan(self, operation: Operation, given: Sequence[Value]) -> list[Value]:
        """A lane gets what is before it; with `reverse` what is behind it."""
        axis, reverse = operation.number("axis"), "reverse = true" in operation.text
        found = set[Item]()
        for item in (item for each in given for item in each.items):
            kept = frozenset(each for each in item.conditions if not _depends(each, {axis}) or _grows(each, axis, reverse))
            kept |= projected(item.conditions - kept, [axis])
            found.add(item._replace(conditions=kept, mixed=item.mixed or (operation.location if kept != item.conditions else "")))
        return [self.fresh(kind, _fewest(found)) for kind in operation.types]

    def tt_dot(self, operation: Operation, given: Sequence[Value]) -> list[Value]:
        """Rows of the first times columns of the second, plus the third."""
        left, right, added = given[:3]
        rank = len(left.shape)
        items = self.mixed(left.items, [rank - 1], operation, range(rank))
        items = _united(items, self.mixed(right.items, [rank - 2], operation, range(rank)), added.items)
        return [self.fresh(operation.types[-1], items)]

    def tt_dot_scaled(self, operation: Operation, given: Sequence[Value]) -> list[Value]:
        """As a product; a scale belongs to a row of the first or a column of the second, and to some places of the sum."""
        rank = len(given[0].shape)
        names = re.match(r"(%\S+?)(?: scale (%\S+?))?, (%\S+?)(?: scale (%\S+?))?, (%[^\s,]+)", operation.text)
        if names is None:
            return []
        left, left_scale, right, right_scale, added = (self.values.get(name or "") for name in names.groups())
        several = [self.mixed(value.items, [rank - 1], operation, range(rank)) for value in (left, left_scale) if value]
        several += [self.mixed(right.items, [rank - 2], operation, range(rank))] if right else []
        if right_scale:  # its rows are the columns of the product
            several.append(self.mixed(right_scale.items, [rank - 1], operation, [*range(rank - 2), rank - 1, rank - 2]))
        return [self.fresh(operation.types[-1], _united(*several, added.items if added else NOTHING))]

    def tt_histogram(self, operation: Operation, given: Sequence[Value]) -> list[Value]:
        """Counts; a mask says what is counted."""
        value, *mask = given
        items = _when(value.items, _condition(mask[0])) | mask[0].items if mask else value.items
        return [self.fresh(operation.types[0], self.mixed(items, range(len(value.shape)), operation, ()))]

    # Memory.

    def tt_load(self, operation: Operation, given: Sequence[Value]) -> list[Value]:
        """What `other` does not define is undefined where the mask is off."""
        pointer, *rest = given
        mask = _condition(rest[0]) if rest else TRUE
        self.reached((each for each in pointer.items if not each.chosen), mask, operation, "the address of {}")
        on = rest[0].items if rest else NOTHING
        self.reached((each for each in on if not each.chosen), TRUE, operation, "the mask of {}")
        picked = _when((each for each in (*pointer.items, *on) if each.chosen), mask)
        kind = re.sub(r"!tt\.ptr<([^,<>]+)(?:, \d+)?>", r"\1", operation.types[0])
        if len(rest) < 2:
            new = _when([Item(operation.location, frozenset())], negated(mask)) if rest else NOTHING
            return [self.fresh(kind, _united(frozenset(item for item in new if _when([item], both(*self.path))), picked))]
        other = rest[1]
        value = self.fresh(kind, _united(_when(other.items, negated(mask)), picked))
        term: Union[Term, None] = None
        if isinstance(value.term, Linear) and isinstance(other.term, Linear):
            term = _chosen(mask, value.term, other.term)
        elif value.term is not None and other.term is not None:
            term = _small(either(both(mask, value.term), both(negated(mask), other.term)))
        return [replace(value, term=value.term if term is None else term)]

    def tt_store(self, operation: Operation, given: Sequence[Value]) -> list[Value]:
        """What is stored must be defined where the mask is on."""
        pointer, value, *rest = given
        mask = _condition(rest[0]) if rest else TRUE
        self.written(value.items, pointer.items, mask, rest[0].items if rest else NOTHING, operation)
        return []

    def atomic(self, operation: Operation, given: Sequence[Value]) -> list[Value]:
        """As a store; a mask is the last value of a type of conditions."""
        pointer, *values = given
        masked = operation.name != "tt.atomic_cas" and len(values) > 1
        mask = values.pop() if masked else None
        items = _united(*(each.items for each in values))
        self.written(items, pointer.items, _condition(mask) if mask else TRUE, mask.items if mask else NOTHING, operation)
        return []

    def tt_descriptor_store(self, operation: Operation, given: Sequence[Value]) -> list[Value]:
        """A descriptor leaves out what is outside of its tensor, and the kernel may not know where that is: only lanes alike count."""
        value = given[-1]
        self.written(
            frozenset(item for item in value.items if not any(each.kind == "dim" for each in atoms(tuple(item.conditions)))),
            NOTHING,
            TRUE,
            NOTHING,
            operation,
        )
        return []

    def written(self, value: Items, pointer: Items, mask: Condition, masking: Items, operation: Operation) -> None:
        """Report what reaches memory."""
        self.reached(value, mask, operation, "{}")
        self.reached(pointer, mask, operation, "the address of {}")
        self.reached(masking, TRUE, operation, "the mask of {}")
        for items in self.deciding:
            self.reached(items, mask, operation, "the condition of {}")

    def reached(self, items: Iterable[Item], condition: Condition, operation: Operation, what: str) -> None:
        """Report the items that are undefined where `condition` holds, on this path."""
        for item in sorted(items, key=lambda item: (item.load, item.mixed)):
            if item.load not in self.found and _when([item], both(condition, *self.path)):
                file, line, _ = self.module.place(item.load)
                use, at, column = self.module.place(item.mixed or operation.location)
                name = _called(use, at, column) or ("what mixes lanes" if item.mixed else _USES.get(operation.name, operation.name))
                what = "{}" if item.mixed else what
                self.found[item.load] = Undefined(self.kernel, file, line, what.format(name), f"{use.rpartition('/')[2]}:{at}")

    # Control flow.

    def within(
        self, blocks: list[Block], arguments: Sequence[Value], condition: Condition = TRUE, deciding: Items = NOTHING
    ) -> list[Value]:
        """Go through a region that is reached under a condition, of which some lanes may be undefined."""
        path, outer = [*self.path], [*self.deciding]
        self.path.append(condition)
        self.deciding.append(deciding)
        left = self.blocks(blocks, arguments)
        self.path, self.deciding = path, outer
        return left

    def scf_if(self, operation: Operation, given: Sequence[Value]) -> list[Value]:
        """One of two regions."""
        (way,) = given
        condition = _condition(way)
        sides = [
            self.within(region, [], each, way.items)
            for region, each in zip(operation.regions, (condition, negated(condition)), strict=False)
        ]
        if len(sides) < 2:
            return []
        results = []
        for kind, left, right in zip(operation.types, *sides, strict=False):
            results += self.arith_select(Operation("", [], "", [kind], ""), [way, left, right])
        return results

    def scf_for(self, operation: Operation, given: Sequence[Value]) -> list[Value]:
        """A loop; the values that it carries are gone through until nothing new is undefined."""
        counter, first, last, step, *_ = operation.operands
        lower, upper, by = (self.values[name] for name in (first, last, step))
        carried = [(name, self.values[start]) for name, start in PASSED.findall(operation.text.partition("iter_args")[2])]
        mark = next(self.numbers)
        place = self.values[counter] = self.fresh("i32")
        inside = TRUE
        if all(isinstance(each.term, Linear) for each in (lower, upper)):
            inside = both(less(lower.term, place.term, True), less(place.term, upper.term))  # type: ignore[arg-type]
        deciding = lower.items | upper.items | by.items
        start = equal(place.term, lower.term) if isinstance(lower.term, Linear) else TRUE  # type: ignore[arg-type]
        shift = {place.atom: by.term} if isinstance(by.term, Linear) else {}

        def body(values: list[Value]) -> list[Value]:
            return self.within(operation.regions[0], values, inside, deciding)

        return self.loop([name for name, _ in carried], [value for _, value in carried], operation.types, body, mark, start, shift)

    def scf_while(self, operation: Operation, given: Sequence[Value]) -> list[Value]:
        """A loop with a condition, which hands on values to its body and to what follows."""
        carried = [(name, self.values[start]) for name, start in PASSED.findall(operation.text)]
        before, after = operation.regions
        mark, handed = next(self.numbers), list[Value]()

        def body(values: list[Value]) -> list[Value]:
            nonlocal handed
            for (name, _), value in zip(carried, values, strict=False):
                self.values[name] = value
            way, *handed = self.within(before, values)
            return self.within(after, handed, _condition(way), way.items)

        kinds = [kind for _, kind in after[0].arguments] if after[0].arguments else operation.types
        self.loop([name for name, _ in carried], [value for _, value in carried], kinds, body, mark, TRUE, {})
        return [self.fresh(kind, self.outside(value.items, mark)) for kind, value in zip(operation.types, handed, strict=False)]

    def loop(
        self,
        names: Sequence[str],
        starts: Sequence[Value],
        kinds: Sequence[str],
        body: Callable[[list[Value]], list[Value]],
        mark: int,
        begins: Condition,
        shift: Mapping[Atom, Linear],
    ) -> list[Value]:
        """Go through a loop's body until nothing new is undefined. Return what it leaves behind.

        Values from `mark` on differ from round to round, `shift` by how much the counter does. `begins` holds in the first round.
        """
        values = [self.carrying(start) for start in starts]
        first = [begins, *(equal(term, start) for _, term, start in _pairs(values, starts))]
        items = [self.entering(start.items, first, values, starts) for start in starts]
        nexts, known = list[Value](), set[Item]()
        for attempt in range(_MOST_ROUNDS):
            values = [replace(value, items=each) for value, each in zip(values, items, strict=True)]
            self.values.update(zip(names, values, strict=True))
            nexts = body(values)
            moves = {**shift}
            moves |= {value.atom: new - term for value, term, new in _pairs(values, nexts) if not _varies(new - term, mark)}
            came = [self.returning(new.items, mark, moves, values, nexts, known, attempt > 1) for new in nexts]
            grown = [_united(old, new) for old, new in zip(items, came, strict=False)]
            if grown == items:
                break
            items = grown
        return [
            self.fresh(kind, start.items | self.outside(new.items, mark)) for kind, start, new in zip(kinds, starts, nexts, strict=False)
        ]

    def carrying(self, start: Value) -> Value:
        """Return what a loop carries, of which only the first value is known."""
        new = Value(next(self.numbers), start.shape, None)
        term: Union[Term, None] = None if start.term is None else of(new.atom) if isinstance(start.term, Linear) else ("is", new.atom)
        return replace(new, term=term)

    def entering(self, items: Items, first: list[Condition], values: Sequence[Value], starts: Sequence[Value]) -> Items:
        """Return items as a loop's first round sees them."""
        found = set[Item]()
        for item in items:
            more = [each for each in first if item.conditions]
            more += self.carried(item.conditions, values, starts)
            found.add(
                item._replace(
                    conditions=item.conditions.union(*(each[1:] if each[0] == "and" else (each,) for each in more if each != TRUE))
                )
            )
        return frozenset(found)

    def carried(self, conditions: frozenset[Condition], values: Sequence[Value], nexts: Sequence[Value]) -> list[Condition]:
        """Return what the conditions say of the booleans that a loop carries, once they are carried."""
        found: list[Condition] = []
        for value, new in zip(values, nexts, strict=False):
            if value.term is None or isinstance(value.term, Linear) or new.term is None or isinstance(new.term, Linear):
                continue
            if impossible(conditions | {new.term}):
                found.append(negated(value.term))
            elif impossible(conditions | {negated(new.term)}):
                found.append(value.term)
        return found

    def returning(
        self,
        items: Items,
        mark: int,
        moves: Mapping[Atom, Linear],
        values: Sequence[Value],
        nexts: Sequence[Value],
        known: set[Item],
        strict: bool,
    ) -> Items:
        """Return items of one round as the next one sees them: numbers have moved on by `moves`, and what else varies is forgotten.

        `strict`: of an item that earlier rounds do not know, all that varies is forgotten, so that the rounds come to an end.
        """
        steps = {each.args[0]: (each, by) for each, by in moves.items()}
        found = set[Item]()

        def back(each: Atom) -> Union[Linear, None]:
            # In another lane order it is another atom, with the same step unless that depends on the lane.
            moved = steps.get(each.args[0]) if each.kind == "value" else None
            return of(each) - moved[1] if moved and (each == moved[0] or not _depends(moved[1], {*range(8)})) else None

        for item in items:
            kept = set[Condition](self.carried(item.conditions, values, nexts))
            for condition in item.conditions:
                varying = [each for each in atoms(condition) if each.kind == "value" and each.args[0] > mark]
                if not varying or (all(each.args[0] in steps for each in varying) and (not strict or item in known)):
                    kept.add(replaced(condition, back))
            known.add(item)
            found.add(item._replace(conditions=frozenset(kept)))
        return frozenset(found)

    def outside(self, items: Items, mark: int) -> Items:
        """Return items as they are seen behind a loop, where what was known in its last round means nothing."""
        return frozenset(item._replace(conditions=frozenset(each for each in item.conditions if not _varies(each, mark))) for item in items)

    def tt_call(self, operation: Operation, given: Sequence[Value]) -> list[Value]:
        """A function that is not inlined."""
        found = re.match(r'@"?([\w$.-]+)', operation.text)
        blocks = self.module.functions.get(found[1]) if found else None
        if not blocks:
            return []
        outer = self.values
        self.values = {name: value for (name, _), value in zip(blocks[0].arguments, given, strict=False)}
        left = self.blocks(blocks, given)
        self.values = outer
        return left


def _condition(value: Value) -> Condition:
    return value.term if isinstance(value.term, tuple) and not isinstance(value.term, Linear) else ("is", value.atom)


def _not_zero(value: Value) -> Condition:
    """Return when a factor or an operand of `and` matters; TRUE if that is not known to depend on a mask."""
    if isinstance(value.term, Linear):
        decides = any(each.kind in ("bit", "choice") for each, _ in value.term.terms) or not value.term.terms
        return negated(equal(value.term, number(0))) if decides else TRUE
    return value.term if value.term is not None else TRUE


def _pairs(values: Iterable[Value], others: Iterable[Value]) -> Iterator[tuple[Value, Linear, Linear]]:
    """Yield those values that are whole numbers together with the others at their place, with the terms of both."""
    for value, other in zip(values, others, strict=False):
        if isinstance(value.term, Linear) and isinstance(other.term, Linear):
            yield value, value.term, other.term


def _varies(term: Term, mark: int) -> bool:
    """Return whether a term has values that were made after `mark`."""
    return any(each.kind == "value" and each.args[0] > mark for each in atoms(term))


def _small(condition: Condition) -> Union[Condition, None]:
    """Return a condition, or None if it has become too large to work with."""
    return condition if sum(1 for _ in atoms(condition)) <= 60 else None


def _widened(term: Union[Term, None], operation: Operation, name: str) -> Union[Term, None]:
    """Return a number in another width; a condition becomes 0 or 1 (-1 with a sign)."""
    element = _element_of(operation.types[0])
    if term is None or name in ("splat", "broadcast", "unsplat"):
        return term
    if isinstance(term, Linear):
        return None if element == "i1" else term
    made = atom("bit", term)
    return None if made is None else of(made).times(-1 if name == "extsi" else 1)


def _compared(predicate: str, left: Linear, right: Linear) -> Condition:
    """Return a comparison."""
    kind = predicate.lstrip("su")
    if kind == "eq":
        return equal(left, right)
    if kind == "ne":
        return negated(equal(left, right))
    if kind in ("gt", "ge"):
        left, right = right, left
    return less(left, right, or_equal=kind in ("le", "ge"))


def _computed(name: str, left: Linear, right: Linear) -> Union[Linear, None]:
    """Return the result of arithmetic on whole numbers."""
    if name == "addi":
        return left + right
    if name == "subi":
        return left - right
    if name == "shli" and not right.terms and 0 <= right.constant < 64:
        return left.times(1 << right.constant)
    if name in ("shrsi", "shrui") and not right.terms and 0 <= right.constant < 64:
        return divided(left, number(1 << right.constant))
    if name in ("divsi", "divui"):
        return divided(left, right)
    if name in ("remsi", "remui"):
        return remainder(left, right)
    if name == "andi" and not right.terms and right.constant > 0 and right.constant & (right.constant + 1) == 0:
        return remainder(left, number(right.constant + 1))
    if name == "muli":
        return _product(left, right)
    if name in ("minsi", "minui", "maxsi", "maxui"):
        return _chosen(less(left, right) if name.startswith("min") else less(right, left), left, right)
    return None


def _chosen(condition: Condition, left: Linear, right: Linear) -> Union[Linear, None]:
    """Return one of two numbers; None if that is too large."""
    if left == right or condition == TRUE:
        return left
    made = atom("choice", condition, left, right)
    return right if condition == FALSE else of(made) if made else None


def _product(left: Linear, right: Linear) -> Union[Linear, None]:
    """Return a product, multiplied out; None if it is too large."""
    found = right.times(left.constant) + left.times(right.constant) - number(left.constant * right.constant)
    for (one, a), (other, b) in itertools.product(left.terms, right.terms):
        if (made := atom("times", *sorted((one, other), key=repr))) is None:
            return None
        found += of(made).times(a * b)
    return found


def _called(file: str, line: int, column: int) -> str:
    """Return what the source calls at a place, such as `tl.sum`; empty if that cannot be told."""
    found = re.match(r"[\w.]+(?=\()", linecache.getline(file, line)[column - 1 :]) if file else None
    return found[0] if found else ""


@functools.lru_cache(maxsize=4096)
def undefined_lanes(ttir: str) -> tuple[Undefined, ...]:
    """Return the loads in a module whose undefined lanes reach memory, an address or a decision, in the order of their lines."""
    if not MASKED.search(ttir):
        return ()
    found: dict[Undefined, None] = {}
    try:
        module = Module(ttir)
        for kernel in module.kernels:
            one = _Pass(module, kernel)
            try:
                one.run()
            finally:
                found.update(dict.fromkeys(one.found.values()))
    except Exception:  # our reading failed; the author's kernel may be right
        traceback.print_exc()
    return tuple(sorted(found, key=lambda each: (each.file, each.line)))
