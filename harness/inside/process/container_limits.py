"""The limits of this container that end a process without a word: its memory, and the disk of its results."""

from __future__ import annotations

import errno
from pathlib import Path

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ESTALE)
# Control groups of version 2, then of version 1; in a container its own group is at the root.
_COUNTERS = (Path("/sys/fs/cgroup/memory.events"), Path("/sys/fs/cgroup/memory/memory.oom_control"))
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def memory_kills() -> int:
    """How many processes of this container were killed for memory so far; 0 where that cannot be known."""
    for path in _COUNTERS:
        try:
            told = dict(line.split(maxsplit=1) for line in path.read_text().splitlines() if line.strip())
            return int(told["oom_kill"])
        except (OSError, ValueError, KeyError):
            continue
    return 0


def past_memory_limit() -> str:
    """What a kill for memory means, in words, with the limit where the kernel tells it."""
    for path in _LIMITS:
        try:
            limit = int(path.read_text())
        except (OSError, ValueError):
            continue
        if limit < 1 << 60:
            return f"this container's memory grew past its limit of {limit / 2**30:.1f} GiB (the host's memory, not the GPU's)"
    return "the machine ran out of memory (the host's, not the GPU's)"
