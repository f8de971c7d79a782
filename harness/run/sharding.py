"""A part of a package's kernels for one of several machines. A kernel, with all of its tests and sweeps, is never split.

Which kernels are whose follows from the folder alone, so that machines need not talk; the inside knows nothing of it.
"""

from __future__ import annotations

import fnmatch
import glob
from collections.abc import Sequence
from pathlib import Path

from harness.errors import UsageError
from harness.records import Shard
from harness.records.shard import MOST_SHARDS

_NOTHING = "(no bench in this shard)"


def parse_shard(text: str) -> Shard:
    """`2/4` → the second of four.

    Raises:
        UsageError: it is none.
    """
    try:
        return Shard.parse(text)
    except ValueError:
        raise UsageError(
            f"--shard {text!r} is no part of a whole.", f"It counts from 1, up to {MOST_SHARDS}.", "For example --shard 1/4."
        ) from None


def restrict(kernels: Path, inside: str, benches: Sequence[str], shard: Shard) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The bench patterns, and the options of pytest, that leave a package's other kernels out.

    `inside` is the package's path where it is run. Helpers stay importable: nothing is hidden, it is only not collected.
    """
    files = [path.relative_to(kernels) for path in sorted(kernels.rglob("*.py"))]
    timed = [path for path in files if any(fnmatch.fnmatch(path.name, each) or fnmatch.fnmatch(path.as_posix(), each) for each in benches)]
    tested = [path for path in files if path.name.startswith("test_") or path.name.endswith("_test.py")]
    names = sorted({_kernel(path) for path in (*timed, *tested)})
    mine = set(names[shard.number - 1 :: shard.of])
    patterns = tuple(glob.escape(path.as_posix()) for path in timed if _kernel(path) in mine)
    others = sorted({path.parts[0] if len(path.parts) > 1 else path.name for path in (*timed, *tested) if _kernel(path) not in mine})
    return patterns or (_NOTHING,), tuple(f"--ignore={inside}/{other}" for other in others)


def _kernel(path: Path) -> str:
    """The kernel that a file is about, as the inside names it: its folder, or its own name without its role."""
    return path.parts[0] if len(path.parts) > 1 else path.stem.removeprefix("bench_").removeprefix("test_")
