"""The limits of this container that end a process without a word: its memory, and the disk of its results."""

from __future__ import annotations

import errno
import os
from pathlib import Path

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)
_PROBE_BYTES = 4096
# Control groups of version 2, then of version 1; in a container its own group is at the root.
_COUNTERS = (Path("/sys/fs/cgroup/memory.events"), Path("/sys/fs/cgroup/memory/memory.oom_control"))


def memory_kills() -> int:
    """How many processes of this container were killed for memory so far; 0 where that cannot be known."""
    for path in _COUNTERS:
        try:
            told = dict(line.split(maxsplit=1) for line in path.read_text().splitlines() if line.strip())
            return int(told["oom_kill"])
        except (OSError, ValueError, KeyError):
            continue
    return 0


def is_writable(folder: Path) -> bool:
    """Whether a page can still be written in `folder`."""
    probe = folder / ".probe"
    try:
        with open(probe, "wb") as file:
            file.write(b"x" * _PROBE_BYTES)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error.errno not in NO_ROOM
    finally:
        probe.unlink(missing_ok=True)
    return True
