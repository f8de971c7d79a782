"""Divide a package's test files and benches into shards, so that several machines can share it. The package and the options alone decide
which shard gets a file, so the machines need not communicate. Each file is in exactly one shard."""

import glob
import hashlib
import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from warpwave.errors import UsageError
from warpwave.options import RunOptions
from warpwave.records import BenchScript, Selection, Shard, Stage
from warpwave.records.selection import find_scripts, is_bench, is_test, kernel_of
from warpwave.records.words import MOST_SHARDS

NOTHING = "(no bench in this run)"  # a pattern that no file matches


@dataclass(frozen=True)
class Part:
    """What one shard has: `files`, those of them that are `benches`, as patterns, and a digest of the whole division."""

    files: tuple[str, ...]
    benches: tuple[str, ...]
    division: str


def parse_shard(text: str) -> Shard:
    """Parse a shard such as `2/4`, the second of four. Raises UsageError if the text is not a shard."""
    try:
        return Shard.parse(text)
    except ValueError:
        meaning = f"Shards are numbered from 1, and at most {MOST_SHARDS}."
        raise UsageError(f"--shard {text!r} is not a shard.", meaning, "For example --shard 1/4.") from None


def part_of(options: RunOptions, shard: Shard) -> Part:
    """Return what a shard has of the package. Helpers stay importable: they are not collected, but they are still there."""
    files = files_of(options)
    shares = divide(_weights(options, files), shard.of)
    mine = tuple(sorted(shares[shard.number - 1]))
    benches = tuple(glob.escape(path) for path in mine if is_bench(path, options.what.benches))
    digest = hashlib.sha256("\n".join(" ".join(sorted(share)) for share in shares).encode(errors="surrogateescape")).hexdigest()
    return Part(mine, benches or (NOTHING,), digest[:16])


def files_of(options: RunOptions) -> list[str]:
    """Return the test files and benches of a package in which something was asked for, sorted."""
    selection = Selection(options.what.chosen)
    found = (path.relative_to(options.package.kernels).as_posix() for path in sorted(options.package.kernels.rglob("*.py")))
    patterns = options.package.declared.pytest.python_files
    return [path for path in found if (is_test(path, patterns) and selection.looks_into(path)) or is_bench(path, options.what.benches)]


def divide(weights: Mapping[str, float], shards: int) -> list[list[str]]:
    """Return the files of each shard: the heaviest first, each to the shard that has least so far. The largest sum is at most 4/3 of the
    best possible one (R. L. Graham, 1969: Bounds on Multiprocessing Timing Anomalies)."""
    shares: list[list[str]] = [[] for _ in range(shards)]
    loads = [(0.0, 0, number) for number in range(shards)]
    for path in sorted(weights, key=lambda path: (-weights[path], path)):
        load, count, number = heapq.heappop(loads)
        shares[number].append(path)
        heapq.heappush(loads, (load + weights[path], count + 1, number))
    return shares


def _weights(options: RunOptions, files: Sequence[str]) -> dict[str, float]:
    """Return the seconds that each file took in an earlier run, or its bytes; a file that was not timed is estimated by its bytes. A file
    that the chosen stages do not run weighs nothing: a shard of tests alone would have nothing to measure."""
    sizes = {path: max(1, (options.package.kernels / path).stat().st_size) for path in files}
    known = {path: _seconds(options, path) for path in files}
    timed = {path: seconds for path, seconds in known.items() if seconds is not None}
    rate = sum(timed.values()) / sum(sizes[path] for path in timed) if timed else 1.0
    benches = {path for path in files if is_bench(path, options.what.benches)}
    stages = set(options.what.stages) or set(Stage)

    def runs(path: str) -> bool:
        """Whether a chosen stage runs a file. The compile stage runs tests and benches."""
        return bool({Stage.BENCH if path in benches else Stage.TEST, Stage.COMPILE} & stages)

    return {path: timed.get(path, size * rate) if runs(path) else 0.0 for path, size in sizes.items()}


def _seconds(options: RunOptions, path: str) -> float | None:
    if path in options.where.shard_times or not is_bench(path, options.what.benches):
        return options.where.shard_times.get(path)
    return options.where.shard_times.get(kernel_of(path, options.package.declared.names))


def share_scripts(options: RunOptions) -> tuple[BenchScript, ...]:
    """Return the benchmark scripts of the options' shard, one entry for each file with its arguments."""
    assert options.where.shard is not None
    found = [
        BenchScript(glob.escape(name), script.arguments)
        for script in options.what.bench_scripts
        for _, name in find_scripts(script.pattern, options.package.folder, options.package.kernels)
    ]
    return tuple(found[options.where.shard.number - 1 :: options.where.shard.of])
