"""Generated code: the launches of one run side by side, the pairs of two runs, and whether GPUs run what was compiled without one. Pure."""

from __future__ import annotations

import dataclasses
import itertools
import operator
import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from fnmatch import translate
from functools import cache
from typing import Any

from warpwave.compare.model import CodegenCell, CodegenRow, Fidelity, WaiverUse
from warpwave.compare.speeds import as_text, first_names
from warpwave.records import CompiledKernel, Scalar, TargetRun, Waiver, Which

Column = tuple[str, str]  # target and architecture


def align(cells: Iterable[CodegenCell]) -> tuple[CodegenRow, ...]:
    """Return rows with at most one cell per target and architecture.

    Backends choose different default numbers of stages. That alone does not make another configuration, and the row then names none. A
    configuration that was compiled twice for the same architecture on one target gets a row for each.
    """
    known = list(cells)
    tuned = _tuned(known)
    rows: dict[tuple[str, str, str, int], list[CodegenCell]] = {}
    seen: Counter[tuple[object, ...]] = Counter()
    for cell in known:
        made = cell.compiled
        key = made.kernel, made.function, configuration(made, stages=_without_stages(made) in tuned)
        seen[key, _column(cell)] += 1
        rows.setdefault((*key, seen[key, _column(cell)]), []).append(cell)
    return tuple(CodegenRow(kernel, function, _label(found), tuple(found)) for (kernel, function, *_), found in rows.items())


def _label(cells: Sequence[CodegenCell]) -> str:
    return configuration(cells[0].compiled, stages=len({cell.compiled.num_stages for cell in cells}) == 1)


def configuration(kernel: CompiledKernel, stages: bool = True) -> str:
    """Return a launch in one line: argument types, constants, warps, stages, options."""
    constants = " ".join(f"{name}={value}" for name, value in kernel.constants.items())
    asked = " ".join(f"{name}={value}" for name, value in kernel.options.items() if name not in kernel.constants)
    warps = "" if kernel.num_warps is None else f"{kernel.num_warps} warps"
    depth = "" if kernel.num_stages is None or not stages else f"{kernel.num_stages} stages"
    return ", ".join(filter(None, (kernel.types, constants, warps, depth, asked)))


def by_generation(architecture: str) -> tuple[str, int, str]:
    """Return a sort key for architectures: sm_90 before sm_100, gfx942 before gfx1100."""
    family, digits, rest = re.fullmatch(r"(\D*)(\d*)(.*)", architecture, re.DOTALL).groups()  # type: ignore[union-attr]  # anything matches
    return family, int(digits[:18] or 0), rest


def _column(cell: CodegenCell) -> Column:
    return cell.target, cell.compiled.architecture


def _without_stages(kernel: CompiledKernel) -> tuple[str, str, str]:
    return kernel.kernel, kernel.function, configuration(kernel, stages=False)


def _tuned(cells: Iterable[CodegenCell]) -> set[tuple[str, str, str]]:
    """Return the configurations that an architecture has with several numbers of stages. Their author chose the stages."""
    found: dict[tuple[tuple[str, str, str], Column], set[int | None]] = defaultdict(set)
    for cell in cells:
        found[_without_stages(cell.compiled), _column(cell)].add(cell.compiled.num_stages)
    return {key for (key, _), stages in found.items() if len(stages) > 1}


def compare_codegen(runs: Mapping[str, TargetRun]) -> tuple[CodegenRow, ...]:
    """Return a row per launch and configuration, with all architectures in it."""
    return align(CodegenCell(name, kernel) for name, run in runs.items() for kernel in run.compiled)


