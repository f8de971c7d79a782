"""`warpwave bisect`: which release of Triton, or which toolchain of a list, made it bad."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness import console
from harness.commands.options.common import JsonCommand, complete_target, several
from harness.commands.options.groups import build_options, output_options, package_options, what_options, where_options
from harness.commands.options.legs import say_runs_here
from harness.commands.options.questions import asked_question, page_options, question_options
from harness.commands.options.stacks import listed, one_target, options_maker
from harness.commands.show_report import print_answer
from harness.errors import ExitCode, Outcome

if TYPE_CHECKING:
    from harness.compare.toolchains.bisection import Bisection
    from harness.compare.toolchains.question import Question
    from harness.render.sections.model import Section
    from harness.search.steps import Step, Steps


_every_option = several(question_options, page_options, what_options, package_options, where_options, build_options, output_options)


@click.command(cls=JsonCommand)
@click.argument("name", metavar="TARGET", shell_complete=complete_target)
@click.option(
    "--over",
    required=True,
    metavar="WHAT",
    help="Releases of `triton`, or a list of toolchains a,b,c, the good one first.",
)
@click.option("--good", metavar="RELEASE", help="A release of Triton that is good.")
@click.option("--bad", metavar="RELEASE", help="A later one that is bad.")
@_every_option
def bisect(**options: Any) -> Outcome:
    """Find the first bad step: a release of Triton, or a toolchain of a list.

    A step is good or bad by a test, a gate, a figure of the generated code, or a speed. What does not build is skipped; what is ambiguous
    is measured again. The same command with --out FOLDER continues a search that was stopped. For the first bad commit of a package, use
    `git bisect run` with `warpwave run`.
    """
    from harness.render.sections.search import bisection_sections, bisection_sentence

    say_runs_here([options["name"]], options["kernels"])
    question = asked_question(options)
    found, code = _over_toolchains(question, options)
    text = bisection_sentence(found, question.fixed)
    ended = Outcome() if found.first_bad else Outcome(ExitCode.INCOMPLETE, text.rstrip("."))
    return _show(text, [*bisection_sections(found, question.fixed), *code], ended, options, "bisect", found)


def _over_toolchains(question: Question, options: dict[str, Any]) -> tuple[Bisection, list[Section]]:
    from harness.compare.toolchains.bisection import bisect as search
    from harness.config.toolchains import leg
    from harness.search.steps import Step, Steps, stepper

    target, known = one_target(options)
    toolchains = {toolchain.name: toolchain for toolchain in listed(known, options)}
    make, out = options_maker(options), _out(options)

    def step(name: str) -> Step:
        return Step(name, leg(target, toolchains[name], known), make(out))

    with ExitStack() as stack:
        steps = Steps(question, {"target": target.name, "steps": list(toolchains)}, out, *_progress(options, stack))
        found = search(question.words, list(toolchains), stepper(steps, step))
        return found, _code_beside(found, steps, step)


def _code_beside(found: Bisection, steps: Steps, step: Callable[[str], Step]) -> list[Section]:
    """Return what the first bad step changed in the generated code, compiled for it if the question did not need that."""
    from harness.commands.codegen import parse_concerns
    from harness.compare.codegen.bundles import bundle, check_comparable
    from harness.compare.codegen.changed_code import diff
    from harness.compare.toolchains.question import plain
    from harness.errors import WarpwaveError
    from harness.records import Stage
    from harness.render.sections.changes.code import diff_sections
    from harness.render.sections.model import Section, name, say

    if found.first_bad is None or found.last_good is None:
        return []
    stages = None if Stage.COMPILE in steps.question.stages else (Stage.COMPILE,)
    try:
        sides = [bundle(one, plain(steps.runs(step(one), stages))) for one in (found.last_good, found.first_bad)]
        check_comparable(*sides)
    except WarpwaveError as error:
        return [Section("Generated code", lines=(say("Not compared: ", name(error.happened)),))]
    return diff_sections(sides[0], sides[1], diff(sides[0].kernels, sides[1].kernels), parse_concerns("any"), False)


def _out(options: dict[str, Any]) -> Path:
    from harness.out_folder import RUNS, check_writable, ignored_by_git, new_run_id

    out = Path(options["out"] or options["resume"] or RUNS / new_run_id()).resolve()
    check_writable(ignored_by_git(out))
    console.say(f"Answers are kept in {out}", err=True)
    return out


def _progress(options: dict[str, Any], stack: ExitStack) -> tuple[Any, Any]:
    from harness.commands.progress import Progress

    progress = stack.enter_context(Progress(console.terminal(err=True), "search", quiet=options["quiet"]))
    return progress.say, progress.on_event


def _show(text: str, sections: Sequence[Section], ended: Outcome, options: dict[str, Any], kind: str, found: Any) -> Outcome:
    from harness.records import SCHEMA_VERSION, write_text
    from harness.render.html import render_sections
    from harness.render.markdown import render_page
    from harness.render.terminal import draw_page
    from harness.render.text import json_text

    source = f"what `{kind} --json` prints"
    if options["markdown"] is not None:
        write_text(options["markdown"], render_page(text, sections, good=ended.ok, all_in=source))
    if options["html_file"] is not None:
        write_text(options["html_file"], render_sections(text, sections, exit_code=int(ended.code), kind=kind, source=source))
    body = {**ended.fields(), "sentence": text, kind: asdict(found), "schema_version": SCHEMA_VERSION}
    if not print_answer(options["json"], [json_text(body, indent=1) + "\n"]):
        console.show(draw_page(text, sections, good=ended.ok))
    return ended
