"""Integers and conditions of a kernel as functions of the lane, and whether conditions can hold together.

An integer is a `Linear`: a constant and atoms with factors. An atom is a dimension of the lane, or a value that nothing more is known of. A
condition is a tuple: `("le", linear)` for `linear <= 0`, `("is", atom)` and `("not", atom)` for a boolean of which nothing more is known,
`("and", …)`, `("or", …)`, `TRUE` or `FALSE`. Numbers do not overflow here.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Union

_MOST_NODES = 60  # of an atom; a larger one is no longer looked into
_MOST_LIMITS = 48  # inequalities at a time
_MOST_CASES = 64


class Atom(NamedTuple):
    """What a formula is made of. `kind` says what `args` are.

    `dim`: dimension and size. `value`: number and index, a linear each dimension. `program`: the axis. `div`, `rem`, `times`: two
    linears. `bit`: a condition, as 0 or 1. `choice`: a condition and two linears. `float`: a name and two linears.
    """

    kind: str
    args: tuple[Any, ...]
    nodes: int = 1


class Linear(NamedTuple):
    """A constant and the factor of each atom, in a fixed order."""

    constant: int
    terms: tuple[tuple[Atom, int], ...] = ()

    def __add__(self, other: object) -> Linear:  # type: ignore[override]
        assert isinstance(other, Linear)
        factors = dict(self.terms)
        for atom, factor in other.terms:
            factors[atom] = factors.get(atom, 0) + factor
        return Linear(self.constant + other.constant, _ordered(factors))

    def times(self, factor: int) -> Linear:
        """Return it with every number multiplied."""
        return Linear(self.constant * factor, tuple((atom, each * factor) for atom, each in self.terms) if factor else ())

    def __sub__(self, other: Linear) -> Linear:
        return self + other.times(-1)


Condition = tuple[Any, ...]
Term = Union[Linear, Condition]
TRUE: Condition = ("true",)
FALSE: Condition = ("false",)


def _ordered(factors: dict[Atom, int]) -> tuple[tuple[Atom, int], ...]:
    return tuple(sorted(((atom, factor) for atom, factor in factors.items() if factor), key=lambda term: _name(term[0])))


@functools.lru_cache(maxsize=1 << 16)
def _name(each: Atom) -> str:
    return repr(each)


def number(value: int) -> Linear:
    """Return a constant."""
    return Linear(value)


def of(atom: Atom) -> Linear:
    """Return an atom as an integer."""
    return Linear(0, ((atom, 1),))


def dim(axis: int, size: int) -> Linear:
    """Return the lane's position in a dimension of `size`."""
    return of(Atom("dim", (axis, size))) if size != 1 else number(0)


def atom(kind: str, *args: Any) -> Union[Atom, None]:
    """Return an atom, or None if it is too large."""
    nodes = 1 + sum(map(_nodes, args))
    return Atom(kind, args, nodes) if nodes <= _MOST_NODES else None


def _nodes(term: Any) -> int:
    if isinstance(term, Atom):
        return term.nodes
    if isinstance(term, Linear):
        return 1 + sum(atom.nodes for atom, _ in term.terms)
    return sum(map(_nodes, term)) if isinstance(term, tuple) else 0


def less(left: Linear, right: Linear, or_equal: bool = False) -> Condition:
    """Return `left < right`."""
    return _at_most_zero(left - right + number(0 if or_equal else 1))


def equal(left: Linear, right: Linear) -> Condition:
    """Return `left == right`."""
    return both(less(left, right, True), less(right, left, True))