def use_of_waivers(runs: Mapping[str, TargetRun]) -> tuple[WaiverUse, ...]:
    """Return every waiver of the targets that compiled kernels, once, with how many kernels it names and how many it let through."""
    covered: Counter[Waiver] = Counter()
    used: Counter[Waiver] = Counter()
    for run in runs.values():
        waivers = run.gates.waivers if run.gates and run.compiled else ()
        compiled = [row for row in run.compiled if row.was_compiled] if waivers else []
        for waiver in waivers:
            covers = _cover(waiver.which)
            rows = [row for row in compiled if covers(row)]
            covered[waiver] += len(rows)
            # If two waivers name the same gate of a kernel, the row holds the reason of the first.
            used[waiver] += sum(row.waived.get(waiver.gate) == waiver.reason for row in rows)
    return tuple(WaiverUse(waiver, covered[waiver], used[waiver]) for waiver in covered)


def _cover(which: Which) -> Callable[[CompiledKernel], bool]:
    """Return `which.covers` with compiled patterns and cached names: a run may have 50,000 kernels and 200 waivers."""

    def fits(patterns: tuple[str, ...]) -> Callable[[str], bool]:
        pattern = re.compile("|".join(map(translate, patterns)) if patterns else r"(?!)")
        return cache(lambda name: pattern.match(name) is not None)

    fields = {field.name: getattr(which, field.name) for field in dataclasses.fields(which)}
    looks = [(operator.attrgetter(name), fits(patterns)) for name, patterns in fields.items() if patterns != ("*",)]
    return lambda row: all(fit(get(row)) for get, fit in looks)


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
    """Return argument types, constants, warps and stages by name. Options that a failed compile left open are absent."""
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
        texts = [[_texts(row) for row in rows] for rows in (old, new)]
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


def _apart(mine: dict[str, str], theirs: dict[str, str]) -> int:
    """Return in how many parts two configurations differ. A part that only one has counts, except warps and stages."""
    both = mine.keys() & theirs.keys()
    alone = len((mine.keys() ^ theirs.keys()) - _OPTIONS)
    return alone + sum(mine[name] != theirs[name] for name in both)


def _size(row: CompiledKernel) -> int:
    return len(row.signature) + len(row.constants) + 2


def differing(one: CompiledKernel, other: CompiledKernel) -> list[str]:
    """Return the names of the parts in which two configurations differ."""
    mine, theirs = _texts(one), _texts(other)
    alone = _OPTIONS - (mine.keys() & theirs.keys())  # an option that only one has is none
    return [name for name in {**mine, **theirs} if mine.get(name) != theirs.get(name) and name not in alone]


def moved(before: CompiledKernel, after: CompiledKernel) -> tuple[str, ...]:
    """Return what was retuned: `BLOCK 512 → 1024`, `4 → 8 warps`. Empty if the configuration is the same."""
    old, new = parts(before), parts(after)
    return tuple(
        f"{old[name][1]} → {new[name][1]} {name}" if name in _OPTIONS else f"{name} {_value(old, name)} → {_value(new, name)}"
        for name in differing(before, after)
    )


def telling(launch: Sequence[CompiledKernel]) -> frozenset[str]:
    """Return the names of the parts in which the configurations of a launch differ."""
    seen: dict[str, set[str]] = defaultdict(set)
    counted: Counter[str] = Counter()
    for row in launch:
        for name, text in _texts(row).items():
            seen[name].add(text)
            counted[name] += 1
    return frozenset(name for name, texts in seen.items() if len(texts) > 1 or counted[name] < len(launch))


def variant(row: CompiledKernel, names: Collection[str]) -> str:
    """Return the named parts of a configuration in one line: `BLOCK=1024, 8 warps`."""
    named = ((name, value) for name, (_, value) in parts(row).items() if name in names)
    return ", ".join(f"{value} {name}" if name in _OPTIONS else f"{name}={value}" for name, value in named)


def _value(found: dict[str, tuple[str, Scalar]], name: str) -> str:
    return str(found[name][1]) if name in found else "nothing"


def _texts(row: CompiledKernel) -> dict[str, str]:
    return {name: f"{kind} {type(value).__name__} {value}" for name, (kind, value) in parts(row).items()}


_MOST_LOOKED = 8  # compile stages of other targets, for each target with launches
_MOST_NAMED = 20  # differences listed per launch


