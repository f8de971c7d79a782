"""What an upgrade changes → a sentence, and sections: the worst first. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from warpwave.compare.changed_codegen import Change, Concern, Trend
from warpwave.compare.model import Change as SpeedChange
from warpwave.compare.model import is_dead
from warpwave.compare.search import Answer, Bisection
from warpwave.compare.tests import Fate
from warpwave.compare.upgrade import ChangedWaits, FirstPass, Stale, Upgrade
from warpwave.records import Verdict, grouped, plural
from warpwave.render.sections.changes import changed_speed_sections, changed_test_sections, diff_sections, shorten_lines
from warpwave.render.sections.model import Bit, Line, Section, name, say
from warpwave.render.text import first_line
from warpwave.stats import geometric_mean

_FEW = 10
_WORDS = {
    Concern.ORDER: "barriers and waits that order shared memory",
    Concern.MATRIX: "matrix instructions",
    Concern.SPILLS: "spills and private memory",
    Concern.OCCUPANCY: "occupancy",
    Concern.ACCESS: "access widths",
    Concern.REGISTERS: "registers",
    Concern.SHARED: "shared memory",
    Concern.SIZE: "size of the binary",
    Concern.COMPILE: "compile time and memory",
}


_MINOR = (Concern.REGISTERS, Concern.SHARED, Concern.SIZE)


def sentence(found: Upgrade, stale: Sequence[Stale] = ()) -> str:
    """Return the answer in one line: `Triton 3.8.0 → 3.9.0: 2 functions spill more (gfx942), 1 test fails now (cpu).`"""
    parts = [*_tests(found), *_code(found), *_waits(found), *_slower(found)]
    parts += [plural(len(stale), "tuned configuration", "is stale", "are stale")] if stale else []
    grown = sum(one.worse for one in found.errors)
    parts += [f"{plural(grown, 'recorded error')} grew"] if grown else []
    if not parts and not found.compared:
        parts = ["nothing was compared"]
    elif not parts:
        minor = [_WORDS[concern] for concern in _MINOR if found.code and any(one.worse_in([concern]) for one in found.code.diff.changes)]
        parts = [f"nothing got worse{f' but {_and(minor)}' if minor else ''}"]
    # Peers count only if there are no others.
    points = [point for point in found.speeds.points if point.speedup is not None] if found.speeds else []
    own = [point for point in points if point.provider not in found.peers] or points
    means = grouped((point.target, point.speedup) for point in own if point.speedup is not None)
    parts += [f"geomean {geometric_mean(values):.2f} on {target}" for target, values in means.items()]
    parts += [f"incomplete: {found.faults[0]}"] if found.faults else []
    return f"{_title(found)}: {', '.join(parts)}."


def _and(words: Sequence[str]) -> str:
    """`registers, shared memory and size of the binary`."""
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _title(found: Upgrade) -> str:
    """`Triton 3.8.0 → 3.9.0` if the two differ in nothing else, else the toolchains' names."""
    if list(found.versions) == ["triton"]:
        return f"Triton {' → '.join(found.versions['triton'])}"
    return f"{found.base} → {found.head}"


def _tests(found: Upgrade) -> list[str]:
    broken = found.tests.of(Fate.BROKEN)
    parts = [f"{plural(len(broken), 'test', 'fails', 'fail')} now ({_where(one.target for one in broken)})"] if broken else []
    lost = plural(len(found.tests.lost), "test", "that passed is", "that passed are")
    return [*parts, *([f"{lost} gone, skipped or expected to fail"] if found.tests.lost else [])]


def _code(found: Upgrade) -> list[str]:
    if found.code is None:
        return []
    changes = found.code.diff.changes
    broken = [one for one in changes if _died(one)]
    wordings = [(broken, "no longer compiles", "no longer compile")]
    for concern, one, many in (
        (Concern.ORDER, "lost a barrier or a wait", "lost barriers or waits"),
        (Concern.SPILLS, "spills more", "spill more"),
        (Concern.MATRIX, "loses matrix instructions", "lose matrix instructions"),
        (Concern.OCCUPANCY, "loses occupancy", "lose occupancy"),
        (Concern.ACCESS, "has narrower accesses", "have narrower accesses"),
        (Concern.COMPILE, "takes far more to compile", "take far more to compile"),
    ):
        wordings.append(([change for change in changes if change.worse_in([concern]) and not _died(change)], one, many))
    return [
        f"{plural(len(functions), 'function', one, many)} ({_where(change.hardware for change in group)})"
        for group, one, many in wordings
        if (functions := {(change.kernel, change.function) for change in group})
    ]


