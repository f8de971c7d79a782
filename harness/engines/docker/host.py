"""What a container run depends on and leaves behind on this machine: device nodes, owners of files, and who is still alive."""

from __future__ import annotations

import glob
import os
import resource
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from harness.engines.results_folder import tidy
from harness.engines.seam import Request
from harness.errors import InfrastructureError

NOBODY = 65534
_OPEN_FILES = 65536


@dataclass(frozen=True)
class Node:
    """A device node of the host and the numeric group that may use it: names differ between host and image, numbers do not."""

    path: str
    group: int


@dataclass(frozen=True)
class Host:
    """What the options depend on beside the request. `rootless`: the engine itself runs as the caller, who is root inside."""

    uid: int
    gid: int
    cpus: int
    memory_bytes: int
    open_files: int
    pid: int
    boot: str
    created: str
    nodes: tuple[Node, ...] = ()
    rootless: bool = False
    file_bytes: int = -1  # the largest file that this process may write; -1 where there is no limit

    @property
    def memory_limit(self) -> int:
        """Four fifths of the machine: a runaway test is killed before it takes the CI runner with it."""
        return self.memory_bytes // 5 * 4


def observe(request: Request, info: Mapping[str, Any]) -> Host:
    """Look at this machine; `info` is what the engine says of itself.

    Raises:
        InfrastructureError: a device node that the target needs is not there.
    """
    options = info.get("SecurityOptions") or []
    return Host(
        uid=os.getuid(),
        gid=os.getgid(),
        cpus=int(info.get("NCPU") or os.cpu_count() or 1),
        memory_bytes=int(info.get("MemTotal") or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")),
        # An engine that may not raise limits (rootless, or in a sandbox) has those of its user, and would refuse more.
        open_files=min(_OPEN_FILES, hard) if (hard := resource.getrlimit(resource.RLIMIT_NOFILE)[1]) >= 0 else _OPEN_FILES,
        pid=os.getpid(),
        boot=boot(),
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        nodes=tuple(_nodes(request)),
        rootless=any("rootless" in str(option) for option in options),
        file_bytes=resource.getrlimit(resource.RLIMIT_FSIZE)[1],
    )


def boot() -> str:
    """This boot of this machine and this process namespace: only within it does a process id say who is alive."""
    try:
        identity = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{identity}/{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return "unknown"


def owner_is_dead(labels: Mapping[str, str], prefix: str, running: bool) -> bool:
    """Whether the run that a container belongs to is over for certain.

    A container of another boot, or of another machine or container that shares this engine, is left alone while it runs.
    """
    if labels.get(f"{prefix}.boot") != boot() or boot() == "unknown":
        return not running
    try:
        os.kill(int(labels[f"{prefix}.pid"]), 0)
    except ProcessLookupError:
        return True
    except (OSError, KeyError, ValueError, OverflowError):
        return False  # somebody else's process, or labels that are not ours to judge
    return False


@contextmanager
def lent(folder: Path, owner: tuple[int, int], host: Host) -> Iterator[None]:
    """Hand the results folder to a container; afterwards it is the caller's, and holds nothing but files and folders.

    It changes owner only where the caller is root and the user of the container is not. What is left of links, pipes and devices is
    removed, so that no later step of the host reads or writes through something that the code under test has put there.
    """
    given = host.uid == 0 and owner[0] != 0
    if given:
        tidy(folder, owner)
    try:
        yield
    finally:
        tidy(folder, (host.uid, host.gid) if given else None)


def check_readable(folder: Path, owner: tuple[int, int], host: Host) -> None:
    """Refuse early what the container could not read: only for a caller who is root and does not run as root inside.

    Raises:
        InfrastructureError: the folder is closed to others.
    """
    if host.uid == 0 and owner[0] != 0 and folder.stat().st_mode & 0o005 != 0o005:
        raise InfrastructureError(
            f"{folder} cannot be read by other users.",
            "You are root; the container runs as nobody, so that the host's root never meets the code under test.",
            f"`chmod -R o+rX {folder}`, run as an ordinary user, or give the isolation up with `--weaken user=root`.",
        )


def _nodes(request: Request) -> Iterator[Node]:
    for pattern in request.target.devices.nodes:
        # glob and not Path.glob, which takes no absolute pattern.
        states = [(path, os.stat(path)) for path in sorted(glob.glob(pattern))]  # noqa: PTH116, PTH207
        found = [Node(path, state.st_gid) for path, state in states if stat.S_ISCHR(state.st_mode)]
        if not found:
            raise InfrastructureError(
                f"{request.target.name}: there is no device node {pattern} on this machine.",
                "It has no such GPU, or its kernel driver is not loaded.",
                request.target.probe.fix or "Load the driver of the GPU, or choose another target.",
            )
        yield from found