def compare_launches(runs: Mapping[str, TargetRun]) -> tuple[Fidelity, ...]:
    """Return a row per target with launches: against its own compile stage, or else the first one of another target that fits."""
    found: list[Fidelity] = []
    compiling = {name: run for name, run in runs.items() if any(row.was_compiled for row in run.compiled)}
    for name, run in runs.items():
        if not run.launched:
            continue
        triton, architectures = _triton(run), {row.architecture for row in run.launched}
        held = Fidelity(name, "", triton, len(run.launched), reason=_why_none(run, compiling.values()))
        others = (other for other in compiling if other != name and _triton(compiling[other]) == triton)
        for other in [name, *itertools.islice(others, _MOST_LOOKED)]:
            compiled = compiling[other].compiled if other in compiling and not held.against else ()
            if rows := [row for row in compiled if row.was_compiled and row.architecture in architectures]:
                held = Fidelity(name, other, triton, len(run.launched), *held_against(run.launched, rows))
        found.append(held)
    return tuple(found)


def held_against(launched: Iterable[CompiledKernel], compiled: Sequence[CompiledKernel]) -> tuple[int, tuple[str, ...]]:
    """Return how many launches were compiled to the same bytes, and a sentence on each of the others."""
    exactly = {_key(row): row for row in compiled}
    nearly = {(row.function, row.architecture, row.origin): row for row in compiled}
    equal, differing = 0, []
    for row in launched:
        found = exactly.get(_key(row))
        if found is not None and found.binary_hash == row.binary_hash:
            equal += 1
            continue
        if found is not None:
            reason = f"the same specialization gives another binary{_measured(row, found)}"
        elif (near := nearly.get((row.function, row.architecture, row.origin))) is not None:
            reason = f"specialized otherwise: {_differing(row, near)}"
        else:
            reason = "not launched there without a GPU"
        differing.append(f"{row.kernel} {row.function}{f' in {row.origin}' if row.origin else ''}: {reason}")
    return equal, tuple(differing)


def _triton(run: TargetRun) -> str:
    return run.facts.triton if run.facts else "unknown"


def _why_none(run: TargetRun, compiling: Iterable[TargetRun]) -> str:
    launched = {row.architecture for row in run.launched}
    others = sorted({_triton(other) for other in compiling if any(row.architecture in launched for row in other.compiled)})
    if others:
        return f"the code compiled without a GPU is from Triton {first_names(others)}, the launches are from {_triton(run)}"
    return f"nothing was compiled for {first_names(sorted(launched))} without a GPU"


_SPECIALIZATION = ("signature", "constants", "attributes", "num_warps", "num_stages")


def _key(row: CompiledKernel) -> tuple[Any, ...]:
    parts = (getattr(row, name) for name in _SPECIALIZATION)
    return (row.function, row.architecture, *(tuple(sorted(part.items())) if isinstance(part, dict) else part for part in parts))


def _measured(launched: CompiledKernel, compiled: CompiledKernel) -> str:
    if launched.registers == compiled.registers and launched.binary_bytes == compiled.binary_bytes:
        return ", of the same size and registers"
    registers = f"{launched.registers} registers instead of {compiled.registers}"
    return f": {registers}, {launched.binary_bytes} bytes instead of {compiled.binary_bytes}"


def _differing(launched: CompiledKernel, compiled: CompiledKernel) -> str:
    names: list[str] = []
    for part in _SPECIALIZATION:
        one, other = getattr(launched, part), getattr(compiled, part)
        if isinstance(one, dict) and isinstance(other, dict):
            every = itertools.chain(one, (name for name in other if name not in one))
            differences = (f"{name} is {one.get(name)} instead of {other.get(name)}" for name in every if one.get(name) != other.get(name))
            names += itertools.islice(differences, _MOST_NAMED)
        elif one != other:
            names.append(f"{part} is {one} instead of {other}")
    return as_text(", ".join(names))
