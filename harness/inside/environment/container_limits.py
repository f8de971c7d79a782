"""The limits of this container that end a process silently: its memory, and the disk of its results."""

from __future__ import annotations

import errno
from pathlib import Path

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ESTALE)
# cgroup version 2, then version 1: in a container, its own group is the root. The last one counts for the whole machine, where a process
# outside of a container belongs to some group below the root.
_COUNTERS = (Path("/sys/fs/cgroup/memory.events"), Path("/sys/fs/cgroup/memory/memory.oom_control"), Path("/proc/vmstat"))
_USED = (Path("/sys/fs/cgroup/memory.current"), Path("/sys/fs/cgroup/memory/memory.usage_in_bytes"))
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def memory_kills() -> int:
    """Return how many processes Linux has killed because memory ran out: those of this container plus those of the whole machine."""
    found = 0
    for path in _COUNTERS:
        try:
            counters = dict(line.split(maxsplit=1) for line in path.read_text().splitlines() if line.strip())
            found += int(counters["oom_kill"])
        except (OSError, ValueError, KeyError):
            continue
    return found


def free_memory() -> int:
    """Return the bytes of the host's memory that this container's processes can still take; a large number if nothing says it."""
    found = [1 << 50]
    for limit, used in zip(_LIMITS, _USED, strict=True):
        try:
            found.append(int(limit.read_text()) - int(used.read_text()))
        except (OSError, ValueError):
            continue
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    except (OSError, ValueError):
        pass
    return min(found)


def past_memory_limit() -> str:
    """Say what a kill for memory means, with the limit if the kernel reports one."""
    for path in _LIMITS:
        try:
            limit = int(path.read_text())
        except (OSError, ValueError):
            continue
        if limit < 1 << 60:
            return f"this container's memory grew past its limit of {limit / 2**30:.1f} GiB (the host's memory, not the GPU's)"
    return "the machine ran out of memory (the host's, not the GPU's)"
