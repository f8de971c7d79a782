"""Select the kernels of one shard, so that several machines can share a package. A kernel's tests and sweeps stay together.

The folder alone decides which shard gets a kernel, so the machines need not communicate. The inside knows nothing about shards.
"""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path

from harness.errors import UsageError
from harness.records import BenchScript, Shard
from harness.records.package import TEST_FILES, find_scripts, is_bench, is_test, kernel_of
from harness.records.shard import MOST_SHARDS

_NOTHING = "(no bench in this shard)"


def parse_shard(text: str) -> Shard:
    """Parse a shard such as `2/4`, the second of four.

    Raises:
        UsageError: the text is not a shard.
    """
    try:
        return Shard.parse(text)
    except ValueError:
        raise UsageError(
            f"--shard {text!r} is not a shard.", f"Shards are numbered from 1, and at most {MOST_SHARDS}.", "For example --shard 1/4."
        ) from None


def restrict(
    kernels: Path, inside: str, benches: Sequence[str], shard: Shard, tests: Sequence[str] = TEST_FILES
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the bench patterns and the pytest options that leave out the kernels of other shards.

    `inside` is the package's path where it runs, `tests` are pytest's patterns of test files. Helpers stay importable: the other files are
    not collected, but they are still there.
    """
    files = [path.relative_to(kernels).as_posix() for path in sorted(kernels.rglob("*.py"))]
    timed = [path for path in files if is_bench(path, benches)]
    tested = [path for path in files if is_test(path, tests)]
    names = sorted({kernel_of(path) for path in (*timed, *tested)})
    mine = set(names[shard.number - 1 :: shard.of])
    patterns = tuple(glob.escape(path) for path in timed if kernel_of(path) in mine)
    others = sorted({path.partition("/")[0] for path in (*timed, *tested) if kernel_of(path) not in mine})
    return patterns or (_NOTHING,), tuple(f"--ignore={inside}/{other}" for other in others)


def share_scripts(scripts: Sequence[BenchScript], shard: Shard, root: Path, kernels: Path) -> tuple[BenchScript, ...]:
    """Return the benchmark scripts of a shard, one entry for each file with its arguments."""
    found = [
        BenchScript(glob.escape(name), script.arguments) for script in scripts for _, name in find_scripts(script.pattern, root, kernels)
    ]
    return tuple(found[shard.number - 1 :: shard.of])
