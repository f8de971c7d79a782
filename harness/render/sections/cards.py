"""Comparison → the GPUs that shared a target's work: what each did, which were lost, and how they differ. Pure."""

from __future__ import annotations

from harness.compare.model import Comparison, DeviceSummary, TargetSummary
from harness.render.sections.model import MOST_LINES, Line, Section, name, say, shorten
from harness.render.text import NOTHING, first_line, number, plural

_MOST = 64  # GPUs per target; a file from elsewhere may name any number
_ID = 13  # characters of a long id: enough to distinguish the GPUs of one host


def several(target: TargetSummary) -> tuple[DeviceSummary, ...]:
    """Return the GPUs that ran tests or points, or were lost before; empty if there is only one."""
    used = tuple(device for device in target.devices if device.tests or device.points or device.lost)
    return used[:_MOST] if len(used) > 1 else ()


def remarks(target: TargetSummary) -> tuple[str, ...]:
    """Return remarks about these GPUs: which were lost, and how they differ."""
    lost = [
        f"GPU {device.index} was lost, and the other GPUs did its work: {first_line(device.lost, 400)}"
        for device in several(target)
        if device.lost
    ]
    return (*lost, *(f"the cards differ in {text}" for text in target.disagreements))


def identity(device: DeviceSummary) -> str:
    """Return the beginning of a GPU's id."""
    return (device.uuid or "")[:_ID]


def sections(comparison: Comparison) -> list[Section]:
    """Return one table of all targets whose work was shared; empty if there are none."""
    shared = [target for target in comparison.targets if several(target)]
    rows = tuple(_row(target, device) for target in shared for device in several(target))
    lines = shorten((say(name(target.target), ": ", name(text)) for target in shared for text in remarks(target)), None)
    heads = tuple(say(head) for head in ("target", "GPU", "name", "id", "tests", "points", "copy GB/s"))
    return [Section("Cards", heads, rows[:MOST_LINES], lines, right=(4, 5, 6))] if rows else []


def _row(target: TargetSummary, device: DeviceSummary) -> tuple[Line, ...]:
    names = (
        say(name(target.target)),
        say(str(device.index)),
        say(name(device.name)),
        say(name(identity(device)) if device.uuid else NOTHING),
    )
    copied = number(device.ceiling_gbps) if device.ceiling_gbps else NOTHING
    return (*names, say(str(device.tests)), say(str(device.points)), say(copied))


def use_of_cards(target: TargetSummary) -> str:
    """Return for how long the run had its cards and what for, in one sentence; empty if it had none."""
    use = target.card_use
    if use is None:
        return ""
    share = f" ({use.used_s / use.held_s:.0%})" if use.held_s else ""
    several = "cards" if len(target.devices) > 1 else "card"
    together = " in all" if several == "cards" else ""
    compiled = f"{plural(use.compiled_ahead, 'kernel')} compiled on that machine before, {use.compiled_meanwhile} meanwhile"
    return f"held its {several} for {use.held_s:.0f} s{together}, {use.used_s:.0f} s{share} for tests and timing; {compiled}"
