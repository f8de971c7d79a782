"""Turn a comparison into sections, first part: targets, their differences, tests, and what could not be used or compared."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from warpwave.compare.answer import Headline, headline, overview, shortfalls
from warpwave.compare.codegen import by_generation
from warpwave.compare.model import FAILING, Comparison, DeviceSummary, Parity, ParityRow, Refusal, TargetSummary, failures
from warpwave.compare.tests import is_mistyped
from warpwave.compare.unchecked import cause_lines
from warpwave.compare.verdict import together
from warpwave.records import BUDGET_UP, GPU_PROPERTY, HARMLESS, MOSTLY_UNSEEN, NO_STAGE, NotRun, Verdict, grouped, plural, with_card
from warpwave.records.selection import FOR_TIME, is_load
from warpwave.render.commands import repro
from warpwave.render.sections import codegen, grid, speeds, testing
from warpwave.render.sections.model import Bit, Line, Section, name, names, say, shorten
from warpwave.render.sections.profile import profile_sections
from warpwave.render.sections.testing import suspicion
from warpwave.render.text import NOTHING, asked_for, counts, first_line, left_out_of, number

_FEW = 30  # lines per section before "and n more"
_HINT = 1000  # characters: a hint ends with the path of its log, which must stay whole
_MOST_ATTEMPTS, _MOST_NOTES, _MOST_GPUS, _MOST_PACKAGES = 20, 200, 16, 200  # per target
_MOST_CELLS = 50_000  # tests times targets: nobody reads a larger table, and a summary cannot hold it


def outline(comparison: Comparison, full: bool) -> list[Section]:
    """Return the page, top to bottom. `full` adds every test, case and configuration, and does not shorten lists."""
    few = None if full else _FEW
    sections = [
        _targets(comparison),
        *environment(comparison),
        *did_not_pass(comparison, few),
        *parity(comparison, few),
        *not_checked(comparison, few),
        *testing.finding_sections(comparison, few),
        *testing.known_sections(comparison, few),
        *profile_sections(comparison, few),
        *(replace(section, folded=True) for section in grid.grid(comparison.grid, few) if comparison.has_card and comparison.grid.cards),
    ]
    sections += [
        *codegen.uncompiled(comparison),
        *codegen.fidelity_sections(comparison, few),
        *codegen.gate_sections(comparison, few),
    ]
    sections += refused(comparison, few)
    return [*sections, *everything(comparison)] if full else sections


def refused(comparison: Comparison, few: int | None) -> list[Section]:
    """Return the cases that have no ratio, and the files that could not be used."""
    problems = (say(name(first_line(problem, 400))) for problem in comparison.problems)
    sections = _listing("Not compared", map(_refusal, comparison.refusals), few, len(comparison.refusals), folded=True)
    return [*sections, *_listing("Files that could not be used", problems, few, len(comparison.problems))]


def everything(comparison: Comparison) -> list[Section]:
    """Return the long tables: every test, every case and every configuration."""
    return [*_every_test(comparison), *speeds.cases(comparison), *codegen.codegen(comparison)]


def _targets(comparison: Comparison) -> Section:
    rows = []
    for target in comparison.targets:
        tests, compiled = counts(target.tests, target.tests_not_run), counts(target.compiled, target.compiled_not_run)
        hosted = f"{'' if compiled == NOTHING else f'{compiled}; '}host code: {counts(target.host_code, target.host_code_not_run)}"
        done = [say(text) for text in (tests, counts(target.points), hosted if target.host_code else compiled)]
        time = say(f"{target.seconds:.0f} s" if target.seconds else NOTHING)
        gpus = say(name(target.hardware) if target.hardware else NOTHING)
        rows.append((say(name(target.target)), say(Bit(target.verdict.value, target.verdict)), gpus, *done, time))
    heads = tuple(say(head) for head in ("target", "verdict", "GPU", "tests", "points", "compiled", "time"))
    lines = _each_target(comparison, full=True)
    return Section("Targets", heads, tuple(rows), shorten(lines, None), right=(6,))


def _each_target(comparison: Comparison, *, full: bool, counted: bool = False) -> list[Line]:
    """Return what each target did, or why it did not and what to do; and what was given up, and left out unless that is `counted` above.

    `full` has every attempt and note, and how tests were chosen.
    """
    lines: list[Line] = []
    few = None if full else _REMARKS
    made = [cell for cell in comparison.compiled_cells if cell.compiled.was_compiled]
    compiled = grouped((target, hardware) for target, hardware in dict.fromkeys((cell.target, cell.compiled.hardware) for cell in made))
    gravest_first = sorted(comparison.targets, key=lambda target: target.complete)
    alike = grouped(((target.target, "") if target.complete else (target.reason, target.hint), target) for target in gravest_first)
    groups = list(alike.values())
    for target, *others in groups[: None if full else _TARGETS]:
        lines.append(say(name(*together([target, *others])), *([f" ({target.hardware})"] if target.emulated else [])))
        where = [] if target.devices else sorted(compiled.get(target.target, ()), key=by_generation)
        lines += [say("  compiled for ", name(", ".join(where)))] if 0 < len(where) <= _ARCHITECTURES else []
        lines += [say(f"  {use}") for use in (testing.use_of_cards(target), testing.use_of_time(target)) if use]
        lines += [say("  ", name(remark)) for remark in testing.remarks(target)[:few]]
        lines += [
            say("  ", name(f"attempt {position}: {attempt.verdict.value}: {first_line(attempt.reason, 300)}".rstrip(": ")))
            for position, attempt in enumerate(target.attempts[: _MOST_ATTEMPTS if full else few], start=1)
        ]
        notes = [*(target.environment.notes if target.environment else ()), *(note for stage in target.stages for note in stage.notes)]
        lines += [say("  ", name(first_line(note, 400))) for note in notes[:_MOST_NOTES] if full or note.startswith(_SHOWN)]
        hint = target.hint
        for cause in target.unchecked:  # each has its own below
            hint = hint.replace(cause.hint, "").strip()
        lines += [say("  what to do: ", name(first_line(hint, _HINT)))] if hint else []
        lines += _nothing_to_run(comparison, target)
        by = tuple(option for option in target.narrowed if option not in FOR_TIME)
        if by:
            lines.append(say("  ", name(asked_for(target.deselected, sum(target.tests.values()) + target.left_out, by))))
            lines += [say("  ", name(first_line(line, 300))) for line in target.chosen if full]
        elif target.deselected and full:
            lines.append(say(f"  {plural(target.deselected, 'test')} deselected, by an option of the run or by the package"))
        lines += [say("  ", left_out_of(target))] if target.left_out and not counted else []
        if target.environment and target.environment.weakened:
            lines.append(say("  protections given up: ", name(", ".join(target.environment.weakened))))
    shown = sum(map(len, groups if full else groups[:_TARGETS]))
    return [*lines, say(f"… and {len(comparison.targets) - shown} more targets")] if shown < len(comparison.targets) else lines


def environment(comparison: Comparison) -> list[Section]:
    """Return what every target ran on, a column for each, with what differs marked; and the GPUs that shared the work of one."""
    known = list(map(_facts, comparison.targets))
    refuses = {difference.name: difference.refuses for difference in comparison.differences}
    rows = []
    for fact in dict.fromkeys(fact for found in known for fact in found):
        if any(values := [found.get(fact, "") for found in known]):
            mark = Bit(" differs: no ratios" if refuses[fact] else " differs", Verdict.ABSENT) if fact in refuses else ""
            rows.append((say(fact, mark), *(say(name(value) if value else NOTHING) for value in values)))
    heads = (say("fact"), *names(target.target for target in comparison.targets))
    return [Section("Environment", heads, tuple(rows)), *testing.card_sections(comparison)] if rows else []


def _facts(target: TargetSummary) -> dict[str, str]:
    seen, ran = target.facts, target.environment
    gpus = (f"{device.name}, {device.architecture}, {device.memory_bytes / (1 << 30):.0f} GiB" for device in target.devices)
    found = {
        "GPU": _joined(gpus),
        "emulated": with_card(target.emulated, target.card),
        "copy bandwidth": _joined(map(_copy, target.devices)),
    }
    if seen is not None:
        runtime = "" if seen.runtime == "none" else seen.runtime
        found |= {"driver": seen.driver or "", "runtime": runtime, "torch": seen.torch, "triton": seen.triton, "python": seen.python}
        found |= {"FP fusion": seen.fp_fusion or "", "kernel sources": seen.kernels_hash[:12], "platform": seen.platform}
    found |= {"host": target.host, "commit": target.commit, "snapshot": target.snapshot}
    if ran is not None:
        digest = f" {ran.image_id[:19]}" if ran.image_id else ""
        found |= {"engine": ran.engine, "image": (ran.image or "") + digest, "protections given up": ", ".join(ran.weakened)}
        found["installed for it"] = _joined((f"{package} {version}" for package, version in ran.packages.items()), _MOST_PACKAGES)
        found["set up otherwise"] = "; ".join(ran.notes)
    took = f"{target.seconds:.0f} s" if target.seconds else ""
    return found | {"use of the card": testing.use_of_cards(target), "run": target.run_id, "started": target.started, "took": took}


def _joined(texts: Iterable[str], most: int = _MOST_GPUS) -> str:
    known = list(dict.fromkeys(filter(None, texts)))
    return " + ".join(known if len(known) <= most else [*known[:most], f"{len(known) - most} more"])


def _copy(device: DeviceSummary) -> str:
    measured = f"{number(device.ceiling_gbps)} GB/s measured" if device.ceiling_gbps else ""
    derived = f"{number(device.derived_gbps)} by its driver's figures" if device.derived_gbps else ""
    return ", ".join(filter(None, (measured, derived)))


def did_not_pass(comparison: Comparison, few: int | None) -> list[Section]:
    """Return the tests that failed, and below each a line per target on which it did not pass; the first `few` lines.

    Below them is the command that runs the first one alone. Its id is pytest's own, quoted for a shell.
    """
    failed = [row for row in comparison.tests if _failed(row)]
    look = (line for row in failed for line in _story(row, comparison.targets))
    stories = sum(1 + sum(cell.result.verdict is not Verdict.PASSED for cell in row.cells) + len(row.suspected) for row in failed)
    sections = _listing("Tests that did not pass", look, few, stories)
    targets = {target.target: target for target in comparison.targets}
    real = [row for row in failed if not any(is_mistyped(cell.result) for cell in row.cells)]
    bad = next((cell for cell in real[0].cells if cell.result.verdict in FAILING), None) if real else None
    if bad is None or "::" not in real[0].id:
        return sections
    legend = ("The first of them alone:",) if len(real) > 1 else ("That test alone:",)
    return [replace(section, legend=legend, paste=repro(targets[bad.target], bad.result)) for section in sections]


def parity(comparison: Comparison, few: int | None) -> list[Section]:
    """Return how many tests passed on every target, and the others by kernel, targets and reason, but for those that failed."""
    if not comparison.tests:
        return []
    passed, found = 0, []
    for row in comparison.tests:
        behind = row.on or tuple(cell.target for cell in row.cells if cell.result.verdict is not Verdict.PASSED)
        passed += not behind
        if behind and not _failed(row):
            results = [cell.result for cell in row.cells if cell.target in behind]
            missing = row.parity is Parity.MISSING_ON
            words = (one.not_run.words if one.not_run else one.verdict.value for one in results)
            how: Iterable[str] = ["missing"] if missing else dict.fromkeys(words)
            reasons = dict.fromkeys(first_line(one.message or one.detail, 400) for one in results)
            found.append(((row.kernel, ", ".join(how), behind, "; ".join(filter(None, reasons))), row))
    lines = [say(f"{passed} of {plural(len(comparison.tests), 'test')} passed on every target that ran tests")]
    for (kernel, kinds, behind, reason), rows in grouped(found).items():
        lead = say(name(_id(rows[0])), f" and {len(rows) - 1} more" if len(rows) > 1 else "", " of ", name(kernel), " on ")
        why = (": ", name(reason)) if reason else ()
        lines.append(lead + say(name(", ".join(behind)), ": ", Bit(kinds, Verdict.NOT_RUN), *why))
    return [Section("Tests that did not pass everywhere", lines=shorten(lines, few))]


def _failed(row: ParityRow) -> bool:
    return any(cell.result.verdict not in HARMLESS for cell in row.cells)


def _id(row: ParityRow) -> str:
    return f"{row.name} (the file loads)" if is_load(row.id) else row.name


def _story(row: ParityRow, targets: Sequence[TargetSummary]) -> list[Line]:
    """Return a test's id, and below it a line per target on which it did not pass."""
    lines = [say(name(_id(row)))]
    for cell in row.cells:
        if cell.result.verdict is not Verdict.PASSED:
            message = first_line(cell.result.message or cell.result.detail)
            verdict = Bit(cell.result.verdict.value, cell.result.verdict)
            card = cell.result.properties.get(GPU_PROPERTY)
            where = say(" on GPU ", name(card)) if card else ()
            lines.append(say("  ", name(cell.target), " ", verdict) + where + (say(": ", name(message)) if message else ()))
            if doubt := suspicion(row, cell.target, targets):
                lines.append(say("    ", name(doubt)))
    return lines


