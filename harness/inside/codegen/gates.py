"""The gates: compare one compiled kernel with what the author of its package asks of generated code. Pure.

That a kernel compiles, and that a card can launch it, is no gate: it holds always, and is decided before any of these.
A figure that is not known breaks no gate. The row says which of the gates that were asked for could not be judged, and why.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from harness.records import CompiledKernel, Gates, Limits, Verdict


def judge(row: CompiledKernel, gates: Gates, unknown: Mapping[str, str] | None = None) -> CompiledKernel:
    """Return the row with the gates that it breaks, those of them that are waived, and those that cannot be judged; failed if one is left.

    `unknown` says of some gates why the figure for them is not known; for the others the reason is that the binary does not tell it.
    """
    if row.verdict is not Verdict.PASSED:
        return row
    limits = strictest([gates.limits, *(rule.limits for rule in gates.rules if rule.which.covers(row))])
    broken = {gate: found for gate, check in _CHECKS.items() if (found := check(row, getattr(limits, gate)))}
    asked = [gate for gate in FIGURES if getattr(limits, gate) is not None and getattr(limits, gate) is not False]
    unjudged = {gate: (unknown or {}).get(gate, _UNTOLD) for gate in asked if getattr(row, FIGURES[gate]) is None}
    waived: dict[str, str] = {}
    for waiver in gates.waivers:
        if waiver.gate in broken and waiver.which.covers(row):
            waived.setdefault(waiver.gate, waiver.reason)
    left = [f"{gate}: {found}" for gate, found in broken.items() if gate not in waived]
    verdict = Verdict.FAILED if left else row.verdict
    reason = "; ".join(left) or row.reason
    return dataclasses.replace(row, verdict=verdict, broken=broken, waived=waived, unjudged=unjudged, reason=reason)


def strictest(limits: Sequence[Limits]) -> Limits:
    """Return for each gate the limit that is hardest to meet: rules tighten, in whatever order they are written."""
    return Limits(
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
