"""`warpwave upgrade --from 3.8.0 --to 3.9.0`: what another toolchain does to a package."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness import console
from harness.commands.options.common import FILE, FOLDER, JsonCommand, complete_target
from harness.commands.options.groups import build_options, output_options, package_options, what_options, where_options
from harness.commands.show_report import print_answer
from harness.errors import ExitCode, Outcome, UsageError
from harness.records.toolchain import EMULATOR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.compare.codegen.deltas import Concern
    from harness.compare.toolchains.tuned import Stale
    from harness.compare.toolchains.upgrade import Upgrade
    from harness.config.target import Target
    from harness.records import Stage
    from harness.records.toolchain import Toolchain
    from harness.render.sections.model import Section


@click.command(cls=JsonCommand)
@click.argument("names", nargs=-1, metavar="[TARGET...]", shell_complete=complete_target)
@click.option("--from", "base", required=True, metavar="TOOLCHAIN", help="A release of Triton, or a toolchain of the targets file.")
@click.option("--to", "head", required=True, metavar="TOOLCHAIN", help="The same, or `newest`.")
@click.option("--read", "folders", multiple=True, type=FOLDER, metavar="RUN", help="Run nothing: read the legs of that run; repeatable.")
@click.option(
    "--fail-on", metavar="WHAT,WHAT", default="verdict,matrix,spills,occupancy", show_default=True, help="As in `warpwave codegen diff`."
)
@click.option("--markdown", type=FILE, help="Also write the page as Markdown, for a pull request or a job's summary.")
@click.option("--html", "html_file", type=FILE, help="Also write it as one HTML page.")
@click.option("--summary", type=FILE, help="Also write the answer in one line.")
@what_options
@package_options
@where_options
@build_options
@output_options
def upgrade(**options: Any) -> Outcome:
    """Run a package on two toolchains on this machine, and show what the second one changes, the worst first.

    Without a TARGET: `cpu`, and the first emulated target if the extra `emulator` is installed. The exit code is 1 if something got worse.
    """
    from harness.commands.codegen import parse_concerns
    from harness.compare.toolchains.tuned import stale, used
    from harness.compare.toolchains.upgrade import upgrade as compare
    from harness.config.package.tuned import tuned_configurations
    from harness.config.targets import load_toolchains
    from harness.config.toolchains import one
    from harness.render.sections.changes.upgrade import sentence, upgrade_sections
    from harness.search.legs import read_runs

    failing = parse_concerns(options["fail_on"])
    known = load_toolchains(options["overlay"])
    sides = [one(known, options[side], partial(_newest, options)) for side in ("base", "head")]
    if sides[0].name == sides[1].name:
        return _same(sides[0].name, options["summary"])
    runs = read_runs(list(options["folders"]) or [_run(sides, options)])
    found = compare(runs, sides[0].name, sides[1].name)
    entries = tuned_configurations(options["kernels"]) if options["kernels"].is_dir() else []
    old = stale(entries, found.code.diff) if found.code else ()
    if entries and found.code:
        launched = used(entries, found.code.head.kernels)
        console.say(f"{launched} of {len(entries)} tuned configurations are launched by what was compiled", err=True)
    text = sentence(found, old)
    ended = outcome(found, failing, text)
    lead = ended.lead(text)
    sections = upgrade_sections(found, failing, old, options["full"])
    _write(lead, ended, sections, options)
    if not print_answer(options["json"], [_json(found, old, lead, ended, failing)]):
        from harness.render.terminal import draw_page

        console.show(draw_page(lead, sections, good=ended.ok))
    return ended


def _same(name: str, summary: Path | None) -> Outcome:
    """Say that there is nothing to compare: a scheduled job meets this until the next release."""
    from harness.records import write_text

    text = f"Both sides are {name}: there is nothing to compare."
    if summary is not None:
        summary.parent.mkdir(parents=True, exist_ok=True)
        write_text(summary, f"{text}\n")
    console.say(text)
    return Outcome()


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
    from harness.commands.options.legs import say_runs_here
    from harness.commands.options.parse import parse_options
    from harness.commands.progress import Progress
    from harness.config.targets import load_targets, load_toolchains, select
    from harness.config.toolchains import legs
    from harness.out_folder import check_writable, ignored_by_git
    from harness.search.leg_order import in_turns
    from harness.search.legs import run_legs

    known, targets = load_toolchains(options["overlay"]), load_targets(options["overlay"])
    asked = parse_options(options)
    chosen = select(targets, list(options["names"]) or _default_targets(targets))
    _check_stages(asked.stages, chosen)
    say_runs_here([target.name for target in chosen], options["kernels"])
    wanted = [legs([target], sides, known) for target in chosen]
    check_writable(ignored_by_git(asked.out))
    for leg in (leg for toolchains in wanted for leg in in_turns(toolchains, asked)):
        with Progress(console.terminal(err=True), leg.name, quiet=options["quiet"]) as progress:
            run_legs([leg.target], leg.options, progress.say, progress.on_event)
    console.say(f"Results: {asked.out}", err=True)
    return asked.out


def _check_stages(stages: Sequence[Stage] | None, chosen: Sequence[Target]) -> None:
    """Refuse to measure what cannot be compared.

    Raises:
        UsageError: the run would measure, and test nothing.
    """
    from harness.records import Stage

    if stages and Stage.BENCH in stages and Stage.TEST not in stages and any(Stage.BENCH in target.stages for target in chosen):
        raise UsageError(
            "This upgrade would measure speeds, and compare none of them.",
            "A speed counts only if the kernel's tests passed in the same run.",
            "Add the tests: --stage test,bench. `--quick` and `-k` choose fewer of them.",
        )


def _default_targets(targets: dict[str, Target]) -> list[str]:
    """Return the targets that need neither a card nor a container: those that run here, of the emulated ones the first."""
    from importlib.util import find_spec

    emulates = all(map(find_spec, EMULATOR))
    emulated = [name for name, target in targets.items() if target.emulate and emulates]
    return [name for name, target in targets.items() if target.interpret or name in emulated[:1]]


def _newest(options: dict[str, Any], index: str) -> str:
    from harness.commands.options.toolchains import newest

    return newest(options, index)


def _write(lead: str, ended: Outcome, sections: Sequence[Section], options: dict[str, Any]) -> None:
    """Write the pages that were asked for."""
    from harness.records import write_text
    from harness.render.html import render_sections
    from harness.render.markdown import render_page

    source = "what `upgrade --full --json` prints"
    if options["markdown"] is not None:
        write_text(options["markdown"], render_page(lead, sections, good=ended.ok, all_in=source))
    if options["html_file"] is not None:
        write_text(options["html_file"], render_sections(lead, sections, exit_code=int(ended.code), kind="upgrade", source=source))
    if options["summary"] is not None:
        write_text(options["summary"], f"{lead}\n")


def _json(found: Upgrade, old: Sequence[Stale], lead: str, ended: Outcome, failing: Sequence[Concern]) -> str:
    from harness.records import SCHEMA_VERSION
    from harness.render.text import json_text

    fail_on = [concern.value for concern in failing]
    body = {**ended.fields(), "sentence": lead, "fail_on": fail_on, "upgrade": asdict(found), "stale": [asdict(one) for one in old]}
    return json_text({**body, "schema_version": SCHEMA_VERSION}, indent=1) + "\n"
