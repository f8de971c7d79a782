"""What a run consists of: legs, and which of them may run side by side."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.config.target import Target
from harness.options import RunOptions


@dataclass(frozen=True)
class Leg:
    """One line of a run: a target, by the leg's name, with its own options. A leg on several shards is several of these."""

    target: Target
    options: RunOptions

    @property
    def name(self) -> str:
        """The leg's name, with its shard."""
        shard = self.options.shard
        return f"{self.target.name} {shard}" if shard and self.options.whole else self.target.name

    @property
    def where(self) -> str:
        """Where the leg runs, in words."""
        return self.options.host.where if self.options.host else "this machine"

    @property
    def engine(self) -> str:
        """The name of the engine that runs the leg, if no option names another."""
        return (self.options.host.runs_with if self.options.host else "") or self.options.engine or self.target.engine

    @property
    def raw(self) -> Path:
        """The folder of the leg's results."""
        return self.options.out / "raw" / self.target.name

    @property
    def log(self) -> Path:
        """The file in which a leg that runs beside others keeps what it says."""
        shard = self.options.shard
        part = f"-{shard.number}of{shard.of}" if shard and self.options.whole else ""
        return self.options.folder / "logs" / f"{self.target.name}{part}.log"

    @property
    def _machine(self) -> Hashable:
        """What tells apart the legs that would disturb each other: the machine. Slurm gives each job cards and cores of its own."""
        host = self.options.host
        if host is None or (host.slurm is None and not host.ssh):
            return ""
        # Shards of one leg are there to use one machine's cards at once; the lease of each card decides.
        return self.name if host.slurm is not None or self.options.whole else host.ssh


def lanes(legs: Sequence[Leg]) -> list[list[Leg]]:
    """Return the legs in lanes: those of one lane run one after the other, the lanes side by side.

    All legs of this machine share a lane, also those without a card: they use every core, and would spoil the times of the others.
    """
    found: dict[Hashable, list[Leg]] = {}
    for leg in legs:
        found.setdefault(leg._machine, []).append(leg)
    return list(found.values())
