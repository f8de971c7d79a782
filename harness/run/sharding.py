"""A part of a package's kernels for one of several machines. A kernel, with all of its tests and sweeps, is never split.

Each machine computes its part from the folder alone, so that machines need not talk to each other. The inside knows nothing of shards.
"""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path

from harness.errors import UsageError
from harness.records import Shard
from harness.records.package import is_bench, is_test, kernel_of
from harness.records.shard import MOST_SHARDS

_NOTHING = "(no bench in this shard)"


def parse_shard(text: str) -> Shard:
    """Read `2/4`, the second of four.

    Raises:
        UsageError: the text is no shard.
    """
    try:
        return Shard.parse(text)
    except ValueError:
        raise UsageError(
            f"--shard {text!r} is no part of a whole.", f"It counts from 1, up to {MOST_SHARDS}.", "For example --shard 1/4."
        ) from None


def restrict(kernels: Path, inside: str, benches: Sequence[str], shard: Shard) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the bench patterns and the options of pytest that leave a package's other kernels out.

    `inside` is the package's path where it is run. Helpers stay importable: files are not hidden, only not collected.
    """
    files = [path.relative_to(kernels).as_posix() for path in sorted(kernels.rglob("*.py"))]
    timed = [path for path in files if is_bench(path, benches)]
    tested = [path for path in files if is_test(path)]
    names = sorted({kernel_of(path) for path in (*timed, *tested)})
    mine = set(names[shard.number - 1 :: shard.of])
    patterns = tuple(glob.escape(path) for path in timed if kernel_of(path) in mine)
    others = sorted({path.partition("/")[0] for path in (*timed, *tested) if kernel_of(path) not in mine})
    return patterns or (_NOTHING,), tuple(f"--ignore={inside}/{other}" for other in others)