def _every_test(comparison: Comparison) -> list[Section]:
    targets = [target.target for target in comparison.targets]
    if len(targets) * len(comparison.tests) > _MOST_CELLS:
        text = f"{plural(len(comparison.tests), 'test')} on {plural(len(targets), 'target')}: see junit.xml and comparison.json"
        return [Section("Every test", lines=(say(text),), folded=True)]
    rows = []
    for row in comparison.tests:
        results = {cell.target: cell.result for cell in row.cells}
        cells = [say(Bit(results[target].verdict.value, results[target].verdict) if target in results else NOTHING) for target in targets]
        rows.append((say(name(_id(row))), *cells, *([say(row.parity.value)] if len(targets) > 1 else [])))
    heads = (say("test"), *names(targets), *([say("parity")] if len(targets) > 1 else []))
    return [Section("Every test", heads, tuple(rows), folded=True)] if rows else []


def not_checked(comparison: Comparison, few: int | None) -> list[Section]:
    """Return the causes for which tests and points were not checked, most first, each with what to do."""
    several = len(comparison.targets) > 1
    lines: list[Line] = []
    for target in comparison.targets:
        for cause in target.unchecked[:few]:
            text, hint = cause_lines(cause)
            lines += [say(*((name(target.target), ": ") if several else ()), name(text)), say("  what to do: ", name(hint))]
        if few is not None and len(target.unchecked) > few:
            lines.append(say(f"… and {plural(len(target.unchecked) - few, 'more cause')}"))
    return [Section("Not checked, and no failure", lines=tuple(lines))] if lines else []


