"""What to say of a test that failed in the emulator and passed elsewhere: whose fault it is. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from harness.compare.model import ParityRow, TargetSummary
from harness.records import HOST_ERROR_PROPERTY, Verdict

_MOST = 3  # targets named


def suspicion(row: ParityRow, target: str, targets: Iterable[TargetSummary]) -> str:
    """Return whose fault a test's failure on an emulated `target` is: host code's, or what is suspected and what settles it.

    It is empty if nothing is to say.
    """
    known = {entry.target: entry for entry in targets}
    properties = next((cell.result.properties for cell in row.cells if cell.target == target), {})
    if known[target].emulated and (by_host := properties.get(HOST_ERROR_PROPERTY)):
        return f"no fault of the emulator: {by_host}; a {known[target].emulated} card does the same"
    if target not in row.suspected:
        return ""
    passed = [known[cell.target] for cell in row.cells if cell.result.verdict is Verdict.PASSED and not known[cell.target].emulated]
    card = known[target].emulated
    judges = [entry for entry in passed if any(device.architecture == card for device in entry.devices)]
    names = ", ".join(entry.target for entry in (judges or passed)[:_MOST])
    if judges:
        return f"suspected: it passed on {names}, a {card} card, so the emulator is wrong; report it"
    return f"suspected: it passed on {names}; a run on a {card} card settles whether the kernel or the emulator is wrong"
