"""What changed between two binaries of one configuration, figure by figure, and whether it got worse. Pure.

A figure is compared only if both binaries have it. Otherwise two readers would be compared, not two binaries.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from harness.records import CompiledKernel, NotRun, Verdict


class Concern(str, Enum):
    """What a change is about, gravest first. Changes are listed in this order, and `--fail-on` takes these words."""

    VERDICT = "verdict"
    MATRIX = "matrix"
    SPILLS = "spills"
    OCCUPANCY = "occupancy"
    ACCESS = "access"
    REGISTERS = "registers"
    SHARED = "shared"
    SIZE = "size"

    @property
    def rank(self) -> int:
        """Position in the order above; a smaller rank is graver."""
        return list(Concern).index(self)


class Trend(str, Enum):
    """Whether a figure got worse, got better, or says neither by itself."""

    WORSE = "worse"
    BETTER = "better"
    NEITHER = "neither"


@dataclass(frozen=True)
class Delta:
    """One figure before and after, as text. `weight` (never negative) is how far it moved, and orders the changes of one concern."""

    concern: Concern
    trend: Trend
    what: str
    before: str
    after: str
    weight: float = 0.0


# Binaries hold line numbers for debuggers, so even a new comment changes their size a little.
_SIZE_NOISE = 0.05
_REGISTER_BYTES = 4
# Generations of matrix instructions, by the first word of their names. Falling back to an earlier generation loses speed.
_GENERATIONS = ("mma", "wgmma", "tcgen05")
# The tile shape in the name of a matrix instruction. A retuned tile uses another shape, which is no loss.
_SHAPE = re.compile(r"m\d+n\d+k\d+|\d+x\d+x\d+")


def deltas(before: CompiledKernel, after: CompiledKernel) -> tuple[Delta, ...]:
    """Return every figure that differs, gravest concern first. A kernel that only breaks its gates has figures to compare."""
    verdict = tuple(_verdict(before, after))
    if before.registers is None or after.registers is None:  # no binary, or no tool that reads it
        return verdict
    return (
        *verdict,
        *_matrix(before, after),
        *_more(Concern.SPILLS, "spilled registers", before.spills, after.spills, scale=_REGISTER_BYTES),
        *_private(before, after),
        *_occupancy(before, after),
        *_access(before, after),
        *_copies(before, after),
        *_more(Concern.REGISTERS, "registers", before.registers, after.registers),
        *_kinds(before, after),
        *_more(Concern.SHARED, "shared memory", before.shared_bytes, after.shared_bytes, size=True),
        *_binary(before, after),
    )


def _verdict(before: CompiledKernel, after: CompiledKernel) -> Iterator[Delta]:
    old, new = _ending(before), _ending(after)
    if old is not new:
        worse = new.severity > old.severity
        was, now = (NotRun.DISCARDED.value if row.is_discarded else row.verdict.value for row in (before, after))
        yield Delta(Concern.VERDICT, _trend(worse), "verdict", was, now, float(max(old.severity, new.severity)))


def _ending(row: CompiledKernel) -> Verdict:
    """Return its verdict; a configuration that an autotuner discards fails nobody, and its figures are compared like any other's."""
    return Verdict.PASSED if row.is_discarded else row.verdict


def _trend(worse: bool) -> Trend:
    return Trend.WORSE if worse else Trend.BETTER


def _bytes(count: int) -> str:
    """Return an exact size, so that two different sizes never look the same."""
    return f"{count} B" if count % 1024 or not count else f"{count // 1024} KiB"


def _more(concern: Concern, what: str, before: int | None, after: int | None, size: bool = False, scale: int = 1) -> Iterator[Delta]:
    """Compare a figure for which more is worse."""
    if before is None or after is None or before == after:
        return
    shown = (_bytes(before), _bytes(after)) if size else (str(before), str(after))
    yield Delta(concern, _trend(after > before), what, *shown, float(abs(after - before) * scale))


def _private(before: CompiledKernel, after: CompiledKernel) -> Iterator[Delta]:
    """Compare private memory, unless it only holds the spilled registers: those are reported already."""
    if before.private_bytes or after.private_bytes:
        yield from _more(Concern.SPILLS, "private memory", before.stack_bytes, after.stack_bytes, size=True)


def _names(row: CompiledKernel, matrix: bool) -> dict[str, int | None]:
    """Return the counts of matrix instructions, or of asynchronous copies, by name. A count is None if only names were kept."""
    if row.instructions is None:
        return dict.fromkeys(row.matrix) if matrix else {}
    return {name: count for name, count in row.instructions.items() if (name in row.matrix) == matrix}


