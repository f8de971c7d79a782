"""`warpwave doctor`: find out what is missing on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table
from rich.text import Text

from warpwave import console
from warpwave.cli.options import FILE, FOLDER, Json, JsonCommand, complete_target, json_option
from warpwave.cli.show import print_answer
from warpwave.errors import ExitCode, InfrastructureError, Outcome
from warpwave.records import plural
from warpwave.records.registry import HERE
from warpwave.safe_text import json_text, visible

if TYPE_CHECKING:
    from warpwave.config.hosts import Host
    from warpwave.config.targets import Target
    from warpwave.doctor import Finding


_AT_ONCE = 32
_STYLES = {"pass": "green", "warn": "yellow", "fail": "red"}


def doctor_hosts(options: Mapping[str, Any], targets: dict[str, Target], *, strict: bool, json: Json) -> Outcome:
    """Ask every host of the legs in `options`, all at once. A host that does not answer is a finding. Raises ConfigError if there is no
    hosts file, or it is not valid, and UsageError if a name is no leg."""
    from warpwave.cli.legs import all_hosts, chosen_targets
    from warpwave.config.names import hosts_file
    from warpwave.doctor.machine import bad

    legs = [host.name for host in all_hosts(options, targets)]
    chosen = chosen_targets({**options, "names": options["names"] or tuple(legs)}, targets)
    places = [(target, replace(host, ssh=ssh)) for target, host in chosen if host for ssh in (host.ssh, *host.also)]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(pool.map(_examine, places))
    wrong = {f"{host.name} on {host.where}": bad(findings, strict=strict) for (_, host), findings in zip(places, found, strict=True)}
    ended = outcome([replace(fault, check=f"{leg}: {fault.check}") for leg, faults in wrong.items() for fault in faults])
    rows = [
        {"leg": host.name, "target": host.target, "host": host.where, "findings": [asdict(finding) for finding in findings]}
        for (_, host), findings in zip(places, found, strict=True)
    ]
    document = {"schema_version": 1, **ended.fields(), "file": str(hosts_file(options)[0]), "hosts": rows}
    if not print_answer(json, [json_text(document, default=str) + "\n"]):
        console.show(_table(places, found))
        console.say(f"{hosts_file(options)[0]}: {plural(len(places), 'host')} asked, {sum(map(bool, wrong.values()))} not fit")
    return ended


def _examine(place: tuple[Target, Host]) -> list[Finding]:
    from warpwave.doctor import examine
    from warpwave.doctor.elsewhere import examine_leg

    target, host = place
    if host.ssh or host.slurm is not None:
        return examine_leg(host, target)
    return examine({target.name: target}, [target.name], engine=host.runs_with or None)


def _table(places: Sequence[tuple[Target, Host]], found: Sequence[Sequence[Finding]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("leg", no_wrap=True)
    table.add_column("host", no_wrap=True, max_width=24)
    table.add_column("what it lacks", ratio=3, overflow="fold")
    table.add_column("what fixes it", ratio=2, overflow="fold")
    for (_, host), findings in zip(places, found, strict=True):
        lacks = [finding for finding in findings if finding.state in ("fail", "warn")]
        names = [Text(visible(host.name)), Text(visible(host.where))]
        if not lacks:
            passed = sum(finding.state == "pass" for finding in findings)
            table.add_row(*names, Text(f"nothing: {passed} checks passed", "green"), "")
        for finding in lacks:
            check = finding.check.removeprefix(host.name).removeprefix(": ")
            lack = f"{check}: {finding.evidence}" if check else finding.evidence
            table.add_row(*names, Text(visible(lack), _STYLES[finding.state]), Text(visible(finding.fix)))
            names = [Text(""), Text("")]
    return table


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
def doctor(names: tuple[str, ...], overlay: Path | None, engine: str | None, *, strict: bool, json: Json, **options: Any) -> Outcome:
    """Show what is missing on this machine, target by target, and how to fix it. Changes nothing.

    A vendor whose card is missing is skipped, unless you name its TARGET.
    """
    from warpwave.config.names import check_names
    from warpwave.config.targets import load_targets
    from warpwave.doctor import examine
    from warpwave.doctor.checks import run_kernel
    from warpwave.doctor.machine import bad, fit

    targets = load_targets(overlay)
    if options["hosts"] is not None:
        given = options["hosts"]  # a value that is no file and looks like none is a leg's name
        is_leg = given and not (Path(given).exists() or Path(given).suffix or "/" in given)
        file, legs = (None, (given, *names)) if is_leg else (Path(given) if given else None, names)
        asked = {"hosts": file, "here": False, "kernels": options["kernels"], "names": legs}
        return doctor_hosts(asked, targets, strict=strict, json=json)
    check_names(names, overlay)
    findings = examine(targets, names, engine=engine)
    if options["trial"]:
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
    for finding in findings:
        mark = Text(f"{finding.state:<5}", _STYLES.get(finding.state, "dim"))
        console.show(mark, Text(visible(f"{finding.check}: {finding.evidence}")), soft_wrap=True)
        if finding.fix:
            console.show(Text(visible(f"      {finding.fix}"), "dim"), soft_wrap=True)
    counts = {state: sum(finding.state == state for finding in findings) for state in ("pass", "warn", "fail", "skip")}
    console.say(", ".join(f"{count} {state}" for state, count in counts.items() if count))


_MIB = 1 << 20
_DAYS = 30


@click.command()
@click.option("--yes", is_flag=True, help="Remove what is listed.")
@click.option(
    "--unused-days",
    type=click.IntRange(min=0),
    default=_DAYS,
    metavar="N",
    help=f"How long a Python environment must be unused; 0 takes all that no run uses now.  [default: {_DAYS}]",
)
def clean(yes: bool, unused_days: int) -> Outcome:
    """List what earlier runs left on this machine, or remove it.

    That is containers of killed runs, and Python environments that the local engine made for packages and that no run has used for 30 days.
    """
    from warpwave.engines.packages.environments import unused

    found = _containers(dry_run=not yes)
    for old in unused(unused_days, remove=yes):
        found.append(f"environment {old.folder} (unused for {old.days:.0f} days, {old.bytes // _MIB} MiB)")
    for name in found:
        console.say(f"{'removed' if yes else 'found'}: {name}")
    if not found:
        console.say("nothing to remove")
    elif not yes:
        console.say("`warpwave clean --yes` removes them")
    return Outcome()


def _containers(dry_run: bool) -> list[str]:
    """Return what an engine has. Without an engine there is nothing of ours in one, and the rest can still be removed."""
    from warpwave.engines.choose import clean as clean_containers

    try:
        return clean_containers(dry_run)
    except InfrastructureError as error:
        console.say(f"containers: not looked for. {error.happened}")
        return []
