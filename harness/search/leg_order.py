"""The order in which the legs of a comparison run: those that measure take turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness.config.target import Target
from harness.options import RunOptions
from harness.records import Shard, Stage
from harness.records.selection.package import is_bench
from harness.run.legs.plan import Leg
from harness.run.sharding import files_of

_MOST_TURNS = 8  # each turn starts two processes, or two containers


def in_turns(toolchains: Sequence[Target], options: RunOptions) -> list[Leg]:
    """Return the legs of one target on several toolchains, in the order in which they run.

    Where they measure, the package is divided into shards. All toolchains run the first shard, then all run the second one, and so on, each
    time in the reverse order. A card that becomes warmer, or a machine that becomes busier, then slows down no toolchain more than another.
    """
    measured = Stage.BENCH in (options.stages or tuple(Stage)) and any(Stage.BENCH in target.stages for target in toolchains)
    benches = [path for path in files_of(options) if is_bench(path, options.benches)]
    turns = min(len(benches), _MOST_TURNS)
    if not measured or turns < 2 or options.shard:
        return [Leg(target, options) for target in toolchains]
    legs = []
    for number in range(1, turns + 1):
        part = replace(
            options,
            shard=Shard(number, turns),
            out=options.out / "shards" / f"{number}of{turns}",
            whole=options.out,
            run_id=f"{options.run_id}-{number}of{turns}",
        )
        legs += [Leg(target, part) for target in (toolchains if number % 2 else reversed(toolchains))]
    return legs
