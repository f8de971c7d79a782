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
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from warpwave.records import CompiledKernel, GateLimits, Gates, Verdict


def judge(row: CompiledKernel, gates: Gates, unknown: Mapping[str, str] | None = None) -> CompiledKernel:
    """Return the row with the gates that it breaks, those of them that are waived, and those that cannot be judged; failed if one is left.

    Gates that only advise fail no row.

    `unknown` says of some gates why the figure for them is not known; for the others the reason is that the binary does not tell it. Under
    `POSSIBLE` it has what the gate `undefined_lanes` advises, because nobody knows whether a launch does it.
    """
    if row.verdict is not Verdict.PASSED:
        return row
    limits = strictest([gates.limits, *(rule.limits for rule in gates.rules if rule.which.covers(row))])
    broken, advised = _broken(row, limits), _broken(row, gates.advice)
    advice = {gate: found.removesuffix(", 0 allowed") for gate, found in advised.items() if gate not in broken}
    asked = [gate for gate in FIGURES if limits.asks(gate) or gates.advice.asks(gate)]
    unknown = unknown or {}
    figures = {gate: getattr(row, FIGURES[gate]) for gate in asked}
    missing = (gate for gate, figure in figures.items() if figure is None or (gate in _AGAINST_BASE and not figure))
    unjudged = {gate: unknown.get(gate, _UNTOLD) for gate in missing}
    if limits.undefined_lanes:
        if "undefined_lanes" in unknown:
            unjudged["undefined_lanes"] = unknown["undefined_lanes"]
        if POSSIBLE in unknown and "undefined_lanes" not in broken:
            advice["undefined_lanes"] = unknown[POSSIBLE]
    against = {gate: float(most) for gate in _AGAINST_BASE if (most := getattr(limits, gate)) is not None}
    waived: dict[str, str] = {}
    for waiver in gates.waivers:
        if waiver.gate in {*broken, *advice, *against} and waiver.which.covers(row):
            waived.setdefault(waiver.gate, waiver.reason)
    left = [f"{gate}: {found}" for gate, found in broken.items() if gate not in waived]
    verdict = Verdict.FAILED if left else row.verdict
    reason = "; ".join(left) or row.reason
    against = {gate: most for gate, most in against.items() if gate not in waived}
    judged = {"verdict": verdict, "broken": broken, "advice": advice, "waived": waived, "unjudged": unjudged, "reason": reason}
    return dataclasses.replace(row, against_base=against, **judged)  # type: ignore[arg-type]


def strictest(limits: Sequence[GateLimits]) -> GateLimits:
    """Return for each gate the limit that is hardest to meet: rules tighten, in whatever order they are written."""
    hardest: dict[str, Any] = {}
    for gate in (field.name for field in dataclasses.fields(GateLimits)):
        known = [value for entry in limits if (value := getattr(entry, gate)) is not None]
        # The most that is allowed of these, the least that is wanted of all others. A gate that is only on or off is on if any is.
        hardest[gate] = (min if gate in ("spills", "private_bytes", *_AGAINST_BASE) else max)(known, default=None)
    return GateLimits(**hardest)


def _broken(row: CompiledKernel, limits: GateLimits) -> dict[str, str]:
    """Return the gates that a row breaks, each with what was found. A kernel that loads (or stores) nothing breaks no gate of widths."""
    found: dict[str, str] = {}
    spills, rest = row.spills or 0, row.private_bytes or 0
    if limits.spills is not None and spills > limits.spills:
        found["spills"] = f"{spills} register{'' if spills == 1 else 's'}, {limits.spills} allowed"
    # Spilled registers are in private memory, too. They have their own gate, and do not count here: one fault breaks one gate.
    if limits.private_bytes is not None and rest > limits.private_bytes:
        found["private_bytes"] = f"{rest} bytes{' beside spilled registers' if spills else ''}, {limits.private_bytes} allowed"
    if limits.occupancy is not None and row.occupancy is not None and row.occupancy < limits.occupancy:
        by = f"; limited by {', '.join(row.limited_by)}" if row.limited_by else ""
        found["occupancy"] = f"{row.occupancy:.3g} of the warps, {limits.occupancy:g} wanted{by}"
    for gate, widths, least in (("load_bits", row.load_widths, limits.load_bits), ("store_bits", row.store_widths, limits.store_bits)):
        if least is not None and widths and max(widths) < least:
            found[gate] = f"{max(widths)} bits at most, {least} wanted"
    if limits.matrix and row.instructions is not None and not row.matrix:
        found["matrix"] = "no matrix instruction"
    if limits.explicit_precision and row.unnamed_precision:
        found["explicit_precision"] = f"left to the compiler for fp32 operands at {', '.join(row.unnamed_precision)}"
    if limits.lds_waits and row.in_flight:
        found["lds_waits"] = "; ".join(row.in_flight)
    if limits.release_waits and row.published_early:
        found["release_waits"] = "; ".join(row.published_early)
    if limits.undefined_lanes and row.undefined_lanes:
        found["undefined_lanes"] = "; ".join(row.undefined_lanes)
    return found


# The field of a row that each gate is judged by. (`explicit_precision` and `undefined_lanes` are judged by Triton's own IR, which every
# backend has; `lds_waits` and `release_waits` by assembly that says how a wave waits: elsewhere hardware waits.)
FIGURES = {
    "spills": "spills",
    "private_bytes": "private_bytes",
    "occupancy": "occupancy",
    "load_bits": "load_widths",
    "store_bits": "store_widths",
    "matrix": "instructions",
    "compile_time": "seconds",
    "compile_memory": "peak_bytes",
}
_AGAINST_BASE = ("compile_time", "compile_memory")
POSSIBLE = "possible"
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
    wanted = Path(file)
    files = {Path(found) for module in list(sys.modules.values()) if isinstance(found := vars(module).get("__file__"), str)}

    def common(path: Path) -> int:
        """Return how many parts of the two paths are the same from their ends."""
        return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(path.parts[::-1], wanted.parts[::-1], strict=False))))

    return str(max(sorted(path for path in files if path.name == wanted.name), key=common, default=wanted))


def _names_precision(call: ast.Call) -> bool:
    if any(isinstance(argument, ast.Starred) for argument in call.args) or any(keyword.arg is None for keyword in call.keywords):
        return True  # the precision may be among them
    named = [keyword.value for keyword in call.keywords if keyword.arg in _NAMES]
    given = [*named, *call.args[_FIRST_POSITION : _FIRST_POSITION + len(_NAMES)]]
    return any(not (isinstance(value, ast.Constant) and value.value is None) for value in given)


@functools.cache
def _products_of(file: str) -> tuple[ast.Call, ...]:
    """Return the calls of something named `dot` in a source file; none if it cannot be read."""
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ()
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return tuple(call for call in calls if getattr(call.func, "attr", getattr(call.func, "id", "")) == "dot")
