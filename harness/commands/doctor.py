"""`warpwave doctor`: find out what is missing on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.text import Text

from harness import console
from harness.commands.hosts.doctor import as_file_or_leg, doctor_hosts
from harness.commands.options.common import FILE, FOLDER, Json, JsonCommand, complete_target, json_option
from harness.commands.show_report import print_answer
from harness.errors import ExitCode, Outcome
from harness.records.registry.engines import HERE

if TYPE_CHECKING:
    from harness.doctor import Finding

_COLOURS = {"pass": "green", "warn": "yellow", "fail": "red"}


@click.command(cls=JsonCommand)
@click.argument("names", nargs=-1, metavar="[TARGET]...", shell_complete=complete_target)
@click.option("--targets", "overlay", type=FILE, help="A targets file; its entries override the shipped ones.")
@click.option("--engine", type=click.Choice(list(HERE)), help="The engine that runs will use.  [default: the target's own]")
@click.option(
    "--run", "trial", is_flag=True, help="Also run a small kernel on each target that this machine has; may build its image first."
)
@click.option(
    "--hosts",
    is_flag=False,
    flag_value="",
    metavar="[FILE]",
    help="Ask the machines of hosts.yml, or of FILE, instead of this one: all legs at once, or the named ones.",
)
@click.option("--kernels", type=FOLDER, default=Path("kernels"), show_default=True, help="Kernel package beside which hosts.yml is.")
@click.option("--strict", is_flag=True, help="Treat warnings as failures.")
@json_option()
def doctor(
    names: tuple[str, ...],
    overlay: Path | None,
    engine: str | None,
    trial: bool,
    hosts: str | None,
    kernels: Path,
    strict: bool,
    json: Json,
) -> Outcome:
    """Show what is missing on this machine, target by target, and how to fix it. Changes nothing.

    A vendor whose card is missing is skipped, unless you name its TARGET.
    """
    from harness.config.targets import load_targets, select
    from harness.doctor import examine
    from harness.doctor.finding import bad, fit
    from harness.doctor.kernel import run_kernel
    from harness.render.text import json_text

    targets = load_targets(overlay)
    if hosts is not None:
        file, legs = as_file_or_leg(hosts, names)
        options = {"hosts": file, "here": False, "kernels": kernels, "names": legs}
        return doctor_hosts(options, targets, strict=strict, json=json)
    select(targets, list(names))
    findings = examine(targets, names, engine=engine)
    if trial:
        findings += [run_kernel(targets[name], engine) for name in fit(findings, names or tuple(targets))]
    ended = outcome(bad(findings, strict=strict))
    document = {"schema_version": 1, **ended.fields(), "findings": [asdict(finding) for finding in findings]}
    if not print_answer(json, [json_text(document, default=str) + "\n"]):
        print_findings(findings)
    return ended


def outcome(faults: Sequence[Finding]) -> Outcome:
    """Return 3 with the evidence if something must be fixed before a run, else 0."""
    return Outcome(ExitCode.INFRASTRUCTURE, "; ".join(f"{fault.check}: {fault.evidence}" for fault in faults)) if faults else Outcome()


def print_findings(findings: Sequence[Finding]) -> None:
    """Print one line for each finding, its fix below it, and the counts at the end."""
    from harness.render.text import visible

    for finding in findings:
        mark = Text(f"{finding.state:<5}", _COLOURS.get(finding.state, "dim"))
        console.show(mark, Text(visible(f"{finding.check}: {finding.evidence}")), soft_wrap=True)
        if finding.fix:
            console.show(Text(visible(f"      {finding.fix}"), "dim"), soft_wrap=True)
    counts = {state: sum(finding.state == state for finding in findings) for state in ("pass", "warn", "fail", "skip")}
    console.say(", ".join(f"{count} {state}" for state, count in counts.items() if count))
