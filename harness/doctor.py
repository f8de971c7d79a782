"""What is missing on this machine, target by target, and the command that mends it. Read-only and bounded."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from harness.engines import load_engine
from harness.errors import InfrastructureError
from harness.targets import Target

_ROOM_BYTES = 20 << 30  # a vendor image with torch is about this large


@dataclass(frozen=True)
class Finding:
    """One check. `state` is pass, warn, fail or skip; `evidence` what was seen; `fix` the command that mends it."""

    check: str
    state: str
    evidence: str
    fix: str = ""


def examine(targets: dict[str, Target]) -> list[Finding]:
    """All checks; a target whose vendor is not in this machine is skipped, not failed."""
    findings = [_python(), _engine(targets), _disk()]
    for target in targets.values():
        findings += [_local(target)] if target.engine == "local" else [_devices(target)]
    return findings


def _python() -> Finding:
    good = sys.version_info >= (3, 10)
    return Finding("python", "pass" if good else "fail", platform.python_version(), "" if good else "Install Python 3.10 or later.")


def _engine(targets: dict[str, Target]) -> Finding:
    try:
        load_engine("docker")
    except InfrastructureError as error:
        needed = any(_nodes(target) for target in targets.values() if target.engine == "docker")
        return Finding("docker", "fail" if needed else "warn", error.happened, error.remedy)
    return Finding("docker", "pass", f"an engine answers at {os.environ.get('DOCKER_HOST', 'the default socket')}")


def _disk() -> Finding:
    free = shutil.disk_usage(Path.cwd()).free
    enough = free > _ROOM_BYTES
    fix = "" if enough else "`docker system prune` frees what stopped containers and unused images hold."
    return Finding("disk", "pass" if enough else "warn", f"{free / 2**30:.0f} GiB free here; a vendor image takes about 20", fix)


def _local(target: Target) -> Finding:
    missing = [name for name in ("torch", "triton", "pytest", "numpy") if importlib.util.find_spec(name) is None]
    if not missing:
        return Finding(target.name, "pass", f"{sys.executable} has torch, triton and pytest")
    fix = f"`{sys.executable} -m pip install {' '.join(missing)}`, or name another Python with --python; `nox -s {target.name}` does it."
    return Finding(target.name, "warn", f"{sys.executable} lacks {', '.join(missing)}", fix)


def _nodes(target: Target) -> list[str]:
    return [node for pattern in target.devices.nodes for node in sorted(map(str, Path("/").glob(pattern.lstrip("/"))))]


def _devices(target: Target) -> Finding:
    if not target.devices.nodes:
        driver = target.probe.driver_file
        if driver and Path(driver).exists():
            return Finding(target.name, "pass", f"driver {Path(driver).read_text().strip()}")
        return Finding(target.name, "skip", f"no driver of this vendor is loaded ({driver} is absent)")
    found = _nodes(target)
    if not found:
        return Finding(target.name, "skip", f"none of {', '.join(target.devices.nodes)} is on this machine")
    closed = [node for node in found if not os.access(node, os.R_OK | os.W_OK)]
    if closed:
        return Finding(target.name, "fail", f"no access to {', '.join(closed)}", target.probe.fix)
    return Finding(target.name, "pass", f"{len(found)} device nodes, all accessible")
