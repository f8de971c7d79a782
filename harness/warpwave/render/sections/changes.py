"""Changes in generated code → sections: the worst first, a block per launch, a line per architecture."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from warpwave.compare.changed_codegen import Bundle, Change, Concern, Delta, Diff, Kind, Trend, notes
from warpwave.compare.changed_speeds import GroupChange, PointChange, SpeedChanges, TargetPair
from warpwave.compare.history import Line as HistoryLine
from warpwave.compare.history import Step
from warpwave.compare.model import Change as SpeedChange
from warpwave.compare.model import full_name
from warpwave.compare.speeds import explain, first_names
from warpwave.compare.tests import ChangedTest, ChangedTests, Fate
from warpwave.records import Verdict, grouped, plural
from warpwave.render.sections.model import MOST_LINES, Bit, Line, Section, name, names, say, shorten
from warpwave.render.text import NOTHING, first_line, number

FEW = 10  # blocks per section before "and n more"
_FEW_CASES = 3  # of an added or removed function; above that, only their number is shown

Found = TypeVar("Found")

_LEGEND = (
    "A block is a launch of a kernel function, named by the first case that makes it.",
    "75% (6x8w, registers): 6 programs of 8 warps fit into a multiprocessor (SM, CU, WGP), 75% of its warps; registers leave no room for "
    "more.",
)


def code_sentence(diff: Diff, failing: Sequence[Concern]) -> str:
    """Return the verdict in words: how many configurations regressed, in what, and what happened to the others."""
    regressed = [change for change in diff.changes if change.worse_in(failing)]
    found = [change.worse_in(failing)[0] for change in regressed]
    why = ", ".join(f"{found.count(concern)} {concern.value}" for concern in Concern if concern in found)
    kinds = [change.kind for change in diff.changes if not change.worse_in(failing)]
    rest = [f"{kinds.count(kind)} {word}" for kind, word in _COUNTED.items() if kind in kinds]
    lead = f"{plural(len(regressed), 'regression')} ({why})" if regressed else "No regression"
    same = f"{diff.unchanged + diff.same_figures} unchanged"
    if diff.same_figures:
        same += f" ({diff.same_figures} with the same figures in another binary)"
    return f"{lead} in {plural(diff.compared, 'compared configuration')}: {', '.join([*rest, same])}."


_COUNTED = {
    Kind.WORSE: "worse but allowed",
    Kind.BETTER: "better",
    Kind.CHANGED: "otherwise changed",
    Kind.ADDED: "added",
    Kind.REMOVED: "removed",
}


def diff_sections(base: Bundle, head: Bundle, diff: Diff, failing: Sequence[Concern], full: bool) -> list[Section]:
    """Return the page, top to bottom. `full` shows every block, and every added or removed configuration."""
    few = None if full else FEW
    regressed = [change for change in diff.changes if change.worse_in(failing)]
    others = {kind: [change for change in diff.changes if change.kind is kind and not change.worse_in(failing)] for kind in Kind}
    sections = _changed("Regressions", regressed, failing, few, folded=False)
    sections += _changed("Worse, but allowed (see --fail-on)", others[Kind.WORSE], failing, few, folded=False)
    sections += _one_sided("Removed: only BASE has them", others[Kind.REMOVED], few)
    sections += _one_sided("Added: only HEAD has them", others[Kind.ADDED], few)
    sections += _changed("Changed, neither better nor worse", others[Kind.CHANGED], failing, few, folded=True)
    sections += _changed("Better", others[Kind.BETTER], failing, few, folded=True)
    if diff.changes:
        sections[0] = dataclasses.replace(sections[0], legend=_LEGEND)
    facts: dict[str, Callable[[Bundle], str]] = {
        "folder": lambda side: side.folder,
        "commit": lambda side: ", ".join(commit[:12] for commit in side.commits),
        "Triton": lambda side: ", ".join(side.triton),
        "targets": lambda side: ", ".join(side.targets),
        "architectures": lambda side: ", ".join(sorted(side.architectures)),
        "configurations": lambda side: str(len(side.kernels)),
    }
    rows = tuple((say(fact), *names((tell(base), tell(head)))) for fact, tell in facts.items())
    lines = shorten((say(Bit("! ", Verdict.ABSENT), name(note)) for note in notes(base, head)), None)
    return [Section("What was compared", (say("fact"), say("BASE"), say("HEAD")), rows, lines), *sections]


def _changed(title: str, changes: Sequence[Change], failing: Collection[Concern], few: int | None, folded: bool) -> list[Section]:
    """Return blocks, in the order of their gravest change. Architectures with the same change share a line."""
    drawn = []
    for head, found in grouped(((change.kernel, change.function, change.origin), change) for change in changes).items():
        stories = grouped((_story(change, failing), change.hardware) for change in found)
        lines = [say("  ", name(", ".join(dict.fromkeys(where)))) + story for story, where in stories.items()]
        drawn.append([_head(*head), *lines])
    return [Section(title, lines=_shorten(drawn, few), folded=folded)] if drawn else []


def _head(kernel: str, function: str, origin: str) -> Line:
    title = function if origin.startswith(f"{kernel}/") else full_name(kernel, function)
    return say(name(title), *(() if not origin else (" in ", name(origin))))


def _story(change: Change, failing: Collection[Concern]) -> Line:
    """` [BLOCK=512]: retuned 4 → 8 warps; registers 25 → 40`."""
    story = say(" [", name(change.variant), "]") if change.variant else ()
    story += say(": ")
    if change.moved:
        story += say("retuned ", name(", ".join(change.moved)), "; " if change.deltas else "")
    for position, delta in enumerate(change.deltas):
        story += say(", ") if position else ()
        story += _moved(delta, failing)
        if delta.concern is Concern.VERDICT and change.after is not None:
            story += _because(change.after.reason)
    return story


def _moved(delta: Delta, failing: Collection[Concern]) -> Line:
    grave = Verdict.FAILED if delta.concern in failing else Verdict.ABSENT
    verdict = {Trend.WORSE: grave, Trend.BETTER: Verdict.PASSED, Trend.NEITHER: None}[delta.trend]
    text = f" {delta.before} → {delta.after}"
    if delta.what.replace(" ", "").isalpha():
        return say(Bit(delta.what + text, verdict))
    return say(name(delta.what), Bit(text, verdict))  # an instruction: its name comes from outside


def _because(reason: str) -> Line:
    return say(": ", name(first_line(reason))) if reason else ()


def _one_sided(title: str, changes: Sequence[Change], few: int | None) -> list[Section]:
    """Return a line per kernel function, and with `few` None each configuration below it with its architectures."""
    blocks = []
    for (kernel, function), found in grouped(((change.kernel, change.function), change) for change in changes).items():
        where = dict.fromkeys(change.hardware for change in found)
        lines = [_head(kernel, function, "") + say(f": {plural(len(found), 'configuration')} for ", name(", ".join(where)))]
        is_listed = few is None or len(found) <= _FEW_CASES
        cases = grouped(((change.origin, change.variant), change.hardware) for change in found if is_listed)
        for (origin, text), on in cases.items():
            lines.append(say("  ", name(origin), *((" [", name(text), "]") if text else ()), " for ", name(", ".join(dict.fromkeys(on)))))
        blocks.append(lines)
    return [Section(title, lines=_shorten(blocks, few), folded=True)] if blocks else []


def _first(found: Sequence[Found], few: int | None = None) -> tuple[Sequence[Found], tuple[Line, ...]]:
    """Return the first ones, 2,000 if `few` is None, and a line on the others."""
    shown = found[: MOST_LINES if few is None else few]
    more = (_IN_JSON if few is None else _MORE).format(len(found) - len(shown))
    return shown, (say(more),) if len(shown) < len(found) else ()


def _shorten(blocks: Sequence[Sequence[Line]], few: int | None) -> tuple[Line, ...]:
    shown, more = _first(blocks, few)
    return (*(line for block in shown for line in block[:MOST_LINES]), *more)


# Speed changes between two runs → sections, for the terminal and for Markdown. Pure.

_FEW = 20
_FEW_REASONS = 5
_MORE = "… and {} more; --full shows them"
_IN_JSON = "… and {} more; the file of --json holds all"
_COLOURS = {SpeedChange.SLOWER: Verdict.FAILED, SpeedChange.FASTER: Verdict.PASSED, SpeedChange.AMBIGUOUS: Verdict.ABSENT}
_COUNTED_SPEEDS = (SpeedChange.SLOWER, SpeedChange.FASTER, SpeedChange.SAME, SpeedChange.AMBIGUOUS)


def speed_sentence(found: SpeedChanges) -> str:
    """Return the verdict in words: `2 of 294 points are slower, 290 same, 2 ambiguous.`"""
    compared = [point for point in found.points if point.speedup is not None]
    counts = {change: sum(point.change is change for point in compared) for change in _COUNTED_SPEEDS}
    slower = counts.pop(SpeedChange.SLOWER)
    others = ", ".join(f"{count} {change.value}" for change, count in counts.items() if count)
    parts = [f"{plural(len(found.lost), 'point')} failed that did not before"] if found.lost else []
    if compared:
        verb = "are" if slower > 1 else "is"
        parts.append(", ".join(filter(None, (f"{slower or 'none'} of {plural(len(compared), 'point')} {verb} slower", others))))
    if found.failing:
        parts.append(f"{plural(len(found.failing), 'point', 'fails', 'fail')} in both, or as known")
    text = "; ".join(parts) or "no point could be compared"
    return f"{text[0].upper()}{text[1:]}."


def changed_speed_sections(found: SpeedChanges, full: bool) -> list[Section]:
    """Return what was compared, a line per kernel, then the points, slower ones first."""
    few = None if full else _FEW
    sections = [_speed_sides(found), _groups(found.groups, full)]
    if found.lost:
        sections.append(_failing("Failed in HEAD", found.lost, few))
    sections += [_points("Slower", found.of(SpeedChange.SLOWER), few), _points("Faster", found.of(SpeedChange.FASTER), few)]
    if found.failing:
        sections.append(_failing("Fail in both runs, or as known", found.failing, few, folded=True))
    unverified = [point for point in found.points if point.speedup is not None and point.reason]
    if marked := [point for point in unverified if "unverified in both" in point.reason]:
        sections.append(Section("Compared, though a test fails in both", lines=shorten_lines(_left_out(marked), _FEW_REASONS)))
    left = [*found.of(SpeedChange.REFUSED), *found.of(SpeedChange.ONE_SIDED), *found.skipped]
    if full:
        sections.append(_points("Ambiguous", found.of(SpeedChange.AMBIGUOUS), None, folded=True))
        sections.append(_points("Same", found.of(SpeedChange.SAME), None, folded=True))
    if full or left:
        lines = shorten_lines(_left_out(left), None if full else _FEW_REASONS)
        sections.append(Section("Not compared", lines=lines, folded=True))
    return [section for section in sections if section.heads or section.lines]


def _failing(title: str, points: Sequence[PointChange], few: int | None, folded: bool = False) -> Section:
    return Section(title, lines=shorten_lines([_named(point) + _because(point.reason) for point in points], few), folded=folded)


def _speed_sides(found: SpeedChanges) -> Section:
    rows = tuple(
        (*names((pair.target, first_names(list(dict.fromkeys(pair.gpus))), *pair.commits)), say(f"{pair.threshold:.1%}"))
        for pair in found.pairs[:MOST_LINES]
    )
    lines = shorten((say(Bit("! ", Verdict.ABSENT), name(text)) for text in (*_differing(found.pairs), *found.only)), None)
    legend = [explain(pair.noise) for pair in found.pairs if not pair.barriers]
    heads = tuple(say(head) for head in ("target", "GPU", "BASE", "HEAD", "threshold"))
    return Section("What was compared", heads, rows, lines, tuple(dict.fromkeys(legend)), right=(4,))


def _differing(pairs: Sequence[TargetPair]) -> list[str]:
    found = [f"not compared: {barrier}" for pair in pairs for barrier in pair.barriers]
    found += [
        f"{fact} differs on {pair.target}: {one} in BASE, {two} in HEAD"
        for pair in pairs
        for fact, (one, two) in (pair.versions or {}).items()
    ]
    return found


def _groups(groups: Sequence[GroupChange], full: bool) -> Section:
    """Return a row a kernel, provider and target, regressions first. Without `full`, those without a sure change are counted."""
    rows: list[tuple[Line, ...]] = []
    ordered = sorted(groups, key=lambda group: (-group.changes.get(SpeedChange.SLOWER.value, 0), group.mean or 1.0))
    moved = [group for group in ordered if group.changes.keys() & {SpeedChange.SLOWER.value, SpeedChange.FASTER.value}]
    still = len(ordered) - len(moved)
    shown, lines = _first(ordered if full else moved)
    for group in shown:
        counts = [group.changes.get(change.value, 0) for change in _COUNTED_SPEEDS]
        bits = (Bit(str(count), _COLOURS.get(change) if count else None) for change, count in zip(_COUNTED_SPEEDS, counts, strict=True))
        mean = say(NOTHING if group.mean is None else f"{group.mean:.3f}")
        rows.append((*names((group.kernel, group.provider, group.target)), say(str(group.n)), mean, *map(say, bits)))
    heads = tuple(say(head) for head in ("kernel", "provider", "target", "n", "speedup", *(change.value for change in _COUNTED_SPEEDS)))
    legend = ("Speedup: BASE's median time over HEAD's, above 1 is faster; geometric mean over the n points that could be compared.",)
    if still and not full:
        what = f"{still} more" if rows else f"{still} kernels and providers"
        lines = (*lines, say(f"{what} on a target, in which no point is slower or faster for sure; --full shows them"))
    if not rows:
        return Section("By kernel", lines=lines)
    return Section("By kernel", heads, tuple(rows), lines, legend=legend, right=tuple(range(3, 9)))


def _points(title: str, points: Sequence[PointChange], few: int | None, folded: bool = False) -> Section:
    if not points:
        return Section(title)
    rows = []
    shown, more = _first(points, few)
    for point in shown:
        times = [say(NOTHING if time is None else number(time * 1e3)) for time in (point.base_ms, point.head_ms)]
        between = f"{point.speedup:.3f} {point.low:.3f}-{point.high:.3f}" if point.speedup and point.low and point.high else NOTHING
        rows.append((*names((point.case, point.provider, point.target)), *times, say(Bit(between, _COLOURS.get(point.change)))))
    heads = tuple(say(head) for head in ("case", "provider", "target", "BASE µs", "HEAD µs", "speedup, 95%"))
    why = list(dict.fromkeys(first_line(point.reason) for point in points if point.reason))
    lines = (*more, *(say("  ", name(reason)) for reason in why[:5]))
    return Section(title, heads, tuple(rows), lines, right=(3, 4, 5), folded=folded)


def shorten_lines(lines: Sequence[Line], few: int | None) -> tuple[Line, ...]:
    """Return the first `few` lines (by default 2,000), and one that says how many are left out and which command shows them."""
    return _shorten([[line] for line in lines], few)


def _left_out(points: Sequence[PointChange]) -> list[Line]:
    groups = grouped(((point.kernel, point.provider, point.target, point.reason), point) for point in points)
    return [
        _named(found[0]) + (say(f" and {len(found) - 1} more") if len(found) > 1 else ()) + _because(found[0].reason)
        for found in groups.values()
    ]


def _named(point: PointChange) -> Line:
    return say(name(point.case), " ", name(point.provider), " on ", name(point.target))


def history_sections(found: Sequence[HistoryLine], left_out: Sequence[str], with_peers: bool = False) -> list[Section]:
    """Return a row per kernel and dtype, or per case, with the oldest run on the left; the steps; and the runs that are left out. Lines of
    other providers than the kernel's own are counted, unless they are asked for."""
    rows = []
    drawn = [line for line in found if line.own or with_peers]
    peers = list(dict.fromkeys(line.provider for line in found if not line.own and not with_peers))
    shown, more = _first(drawn)
    for line in shown:
        last = f"{line.speeds[-1] / line.speeds[-2] - 1:+.1%}" if len(line.speeds) > 1 else NOTHING
        latest = say(number(line.latest), " ", name(line.unit)) if line.latest is not None else say(NOTHING)
        figures = (f"{line.speeds[-1]:.3f}" if line.speeds else NOTHING, last, line.bars)
        rows.append((*names((line.name, line.dtype, line.provider, line.target, line.gpu)), say(str(line.n)), latest, *map(say, figures)))
    heads = tuple(say(head) for head in ("kernel", "dtype", "provider", "target", "GPU", "n", "latest", "speed", "last", "runs"))
    newest = dict.fromkeys(f"{run.started[:16]} {run.run_id} {run.commit}".strip() for line in found for run in line.runs[-1:])
    if peers:
        folded = plural(len(found) - len(drawn), "line")
        more += (say(f"{folded} of ", name(", ".join(peers)), " left out: --kernel NAME shows those of a kernel"),)
    legend = (
        "n: cases that all these runs have. latest: their median in the last run. speed: geometric mean relative to the oldest run. "
        "last: relative to the run before.",
        "Runs with another GPU, timer or flush get their own line. Weak and unsound points are left out. For verdicts: `warpwave compare`.",
    )
    steps = [(line, step) for line in found for step in line.steps]
    steps.sort(key=lambda pair: (pair[1].speedup >= 1, min(pair[1].speedup, 1 / pair[1].speedup)))
    stayed = ("A step is a change of more than 3% that stayed, against the three runs before it. Slower ones come first.",)
    lines = (*more, *shorten_lines([say("latest: ", name(text)) for text in newest], _FEW))
    sections = [
        Section("Speeds", heads, tuple(rows), lines, legend, right=(5, 6, 7, 8)),
        Section("Steps", lines=shorten_lines([_step(line, step) for line, step in steps], None), legend=stayed),
        Section("Left out", lines=shorten_lines([say(name(text)) for text in left_out], None)),
    ]
    return [section for section in sections if section.rows or section.lines]


