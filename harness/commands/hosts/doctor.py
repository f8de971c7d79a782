"""`warpwave doctor --hosts`: ask the machines of all legs at once, and show in a table what each lacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from harness import console
from harness.commands.show_report import print_answer
from harness.errors import ExitCode, Outcome
from harness.render.text import json_text, visible

if TYPE_CHECKING:
    from harness.commands.options.common import Json
    from harness.config.hosts import Host
    from harness.config.target import Target
    from harness.doctor import Finding

_AT_ONCE = 32
_STYLES = {"fail": "red", "warn": "yellow"}


def doctor_hosts(options: Mapping[str, Any], targets: dict[str, Target], *, strict: bool, json: Json) -> Outcome:
    """Ask every host of the legs in `options`, all at once. A host that does not answer is a finding.

    Raises:
        ConfigError: there is no hosts file, or it is not valid.
        UsageError: a name is no leg.
    """
    from harness.commands.options.legs import all_hosts, chosen_targets, hosts_file
    from harness.doctor.finding import bad

    legs = [host.name for host in all_hosts(options, targets)]
    chosen = chosen_targets({**options, "names": options["names"] or tuple(legs)}, targets)
    places = [(target, replace(host, ssh=ssh)) for target, host in chosen if host for ssh in (host.ssh, *host.also)]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(pool.map(_examine, places))
    wrong = {f"{host.name} on {host.where}": bad(findings, strict=strict) for (_, host), findings in zip(places, found, strict=True)}
    told = "; ".join(f"{leg}: {fault.check}: {fault.evidence}" for leg, faults in wrong.items() for fault in faults)
    ended = Outcome(ExitCode.INFRASTRUCTURE, told) if told else Outcome()
    rows = [_document(host, findings) for (_, host), findings in zip(places, found, strict=True)]
    document = {"schema_version": 1, **ended.fields(), "file": str(hosts_file(options)[0]), "hosts": rows}
    if not print_answer(json, [json_text(document, default=str) + "\n"]):
        console.show(_table(places, found))
        console.say(
            f"{hosts_file(options)[0]}: {len(places)} host{'' if len(places) == 1 else 's'} asked, {sum(map(bool, wrong.values()))} not fit"
        )
    return ended


def _examine(place: tuple[Target, Host]) -> list[Finding]:
    from harness.doctor import examine
    from harness.doctor.elsewhere import examine_leg

    target, host = place
    if host.ssh or host.slurm is not None:
        return examine_leg(host, target)
    return examine({target.name: target}, [target.name], engine=host.runs_with or None)


def _table(places: Sequence[tuple[Target, Host]], found: Sequence[Sequence[Finding]]) -> Table:
    """Return a row for each thing that a host lacks; one row for a host that lacks nothing."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("leg", no_wrap=True)
    table.add_column("host", no_wrap=True, max_width=24)
    table.add_column("what it lacks", ratio=3, overflow="fold")
    table.add_column("what fixes it", ratio=2, overflow="fold")
    for (_, host), findings in zip(places, found, strict=True):
        lacks = [finding for finding in findings if finding.state in _STYLES]
        names = [Text(visible(host.name)), Text(visible(host.where))]
        if not lacks:
            passed = sum(finding.state == "pass" for finding in findings)
            table.add_row(*names, Text(f"nothing: {passed} checks passed", "green"), "")
        for finding in lacks:
            table.add_row(*names, Text(visible(_lacks(host, finding)), _STYLES[finding.state]), Text(visible(finding.fix)))
            names = [Text(""), Text("")]
    return table


def _lacks(host: Host, finding: Finding) -> str:
    check = finding.check.removeprefix(host.name).removeprefix(": ")
    return f"{check}: {finding.evidence}" if check else finding.evidence


def _document(host: Host, findings: Sequence[Finding]) -> dict[str, Any]:
    return {"leg": host.name, "target": host.target, "host": host.where, "findings": [asdict(finding) for finding in findings]}


def as_file_or_leg(value: str | None, names: tuple[str, ...]) -> tuple[Path | None, tuple[str, ...]]:
    """Return the file that `--hosts VALUE` names, and the legs: a value that is no file and looks like none is a leg's name."""
    if not value:
        return None, names
    path = Path(value)
    return (path, names) if path.exists() or path.suffix or "/" in value else (None, (value, *names))