def _refusal(refusal: Refusal) -> Line:
    subject = name(f"{refusal.kernel} {refusal.provider}")
    return say(
        name(f"{refusal.target}/{refusal.baseline}"), f", {plural(len(refusal.cases), 'case')} of ", subject, ": ", name(refusal.reason)
    )


def _listing(title: str, lines: Iterable[Line], few: int | None, total: int, *, folded: bool = False) -> list[Section]:
    return [Section(title, lines=shorten(lines, few, total), folded=folded)] if total else []


# Comparison → the sections of the answer: what the terminal shows on one screen, and Markdown unfolded. Pure.

_GAPS, _PROBLEMS, _TARGETS, _REMARKS, _CAUSES = 3, 5, 8, 3, 4
_ARCHITECTURES = 4  # named behind what a target did
_SHOWN = (NO_STAGE, BUDGET_UP, MOSTLY_UNSEEN, "torch.compile was replaced")  # the notes that limit what the answer says


@dataclass(frozen=True)
class Brief:
    """The headline, and the sections below it, each with the most lines that it may take on one screen."""

    headline: Headline
    sections: tuple[tuple[Section, int], ...]


def brief(whole: Comparison, comparison: Comparison, *, failures: int = 4, rows: int | None = None, figures: bool = False) -> Brief:
    """Return the answer. The headline is about the `whole`, the sections about the part of it that a page shows.

    `failures` are the lines about failed tests, `rows` those of the grid. With `figures`, every gap is listed with all figures of its code.
    """
    lines = overview(comparison)
    head = headline(whole, overview(whole) if whole is not comparison else lines)
    found = shortfalls(comparison, lines)
    broken = [*codegen.uncompiled(comparison), *codegen.gate_sections(comparison, 3)]
    shown = (codegen.UNCOMPILED, codegen.RAISED, codegen.BROKEN, codegen.ADVICE, codegen.NOT_JUDGED)
    bad = [section for section in broken if section.title in shown]
    without_card = not comparison.has_card and bool(comparison.grid.rows)
    table = grid.grid(comparison.grid, rows) if without_card else speeds.kernels(comparison, lines, found)
    beside = bool(comparison.beside)
    parts: Sequence[tuple[list[Section], int]] = (
        (pills(comparison) if beside else [], 8),
        (table, 40 if without_card else 20 if beside or len(comparison.targets) <= 3 else 16),
        (did_not_pass(comparison, failures) if without_card else [], 9),
        (grid.checked(comparison) if without_card else [], 8),
        ([] if beside else _brief_targets(comparison, head, counted=without_card), 9),
        (did_not_pass(comparison, failures) if not without_card else [], 9),
        (not_checked(comparison, _CAUSES), 2 * _CAUSES + 1),
        (testing.finding_sections(comparison, min(failures, 3)), 6),
        (testing.known_sections(comparison, failures), 7),
        (profile_sections(comparison), 26),
        (speeds.gaps(comparison, found, len(found) if figures else _GAPS, figures=figures), 5 if bad else 20),
        (bad, 6),
        (_brief_targets(comparison, head, counted=without_card) if beside else [], 9),
    )
    sections = tuple((section, most) for group, most in parts for section in group)
    return Brief(head, sections)


