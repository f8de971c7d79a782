"""`warpwave upgrade`: what another toolchain does to a package; `warpwave bisect`: which release or toolchain made it bad."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from warpwave import console
from warpwave.cli.known import read_known, without_known
from warpwave.cli.legs import newest, say_runs_here
from warpwave.cli.options import FOLDER, OUT_FILE, JsonCommand, complete_target, known_options, output_options, run_options, several
from warpwave.cli.show import read_runs, show_page
from warpwave.compare.changed_codegen import Concern
from warpwave.compare.search import Kind, Question
from warpwave.config.names import check_names
from warpwave.config.targets import Target, load_builds, load_targets, load_toolchains
from warpwave.config.toolchains import one
from warpwave.errors import NOTHING, WORSE, ExitCode, Outcome, StoppedError, UsageError, WarpwaveError
from warpwave.records import Stage, write_text
from warpwave.records.run import EMULATOR, Toolchain, Toolchains

if TYPE_CHECKING:
    from warpwave.compare.search import Bisection
    from warpwave.compare.upgrade import FirstPass, Upgrade
    from warpwave.render.sections.model import Section
    from warpwave.search.steps import Step, Steps


def listed(known: Toolchains, options: dict[str, Any]) -> list[Toolchain]:
    """Return the toolchains of --over, the good one first. Raises UsageError if there are less than two, or an end is missing."""
    names = options["over"].split(",") if options["over"] != "triton" else _releases(known, options)
    found = [one(known, name, partial(newest, options)) for name in names]
    if len(found) < 2:
        raise UsageError("There is nothing to search.", "The good step comes first, the bad one later.", "Give two in that order.")
    return found


def _releases(known: Toolchains, options: dict[str, Any]) -> list[str]:
    from warpwave.engines.packages.environments import releases

    if not (options["good"] and options["bad"]):
        raise UsageError("A release is missing.", "The search runs between a good and a bad release.", "Give --good and --bad.")
    there = releases(options["python"], load_builds(options["overlay"])[0].wheelhouse)
    ends = [one(known, options[side], partial(newest, options)).triton for side in ("good", "bad")]
    for end in ends:
        if end not in there:
            meaning = "The package index, or the folder of wheels, does not have it."
            raise UsageError(f"There is no Triton {end} for this Python.", meaning, f"Choose from {', '.join(there)}.")
    return there[there.index(ends[0]) : there.index(ends[1]) + 1]


question_options = several(
    "The question",
    click.option("--gate", metavar="GATE", help="Ask whether a kernel breaks this gate, such as spills or lds_waits."),
    click.option(
        "--worse",
        type=click.Choice([concern.value for concern in Concern]),
        help="Ask whether this figure of the generated code is worse than in the first step.",
    ),
    click.option("--slower", metavar="KERNEL", help="Ask whether this row of the report is slower than in the first step; `*` for any."),
    click.option("--kernel", metavar="NAME", default="", help="With --gate or --worse: look at this kernel alone."),
    click.option("--architecture", metavar="NAME", default="", help="With --gate or --worse: look at this architecture alone."),
    click.option("--fixed", is_flag=True, help="Look for the step that repaired it: the first ones have it, the last ones do not."),
)
page_options = several(
    "The page",
    click.option("--markdown", type=OUT_FILE, help="Also write the page as Markdown, for a pull request or a job's summary."),
    click.option("--html", "html_file", type=OUT_FILE, help="Also write it as one HTML page."),
)


def asked_question(options: dict[str, Any]) -> Question:
    """Return the question. Without --gate, --worse and --slower it is whether one of the chosen tests fails. Raises UsageError if the
    options ask nothing, or two things."""
    ways = {Kind.GATE: options["gate"], Kind.WORSE: options["worse"], Kind.SLOWER: options["slower"]}
    given = [(kind, str(what)) for kind, what in ways.items() if what]
    tests = " ".join([*options["tests"], *([f"-k {options['keyword']}"] if options["keyword"] else [])])
    if len(given) > 1 or not (given or tests):
        happened = "Two questions were asked." if given else "A search needs a question."
        raise UsageError(happened, "Each step must be good or bad by one rule.", "Give --test ID, or one of --gate, --worse and --slower.")
    kind, what = given[0] if given else (Kind.TEST, tests)
    return Question(kind, what, options["kernel"], options["architecture"], options["fixed"])


@click.command(cls=JsonCommand)
@click.argument("names", nargs=-1, metavar="[TARGET...]", shell_complete=complete_target)
@click.option("--from", "base", required=True, metavar="TOOLCHAIN", help="A release of Triton, or a toolchain of the targets file.")
@click.option("--to", "head", required=True, metavar="TOOLCHAIN", help="The same, or `newest`.")
@click.option("--read", "folders", multiple=True, type=FOLDER, metavar="RUN", help="Run nothing: read the legs of that run; repeatable.")
@known_options(usual=WORSE, words=True, of_one_run=False)
@page_options
@click.option("--summary", type=OUT_FILE, help="Also write the answer in one line.")
@run_options
@output_options
def upgrade(**options: Any) -> Outcome:
    """Run a package on two toolchains on this machine, and show what the second one changes, the worst first.

    Without a TARGET: `cpu`, and the first emulated target if the extra `emulator` is installed. The exit code is 1 if something got worse.
    """
    from warpwave.cli.compare import parse_concerns
    from warpwave.compare.upgrade import stale, used
    from warpwave.compare.upgrade import upgrade as compare
    from warpwave.config.pyproject import tuned_configurations
    from warpwave.render.sections.upgrade import sentence, upgrade_sections

    failing = parse_concerns(options["fail_on"])
    known_failures = read_known(options, kernels=options["kernels"])
    known = load_toolchains(options["overlay"])
    sides = [one(known, options[side], partial(newest, options)) for side in ("base", "head")]
    if sides[0].name == sides[1].name:
        text = f"Both sides are {sides[0].name}: there is nothing to compare."  # a scheduled job meets this until the next release
        if options["summary"] is not None:
            write_text(options["summary"], f"{text}\n")
        console.say(text)
        return Outcome()
    runs = read_runs(list(options["folders"]) or [_run(sides, options)])
    found = compare(without_known(runs, known_failures), sides[0].name, sides[1].name)
    if found.emulated and not options["folders"]:
        found = replace(found, passes=_passes(found, sides, options))
    entries = tuned_configurations(options["kernels"]) if options["kernels"].is_dir() else []
    old = stale(entries, found.code.diff) if found.code else ()
    if entries and found.code:
        launched = used(entries, found.code.head.kernels)
        console.say(f"{launched} of {len(entries)} tuned configurations are launched by what was compiled", err=True)
    text = sentence(found, old)
    ended = Outcome() if options["fail_on"] == NOTHING else outcome(found, failing, text)
    lead = ended.lead(text)
    if options["summary"] is not None:
        write_text(options["summary"], f"{lead}\n")
    body = {"fail_on": [concern.value for concern in failing], "upgrade": asdict(found), "stale": [asdict(each) for each in old]}
    return _show("upgrade", lead, upgrade_sections(found, failing, old, options["full"]), ended, body, options)


def _show(kind: str, lead: str, sections: Sequence[Section], ended: Outcome, body: dict[str, Any], options: dict[str, Any]) -> Outcome:
    asked = {"json": options["json"], "markdown": options["markdown"], "html": options["html_file"]}
    return show_page(lead, sections, ended, body, kind=kind, **asked)


def outcome(found: Upgrade, failing: Sequence[Concern], text: str) -> Outcome:
    """Return 1 if a test, the code in a `failing` concern, or a speed got worse; 4 if a leg is incomplete; 5 if nothing was compared."""
    worse = found.code is not None and any(change.worse_in(failing) for change in found.code.diff.changes)
    if worse or any(found.broken) or any(one.worse for one in found.waits):
        return Outcome(ExitCode.FAILED, text.rstrip("."))
    if found.faults:
        return Outcome(ExitCode.INCOMPLETE, "; ".join(found.faults))
    return Outcome() if found.compared else Outcome(ExitCode.NOTHING_RAN, text.rstrip("."))


def _run(sides: list[Toolchain], options: dict[str, Any]) -> Path:
    """Run each target on both toolchains, in turns, and return the folder of the results."""
    from warpwave.cli.parse import parse_options
    from warpwave.cli.progress import Progress
    from warpwave.config.toolchains import legs
    from warpwave.run.folders import check_writable, ignored_by_git
    from warpwave.search.steps import in_turns, run_legs

    known, targets = load_toolchains(options["overlay"]), load_targets(options["overlay"])
    asked = parse_options(options)
    check_names(options["names"], options["overlay"])
    chosen = [targets[name] for name in dict.fromkeys(options["names"]) or _default_targets(targets)]
    stages = asked.what.stages
    if stages and Stage.BENCH in stages and Stage.TEST not in stages and any(Stage.BENCH in target.stages for target in chosen):
        happened = "This upgrade would measure speeds, and compare none of them."
        meaning = "A speed counts only if the kernel's tests passed in the same run."
        raise UsageError(happened, meaning, "Add the tests: --stage test,bench. `--quick` and `-k` choose fewer of them.")
    say_runs_here([target.name for target in chosen], options["kernels"])
    wanted = [legs([target], sides, known) for target in chosen]
    check_writable(ignored_by_git(asked.where.out))
    for leg in (leg for toolchains in wanted for leg in in_turns(toolchains, asked)):
        with Progress(console.terminal(err=True), leg.name, quiet=options["quiet"]) as progress:
            run_legs([leg.target], leg.options, progress.say, progress.on_event)
    console.say(f"Results: {asked.where.out}", err=True)
    return asked.where.out


_FEW_TESTS = 3  # of a target, whose passes are executed


def _passes(found: Upgrade, sides: list[Toolchain], options: dict[str, Any]) -> tuple[FirstPass, ...]:
    """Run a few broken tests of emulated targets once more on both toolchains, with the code behind each pass of the compiler."""
    from warpwave.cli.parse import parse_options
    from warpwave.compare.tests import Fate
    from warpwave.compare.upgrade import FirstPass, first_passes
    from warpwave.config.toolchains import legs
    from warpwave.records.selection import Chosen
    from warpwave.search.steps import run_legs

    known, targets = load_toolchains(options["overlay"]), load_targets(options["overlay"])
    asked, rows = parse_options(options), list[FirstPass]()
    for name in found.emulated:
        broken = [one.id for one in found.tests.of(Fate.BROKEN) if one.target == name and "::" in one.id][:_FEW_TESTS]
        if not broken:
            continue
        console.say(f"{name}: executing {len(broken)} broken tests behind each pass of the compiler", err=True)
        what = replace(asked.what, chosen=Chosen(tuple(broken), how=("upgrade",)), stages=(Stage.TEST,), passes=True)
        out = asked.where.out.with_name(f"{asked.where.out.name}-passes")
        try:
            run_legs(legs([targets[name]], sides, known), replace(asked.placed(out=out), what=what), console.say, lambda event: None)
        except StoppedError:
            raise
        except WarpwaveError as error:  # the upgrade itself has its results
            console.say(f"{name}: no pass was executed: {error.happened}", err=True)
            continue
        runs = [[run for run in read_runs([out]) if run.record.toolchain == side.name] for side in sides]
        rows += [one for one in first_passes(*runs) if one.target == name]
    return tuple(rows)


def _default_targets(targets: dict[str, Target]) -> list[str]:
    """Return the targets that need neither a card nor a container: those that run here, of the emulated ones the first."""
    from importlib.util import find_spec

    emulates = all(map(find_spec, EMULATOR))
    emulated = [name for name, target in targets.items() if target.emulate and emulates]
    return [name for name, target in targets.items() if target.interpret or name in emulated[:1]]


@click.command(cls=JsonCommand)
@click.argument("name", metavar="TARGET", shell_complete=complete_target)
@click.option("--over", required=True, metavar="WHAT", help="Releases of `triton`, or a list of toolchains a,b,c, the good one first.")
@click.option("--good", metavar="RELEASE", help="A release of Triton that is good.")
@click.option("--bad", metavar="RELEASE", help="A later one that is bad.")
@question_options
@page_options
@run_options
@output_options
def bisect(**options: Any) -> Outcome:
    """Find the first bad step: a release of Triton, or a toolchain of a list.

    A step is good or bad by a test, a gate, a figure of the generated code, or a speed. What does not build is skipped; what is ambiguous
    is measured again. The same command with --out FOLDER continues a search that was stopped. For the first bad commit of a package, use
    `git bisect run` with `warpwave run`.
    """
    from warpwave.render.sections.upgrade import bisection_sections, bisection_sentence

    say_runs_here([options["name"]], options["kernels"])
    question = asked_question(options)
    found, code = _over_toolchains(question, options)
    text = bisection_sentence(found, question.fixed)
    ended = Outcome() if found.first_bad else Outcome(ExitCode.INCOMPLETE, text.rstrip("."))
    return _show("bisect", text, [*bisection_sections(found, question.fixed), *code], ended, {"bisect": asdict(found)}, options)


def _over_toolchains(question: Question, options: dict[str, Any]) -> tuple[Bisection, list[Section]]:
    from warpwave.cli.parse import parse_options
    from warpwave.cli.progress import Progress
    from warpwave.compare.search import bisect as search
    from warpwave.config.toolchains import chosen, leg, split_legs
    from warpwave.config.toolchains import legs as all_legs
    from warpwave.run.folders import RUNS, check_writable, ignored_by_git, new_run_id
    from warpwave.search.steps import Step, Steps

    known, find = load_toolchains(options["overlay"]), partial(newest, options)
    targets = split_legs(load_targets(options["overlay"]), [options["name"]], known, find)
    if options["name"] not in targets:
        check_names([options["name"]], options["overlay"])
    legs = all_legs([targets[options["name"]]], chosen(known, options["toolchains"], options["tritons"], find), known)
    if len(legs) > 1:
        raise UsageError("Several toolchains were given.", "A search runs on one target.", "Give one --toolchain, or none.")
    target = legs[0]
    toolchains = {toolchain.name: toolchain for toolchain in listed(known, options)}
    out = Path(options["out"] or options["resume"] or RUNS / new_run_id()).resolve()

    def step(name: str) -> Step:
        return Step(name, leg(target, toolchains[name], known), parse_options({**options, "out": out, "resume": None}))

    check_writable(ignored_by_git(out))
    console.say(f"Answers are kept in {out}", err=True)
    with Progress(console.terminal(err=True), "search", quiet=options["quiet"]) as progress:
        steps = Steps(question, {"target": target.name, "steps": list(toolchains)}, out, progress.say, progress.on_event)
        found = search(question.words, list(toolchains), lambda name: steps.ask_for(name, lambda: step(name)))
        return found, _code_beside(found, steps, step)


def _code_beside(found: Bisection, steps: Steps, step: Callable[[str], Step]) -> list[Section]:
    """Return what the first bad step changed in the generated code, compiled for it if the question did not need that."""
    from warpwave.cli.compare import parse_concerns
    from warpwave.compare.changed_codegen import bundle, check_comparable, diff
    from warpwave.compare.upgrade import plain
    from warpwave.render.sections.changes import diff_sections
    from warpwave.render.sections.model import Section, name, say

    if found.first_bad is None or found.last_good is None:
        return []
    stages = None if Stage.COMPILE in steps.question.stages else (Stage.COMPILE,)
    try:
        sides = [bundle(one, plain(steps.runs(step(one), stages))) for one in (found.last_good, found.first_bad)]
        check_comparable(*sides)
    except WarpwaveError as error:
        return [Section("Generated code", lines=(say("Not compared: ", name(error.happened)),))]
    return diff_sections(sides[0], sides[1], diff(sides[0].kernels, sides[1].kernels), parse_concerns("any"), False)
