"""The gates: compare one compiled kernel with what the author of its package asks of generated code. Pure.

That a kernel compiles, and that a card can launch it, is no gate: it holds always, and is decided before any of these.
A figure that is not known breaks no gate. The row says which of the gates that were asked for could not be judged, and why.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from warpwave.records import CompiledKernel, GateLimits, Gates, Verdict


def judge(row: CompiledKernel, gates: Gates, unknown: Mapping[str, str] | None = None) -> CompiledKernel:
    """Return the row with the gates that it breaks, those of them that are waived, and those that cannot be judged; failed if one is left.

    Gates that only advise fail no row.

    `unknown` says of some gates why the figure for them is not known; for the others the reason is that the binary does not tell it.
    """
    if row.verdict is not Verdict.PASSED:
        return row
    limits = strictest([gates.limits, *(rule.limits for rule in gates.rules if rule.which.covers(row))])
    broken = {gate: found for gate, check in _CHECKS.items() if (found := check(row, getattr(limits, gate)))}
    advised = ((gate, check(row, getattr(gates.advice, gate))) for gate, check in _CHECKS.items() if gate not in broken)
    advice = {gate: found.removesuffix(", 0 allowed") for gate, found in advised if found}
    asked = [gate for gate in FIGURES if limits.asks(gate) or gates.advice.asks(gate)]
    unjudged = {gate: (unknown or {}).get(gate, _UNTOLD) for gate in asked if getattr(row, FIGURES[gate]) is None}
    waived: dict[str, str] = {}
    for waiver in gates.waivers:
        if waiver.gate in {*broken, *advice} and waiver.which.covers(row):
            waived.setdefault(waiver.gate, waiver.reason)
    left = [f"{gate}: {found}" for gate, found in broken.items() if gate not in waived]
    verdict = Verdict.FAILED if left else row.verdict
    reason = "; ".join(left) or row.reason
    return dataclasses.replace(row, verdict=verdict, broken=broken, advice=advice, waived=waived, unjudged=unjudged, reason=reason)


def strictest(limits: Sequence[GateLimits]) -> GateLimits:
    """Return for each gate the limit that is hardest to meet: rules tighten, in whatever order they are written."""
    return GateLimits(
        spills=_hardest(min, [entry.spills for entry in limits]),
        private_bytes=_hardest(min, [entry.private_bytes for entry in limits]),
        occupancy=_hardest(max, [entry.occupancy for entry in limits]),
        load_bits=_hardest(max, [entry.load_bits for entry in limits]),
        store_bits=_hardest(max, [entry.store_bits for entry in limits]),
        matrix=any(entry.matrix for entry in limits),
        explicit_precision=any(entry.explicit_precision for entry in limits),
        lds_waits=any(entry.lds_waits for entry in limits),
        release_waits=any(entry.release_waits for entry in limits),
    )


def _hardest(choose: Callable[[list[Any]], Any], values: Iterable[Any]) -> Any:
    known = [value for value in values if value is not None]
    return choose(known) if known else None


def _spills(row: CompiledKernel, limit: int | None) -> str:
    if limit is None or row.spills is None or row.spills <= limit:
        return ""
    return f"{row.spills} register{'' if row.spills == 1 else 's'}, {limit} allowed"


def _private_bytes(row: CompiledKernel, limit: int | None) -> str:
    """Spilled registers are in private memory, too. They have their own gate, and do not count here: one fault breaks one gate."""
    rest = row.private_bytes
    if limit is None or rest is None or rest <= limit:
        return ""
    return f"{rest} bytes{' beside spilled registers' if row.spills else ''}, {limit} allowed"


def _occupancy(row: CompiledKernel, limit: float | None) -> str:
    if limit is None or row.occupancy is None or row.occupancy >= limit:
        return ""
    by = f"; limited by {', '.join(row.limited_by)}" if row.limited_by else ""
    return f"{row.occupancy:.3g} of the warps, {limit:g} wanted{by}"


def _bits(widths: tuple[int, ...] | None, limit: int | None) -> str:
    """A kernel that loads (or stores) nothing does not break the gate."""
    return f"{max(widths)} bits at most, {limit} wanted" if limit is not None and widths and max(widths) < limit else ""


def _matrix(row: CompiledKernel, wanted: bool) -> str:
    return "no matrix instruction" if wanted and row.instructions is not None and not row.matrix else ""


def _explicit_precision(row: CompiledKernel, wanted: bool) -> str:
    return f"left to the compiler for fp32 operands at {', '.join(row.unnamed_precision)}" if wanted and row.unnamed_precision else ""


def _lds_waits(row: CompiledKernel, wanted: bool) -> str:
    return "; ".join(row.in_flight) if wanted else ""


def _release_waits(row: CompiledKernel, wanted: bool) -> str:
    return "; ".join(row.published_early) if wanted else ""


_CHECKS: dict[str, Callable[[CompiledKernel, Any], str]] = {
    "spills": _spills,
    "private_bytes": _private_bytes,
    "occupancy": _occupancy,
    "load_bits": lambda row, limit: _bits(row.load_widths, limit),
    "store_bits": lambda row, limit: _bits(row.store_widths, limit),
    "matrix": _matrix,
    "explicit_precision": _explicit_precision,
    "lds_waits": _lds_waits,
    "release_waits": _release_waits,
}

# The field of a row that each gate is judged by. (`explicit_precision` is judged by Triton's own IR, which every backend has;
# `lds_waits` and `release_waits` by assembly that says how a wave waits. Elsewhere hardware waits, and there is nothing to judge.)
FIGURES = {
    "spills": "spills",
    "private_bytes": "private_bytes",
    "occupancy": "occupancy",
    "load_bits": "load_widths",
    "store_bits": "store_widths",
    "matrix": "instructions",
}
_UNTOLD = "its binary does not tell"


# Find products of fp32 operands that leave their precision to the compiler, whose default differs between architectures.
#
# The compiler's own IR says which products have fp32 operands, and where each is in the source; the source says whether that call names a
# precision. If the source cannot be matched (the file is gone, the call unpacks its arguments), nothing is reported.

# file, line and column, both from 1
Place = tuple[str, int, int]

_PRODUCT = re.compile(r"\btt\.dot .*: tensor<[\dx]*xf32> \* tensor<[\dx]*xf32> -> .* loc\((.*)\)$", re.MULTILINE)
_ALIAS = re.compile(r"^(#loc\d*) = loc\((.*)\)$", re.MULTILINE)
_PLACE = re.compile(r'"([^"]*)":(\d+):(\d+)')
_NAMES = ("input_precision", "allow_tf32")
_FIRST_POSITION = 3  # dot(input, other, acc, input_precision, allow_tf32)


def unnamed_products(ttir: str) -> tuple[str, ...]:
    """Return `file.py:line` of each `tl.dot` of fp32 operands without `input_precision` or `allow_tf32`; each place once, in order."""
    # Most kernels multiply nothing, and a plain search tells in a fiftieth of the time.
    products = _PRODUCT.findall(ttir) if "tt.dot " in ttir else ()
    if not products:
        return ()
    aliases = dict(_ALIAS.findall(ttir))
    places = {place for text in products for place in _places(text, aliases) if _leaves_open(place)}
    return tuple(dict.fromkeys(f"{Path(file).name}:{line}" for file, line, _ in sorted(places)))


def _places(text: str, aliases: dict[str, str]) -> Iterator[Place]:
    """Yield the places that a location points to: for an inlined function where it is written, not where it is called."""
    text = text.removeprefix("callsite(").partition(" at ")[0] if text.startswith("callsite(") else text
    if found := _PLACE.match(text):
        yield found[1], int(found[2]), int(found[3])
        return
    for alias in re.findall(r"#loc\d*", text):
        if alias in aliases:  # each is left out below, so that no text can lead in a circle
            yield from _places(aliases[alias], {name: value for name, value in aliases.items() if name != alias})


def _leaves_open(place: Place) -> bool:
    """Return whether the call of `dot` at this place, or the only one on its line, names no precision."""
    file, line, column = place
    calls = [call for call in _products_of(_loaded(file)) if call.lineno == line]
    here = [call for call in calls if call.col_offset == column - 1] or calls
    return len(here) == 1 and not _names_precision(here[0])


@functools.cache
def _loaded(file: str) -> str:
    """Return the loaded module's file whose end is most like `file`: a cached binary names the folder of an earlier run."""
    told = Path(file)
    files = {Path(found) for module in list(sys.modules.values()) if isinstance(found := vars(module).get("__file__"), str)}
    alike = sorted(path for path in files if path.name == told.name)
    return str(max(alike, key=lambda path: _common(path.parts[::-1], told.parts[::-1]), default=told))


def _common(some: tuple[str, ...], others: tuple[str, ...]) -> int:
    """Return how many parts are the same from the beginning."""
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(some, others, strict=False))))


def _names_precision(call: ast.Call) -> bool:
    if any(isinstance(argument, ast.Starred) for argument in call.args) or any(keyword.arg is None for keyword in call.keywords):
        return True  # the precision may be among them
    told = [keyword.value for keyword in call.keywords if keyword.arg in _NAMES] + call.args[
        _FIRST_POSITION : _FIRST_POSITION + len(_NAMES)
    ]
    return any(not (isinstance(value, ast.Constant) and value.value is None) for value in told)


@functools.cache
def _products_of(file: str) -> tuple[ast.Call, ...]:
    """Return the calls of something named `dot` in a source file; none if it cannot be read."""
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ()
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return tuple(call for call in calls if getattr(call.func, "attr", getattr(call.func, "id", "")) == "dot")