def _step(line: HistoryLine, step: Step) -> Line:
    where = (name(f"{line.name}{f', {line.dtype}' if line.dtype else ''}"), " ", name(line.provider), " on ", name(line.target))
    change = Bit(f"{step.speedup - 1:+.1%}", Verdict.FAILED if step.speedup < 1 else Verdict.PASSED)
    run = name(f"{step.after.run_id} ({step.after.started[:10]})")
    commits = ("; commits ", name(step.commits)) if step.commits else ()
    toolchains = ("; with another toolchain: ", name(step.toolchains)) if step.toolchains else ()
    doubt = () if step.confirmed else ("; it is the last run, so not confirmed yet",)
    return say(*where, ": ", change, " from ", run, f" on, in {step.moved} of {plural(step.n, 'case')}", *commits, *toolchains, *doubt)


# Tests that changed between two runs → sections, for the terminal and for Markdown. Pure.

_TITLES = {
    Fate.BROKEN: "Tests that fail now",
    Fate.STILL: "Tests that failed before, too",
    Fate.SKIPPED: "Tests that are skipped now",
    Fate.XFAILED: "Tests that are expected to fail now",
    Fate.GONE: "Tests that are gone",
    Fate.FIXED: "Tests that pass now",
    Fate.NEW: "New tests",
}
_OPEN = (Fate.BROKEN, Fate.SKIPPED, Fate.XFAILED, Fate.GONE)