CARDS = "On each card"


def pills(comparison: Comparison) -> list[Section]:
    """Return a row for each target with its card, its tests and its verdict. Targets without a card that did all are a line each."""
    folded = [target for target in comparison.targets if target.complete and target not in comparison.beside]
    shown = [target for target in comparison.targets if target not in folded]
    rows = tuple(
        (say(name(target.target)), say(name(target.hardware or NOTHING)), _tested(target), say(Bit(target.verdict.value, target.verdict)))
        for target in shown
    )
    lines = [
        say(name(target.target), ": ", name(first_line(target.hint or target.reason, _HINT))) for target in shown if not target.complete
    ]
    for target in folded:
        made = sum(target.compiled.values())
        compiled = f", {plural(made, 'binary')} compiled" if made else ""
        where = "emulated" if target.emulated else "without a card"
        lines.append(say(name(target.target), f", {where}: ", *_tested(target), compiled))
    return [Section(CARDS, tuple(map(say, ("target", "card", "tests", "verdict"))), rows, tuple(lines))]


def _tested(target: TargetSummary) -> Line:
    """`1061 passed`, `6 of 1077 failed`."""
    failed = failures(target.tests)
    if failed:
        return say(Bit(f"{failed} of {sum(target.tests.values())} failed", Verdict.FAILED))
    passed = target.tests.get(Verdict.PASSED.value, 0)
    return say(f"{passed} passed" if passed else counts(target.tests, target.tests_not_run))


