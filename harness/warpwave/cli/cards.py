"""What this machine can run: say so before a run that needs another one."""

import os
from collections.abc import Mapping, Sequence

from warpwave.config.targets import Target
from warpwave.doctor.machine import Machine
from warpwave.errors import InfrastructureError, UsageError
from warpwave.records import Stage
from warpwave.records.registry import DEFAULT
from warpwave.run.legs import Leg

# A machine with one of these has cards that are on no bus: WSL hands them over by this node.
_BEHIND = ("/dev/dxg",)


def no_target(targets: Mapping[str, Target]) -> UsageError:
    """Return the error for a run without a target, with the command that fits this machine."""
    machine = Machine()
    fit = [target for target in targets.values() if target.needs_card and machine.has(target)]
    if fit:
        seen = f"This machine has a card for {_listed(fit)}."
        return UsageError("No target was named.", seen, f"Type `warpwave run {' '.join(target.name for target in fit)}`.")
    happened = "No target was named."
    meaning = f"This machine has no card for {_listed([target for target in targets.values() if target.needs_card])}."
    return UsageError(happened, meaning, f"Type `{_without_card(targets)}`: it needs none. `warpwave list` shows every target.")


def check_cards(legs: Sequence[Leg], targets: Mapping[str, Target]) -> None:
    """Refuse a run of which no leg can find its card: all of them are to run here, in a container, and this machine has no such card.
    Raises InfrastructureError if it is one."""
    machine = Machine()
    lacking = [leg.target for leg in legs if _lacks_card(leg, machine)]
    if not legs or len(lacking) < len(legs):
        return
    meaning = "Tests and benchmarks of these targets run on one."
    remedy = f"Without a card: `{_without_card(targets)}`. For cards of other machines, write a hosts.yml (docs/guides/hosts.md)."
    raise InfrastructureError(f"This machine has no card for {_listed(lacking)}.", meaning, remedy)


def _lacks_card(leg: Leg, machine: Machine) -> bool:
    options = leg.options
    stages = options.what.stages or leg.target.stages
    here = options.where.host is None and (options.where.engine or leg.target.engine) == DEFAULT and not os.environ.get("DOCKER_HOST")
    asks = leg.target.needs_card and (leg.target.has_card or leg.target.doctor.pci is not None) and set(stages) != {Stage.COMPILE}
    return here and asks and not any(map(machine.paths, _BEHIND)) and not machine.has(leg.target)


def _without_card(targets: Mapping[str, Target]) -> str:
    """Return the command that checks most without a card: in the interpreter, and as machine code."""
    interpreted = [target.name for target in targets.values() if target.interpret][:1]
    emulated = [target.name for target in targets.values() if target.emulate][:1]
    return f"warpwave run {' '.join([*interpreted, *emulated])}"


def _listed(targets: Sequence[Target]) -> str:
    return " or ".join(f"{target.name} ({target.label})" for target in targets)