def _waits(found: Upgrade) -> list[str]:
    worse = [one for one in found.waits if one.worse]
    functions = {(one.kernel, one.function) for one in worse}
    return [f"{plural(len(functions), 'function')} may race in LDS ({_where(one.architecture for one in worse)})"] if worse else []


def _slower(found: Upgrade) -> list[str]:
    slower = [*found.speeds.of(SpeedChange.SLOWER), *found.speeds.lost] if found.speeds else []
    lead = f"{len(slower)} of {plural(found.points, 'point')} {'is' if len(slower) == 1 else 'are'} slower or lost"
    return [f"{lead} ({_where(one.target for one in slower)})"] if slower else []


def _where(names: Iterable[str]) -> str:
    return ", ".join(sorted(set(names)))


def _died(change: Change) -> bool:
    return change.after is not None and is_dead(change.after) and (change.before is None or not is_dead(change.before))


def upgrade_sections(found: Upgrade, failing: Sequence[Concern], stale: Sequence[Stale], full: bool) -> list[Section]:
    """Return the page: a summary, then tests, code, waits, errors and speeds, each with what got worse first."""
    sections = [_summary(found)]
    tests = changed_test_sections(found.tests)
    sections += [section for section in tests if not section.folded]
    sections += _passes_section(found.passes, found.base, full)
    sections += _waits_section(found.waits, full)
    if found.code is not None:
        sections += diff_sections(found.code.base, found.code.head, found.code.diff, failing, full)
    grown = [one for one in found.errors if one.worse]
    lines = [say(name(one.id), " on ", name(one.target), f": {one.name} {one.before:.3g} → {one.after:.3g}") for one in grown]
    sections += [Section("Recorded errors that grew", lines=shorten_lines(lines, None if full else _FEW))] if lines else []
    sections += _stale_section(stale, full)
    if found.speeds is not None:
        sections += changed_speed_sections(found.speeds, full)
    sections += [section for section in tests if section.folded]
    notes = [*found.faults, *found.lacking]
    return sections + (
        [Section("Not compared", lines=tuple(say(Bit("! ", Verdict.ABSENT), name(text)) for text in notes))] if notes else []
    )


def _summary(found: Upgrade) -> Section:
    """A row for each thing that was compared: how often it got worse, and better."""
    rows = [_row("tests", len(found.tests.of(Fate.BROKEN)) + len(found.tests.lost), len(found.tests.of(Fate.FIXED)), found.tests.compared)]
    if found.code is not None:
        changes, compared = found.code.diff.changes, found.code.diff.compared
        alive = sum(one.before is not None and one.after is not None and is_dead(one.before) and not is_dead(one.after) for one in changes)
        rows.append(_row("configurations that compile", sum(map(_died, changes)), alive, compared))
        for concern, words in _WORDS.items():
            counts = [sum(any(d.concern is concern and d.trend is trend for d in one.deltas) for one in changes) for trend in _TRENDS]
            rows.append(_row(words, counts[0], counts[1], compared))
        waits = [sum(abs(one.after - one.before) for one in found.waits if one.worse is worse) for worse in (True, False)]
        rows.append(_row("barriers with LDS accesses in flight", waits[0], waits[1], compared))
    rows.append(_row("recorded errors", sum(one.worse for one in found.errors), sum(not one.worse for one in found.errors), None))
    if found.speeds is not None:
        rows.append(_row("points", found.broken[2], len(found.speeds.of(SpeedChange.FASTER)), found.points))
    differ = [say(name(fact), ": ", name(old), " → ", name(new)) for fact, (old, new) in found.versions.items()]
    lines = (say("Targets: ", name(", ".join(found.targets))), *(differ or [say("No version differs: the settings alone do.")]))
    emulated = ("Emulated targets execute machine code on a CPU. A failure that only they see is suspected.",) if found.emulated else ()
    heads = tuple(say(head) for head in ("", "worse", "better", "compared"))
    return Section("What changes", heads=heads, rows=tuple(rows), lines=lines, legend=emulated, right=(1, 2, 3))