def _counts(concern: Concern, trend: Trend, before: dict[str, int | None], after: dict[str, int | None]) -> Iterator[Delta]:
    """Yield a delta per name. Only a lost name is worse and only a new one is better: counts depend on the tile and on unrolling."""
    for name in sorted({**before, **after}):
        old, new = before.get(name, 0), after.get(name, 0)
        if old == new or (old is None and new) or (new is None and old):  # both have it, only one has a count
            continue
        moved = trend if (trend is Trend.WORSE and new == 0) or (trend is Trend.BETTER and old == 0) else Trend.NEITHER
        shown = ["some" if count is None else str(count) for count in (old, new)]
        yield Delta(concern, moved, name, shown[0], shown[1], float(abs((old or 0) - (new or 0))))


def _matrix(before: CompiledKernel, after: CompiledKernel) -> Iterator[Delta]:
    """Compare matrix instructions: worse if a kind is gone without replacement, or an earlier generation replaces it."""
    old, new = _names(before, matrix=True), _names(after, matrix=True)
    kinds = [{_SHAPE.sub("", name) for name in names} for names in (old, new)]
    generations = [max((_generation(name) for name in names), default=-1) for names in (old, new)]
    if generations[0] != generations[1] and old and new:
        trend = _trend(generations[1] < generations[0])
    else:
        trend = Trend.WORSE if kinds[1] < kinds[0] else Trend.BETTER if kinds[0] < kinds[1] else Trend.NEITHER
    yield from _counts(Concern.MATRIX, trend, old, new)


def _generation(name: str) -> int:
    family = re.match(r"\w*", name)
    return _GENERATIONS.index(family.group()) if family and family.group() in _GENERATIONS else 0


def _copies(before: CompiledKernel, after: CompiledKernel) -> Iterator[Delta]:
    """Compare asynchronous copies: worse if none is left, better if there were none before."""
    if before.instructions is None or after.instructions is None:
        return
    old, new = _names(before, matrix=False), _names(after, matrix=False)
    yield from _counts(Concern.ACCESS, Trend.NEITHER if old and new else _trend(not new), old, new)


def _occupancy(before: CompiledKernel, after: CompiledKernel) -> Iterator[Delta]:
    if before.occupancy is None or after.occupancy is None:
        return
    if before.occupancy == after.occupancy and before.programs == after.programs:
        return
    fell = before.occupancy - after.occupancy
    trend = _trend(fell > 0) if fell else Trend.NEITHER
    yield Delta(Concern.OCCUPANCY, trend, "occupancy", _resident(before), _resident(after), abs(fell))


def _resident(row: CompiledKernel) -> str:
    """`75% (6x8w, registers)`: share of the warp slots, programs x warps of each, and the resource that limits them."""
    why = "" if row.occupancy == 1 else "".join(f", {resource}" for resource in row.limited_by or ())
    return f"{row.occupancy:.0%} ({row.programs}x{row.num_warps}w{why})"


def _access(before: CompiledKernel, after: CompiledKernel) -> Iterator[Delta]:
    """Compare the widest global load and store, in bits."""
    pairs = (
        ("widest load", _widest(before.load_widths, before.load_bits), _widest(after.load_widths, after.load_bits)),
        ("widest store", _widest(before.store_widths, None), _widest(after.store_widths, None)),
    )
    for what, old, new in pairs:
        if old is not None and new is not None and old != new:
            yield Delta(Concern.ACCESS, _trend(new < old), what, str(old), f"{new} bits", float(abs(old - new)))


def _widest(widths: tuple[int, ...] | None, known: int | None) -> int | None:
    return max(widths, default=known) if widths is not None else known


def _kinds(before: CompiledKernel, after: CompiledKernel) -> Iterator[Delta]:
    """Compare the kinds of registers, if known separately. They explain a change of `registers`; alone they are neither good nor bad."""
    kinds = [("SGPR", before.sgprs, after.sgprs), ("AGPR", before.agprs, after.agprs)]
    if before.agprs or after.agprs:  # otherwise VGPRs are the registers, reported already
        kinds.insert(0, ("VGPR", before.vgprs, after.vgprs))
    for what, old, new in kinds:
        if old is not None and new is not None and old != new:
            yield Delta(Concern.REGISTERS, Trend.NEITHER, what, str(old), str(new), float(abs(old - new)))


def _binary(before: CompiledKernel, after: CompiledKernel) -> Iterator[Delta]:
    old, new = before.binary_bytes, after.binary_bytes
    if old and new and abs(new - old) > _SIZE_NOISE * min(old, new):
        yield Delta(Concern.SIZE, _trend(new > old), "binary", _bytes(old), _bytes(new), abs(new - old) / min(old, new))
