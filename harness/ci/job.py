"""Run one job on a runner: examine the machine, and record an unfit machine as a run that failed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from harness.config.target import Target
from harness.doctor import Finding
from harness.doctor.finding import FAIL
from harness.errors import InfrastructureError, UsageError
from harness.out_folder import new_run_id
from harness.records import RunRecord, Verdict, dump
from harness.run import commit_of
from harness.run.sharding import parse_shard


def unfit(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings that must be fixed before this machine can run or time anything."""
    return [finding for finding in findings if finding.state == FAIL]


def end_leftovers() -> str:
    """Remove containers whose warpwave process has ended: they could still write. Return a sentence on the outcome."""
    from harness.engines.choose import clean

    try:
        removed = clean(dry_run=False)
    except InfrastructureError as error:
        return f"could not look for containers: {error.happened}"
    return f"removed: {', '.join(removed)}" if removed else "no container was left behind"


def put_on_record(
    target: Target, faults: Sequence[Finding], kernels: Path, out: Path, shard: str = "", command: tuple[str, ...] = ()
) -> RunRecord:
    """Write `raw/<target>/run.json`, so that the report says why this job has no results and how to fix it."""
    record = RunRecord(
        run_id=new_run_id(),
        target=target.name,
        label=target.label,
        verdict=Verdict.INFRA,
        reason="; ".join(f"{fault.check}: {fault.evidence}" for fault in faults),
        hint=" ".join(dict.fromkeys(fault.fix for fault in faults if fault.fix)),
        started=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        seconds=0.0,
        shard=str(parse_shard(shard)) if shard else "",
        commit=commit_of(kernels),
        kernels=kernels.name,
        command=command,
    )
    folder = out / "raw" / target.name
    folder.mkdir(parents=True)
    dump(record, folder / "run.json")
    return record


def check_options(name: str, out: Path, asked: dict[str, Any]) -> None:
    """Refuse options that would put the results where no later step of the workflow looks for them."""
    if asked["names"] != (name,):
        others = ", ".join(asked["names"][1:])
        raise UsageError(f"--options has words that are not options: {others!r}.", "A job runs one target.", "Remove them, or quote them.")
    if asked["toolchains"] or asked["tritons"]:
        raise UsageError(
            "--options puts the target on a toolchain.",
            "The report of this workflow expects the target itself, and would list it as absent.",
            "Set the versions in a targets file, or compare toolchains with `warpwave upgrade`.",
        )
    for option in ("out", "resume"):
        if asked[option] not in (None, out):
            raise UsageError(
                f"--options sets --{option} to {asked[option]}, but this job's results go to {out}.",
                "The workflow uploads only the folder that it passes with its own --out.",
                f"Leave --{option} out of --options.",
            )
