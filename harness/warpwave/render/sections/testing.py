"""Comparison → sections: what the sanitizer found, by line of a kernel."""

from __future__ import annotations

from collections.abc import Iterable

from warpwave.compare.model import Comparison, DeviceSummary, ParityRow, Standing, TargetSummary, TestFinding
from warpwave.records import HOST_ERROR_PROPERTY, Verdict, grouped, plural, with_card
from warpwave.render.sections.model import MOST_LINES, Bit, Line, Section, name, say, shorten
from warpwave.render.text import NOTHING, first_line, number

TITLE = "What kernels do to memory"


_SHORT_S = 0.05  # not worth a word


def finding_sections(comparison: Comparison, few: int | None) -> list[Section]:
    """Return two lines for each line of a kernel, target and defect: where it is, and the first example."""
    groups = grouped(
        ((row.target, found.kernel, found.function, found.place, found.defect, found.access, found.tensor), row)
        for row, found in ((row, row.finding) for row in comparison.findings)
    )
    lines = [line for rows in groups.values() for line in _lines(rows)]
    return [Section(TITLE, lines=shorten(lines, few and 2 * few))] if lines else []


def _lines(rows: list[TestFinding]) -> list[Line]:
    target, found = rows[0].target, rows[0].finding
    tests = plural(len({row.finding.case for row in rows}), "test")
    head = say(name(target), " ", Bit(found.defect.value, Verdict.FAILED), f" in {tests}: ", name(found.at))
    return [head + (say(": ", name(found.text)) if found.text else ()), say("  ", name(found.example))]


# Comparison → what became of the known failures.

# Those that need somebody first. What was not run is only counted.
_COLOURS = {
    Standing.CHANGED: Verdict.FAILED,
    Standing.EXPIRED: Verdict.FAILED,
    Standing.ADDED: Verdict.ABSENT,
    Standing.FIXED: Verdict.PASSED,
    Standing.GONE: Verdict.ABSENT,
    Standing.KNOWN: Verdict.KNOWN,
}


def known_sections(comparison: Comparison, few: int | None) -> list[Section]:
    """Return a line for each known failure that was run, those first that are to be looked at; empty without a list."""
    known = comparison.known
    if known is None or not known.uses:
        return []
    lines = [
        say(Bit(standing.value, colour), *((" on ", name(", ".join(use.targets))) if use.targets else ()), ": ", name(use.entry))
        + (say("  # ", name(use.comment)) if use.comment else ())
        for standing, colour in _COLOURS.items()
        for use in known.of(standing)
    ]
    unseen = len(known.of(Standing.UNSEEN))
    lines += [say(f"{plural(unseen, 'entry')} about what was not run")] if unseen else []
    legend = ["`warpwave known update --prune` removes what is not needed any more."] if known.unneeded else []
    legend += ["What this change adds to the list counts once it is merged."] if known.of(Standing.ADDED) else []
    return [Section(f"Known failures, by {known.source}", lines=shorten(lines, few), legend=tuple(legend))]


# What to say of a test that failed in the emulator and passed elsewhere: whose fault it is. Pure.

_MOST = 3  # targets named


def suspicion(row: ParityRow, target: str, targets: Iterable[TargetSummary]) -> str:
    """Return whose fault a test's failure on an emulated `target` is: host code's, or what is suspected and what settles it.

    It is empty if nothing is to say.
    """
    known = {entry.target: entry for entry in targets}
    properties = next((cell.result.properties for cell in row.cells if cell.target == target), {})
    if known[target].emulated and (by_host := properties.get(HOST_ERROR_PROPERTY)):
        return f"no fault of the emulator: {by_host}"
    if target not in row.suspected:
        return ""
    passed = [known[cell.target] for cell in row.cells if cell.result.verdict is Verdict.PASSED and not known[cell.target].emulated]
    card = known[target].emulated
    judges = [entry for entry in passed if any(device.architecture == card for device in entry.devices)]
    names = ", ".join(entry.target for entry in (judges or passed)[:_MOST])
    card = with_card(card, known[target].card)
    if judges:
        return f"suspected: it passed on {names}, a {card} card, so the emulator is wrong; report it"
    return f"suspected: it passed on {names}; a run on a {card} card settles whether the kernel or the emulator is wrong"


# Comparison → the GPUs that shared a target's work: what each did, which were lost, and how they differ. Pure.

_MOST_CARDS = 64  # GPUs per target; a file from elsewhere may name any number
_ID = 13  # characters of a long id: enough to distinguish the GPUs of one host


def several(target: TargetSummary) -> tuple[DeviceSummary, ...]:
    """Return the GPUs that ran tests or points, or were lost before; empty if there is only one."""
    used = tuple(device for device in target.devices if device.tests or device.points or device.lost)
    return used[:_MOST_CARDS] if len(used) > 1 else ()


def remarks(target: TargetSummary) -> tuple[str, ...]:
    """Return remarks about these GPUs: which were lost, and how they differ."""
    lost = [
        f"GPU {device.index} was lost, and the other GPUs did its work: {first_line(device.lost, 400)}"
        for device in several(target)
        if device.lost
    ]
    return (*lost, *(f"the cards differ in {text}" for text in target.disagreements))


def card_sections(comparison: Comparison) -> list[Section]:
    """Return one table of all targets whose work was shared; empty if there are none."""
    shared = [target for target in comparison.targets if several(target)]
    rows = tuple(_row(target, device) for target in shared for device in several(target))
    lines = shorten((say(name(target.target), ": ", name(text)) for target in shared for text in remarks(target)), None)
    heads = tuple(say(head) for head in ("target", "GPU", "name", "id", "tests", "points", "copy GB/s"))
    return [Section("Cards", heads, rows[:MOST_LINES], lines, right=(4, 5, 6))] if rows else []


def _row(target: TargetSummary, device: DeviceSummary) -> tuple[Line, ...]:
    card = name(device.uuid[:_ID]) if device.uuid else NOTHING
    names = (say(name(target.target)), say(str(device.index)), say(name(device.name)), say(card))
    copied = number(device.ceiling_gbps) if device.ceiling_gbps else NOTHING
    return (*names, say(str(device.tests)), say(str(device.points)), say(copied))


def use_of_time(target: TargetSummary) -> str:
    """Return where the run's time went: in each stage, and around them (images, containers, copies); empty if that is not known.

    It is empty also after an earlier attempt: the stages that were kept took none of this run's time.
    """
    stages = [(stage.stage.value, stage.seconds) for stage in target.stages if stage.seconds >= _SHORT_S]
    around = target.seconds - sum(seconds for _, seconds in stages)
    if not stages or target.attempts or around < -_SHORT_S:
        return ""
    parts = [f"{stage} {number(seconds)} s" for stage, seconds in (*stages, *([("around them", around)] if around >= _SHORT_S else []))]
    return f"took {number(target.seconds)} s: {', '.join(parts)}"


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
