"""Comparison → sections: the grid of kernel functions and cards, and what was checked without a card. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields

from warpwave.compare.answer import is_uncompiled
from warpwave.compare.model import Comparison, Fit, Grid, GridCell, Right, TargetSummary
from warpwave.records import Defect, GateLimits, Gates, NotRun, Verdict, grouped, plural, reasons
from warpwave.render.sections.model import Bit, Line, Section, name, say
from warpwave.render.text import NOTHING, left_out_of

TITLE = "Is it right, and does it run?"
CHECKED = "What was checked"
_LEGEND = (
    "right: tests that pass. ✓ 64 50%: it can launch on that card, with 64 registers a thread, and 50% of a multiprocessor's warps fit "
    "(occupancy){}. This is read from the compiled code; nothing ran on a card."
)
_VERDICTS = {Fit.RUNS: Verdict.PASSED, Fit.ADVICE: Verdict.ABSENT, Fit.UNKNOWN: Verdict.NOT_RUN}


def grid(found: Grid, most: int | None = None) -> list[Section]:
    """Return the table of the `most` worst functions."""
    if not found.rows:
        return []
    shown = found.rows[:most]
    rows = tuple((say(name(row.name)), *map(right, row.right), *map(cell, row.cells)) for row in shown)
    heads = say("kernel"), *(say(name(where)) for where in found.where.values()), *(say(name(card.name)) for card in found.cards)
    first = 1 + len(found.where)
    vendors = grouped((card.vendor, position) for position, card in enumerate(found.cards, start=first))
    groups = [("right", tuple(range(1, first))), *((vendor or "other", tuple(columns)) for vendor, columns in vendors.items())]
    rest = found.rows[len(shown) :]
    lines = (say(f"… and {plural(len(rest), 'kernel')} more, no worse than these: in comparison.json"),) if rest else ()
    legend = (_LEGEND.format("; -: not launched there" if any(None in row.cells for row in shown) else ""),) if found.cards else ()
    return [Section(TITLE, heads, rows, lines, legend, groups=tuple(group for group in groups if group[1]))]


def right(tests: Right | None) -> Line:
    """`✓ 199`, `2 fail`, `1 suspected`, `1 known`: the tests of a function on a target."""
    if tests is None:
        return say(NOTHING)
    if tests.failed > tests.suspected:
        return say(Bit(f"{tests.failed} fail{'s' if tests.failed == 1 else ''}", Verdict.FAILED))
    if tests.suspected:
        return say(Bit(f"{tests.suspected} suspected", Verdict.ABSENT))
    known = say(Bit(f"{tests.known} known", Verdict.KNOWN)) if tests.known else ()
    if tests.passed:
        return say(Bit("✓", Verdict.PASSED), f" {tests.passed}{', ' if known else ''}", *known)
    return known or say(Bit("none ran", Verdict.NOT_RUN))


def cell(found: GridCell | None) -> Line:
    """`✓ 60 50%`, or in two words why it does not run, or what there is to see."""
    if found is None:
        return say(NOTHING)
    if found.fit is not Fit.RUNS:
        return say(Bit(found.cause, _VERDICTS.get(found.fit, Verdict.FAILED)))
    registers = "" if found.registers is None else f" {found.registers}"
    return say(Bit("✓", Verdict.PASSED), registers, "" if found.occupancy is None else f" {found.occupancy:.0%}")


def checked(comparison: Comparison) -> list[Section]:
    """Return a line for each kind of check: memory, gates, and what was left out."""
    lines = [*_memory(comparison), *_gates(comparison), *_left_out(comparison)]
    return [Section(CHECKED, lines=tuple(lines))] if lines else []


def _memory(comparison: Comparison) -> list[Line]:
    tested = [target for target in comparison.targets if target.tests]
    checking = [target for target in tested if target.sanitized and _ran(target)]
    if not tested:
        return []
    if not checking:
        return [say("memory: ", Bit("not checked", Verdict.NOT_RUN))]
    ran: list[str | Bit] = []
    for target in checking:
        ran += [*([", "] if ran else []), f"{plural(_ran(target), 'test')} on ", name(target.target)]
    found = Counter(row.finding.defect.value for row in comparison.findings)
    if found:
        counted = (Defect.RACE.value, Defect.UNINITIALISED.value)  # the others are no nouns, or have a plural
        defects = ", ".join(plural(count, word) if word in counted else f"{count} {word}" for word, count in found.items())
        return [say("memory: ", Bit(defects, Verdict.FAILED), " in ", *ran)]
    # The machine code of an emulated target shows which memory was read, and not whether somebody has written it.
    emulated = [target for target in checking if target.emulated]
    if not emulated:
        return [say("memory: nothing out of bounds, no unwritten value read, no race in ", *ran)]
    rest = f"; reads of unwritten values were not looked for on {', '.join(target.target for target in emulated)}"
    return [say("memory: nothing out of bounds, no race in ", *ran, rest)]


def _ran(target: TargetSummary) -> int:
    """Return how many tests ran. One that ended with an error, or is known to fail, may not have launched anything."""
    return sum(target.tests.get(verdict.value, 0) for verdict in (Verdict.PASSED, Verdict.XFAILED, Verdict.FAILED))


def _gates(comparison: Comparison) -> list[Line]:
    judged = [target for target in comparison.targets if target.gates and target.compiled]
    if not judged:
        return []
    own = {target.target for target in judged}
    made = [cell.compiled for cell in comparison.compiled_cells if cell.target in own]
    total = sum(count for target in judged for word, count in target.compiled.items() if word != Verdict.NOT_RUN.value)
    total -= sum(map(is_uncompiled, made))
    broken = sum(target.only_gates for target in judged)
    known = sum(target.compiled.get(Verdict.KNOWN.value, 0) for target in judged)
    names = ", ".join(dict.fromkeys(gate for target in judged if target.gates for gate in _closed(target.gates)))
    if not names:
        return [say("gates: none was asked for")]
    rest: list[str | Bit] = ["; ", Bit(plural(known, "known failure"), Verdict.KNOWN)] if known else []
    if broken:
        which = dict.fromkeys(gate.replace("_", " ") for row in made if row.only_gates for gate in row.broken)
        return [say("gates: ", Bit(f"{broken} of {plural(total, 'binary', 'breaks', 'break')} {', '.join(which)}", Verdict.FAILED), *rest)]
    return [say(f"gates: {f'{total - known} of ' if known else ''}{plural(total, 'binary', 'meets', 'meet')} {names}", *rest)]


def _closed(gates: Gates) -> list[str]:
    limits = [gates.limits, *(rule.limits for rule in gates.rules)]
    values = {entry.name: [getattr(limit, entry.name) for limit in limits] for entry in fields(GateLimits)}
    return [gate.replace("_", " ") for gate, found in values.items() if any(value is not None and value is not False for value in found)]


def _left_out(comparison: Comparison) -> list[Line]:
    lines = []
    for target in comparison.targets:
        said = [*_not_run(target), *([left_out_of(target)] if target.left_out else [])]
        said += [f"{plural(target.deselected, 'test')} deselected"] if target.deselected else []
        lines += [say("not checked on ", name(target.target), ": ", ", ".join(said))] if said else []
    return [*lines, say("not checked without a card: speed")]


def _not_run(target: TargetSummary) -> list[str]:
    tests = reasons(target.tests.get(Verdict.NOT_RUN.value, 0), target.tests_not_run)
    code = reasons(0, {why: count for why, count in target.host_code_not_run.items() if why != NotRun.SKIPPED.value})
    said = [f"tests: {', '.join(tests)}"] if tests else []
    return said + ([f"compiling: {', '.join(code)}"] if code else [])