def _at_most_zero(linear: Linear) -> Condition:
    if not linear.terms:
        return TRUE if linear.constant <= 0 else FALSE
    (first, factor), *rest = linear.terms
    if first.kind == "bit" and not rest:
        if_false, if_true = linear.constant <= 0, linear.constant + factor <= 0
        condition: Condition = first.args[0]
        return TRUE if if_false and if_true else condition if if_true else negated(condition) if if_false else FALSE
    for each, factor in linear.terms:
        if each.kind == "choice":
            chooses, one, other = each.args
            left = linear - of(each).times(factor)
            on, off = (_at_most_zero(left + case.times(factor)) for case in (one, other))
            return either(both(chooses, on), both(negated(chooses), off))
    divisor = math.gcd(*(factor for _, factor in linear.terms))
    return "le", Linear(-(-linear.constant // divisor), tuple((each, factor // divisor) for each, factor in linear.terms))


def both(*conditions: Condition) -> Condition:
    """Return the conjunction."""
    return _joined("and", TRUE, FALSE, conditions)


def either(*conditions: Condition) -> Condition:
    """Return the disjunction."""
    return _joined("or", FALSE, TRUE, conditions)


def _joined(word: str, neutral: Condition, decisive: Condition, conditions: Iterable[Condition]) -> Condition:
    parts: dict[Condition, None] = {}
    for condition in conditions:
        parts.update(dict.fromkeys(condition[1:] if condition[0] == word else (condition,)))
    parts.pop(neutral, None)
    if decisive in parts:
        return decisive
    return neutral if not parts else next(iter(parts)) if len(parts) == 1 else (word, *parts)


def negated(condition: Condition) -> Condition:
    """Return the negation."""
    word, *rest = condition
    if word in ("and", "or"):
        return (either if word == "and" else both)(*map(negated, rest))
    if word == "le":
        return _at_most_zero(rest[0].times(-1) + number(1))
    return {"true": FALSE, "false": TRUE}.get(word) or ("not" if word == "is" else "is", *rest)


def atoms(term: Any) -> Iterator[Atom]:
    """Yield all atoms of a term, outer ones first."""
    if isinstance(term, Atom):
        yield term
        yield from atoms(term.args)
    elif isinstance(term, tuple):
        for part in term:
            yield from atoms(part)


def replaced(term: Any, by: Callable[[Atom], Union[Linear, Condition, None]]) -> Any:
    """Return a term in which `by` has replaced atoms; None leaves one, and looks into it."""
    if isinstance(term, Atom):
        args = tuple(replaced(part, by) for part in term.args)
        return term if args == term.args else Atom(term.kind, args, term.nodes)
    if isinstance(term, Linear):
        found = number(term.constant)
        for each, factor in term.terms:
            new = by(each)
            found += (new if isinstance(new, Linear) else _simplest(replaced(each, by))).times(factor)
        return found
    if not isinstance(term, tuple) or not term:
        return term
    word = term[0]
    if word == "le":
        return _at_most_zero(replaced(term[1], by))
    if word in ("is", "not"):
        new = by(term[1])
        condition = new if isinstance(new, tuple) and not isinstance(new, Linear) else ("is", replaced(term[1], by))
        return condition if word == "is" else negated(condition)
    if word in ("and", "or"):
        return (both if word == "and" else either)(*(replaced(part, by) for part in term[1:]))
    return tuple(replaced(part, by) for part in term)


def _simplest(each: Atom) -> Linear:
    """Return an atom as an integer, after something in it was replaced."""
    if each.kind == "div":
        return divided(*each.args) or of(each)
    if each.kind in ("bit", "choice") and each.args[0] in (TRUE, FALSE):
        on, off = each.args[1:] or (number(1), number(0))
        found: Linear = on if each.args[0] == TRUE else off
        return found
    return of(each)


def divided(left: Linear, right: Linear) -> Union[Linear, None]:
    """Return the quotient, as for numbers that are not negative; None if it is too large."""
    by = right.constant
    if right.terms or by <= 0:
        made = atom("div", left, right)
        return of(made) if made else None
    # What `by` divides comes out; the rest stays inside.
    whole = Linear(left.constant // by, tuple((each, factor // by) for each, factor in left.terms if factor % by == 0))
    rest = left - whole.times(by)
    is_small = all(each.kind == "dim" and factor > 0 for each, factor in rest.terms)
    if is_small and rest.constant + sum(factor * (each.args[1] - 1) for each, factor in rest.terms) < by:
        return whole
    if len(rest.terms) == 1 and rest.terms[0][0].kind == "div" and rest.terms[0][1] == 1:  # a quotient of a quotient
        inner, first = rest.terms[0][0].args
        if not first.terms:
            rest, by = inner + number(rest.constant * first.constant), by * first.constant
    made = atom("div", rest, number(by))
    return whole + of(made) if made else None


def remainder(left: Linear, right: Linear) -> Union[Linear, None]:
    """Return the remainder, as for numbers that are not negative; None if it is too large."""
    if right.terms:
        made = atom("rem", left, right)
        return of(made) if made else None
    quotient = divided(left, right)
    return None if quotient is None else left - quotient.times(right.constant)


def projected(conditions: Iterable[Condition], axes: Iterable[int]) -> frozenset[Condition]:
    """Return what the conditions say of lanes for which some positions along `axes` satisfy them."""
    found = {*conditions}
    for axis in axes:
        mine = {each for each in found if any(one.kind == "dim" and one.args[0] == axis for one in atoms(each))}
        found -= mine
        rows: list[tuple[Linear, Atom, int]] = []
        for condition in mine:
            here = [(each, factor) for each, factor in condition[1].terms if axis in _axes(each)] if condition[0] == "le" else []
            if len(here) == 1 and here[0][0].kind == "dim":
                rows.append((condition[1], *here[0]))
        for each in {each for _, each, _ in rows}:
            bounds = [*_known_of(each)]
            rows += [(bound, each, dict(bound.terms)[each]) for bound in bounds]
        for upper, _, a in rows:
            for lower, _, b in rows:
                if a > 0 > b and (made := _at_most_zero(upper.times(-b) + lower.times(a))) != TRUE:
                    found.add(made)
    return frozenset(found)


def _axes(term: Any) -> set[int]:
    return {each.args[0] for each in atoms(term) if each.kind == "dim"}


@functools.lru_cache(maxsize=1 << 16)
def impossible(conditions: frozenset[Condition]) -> bool:
    """Return whether the conditions cannot hold together in any lane; False if that cannot be shown."""
    return _refuted([*conditions], {}, [], [_MOST_CASES])


def _refuted(todo: list[Condition], booleans: dict[Atom, str], limits: list[Linear], left: list[int]) -> bool:
    """Return whether every case of the conditions `todo` leads to a contradiction."""
    booleans, limits, later = {**booleans}, [*limits], []
    while todo:
        word, *rest = todo.pop()
        if word == "false":
            return True
        if word == "and":
            todo += rest
        elif word == "or":
            later.append(rest)
        elif word == "le":
            limits.append(rest[0])
        elif word in ("is", "not") and booleans.setdefault(rest[0], word) != word:
            return True
    if not later:
        return _unsolvable(limits)
    if _unsolvable(limits):
        return True
    later.sort(key=len)
    left[0] -= len(later[0])
    others: list[Condition] = [("or", *cases) for cases in later[1:]]
    return left[0] >= 0 and all(_refuted([case, *others], booleans, limits, left) for case in later[0])


def _unsolvable(limits: list[Linear]) -> bool:
    """Return whether no integers satisfy `limit <= 0` for all limits and what is known of their atoms (Fourier and Motzkin)."""
    known: set[Atom] = set()
    todo = [atom for limit in limits for atom, _ in limit.terms]
    limits = [*limits]
    while todo and len(known) < _MOST_LIMITS:
        each = todo.pop()
        if each not in known:
            known.add(each)
            limits += (new := [*_known_of(each)])
            todo += [atom for limit in new for atom, _ in limit.terms]
    rows = dict.fromkeys(limits)
    while rows:
        if any(not row.terms and row.constant > 0 for row in rows):
            return True
        signs: dict[Atom, list[int]] = {}
        for row in rows:
            for each, factor in row.terms:
                signs.setdefault(each, [0, 0])[factor > 0] += 1
        if not signs:
            return False
        chosen = min(signs, key=lambda each: signs[each][0] * signs[each][1])
        factors = {row: dict(row.terms).get(chosen, 0) for row in rows}
        rest = dict.fromkeys(row for row in rows if not factors[row])
        for upper in (row for row in rows if factors[row] > 0):
            for lower in (row for row in rows if factors[row] < 0):
                made = _at_most_zero(upper.times(-factors[lower]) + lower.times(factors[upper]))
                if made == FALSE:
                    return True
                if made[0] == "le":
                    rest[made[1]] = None
        if len(rest) > _MOST_LIMITS * 4:
            return False
        rows = rest
    return False


def _known_of(each: Atom) -> Iterator[Linear]:
    """Yield what is at most zero whatever the kernel does."""
    own, one = of(each), number(1)
    if each.kind == "dim":
        yield own.times(-1)
        yield own - number(each.args[1] - 1)
    elif each.kind == "bit":
        yield own.times(-1)
        yield own - one
    elif each.kind == "program":
        yield own.times(-1)
    elif each.kind in ("div", "rem"):  # of what is not negative: indices
        left, right = each.args
        yield own.times(-1)
        if each.kind == "rem":
            yield own - right + one
            yield own - left
        elif not right.terms:
            rest = left - own.times(right.constant)
            yield rest.times(-1)
            yield rest - right + one
