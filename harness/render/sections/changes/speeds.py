"""Speed changes between two runs → sections, for the terminal and for Markdown. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from harness.compare.model import Change
from harness.compare.speeds.changed_speeds import GroupChange, PointChange, SpeedChanges, TargetPair
from harness.compare.speeds.noise import explain
from harness.compare.speeds.ratios import first_names
from harness.compare.speeds.trend import Step, Trend
from harness.records import Verdict
from harness.render.sections.model import MOST_LINES, Bit, Line, Section, name, names, say, shorten
from harness.render.text import NOTHING, first_line, number, plural

_FEW = 20
_FEW_REASONS = 5
_MORE = "… and {} more; --full shows them"
_IN_JSON = "… and {} more; the file of --json holds all"
_COLOURS = {Change.SLOWER: Verdict.FAILED, Change.FASTER: Verdict.PASSED, Change.AMBIGUOUS: Verdict.ABSENT}
_COUNTED = (Change.SLOWER, Change.FASTER, Change.SAME, Change.AMBIGUOUS)


def sentence(found: SpeedChanges) -> str:
    """Return the verdict in words: `2 of 294 points are slower, 290 same, 2 ambiguous.`"""
    compared = [point for point in found.points if point.speedup is not None]
    counts = {change: sum(point.change is change for point in compared) for change in _COUNTED}
    slower = counts.pop(Change.SLOWER)
    others = ", ".join(f"{count} {change.value}" for change, count in counts.items() if count)
    parts = [f"{plural(len(found.lost), 'point')} failed that did not before"] if found.lost else []
    if compared:
        verb = "are" if slower > 1 else "is"
        parts.append(", ".join(filter(None, (f"{slower or 'none'} of {plural(len(compared), 'point')} {verb} slower", others))))
    text = "; ".join(parts) or "no point could be compared"
    return f"{text[0].upper()}{text[1:]}."


def changed_speed_sections(found: SpeedChanges, full: bool) -> list[Section]:
    """Return what was compared, a line per kernel, then the points, slower ones first."""
    few = None if full else _FEW
    sections = [_sides(found), _groups(found.groups, full)]
    if found.lost:
        sections.append(Section("Failed in HEAD", lines=_shorten([_named(point) + _because(point) for point in found.lost], few)))
    sections += [_points("Slower", found.of(Change.SLOWER), few), _points("Faster", found.of(Change.FASTER), few)]
    left = [*found.of(Change.REFUSED), *found.of(Change.ONE_SIDED), *found.skipped]
    if full:
        sections.append(_points("Ambiguous", found.of(Change.AMBIGUOUS), None, folded=True))
        sections.append(_points("Same", found.of(Change.SAME), None, folded=True))
        sections.append(Section("Not compared", lines=_shorten(_left_out(left), None), folded=True))
    elif left:
        sections.append(Section("Not compared", lines=_shorten(_left_out(left), _FEW_REASONS), folded=True))
    return [section for section in sections if section.heads or section.lines]


def _sides(found: SpeedChanges) -> Section:
    rows = []
    for pair in found.pairs[:MOST_LINES]:
        rows.append(
            (say(name(pair.target)), *names((first_names(list(dict.fromkeys(pair.gpus))), *pair.commits)), say(f"{pair.threshold:.1%}"))
        )
    lines = shorten((say(Bit("! ", Verdict.ABSENT), name(text)) for text in (*_differing(found.pairs), *found.only)), None)
    legend = [explain(pair.noise) for pair in found.pairs if not pair.barriers]
    heads = tuple(say(head) for head in ("target", "GPU", "BASE", "HEAD", "threshold"))
    return Section("What was compared", heads, tuple(rows), tuple(lines), tuple(dict.fromkeys(legend)), right=(4,))


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
    ordered = sorted(groups, key=_gravity)
    moved = [group for group in ordered if group.changes.keys() & {Change.SLOWER.value, Change.FASTER.value}]
    still = len(ordered) - len(moved)
    groups = ordered if full else moved
    for group in groups[:MOST_LINES]:
        counts = [group.changes.get(change.value, 0) for change in _COUNTED]
        shown = [say(Bit(str(count), _COLOURS.get(change) if count else None)) for change, count in zip(_COUNTED, counts, strict=True)]
        mean = say(NOTHING if group.mean is None else f"{group.mean:.3f}")
        rows.append((*names((group.kernel, group.provider, group.target)), say(str(group.n)), mean, *shown))
    heads = tuple(say(head) for head in ("kernel", "provider", "target", "n", "speedup", *(change.value for change in _COUNTED)))
    legend = ("Speedup: BASE's median time over HEAD's, above 1 is faster; geometric mean over the n points that could be compared.",)
    lines = (say(_IN_JSON.format(len(groups) - len(rows))),) if len(rows) < len(groups) else ()
    if still and not full:
        what = f"{still} more" if rows else f"{still} kernels and providers"
        lines = (*lines, say(f"{what} on a target, in which no point is slower or faster for sure; --full shows them"))
    if not rows:
        return Section("By kernel", lines=lines)
    return Section("By kernel", heads, tuple(rows), lines, legend=legend, right=tuple(range(3, 9)))


def _gravity(group: GroupChange) -> tuple[int, float]:
    return -group.changes.get(Change.SLOWER.value, 0), group.mean or 1.0


def _points(title: str, points: Sequence[PointChange], few: int | None, folded: bool = False) -> Section:
    if not points:
        return Section(title)
    rows = []
    for point in points[: MOST_LINES if few is None else few]:
        times = [say(NOTHING if time is None else number(time * 1e3)) for time in (point.base_ms, point.head_ms)]
        between = f"{point.speedup:.3f} {point.low:.3f}-{point.high:.3f}" if point.speedup and point.low and point.high else NOTHING
        rows.append((*names((point.case, point.provider, point.target)), *times, say(Bit(between, _COLOURS.get(point.change)))))
    heads = tuple(say(head) for head in ("case", "provider", "target", "BASE µs", "HEAD µs", "speedup, 95%"))
    more = [(_IN_JSON if few is None else _MORE).format(len(points) - len(rows))] if len(rows) < len(points) else []
    why = list(dict.fromkeys(first_line(point.reason) for point in points if point.reason))
    lines = (*map(say, more), *(say("  ", name(reason)) for reason in why[:5]))
    return Section(title, heads, tuple(rows), lines, right=(3, 4, 5), folded=folded)


def _shorten(lines: Sequence[Line], few: int | None) -> tuple[Line, ...]:
    most, more = (MOST_LINES, _IN_JSON) if few is None else (few, _MORE)
    return tuple(lines) if len(lines) <= most else (*lines[:most], say(more.format(len(lines) - most)))


def _left_out(points: Sequence[PointChange]) -> list[Line]:
    groups: dict[tuple[str, str, str, str], list[PointChange]] = {}
    for point in points:
        groups.setdefault((point.kernel, point.provider, point.target, point.reason), []).append(point)
    return [
        _named(found[0]) + (say(f" and {len(found) - 1} more") if len(found) > 1 else ()) + _because(found[0]) for found in groups.values()
    ]


def _named(point: PointChange) -> Line:
    return say(name(point.case), " ", name(point.provider), " on ", name(point.target))


def _because(point: PointChange) -> Line:
    return say(": ", name(first_line(point.reason)))


def trend_sections(found: Sequence[Trend]) -> list[Section]:
    """Return a line per kernel or case, with the oldest run on the left."""
    rows = []
    for trend in found[:MOST_LINES]:
        moved = trend.speeds[-1] / trend.speeds[-2] if len(trend.speeds) > 1 else None
        speed = f"{trend.speeds[-1]:.3f}" if trend.speeds else NOTHING
        figures = (str(trend.n), speed, NOTHING if moved is None else f"{moved - 1:+.1%}")
        rows.append((*names((trend.name, trend.provider, trend.target)), *map(say, figures), say(trend.line)))
    heads = tuple(say(head) for head in ("kernel", "provider", "target", "n", "speed", "last", "runs"))
    latest = dict.fromkeys(f"{run.started[:16]} {run.run_id} {run.commit}".strip() for trend in found for run in trend.runs[-1:])
    more = [say(_IN_JSON.format(len(found) - len(rows)))] if len(rows) < len(found) else []
    steps = shorten([_step(trend, step) for trend in found for step in trend.steps], _FEW)
    lines = (*more, *steps, *shorten((say("latest: ", name(text)) for text in latest), _FEW))
    legend = (
        "n: cases that all these runs have. speed: geometric mean relative to the oldest run. last: relative to the run before.",
        "Runs with another GPU, timer or flush get their own line. Weak and unsound points are left out. For verdicts: `warpwave compare`.",
    )
    return [Section("Trend", heads, tuple(rows), lines, legend, right=(3, 4, 5))]


def _step(trend: Trend, step: Step) -> Line:
    """Say that a step came with another toolchain, and whether the commit changed too."""
    commits = (step.before.commit, step.after.commit)
    too = () if commits[0] == commits[1] else (" (the commit changed too: ", name(" → ".join(commits)), ")")
    where = (name(trend.name), " ", name(trend.provider), " on ", name(trend.target))
    versions = name(f"{step.before.toolchain} → {step.after.toolchain}")
    return say(Bit("! ", Verdict.ABSENT), *where, f": {step.speedup - 1:+.1%} with ", versions, *too)
