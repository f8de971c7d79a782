"""Match the configurations of one run with those of another, and find what distinguishes a launch's configurations. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence

from harness.records import CompiledKernel, Scalar

Pair = tuple[CompiledKernel | None, CompiledKernel | None]

# Pairing the rest of a launch compares every pair. Above these limits, which only a malicious file reaches, the rest is listed as removed
# and added.
_MOST_PAIRS = 250_000
_MOST_OF_ALL = 2_000_000  # in all launches of a diff, for configurations of the usual size
_USUAL = 40  # parts of two configurations together
_OPTIONS = {"warps", "stages"}


class Room:
    """How many pairs a diff may still compare."""

    def __init__(self) -> None:
        self.left = _MOST_OF_ALL


def parts(row: CompiledKernel) -> dict[str, tuple[str, Scalar]]:
    """Return the parts of a configuration by name:

    argument types, constants, warps and stages. Options that a failed compile left open are absent.
    """
    found: dict[str, tuple[str, Scalar]] = {name: ("type", kind) for name, kind in row.signature.items() if kind != "constexpr"}
    found |= {name: ("constant", value) for name, value in row.constants.items()}
    found |= {name: ("option", value) for name, value in (("warps", row.num_warps), ("stages", row.num_stages)) if value is not None}
    return found


def identity(row: CompiledKernel) -> Hashable:
    """Return a key that is equal for equal configurations, in any order of arguments. 1, 1.0 and True are different constants."""
    return tuple(sorted((name, kind, type(value).__name__, str(value)) for name, (kind, value) in parts(row).items()))


def pair(before: Sequence[CompiledKernel], after: Sequence[CompiledKernel], room: Room | None = None) -> list[Pair]:
    """Pair the rows of one kernel function on one architecture, each once: equal configurations first, then retuned ones.

    A configuration may be compiled several times for different divisibilities, which rows do not record. So rows of the same case are
    paired first. What remains of a case was retuned: its nearest configurations are paired.
    """
    left, right = list(before), list(after)
    pairs = _match(left, right, lambda row: (identity(row), row.origin)) + _match(left, right, identity)
    pairs += _retuned(left, right, room or Room())
    return [*pairs, *((row, None) for row in left), *((None, row) for row in right)]


def _match(left: list[CompiledKernel], right: list[CompiledKernel], key: Callable[[CompiledKernel], Hashable]) -> list[Pair]:
    """Remove rows with equal keys from both lists, in order, and return them as pairs."""
    waiting: dict[Hashable, deque[CompiledKernel]] = defaultdict(deque)
    for row in right:
        waiting[key(row)].append(row)
    pairs: list[Pair] = []
    for row in list(left):
        if found := waiting[key(row)]:
            pairs.append((row, found.popleft()))
    _take(left, right, pairs)
    return pairs


def _retuned(left: list[CompiledKernel], right: list[CompiledKernel], room: Room) -> list[Pair]:
    pairs: list[Pair] = []
    launches: tuple[dict[str, list[CompiledKernel]], ...] = (defaultdict(list), defaultdict(list))
    for rows, found in zip((left, right), launches, strict=True):
        for row in rows:
            found[row.origin].append(row)
    for origin, old in launches[0].items():
        new = launches[1].get(origin, [])
        size = sum(map(_size, old)) * len(new) + sum(map(_size, new)) * len(old)
        if not new or len(old) * len(new) > _MOST_PAIRS or size > room.left * _USUAL:
            continue
        room.left -= -(-size // _USUAL)
        texts = [[{name: _text(part) for name, part in parts(row).items()} for row in rows] for rows in (old, new)]
        near = sorted((_apart(a, b), i, j) for i, a in enumerate(texts[0]) for j, b in enumerate(texts[1]))
        taken: tuple[set[int], set[int]] = (set(), set())
        for _, i, j in near:
            if i not in taken[0] and j not in taken[1]:
                taken[0].add(i)
                taken[1].add(j)
                pairs.append((old[i], new[j]))
    _take(left, right, pairs)
    return pairs


def _take(left: list[CompiledKernel], right: list[CompiledKernel], pairs: Iterable[Pair]) -> None:
    gone = {id(row) for found in pairs for row in found}
    left[:] = [row for row in left if id(row) not in gone]
    right[:] = [row for row in right if id(row) not in gone]


def distance(one: CompiledKernel, other: CompiledKernel) -> int:
    """Return in how many parts two configurations differ. A part that only one has counts, except warps and stages."""
    return _apart(*({name: _text(part) for name, part in parts(row).items()} for row in (one, other)))


def _apart(mine: dict[str, str], theirs: dict[str, str]) -> int:
    both = mine.keys() & theirs.keys()
    alone = len((mine.keys() ^ theirs.keys()) - _OPTIONS)
    return alone + sum(mine[name] != theirs[name] for name in both)


def _size(row: CompiledKernel) -> int:
    return len(row.signature) + len(row.constants) + 2


def differing(one: CompiledKernel, other: CompiledKernel) -> list[str]:
    """Return the names of the parts in which two configurations differ."""
    mine, theirs = parts(one), parts(other)
    return [
        name
        for name in {**mine, **theirs}
        if _text(mine.get(name)) != _text(theirs.get(name)) and not (name in _OPTIONS and (name not in mine or name not in theirs))
    ]


def moved(before: CompiledKernel, after: CompiledKernel) -> tuple[str, ...]:
    """Return what was retuned: `BLOCK 512 → 1024`, `4 → 8 warps`. Empty if the configuration is the same."""
    old, new = parts(before), parts(after)
    return tuple(
        f"{old[name][1]} → {new[name][1]} {name}" if name in ("warps", "stages") else f"{name} {_value(old, name)} → {_value(new, name)}"
        for name in differing(before, after)
    )


def telling(launch: Sequence[CompiledKernel]) -> frozenset[str]:
    """Return the names of the parts in which the configurations of a launch differ."""
    seen: dict[str, set[str]] = defaultdict(set)
    counted: Counter[str] = Counter()
    for row in launch:
        for name, part in parts(row).items():
            seen[name].add(_text(part))
            counted[name] += 1
    return frozenset(name for name, texts in seen.items() if len(texts) > 1 or counted[name] < len(launch))


def variant(row: CompiledKernel, names: Collection[str]) -> str:
    """Return the named parts of a configuration in one line: `BLOCK=1024, 8 warps`."""
    found = parts(row)
    return ", ".join(
        f"{found[name][1]} {name}" if name in ("warps", "stages") else f"{name}={_value(found, name)}" for name in found if name in names
    )


def _value(found: dict[str, tuple[str, Scalar]], name: str) -> str:
    return str(found[name][1]) if name in found else "nothing"


def _text(part: tuple[str, Scalar] | None) -> str:
    return "" if part is None else f"{part[0]} {type(part[1]).__name__} {part[1]}"
