"""Comparison → the cards that shared a target's work: who did what, which of them was lost, where they disagree. Pure."""

from __future__ import annotations

from harness.compare.comparison import Comparison, DeviceSummary, TargetSummary
from harness.render.sections.model import MOST_LINES, Line, Section, name, say, shorten
from harness.render.text import NOTHING, first_line, number

_MOST = 64  # of one host; a file from elsewhere may name any number
_ID = 13  # characters of an id that is long: enough to tell cards of one host apart


def several(target: TargetSummary) -> tuple[DeviceSummary, ...]:
    """The cards that tests or points ran on, or that were lost before any did; none where there was one only."""
    used = tuple(device for device in target.devices if device.tests or device.points or device.lost)
    return used[:_MOST] if len(used) > 1 else ()


def remarks(target: TargetSummary) -> tuple[str, ...]:
    """What a reader has to know of these cards."""
    lost = [
        f"GPU {device.index} was given up, and the others did its work: {first_line(device.lost, 400)}"
        for device in several(target)
        if device.lost
    ]
    return (*lost, *(f"the cards differ in {text}" for text in target.disagreements))


def identity(device: DeviceSummary) -> str:
    """The beginning of a card's id."""
    return (device.uuid or "")[:_ID]


def sections(comparison: Comparison) -> list[Section]:
    """One table over all targets whose work was shared; nothing where none was."""
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