def changed_tests_sentence(found: ChangedTests) -> str:
    """Return the verdict in words: `1 test fails now, 2 are gone.`"""
    counts = [(fate.value, len(found.of(fate))) for fate in Fate]
    parts = [f"{plural(count, 'test')} {_many(verb, count)}" for verb, count in counts if count]
    return f"{', '.join(parts) or f'None of {found.compared} tests changed'}."


def changed_test_sections(found: ChangedTests) -> list[Section]:
    """Return a line per test: what needs attention first, the others folded."""
    sections = []
    for fate, title in _TITLES.items():
        tests = found.of(fate)
        lines = [_line(test) for test in tests[:_FEW]]
        if len(lines) < len(tests):
            lines.append(say(f"… and {len(tests) - len(lines)} more"))
        if lines:
            sections.append(Section(title, lines=tuple(lines), folded=fate not in _OPEN))
    return sections


def _line(test: ChangedTest) -> Line:
    mark = (Bit("failed: ", Verdict.FAILED),) if test.fate is Fate.BROKEN else ()
    because = (": ", name(first_line(test.message))) if test.message else ()
    return say(*mark, name(test.id), " on ", name(test.target), *because)


def _many(verb: str, count: int) -> str:
    if count == 1:
        return verb
    return {"fails now": "fail now", "passes now": "pass now"}.get(verb, verb.replace("is ", "are "))