_TRENDS = (Trend.WORSE, Trend.BETTER)


def _row(what: str, worse: int, better: int, compared: int | None) -> tuple[Line, ...]:
    bad = say(Bit(str(worse), Verdict.FAILED)) if worse else say("0")
    return say(what), bad, say(str(better)), say("" if compared is None else str(compared))


def _waits_section(found: Sequence[ChangedWaits], full: bool) -> list[Section]:
    sections = []
    for title, worse in (("Barriers with LDS accesses in flight: new", True), ("Barriers with LDS accesses in flight: gone", False)):
        lines: list[Line] = []
        for one in [one for one in found if one.worse is worse]:
            counts = f"{one.before} → {one.after} of {plural(one.configurations, 'configuration')}"
            lines.append(say(name(f"{one.kernel} {one.function}"), " for ", name(one.architecture), f": {counts}"))
            lines.append(say("  ", name(one.origin), ": ", name(one.example)))
        if lines:
            sections.append(Section(title, lines=shorten_lines(lines, None if full else 2 * _FEW)))
    return sections


def _passes_section(found: Sequence[FirstPass], base: str, full: bool) -> list[Section]:
    lines: list[Line] = []
    for one in found:
        lines.append(say(name(one.kernel), " in ", name(one.id), " on ", name(one.target), ": ", name(one.told)))
        if one.before != one.told:
            lines.append(say("  on ", name(base), ": ", name(one.before)))
        if one.differs:
            lines.append(say("  its code is another one from ", name(one.differs), " on"))
    legend = (
        "What lies between make_ttgir and the machine code is compared as text, and not executed. If all steps of a test that fails now "
        "compute the same, the front end made something else of the source, a rounding was too much, or the host code differs.",
    )
    return [Section("Passes of the compiler", lines=shorten_lines(lines, None if full else 3 * _FEW), legend=legend)] if lines else []


def _stale_section(found: Sequence[Stale], full: bool) -> list[Section]:
    lines = [say(name(one.file), " [", name(one.entry), "] for ", name(one.architecture), ": ", name(one.why)) for one in found]
    return [Section("Tuned configurations that are stale", lines=shorten_lines(lines, None if full else _FEW))] if lines else []


# What a bisection found → a sentence, and sections. Pure.

_COLOURS = {Answer.GOOD: Verdict.PASSED, Answer.BAD: Verdict.FAILED, Answer.SKIPPED: Verdict.ABSENT, Answer.AMBIGUOUS: Verdict.ABSENT}


def bisection_sentence(found: Bisection, fixed: bool = False) -> str:
    """Return the answer: `triton-3.9.0 is the first bad one; triton-3.8.0 is the last good one.`"""
    if found.first_bad is None:
        return f"Nothing to search: {found.fault}."
    words = ("the first without it", "the last with it") if fixed else ("the first bad one", "the last good one")
    if found.suspects:
        between = ", ".join(found.suspects)
        return f"{found.first_bad} or one that was skipped before it ({between}) is {words[0]}; {found.last_good} is {words[1]}."
    return f"{found.first_bad} is {words[0]}; {found.last_good} is {words[1]}."


def bisection_sections(found: Bisection, fixed: bool = False) -> list[Section]:
    """Return the steps in the order in which they were tried. If a repair was searched for, good steps are those that have the fault."""
    rows = []
    for name_, reply in ((one.name, one.reply) for one in found.tried):
        answer = Bit(reply.answer.said(fixed), None if fixed else _COLOURS[reply.answer])
        rows.append((say(name(name_)), say(answer), say(name(first_line(reply.reason)))))
    heads = tuple(map(say, ("step", "answer", "seen")))
    return [Section("Steps", heads=heads, rows=tuple(rows), lines=(say("Asked: ", name(found.question)),))]
