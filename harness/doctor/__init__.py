"""What is missing on this machine, target by target, and the command that mends it. Read-only, and over within a minute.

What is asked of every machine is code (`host`, `engine`); what is asked of one vendor's is data in the targets file (`checks`), read
by `vendor`. Everything is seen through `machine`, so that a machine can be a recording.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.doctor.engine import ask_engine, examine_engine
from harness.doctor.finding import Finding
from harness.doctor.host import examine_host, examine_python
from harness.doctor.machine import Machine
from harness.doctor.vendor import examine_vendor
from harness.targets import Target

__all__ = ["Finding", "examine"]


def examine(targets: dict[str, Target], named: Sequence[str] = (), machine: Machine | None = None) -> list[Finding]:
    """All checks of this machine and of `targets`; those in `named` have to be here, any other one may be absent."""
    machine = machine or Machine()
    engine = ask_engine()
    chosen = [target for target in targets.values() if not named or target.name in named]
    needed = any(target.engine == "docker" and (target.name in named or machine.has(target)) for target in chosen)
    findings = examine_host(machine)
    findings += examine_engine(engine, machine, needed=needed)
    for target in chosen:
        if target.engine == "local":
            findings.append(examine_python(target, machine))
        else:
            findings += examine_vendor(target, machine, engine.info, needed=target.name in named)
    return findings
