"""Compare with the base branch's last run: tests, speeds and generated code, with the same code as the commands for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from warpwave.ci.job import command
from warpwave.ci.plan import latest
from warpwave.collect import collect_all, find_raw
from warpwave.compare.changed_codegen import USUAL, Concern, bundle, check_comparable, diff
from warpwave.compare.changed_speeds import PointChange, changed_speeds
from warpwave.compare.known import Entry, entries_of
from warpwave.compare.model import Change
from warpwave.compare.runs import join
from warpwave.compare.tests import Fate, changed_tests
from warpwave.errors import ANY, FAIL_ON, NEW, NOTHING, WORSE, UsageError, WarpwaveError, explain
from warpwave.records import TargetRun, plural
from warpwave.render.markdown import plain, render_page
from warpwave.render.sections import changes
from warpwave.render.text import first_line, number
from warpwave.report import without_collector

SLOWER, LOST_TESTS = "slower", "lost-tests"


@dataclass(frozen=True)
class Asked:
    """What must not get worse. `fail_on` is `new`, `worse`, `any` or `nothing`, as everywhere.

    `concerns`: generated code. `slower`: speeds, beyond `threshold` if it is set, else beyond the noise of an A/A run. `lost_tests`: tests
    that passed before and are gone, skipped or expected to fail now.
    """

    concerns: tuple[Concern, ...] = ()
    slower: bool = True
    lost_tests: bool = False
    threshold: float | None = None
    fail_on: str = NEW


@dataclass(frozen=True)
class Since:
    """What changed: a page of Markdown, a sentence about forbidden regressions (empty if there are none), and annotations.

    `failures` are those of the base: they are known.
    """

    page: str = ""
    worse: str = ""
    annotations: tuple[str, ...] = ()
    failures: tuple[Entry, ...] = ()


def against_base(base: Path, head: Sequence[Path], asked: Asked) -> Since:
    """Compare with the base. If that is impossible, the page says why; this is not a regression, since a branch's first run has no base.

    This function raises no error, because the report must still be made after it.
    """
    try:
        with without_collector():
            before, after = (join(collect_all(find_raw(latest(folders)))) for folders in ([base], head))
            found = [_tests(before, after, asked), _speeds(before, after, asked), _generated_code(before, after, asked.concerns)]
            pages = "".join(one.page for one in found)
            lines = tuple(line for one in found for line in one.annotations)
            worse = " ".join(one.worse for one in found if one.worse).rstrip(".")
            return Since(f"\n## Since the base branch\n{pages}" if pages else "", worse, lines, entries_of(before))
    except Exception as error:
        return _not_compared("this run", explain(error))


def parse_asked(text: str, threshold: float | None) -> Asked:
    """Parse `ci report --fail-on`.

    Raises:
        UsageError: it contains an unknown word.
    """
    if text in (NEW, NOTHING):
        return Asked((), slower=False, threshold=threshold, fail_on=text)
    if text == WORSE:
        return Asked(USUAL, threshold=threshold, fail_on=WORSE)
    if text == ANY:
        return Asked(tuple(Concern), slower=True, lost_tests=True, threshold=threshold, fail_on=ANY)
    known = {concern.value: concern for concern in Concern}
    words = text.split(",")
    for word in words:
        if word not in (*known, SLOWER, LOST_TESTS):
            raise UsageError(
                f"--fail-on does not know {word!r}.",
                "It takes one word, or several that are separated by commas.",
                f"Choose from {', '.join((*known, SLOWER, LOST_TESTS))}; or use one of {', '.join(FAIL_ON)}.",
            )
    return Asked(tuple(known[word] for word in words if word in known), SLOWER in words, LOST_TESTS in words, threshold)


def _tests(before: Sequence[TargetRun], after: Sequence[TargetRun], asked: Asked) -> Since:
    found = changed_tests(before, after)
    lost = found.lost
    if not found.compared and not found.found:
        return Since()
    worse = f"{plural(len(lost), 'test', 'that passed before is', 'that passed before are')} gone, skipped or expected to fail."
    worse = worse if lost and asked.lost_tests else ""
    # A failing test needs no base: the report annotates it, and it decides the status.
    lines = [_annotate(bool(worse), f"test {one.fate.value}", f"{one.id} on {one.target}", one.message or one.fate.value) for one in lost]
    good = not worse and not found.of(Fate.BROKEN)
    return Since(
        "\n" + render_page(changes.changed_tests_sentence(found), changes.changed_test_sections(found), good=good), worse, tuple(lines)
    )


def _speeds(before: Sequence[TargetRun], after: Sequence[TargetRun], asked: Asked) -> Since:
    if not any(run.samples for run in (*before, *after)):
        return Since()
    try:
        found = changed_speeds(before, after, asked.threshold)
    except WarpwaveError as error:
        return _not_compared("speeds", error)
    regressed = [*found.lost, *found.of(Change.SLOWER)]
    thresholds = {pair.target: pair.threshold for pair in found.pairs}
    worse = changes.speed_sentence(found) if regressed and asked.slower else ""
    lines = []
    for point in regressed:
        what, where = "failed, measured before" if point.lost else Change.SLOWER.value, f"{point.case} {point.provider} on {point.target}"
        lines.append(_annotate(asked.slower, what, where, _change(point, thresholds[point.target])))
    page = render_page(changes.speed_sentence(found), changes.changed_speed_sections(found, False), good=not regressed)
    return Since("\n" + page, worse, tuple(lines))


def _change(point: PointChange, threshold: float) -> str:
    if point.speedup is None:
        return first_line(point.reason)
    interval = f"{number(point.low)} to {number(point.high)} with 95%" if point.low and point.high else "no interval"
    times = " → ".join(f"{number(time * 1e3)} µs" for time in (point.base_ms, point.head_ms) if time is not None)
    return f"{times}: {point.speedup:.3f} times as fast ({interval}; beyond the threshold of {threshold:.1%})"


def _generated_code(before: Sequence[TargetRun], after: Sequence[TargetRun], failing: Sequence[Concern]) -> Since:
    if not any(run.compiled for run in (*before, *after)):
        return Since()
    try:
        sides = bundle("the base branch", before), bundle("this run", after)
        check_comparable(*sides)
    except WarpwaveError as error:
        return _not_compared("generated code", error)
    found = diff(sides[0].kernels, sides[1].kernels)
    regressed = [change for change in found.changes if change.worse_in(failing)]
    lines = []
    for change in regressed:
        concern = change.worse_in(failing)[0]
        delta = next(delta for delta in change.deltas if delta.concern is concern)
        where = f"{change.function} for {change.hardware}"
        lines.append(_annotate(True, concern.value, where, f"{delta.what}: {delta.before} → {delta.after}; launched by {change.origin}"))
    sections = changes.diff_sections(*sides, found, failing, False)
    sentence = changes.code_sentence(found, failing)
    return Since("\n" + render_page(sentence, sections, good=not regressed), sentence if regressed else "", tuple(lines))


def _annotate(fails: bool, what: str, where: str, message: str) -> str:
    return command("error" if fails else "warning", message, title=f"{what}: {where}")


def _not_compared(what: str, error: WarpwaveError) -> Since:
    return Since(f"\n_Not compared with the base branch: {plain(what)}. {plain(error.happened)}_\n")