def _brief_targets(comparison: Comparison, head: Headline, counted: bool) -> list[Section]:
    lines = _each_target(comparison, full=False, counted=counted)
    said = "".join(bit.text for bit in lines[0]) if lines else ""
    if head.text == f"{said}." and not any(target.complete for target in comparison.targets):
        lines = lines[1:]
    lines += [say(name(first_line(problem, 200))) for problem in comparison.problems[:_PROBLEMS]]
    return [Section("What each target did", lines=tuple(lines))] if lines else []


def _nothing_to_run(comparison: Comparison, target: TargetSummary) -> list[Line]:
    """Return a line for each file in which a target found nothing to run: why, and how to run what is there."""
    if not {*target.tests_not_run, *target.host_code_not_run} & {NotRun.EMPTY.value}:
        return []
    cells = ((row.id, cell) for row in comparison.tests for cell in row.cells if cell.target == target.target)
    tests = {test: cell.result.message for test, cell in cells if cell.result.not_run is NotRun.EMPTY}
    code = (cell.compiled for cell in comparison.compiled_cells if cell.target == target.target)
    benches = {made.origin: made.reason for made in code if made.not_run is NotRun.EMPTY}
    found = {_file(identity): message for identity, message in {**tests, **benches}.items()}
    lines = [say("  ", name(f"{file}: {first_line(message)}")) for file, message in found.items()]
    return list(shorten(lines, _REMARKS))


def _file(identity: str) -> str:
    """Return the file of a test, or of a benchmark that was loaded: `add [loading bench_add.py]`."""
    loaded = re.fullmatch(r".* \[loading (.*)\]", identity)
    return loaded[1] if loaded else identity.partition("::")[0]
