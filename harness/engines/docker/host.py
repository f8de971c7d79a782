"""Read and adjust this machine for a container run: device nodes, owners of files, and which earlier runs are still alive."""

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
from typing import Any, Union

from harness.engines.protocol import Request
from harness.engines.results_folder import tidy
from harness.errors import InfrastructureError

NOBODY = 65534
OPEN_FILES = 65536
_PROCESSES = 32768  # what Podman itself has where it may not raise limits


@dataclass(frozen=True)
class Node:
    """A device node of the host and the number of the group that may use it. Group names may differ in the image; numbers do not."""

    path: str
    group: int


@dataclass(frozen=True)
class Host:
    """What the container's options depend on besides the request. `rootless`: the engine runs as the caller, who is root inside."""

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
    file_bytes: int = -1  # the largest file that this process may write; -1 means no limit
    processes: Union[int, None] = None  # set for Podman: its own limit may be one that it is not allowed to set

    @property
    def memory_limit(self) -> int:
        """Four fifths of the machine's memory in bytes: a runaway test is killed before the CI runner runs out of memory."""
        return self.memory_bytes // 5 * 4


def observe(request: Request, info: Mapping[str, Any], podman: bool = False) -> Host:
    """Read the facts of this machine. `info` is the engine's description of itself.

    Raises:
        InfrastructureError: a device node that the target needs is missing.
    """
    return Host(
        uid=os.getuid(),
        gid=os.getgid(),
        cpus=int(info.get("NCPU") or os.cpu_count() or 1),
        memory_bytes=int(info.get("MemTotal") or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")),
        # An engine that may not raise limits (rootless, or in a sandbox) has the limits of its user, and refuses higher ones.
        open_files=min(OPEN_FILES, hard) if (hard := resource.getrlimit(resource.RLIMIT_NOFILE)[1]) >= 0 else OPEN_FILES,
        pid=os.getpid(),
        boot=boot(),
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        nodes=tuple(_nodes(request)),
        rootless=is_rootless(info),
        file_bytes=resource.getrlimit(resource.RLIMIT_FSIZE)[1],
        processes=process_limit(resource.getrlimit(resource.RLIMIT_NPROC)[1]) if podman else None,
    )


def is_rootless(info: Mapping[str, Any]) -> bool:
    """Return whether the engine runs as an ordinary user. Docker says so in one place, and Podman in another."""
    return info.get("Rootless") is True or any("rootless" in str(option) for option in info.get("SecurityOptions") or [])


def process_limit(hard: int) -> int:
    """Return the limit of processes for a container of Podman, from the hard limit of its user; -1 if there is none."""
    return min(_PROCESSES, hard) if hard >= 0 else _PROCESSES


def boot() -> str:
    """Return an id of this boot and process namespace. A process id has a meaning only within it."""
    try:
        identity = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{identity}/{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return "unknown"


def owner_is_dead(labels: Mapping[str, str], prefix: str, running: bool) -> bool:
    """Return whether the run that a container belongs to has certainly ended.

    A running container counts as alive if it is from another boot, or from another machine or container that shares this engine.
    """
    if labels.get(f"{prefix}.boot") != boot() or boot() == "unknown":
        return not running
    try:
        os.kill(int(labels[f"{prefix}.pid"]), 0)
    except ProcessLookupError:
        return True
    except (OSError, KeyError, ValueError, OverflowError):
        return False  # another user's process, or unreadable labels: assume that the run is alive
    return False


@contextmanager
def lent(folder: Path, owner: tuple[int, int], host: Host) -> Iterator[None]:
    """Lend the results folder to a container. Afterwards the caller owns it again, and it contains only files and folders.

    The owner changes only if the caller is root and the container's user is not. Links, pipes and devices are removed, so that no later
    step on the host reads or writes through something that the code under test has planted.
    """
    given = host.uid == 0 and owner[0] != 0
    if given:
        tidy(folder, owner)
    try:
        yield
    finally:
        tidy(folder, (host.uid, host.gid) if given else None)


def check_readable(folder: Path, owner: tuple[int, int], host: Host) -> None:
    """Refuse a folder that the container could not read. This concerns only a caller who is root and does not run as root inside.

    Raises:
        InfrastructureError: other users cannot read the folder.
    """
    if host.uid == 0 and owner[0] != 0 and folder.stat().st_mode & 0o005 != 0o005:
        raise InfrastructureError(
            f"{folder} cannot be read by other users.",
            "You are root, but the container runs as the user nobody, so that the code under test never runs as the host's root.",
            f"`chmod -R o+rX {folder}`, run as an ordinary user, or give up that protection with `--weaken user=root`.",
        )


def _nodes(request: Request) -> Iterator[Node]:
    for pattern in request.target.devices.nodes:
        # `Path.glob` does not accept absolute patterns.
        states = [(path, os.stat(path)) for path in sorted(glob.glob(pattern))]  # noqa: PTH116, PTH207
        found = [Node(path, state.st_gid) for path, state in states if stat.S_ISCHR(state.st_mode)]
        if not found:
            raise InfrastructureError(
                f"{request.target.name}: there is no device node {pattern} on this machine.",
                "It has no such GPU, or its kernel driver is not loaded.",
                request.target.probe.fix or "Load the driver of the GPU, or choose another target.",
            )
        yield from found
