"""Checks of every machine, whatever its GPUs: Python, disk, memory file systems, clock, and the CI runner."""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
from pathlib import Path

from harness.config.target import Target
from harness.doctor.engine import room_at
from harness.doctor.finding import PASS, SKIP, WARN, Finding, found
from harness.doctor.machine import Machine
from harness.records.toolchain import EMULATOR

_OUT_BYTES = 1 << 30  # raw results, reports and Triton's cache
_SHM_BYTES = 1 << 30
_NEEDS = ("torch", "triton", "pytest", "numpy")
_ANOTHER = "name another Python with --python"
# Find the installed packages with their versions, and what torch was built for. Import nothing: torch takes seconds to load.
_LOOK = """
import importlib.metadata, importlib.util, json, pathlib, runpy, sys
def version(name):
    try: return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError: return ""  # a build under another name
specs = {name: spec for name in sys.argv[1:] if (spec := importlib.util.find_spec(name))}
built = pathlib.Path(specs["torch"].origin or "").with_name("version.py") if "torch" in specs else None
build = runpy.run_path(str(built)) if built and built.is_file() else {}
build = {name: value for name, value in build.items() if value is None or isinstance(value, str)}
print(json.dumps([{name: version(name) for name in specs}, build]))
"""


def examine_host(machine: Machine) -> list[Finding]:
    """Return the findings that concern every target."""
    return [_version(), _disk(), _cache(machine), _shared_memory(machine), _clock(machine), _runner(machine)]


def python_question(target: Target, python: str) -> tuple[str, ...]:
    """Return the command that tells what a Python has of what the target needs."""
    return (python, "-c", _LOOK, *_NEEDS, *(EMULATOR if target.emulate else ()))


def examine_python(target: Target, machine: Machine, python: str = sys.executable) -> Finding:
    """Check whether a target without a container has a Python with a suitable torch."""
    answer = machine.run(python_question(target, python), limit_s=20.0)
    try:  # the last line: Python may print something at startup
        versions, torch = json.loads(answer.text.splitlines()[-1])
    except (IndexError, ValueError):
        versions, torch = {}, {}
    needs = {**dict(zip(_NEEDS, _NEEDS, strict=True)), **(EMULATOR if target.emulate else {})}
    check, missing = f"{target.name}: python", [name for name in needs if name not in versions]
    if missing:
        wanted = " ".join(map(shlex.quote, (needs[name] for name in missing)))
        fix = f"`{python} -m pip install {wanted}`, or {_ANOTHER}; `nox -s {target.name}` does it."
        return Finding(check, WARN, f"{python} lacks {', '.join(missing)}", fix)
    built_for = (target.probe.require or "").rpartition(".")[2]
    if built_for in torch and torch[built_for] is None:
        index = target.image.build_args.get("TORCH_INDEX")
        wheels = f"torch --index-url {index}" if index else "torch"
        fix = f"`{python} -m pip install --force-reinstall {wheels}`, or {_ANOTHER}."
        return Finding(check, WARN, f"{python} has torch {versions['torch']}, which was built without {built_for}", fix)
    return Finding(check, PASS, f"{python} has {', '.join(f'{name} {version}'.strip() for name, version in versions.items())}")


def _version() -> Finding:
    return found("python", sys.version_info >= (3, 10), platform.python_version(), "Install Python 3.10 or later.")


def _disk() -> Finding:
    here = Path.cwd()
    return room_at("disk", here, str(here), _OUT_BYTES, f"`du -xsh {here}/* | sort -h` shows what to remove.")


def _cache(machine: Machine) -> Finding:
    """Check Triton's cache: Triton compiles launchers into it and loads them, which fails on a file system mounted noexec."""
    home = machine.variables.get("HOME", "/root")
    folder = Path(machine.variables.get("TRITON_CACHE_DIR") or f"{home}/.triton")
    mount, options = _mount_of(folder, machine)
    if mount is None:
        return Finding("triton cache", SKIP, f"{folder}: its file system is not known")
    evidence = f"{folder} is on {mount}, " + ("which is mounted noexec" if "noexec" in options else "which allows execution")
    return found("triton cache", "noexec" not in options, evidence, "export TRITON_CACHE_DIR as a folder that allows execution.")


def _mount_of(folder: Path, machine: Machine) -> tuple[str | None, list[str]]:
    """Return the mount point of a folder, and its options."""
    mounts = [line.split(" ") for line in (machine.read("/proc/mounts") or "").splitlines()]
    above = {str(path) for path in (folder, *folder.parents)}
    holding = [mount for mount in mounts if len(mount) > 3 and mount[1] in above]
    best = max(holding, key=lambda mount: len(mount[1]), default=None)
    return (best[1], best[3].split(",")) if best else (None, [])


def _shared_memory(machine: Machine) -> Finding:
    """Check /dev/shm, which torch's workers use for tensors. Containers have their own; the local engine uses this one."""
    folder = machine.root / "dev/shm"
    if not folder.is_dir():
        return Finding("shared memory", SKIP, "there is none")
    size = os.statvfs(folder)
    total = size.f_frsize * size.f_blocks
    evidence = f"{total / 2**30:.1f} GiB in /dev/shm"
    return found("shared memory", total >= _SHM_BYTES, evidence, "`sudo mount -o remount,size=1g /dev/shm`", otherwise=WARN)


def _clock(machine: Machine) -> Finding:
    """Check the clock: if it is off, results of other machines look older or newer than they are, and TLS fails."""
    answer = machine.run(("timedatectl", "show", "--property=NTPSynchronized", "--value"), limit_s=5.0)
    text = answer.text.strip()
    if answer.trouble or text not in ("yes", "no"):
        why = "there is no timedatectl here" if answer.trouble == "absent" else "timedatectl does not say"
        return Finding("clock", SKIP, f"whether it is synchronized is not known: {why}")
    evidence = "synchronized" if text == "yes" else "not synchronized"
    return found("clock", text == "yes", evidence, "`sudo timedatectl set-ntp true`", otherwise=WARN)


def _runner(machine: Machine) -> Finding:
    """Check that a self-hosted GitHub Actions runner is ephemeral. Otherwise a later job finds what an earlier one left."""
    if machine.variables.get("RUNNER_ENVIRONMENT") != "self-hosted":
        return Finding("runner", SKIP, "this is no job on a self-hosted runner")
    name = machine.variables.get("RUNNER_NAME", "this runner")
    # The runner's own folder is two above its temporary one: <runner>/_work/_temp.
    folder = Path(machine.variables.get("RUNNER_TEMP", "/")).parent.parent
    try:
        settings = json.loads((machine.read(f"{folder}/.runner") or "{}").lstrip("\ufeff"))
    except ValueError:
        settings = {}
    ephemeral = bool(settings.get("ephemeral") or settings.get("Ephemeral")) if isinstance(settings, dict) else False
    if ephemeral:
        return Finding("runner", PASS, f"{name} is ephemeral")
    fix = "`./config.sh remove`, then `./config.sh --ephemeral --url URL --token TOKEN --labels LABELS`; docs/guides/runners.md."
    return Finding("runner", WARN, f"{name} is not known to be ephemeral: it keeps what a job leaves behind", fix)
