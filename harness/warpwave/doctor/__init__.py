"""What is missing on this machine, target by target, and the command that fixes it. Read-only, and takes at most a minute. Checks of every
machine are code (`host`, `engine`). Checks of one vendor are data in the targets file (`checks`), which `vendor` reads. All checks look at
the machine through `machine`, so that a recording can replace it."""

from collections.abc import Sequence
from dataclasses import replace

from warpwave.config.targets import Target
from warpwave.doctor.checks import Engine, ask_engine, examine_engine, examine_host, examine_python, examine_vendor
from warpwave.doctor.machine import Finding, Machine
from warpwave.records.registry import ENGINES

__all__ = ["Finding", "examine"]


def examine(
    targets: dict[str, Target], named: Sequence[str] = (), machine: Machine | None = None, engine: str | None = None
) -> list[Finding]:
    """Run all checks of this machine and of `targets`. Targets in `named` must be usable here; the others may be absent. `engine` is the
    engine that runs will use, if it is not each target's own."""
    machine = machine or Machine()
    chosen = [replace(target, engine=engine or target.engine) for target in targets.values() if not named or target.name in named]
    contained = [target for target in chosen if ENGINES[target.engine].container]
    findings = examine_host(machine)
    answered = Engine()
    if contained:
        answered = ask_engine()
        needed = any(target.name in named or machine.has(target) for target in contained)
        findings += examine_engine(answered, machine, needed=needed)
    for target in chosen:
        if not ENGINES[target.engine].container:
            findings.append(examine_python(target, machine))
        if target.has_card:
            findings += examine_vendor(target, machine, answered.info, needed=target.name in named, contained=target in contained)
    return findings
