"""Check the container engine: does it answer, and can it run warpwave's containers?"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Union

from harness.doctor.finding import FAIL, PASS, SKIP, WARN, Finding, found
from harness.doctor.machine import Machine
from harness.engines.choose import load_engine
from harness.errors import InfrastructureError

_ROOM_BYTES = 20 << 30  # a vendor's image with torch is about this large
_INODES = 500_000  # torch, Triton and their headers are 40,000 files per layer, and an engine stores several layers
_CONTROLLERS = {"MemoryLimit": "memory", "SwapLimit": "swap", "PidsLimit": "processes"}
_LIVE_RESTORE = 'Set `"live-restore": true` in /etc/docker/daemon.json, then `sudo systemctl reload docker`.'


@dataclass(frozen=True)
class Engine:
    """The engine's information, or the error that asking it raised. `left` names leftovers of killed runs."""

    info: Union[Mapping[str, Any], None] = None
    error: Union[InfrastructureError, None] = None
    left: tuple[str, ...] = ()


def ask_engine() -> Engine:
    """Ask the engine that the environment names. Never raises if the engine does not answer."""
    try:
        engine: Any = load_engine("docker")
    except InfrastructureError as error:
        return Engine(error=error)
    try:
        return Engine(info=engine.info(), left=tuple(engine.clean(dry_run=True)))
    except InfrastructureError as error:
        return Engine(error=error)
    finally:
        engine.close()


def examine_engine(engine: Engine, machine: Machine, *, needed: bool) -> list[Finding]:
    """Return the findings about the engine. `needed`: a target of this machine can only run in a container."""
    if engine.info is None:
        happened = engine.error.happened if engine.error else "Docker was not asked."
        return [Finding("docker", FAIL if needed else WARN, happened, engine.error.remedy if engine.error else "")]
    where = machine.variables.get("DOCKER_HOST") or "the default socket"
    answers = f"version {engine.info.get('ServerVersion') or 'unknown'} answers at {where}"
    return [
        Finding("docker", PASS, answers),
        _limits(engine.info),
        _live_restore(engine.info),
        _room(engine.info, machine),
        _left(engine.left),
    ]


def _limits(info: Mapping[str, Any]) -> Finding:
    """Check whether the engine can limit a container's memory and processes."""
    missing = [
        name for name, key in (("memory", "MemoryLimit"), ("swap", "SwapLimit"), ("processes", "PidsLimit")) if info.get(key) is False
    ]
    cgroup = f"cgroup v{info.get('CgroupVersion', '?')}"
    if str(info.get("CgroupVersion", "2")) != "2":
        evidence = f"{cgroup}: a container cannot see its own limits well, and rootless engines cannot set any"
        return Finding("limits", WARN, evidence, "Boot with `systemd.unified_cgroup_hierarchy=1` on the kernel's command line.")
    fix = "Enable those controllers (`cat /sys/fs/cgroup/cgroup.controllers`), then restart the engine."
    evidence = f"{cgroup}, but no limit of {', '.join(missing)}" if missing else f"{cgroup}; memory and processes can be limited"
    return found("limits", not missing, evidence, fix, otherwise=WARN)


def _live_restore(info: Mapping[str, Any]) -> Finding:
    """Check live-restore: without it, an update of the engine ends a running job."""
    on = bool(info.get("LiveRestoreEnabled"))
    evidence = "containers survive a restart of the engine" if on else "off: a restart of the engine ends all containers"
    # Swarm forbids it, and an engine that was started for one job does not need it. So this is only a hint.
    return Finding("live-restore", PASS if on else SKIP, evidence, "" if on else _LIVE_RESTORE)


def _room(info: Mapping[str, Any], machine: Machine) -> Finding:
    """Check free bytes and inodes of the images' folder. An engine on another machine cannot be checked."""
    root = str(info.get("DockerRootDir") or "")
    folder = machine.root / root.lstrip("/")
    if not root or not folder.exists():
        return Finding("image room", SKIP, f"{root or 'the images'} cannot be seen from here")
    return room_at("image room", folder, root, _ROOM_BYTES, "`docker system df`, then `docker image prune`.")


def room_at(check: str, folder: Path, label: str, least: int, fix: str) -> Finding:
    """Check whether `folder` has `least` bytes and enough inodes free."""
    try:
        free = shutil.disk_usage(folder).free
        inodes = os.statvfs(folder)
    except OSError as error:
        return Finding(check, SKIP, f"{label}: {error.strerror}")
    # A file system without fixed inodes (btrfs) reports 0 of 0.
    short = [f"{free / 2**30:.0f} GiB free, {least >> 30} needed"] if free < least else []
    short += [f"{inodes.f_favail} inodes free"] if inodes.f_files and inodes.f_favail < _INODES else []
    evidence = f"{label}: {'; '.join(short)}" if short else f"{label}: {free / 2**30:.0f} GiB free"
    return found(check, not short, evidence, fix, otherwise=WARN)


def _left(names: Sequence[str]) -> Finding:
    evidence = f"{len(names)} left by runs that were killed: {', '.join(names[:3])}" if names else "nothing left by runs that were killed"
    return found("leftovers", not names, evidence, "`warpwave clean --yes`", otherwise=WARN)
