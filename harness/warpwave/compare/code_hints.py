"""The code of one case on two architectures: the figures beside each other, and what their differences hint at. Pure.

A hint is made only of figures that both sides have. It says what may hold the kernel back, never what does: the binaries show a difference,
and only a measurement shows its price.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Union

from warpwave.records import CompiledKernel, plural

_FEWER = 0.75  # of the warps there: less is worth a hint
_LONGEST = 160  # characters of a figure
_MOST = 20  # configurations that are written out


@dataclass(frozen=True)
class Figure:
    """One figure of the generated code, here and there, as text."""

    name: str
    here: str
    there: str

    @property
    def differs(self) -> bool:
        """Whether the two sides differ."""
        return self.here != self.there


@dataclass(frozen=True)
class Hint:
    """What may hold a kernel back or what to try, the evidence for it, and the cause in at most five words."""

    text: str
    evidence: str
    cause: str = ""


@dataclass(frozen=True)
class Side:
    """All that one case launches on one architecture."""

    architecture: str
    made: tuple[CompiledKernel, ...]


def figures(here: Side, there: Union[Side, None] = None) -> tuple[Figure, ...]:
    """Return the figures that both sides have, in the order in which a reader looks for a cause; with one side, those of that side."""
    if there is None:
        return tuple(Figure(name, text, "") for name, draw in _DRAWN.items() if (text := draw(here.made)))
    rows = [Figure("launches", str(len(here.made)), str(len(there.made)))]
    rows += [Figure(name, draw(here.made), draw(there.made)) for name, draw in _DRAWN.items()]
    return tuple(row for row in rows if row.here and row.there)


def hints(here: Side, there: Union[Side, None] = None) -> tuple[Hint, ...]:
    """Return what the differences hint at, the costliest kind first. With one side, only spills say something by themselves."""
    if there is None:
        alone = _spills(here, Side("", tuple(replace(made, spills=0) for made in here.made)))
        return (replace(alone, evidence=alone.evidence.partition(", ")[0]),) if alone else ()
    found = (make(here, there) for make in (_spills, _matrix, _loads, _occupancy, _launches, _configuration))
    return tuple(hint for hint in found if hint)


def _spills(here: Side, there: Side) -> Union[Hint, None]:
    mine, theirs = _most(here, "spills"), _most(there, "spills")
    if mine is None or theirs is None or mine <= theirs:
        return None
    return Hint(
        "Spilled registers may cost it memory traffic: try a smaller block or more warps.",
        f"{mine} registers spilled on {here.architecture}, {theirs} on {there.architecture}",
        f"{mine} registers spilled",
    )


def _matrix(here: Side, there: Side) -> Union[Hint, None]:
    mine, theirs = _names(here.made), _names(there.made)
    if mine or not theirs:
        return None
    return Hint(
        "Its products may not run on the matrix units: check types and tile sizes of `tl.dot`.",
        f"no matrix instruction on {here.architecture}, {theirs} on {there.architecture}",
        "no matrix instructions",
    )


def _loads(here: Side, there: Side) -> Union[Hint, None]:
    mine, theirs = _most(here, "load_bits"), _most(there, "load_bits")
    if not mine or not theirs or mine >= theirs:
        return None
    return Hint(
        "Narrow loads may cost it bandwidth: check alignment, contiguity and the block size a warp shares.",
        f"the widest global load has {mine} bits on {here.architecture}, {theirs} on {there.architecture}",
        f"loads of only {mine} bits",
    )


_RELIEF = {
    "registers": "fewer registers (a smaller block, more warps)",
    "scalars": "fewer scalar registers",
    "shared": "less shared memory (a smaller tile, fewer stages)",
    "programs": "larger programs (more warps)",
    "warps": "smaller programs",
}


def _occupancy(here: Side, there: Side) -> Union[Hint, None]:
    mine, theirs = (min(_known(side.made, "occupancy"), default=None) for side in (here, there))
    if not mine or not theirs or mine >= theirs * _FEWER:
        return None
    least = min((made for made in here.made if made.occupancy is not None), key=lambda made: made.occupancy or 0)
    limits = [limit for limit in least.limited_by or () if limit in _RELIEF]
    relief = f": {_RELIEF[limits[0]]} would let more of them in" if limits else ""
    warps = f" ({least.resident_warps} warps a multiprocessor" + (f", limited by {', '.join(limits)})" if limits else ")")
    return Hint(
        f"Few warps are resident to hide the latency of memory{relief}.",
        f"occupancy {mine:.0%}{warps if least.resident_warps else ''} on {here.architecture}, {theirs:.0%} on {there.architecture}",
        f"occupancy of only {mine:.0%}",
    )


def _launches(here: Side, there: Side) -> Union[Hint, None]:
    if len(here.made) <= len(there.made):
        return None
    return Hint(
        "It runs this case in more launches, which may read the data more than once.",
        f"{len(here.made)} launches or configurations on {here.architecture}, {len(there.made)} on {there.architecture}",
        f"{len(here.made)} launches instead of {len(there.made)}",
    )


def _configuration(here: Side, there: Side) -> Union[Hint, None]:
    moved = _moved(here.made[0], there.made[0]) if len(here.made) == len(there.made) == 1 else ""
    text = "It is tuned otherwise here: try the other configuration, and those between the two."
    return Hint(text, moved, "tuned otherwise") if moved else None


def _moved(here: CompiledKernel, there: CompiledKernel) -> str:
    """`ROWS 2 here, 1 there; 4 warps here, 2 there`. Stages alone are no choice of the author: each backend has its own default."""
    names = {**here.constants, **there.constants}
    values = ((name, here.constants.get(name, "none"), there.constants.get(name, "none")) for name in names)
    moved = [f"{name} {one} here, {other} there" for name, one, other in values if one != other]
    if here.num_warps is not None and there.num_warps not in (None, here.num_warps):
        moved.append(f"{plural(here.num_warps, 'warp')} here, {there.num_warps} there")
    return _cut("; ".join(moved))


def _most(side: Side, field: str) -> Union[int, None]:
    return max(_known(side.made, field), default=None)


def _known(made: Iterable[CompiledKernel], field: str) -> list[int]:
    return [value for row in made if (value := getattr(row, field)) is not None]


def _range(field: str, form: str = "{}") -> Callable[[Sequence[CompiledKernel]], str]:
    """Return a function that draws the least and the most of a figure."""

    def draw(made: Sequence[CompiledKernel]) -> str:
        found = _known(made, field)
        ends = dict.fromkeys((min(found), max(found))) if found else {}
        return " to ".join(form.format(end) for end in ends)

    return draw


def _names(made: Sequence[CompiledKernel]) -> str:
    return _cut(", ".join(dict.fromkeys(name for row in made for name in row.matrix)))


def _limits(made: Sequence[CompiledKernel]) -> str:
    return ", ".join(dict.fromkeys(name for row in made for name in row.limited_by or ()))


def _tuned(made: Sequence[CompiledKernel]) -> str:
    """`BLOCK=1024, 4 warps, 2 stages` of each configuration."""
    found = []
    for row in made[:_MOST]:
        parts = [f"{name}={value}" for name, value in row.constants.items()]
        parts += [plural(count, noun) for count, noun in ((row.num_warps, "warp"), (row.num_stages, "stage")) if count is not None]
        found.append(", ".join(parts))
    return _cut("; ".join(dict.fromkeys(found)))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"


_DRAWN: dict[str, Callable[[Sequence[CompiledKernel]], str]] = {
    "registers a thread": _range("registers"),
    "spilled registers": _range("spills"),
    "occupancy": _range("occupancy", "{:.0%}"),
    "limited by": _limits,
    "warps a multiprocessor": _range("resident_warps"),
    "widest global load": _range("load_bits", "{} bits"),
    "shared memory": _range("shared_bytes", "{} B"),
    "matrix instructions": lambda made: _names(made) or ("none" if any(row.registers is not None for row in made) else ""),
    "configuration": _tuned,
}
