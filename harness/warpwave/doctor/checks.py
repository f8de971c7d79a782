"""Checks of every machine, whatever its GPUs: Python, disk, memory file systems, clock, and the CI runner."""

import json
import os
import platform
import re
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Union

from warpwave.collect import collect
from warpwave.compare.verdict import summarise
from warpwave.config.targets import Check, Target
from warpwave.doctor.machine import FAIL, PASS, SKIP, WARN, Finding, Machine, found
from warpwave.engines.choose import load_engine
from warpwave.engines.protocol import Answer
from warpwave.errors import InfrastructureError
from warpwave.options import Package, RunOptions, Where
from warpwave.records import Limits, Stage, Verdict, What
from warpwave.records.run import EMULATOR
from warpwave.run import run_target
from warpwave.run.folders import new_run_id
from warpwave.starter import starter

_ROOM_BYTES = 20 << 30  # a vendor's image with torch is about this large
_INODES = 500_000  # torch, Triton and their headers are 40,000 files per layer, and an engine stores several layers
_CONTROLLERS = {"memory": "MemoryLimit", "swap": "SwapLimit", "processes": "PidsLimit"}
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
    survive = bool(engine.info.get("LiveRestoreEnabled"))
    restart = "containers survive a restart of the engine" if survive else "off: a restart of the engine ends all containers"
    left = (
        f"{len(engine.left)} left by runs that were killed: {', '.join(engine.left[:3])}" if engine.left else "nothing left by killed runs"
    )
    return [
        Finding("docker", PASS, f"version {engine.info.get('ServerVersion') or 'unknown'} answers at {where}"),
        _limits(engine.info),
        # An update of the engine ends a running job. Swarm forbids it, and an engine for one job does not need it: this is only a hint.
        found("live-restore", survive, restart, _LIVE_RESTORE, otherwise=SKIP),
        _room(engine.info, machine),
        found("leftovers", not engine.left, left, "`warpwave clean --yes`", otherwise=WARN),
    ]


def _limits(info: Mapping[str, Any]) -> Finding:
    missing = [name for name, key in _CONTROLLERS.items() if info.get(key) is False]
    cgroup = f"cgroup v{info.get('CgroupVersion', '?')}"
    if str(info.get("CgroupVersion", "2")) != "2":
        evidence = f"{cgroup}: a container cannot see its own limits well, and rootless engines cannot set any"
        return Finding("limits", WARN, evidence, "Boot with `systemd.unified_cgroup_hierarchy=1` on the kernel's command line.")
    fix = "Enable those controllers (`cat /sys/fs/cgroup/cgroup.controllers`), then restart the engine."
    evidence = f"{cgroup}, but no limit of {', '.join(missing)}" if missing else f"{cgroup}; memory and processes can be limited"
    return found("limits", not missing, evidence, fix, otherwise=WARN)


def _room(info: Mapping[str, Any], machine: Machine) -> Finding:
    """Check free bytes and inodes of the images' folder. An engine on another machine cannot be checked."""
    root = str(info.get("DockerRootDir") or "")
    folder = machine.root / root.lstrip("/")
    if not root or not folder.exists():
        return Finding("image room", SKIP, f"{root or 'the images'} cannot be seen from here")
    return _room_at("image room", folder, root, _ROOM_BYTES, "`docker system df`, then `docker image prune`.")


def _room_at(check: str, folder: Path, label: str, least: int, fix: str) -> Finding:
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
    here = Path.cwd()
    return [
        found("python", sys.version_info >= (3, 10), platform.python_version(), "Install Python 3.10 or later."),
        _room_at("disk", here, str(here), _OUT_BYTES, f"`du -xsh {here}/* | sort -h` shows what to remove."),
        *(check(machine) for check in (_cache, _shared_memory, _clock, _runner)),
    ]


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


def _cache(machine: Machine) -> Finding:
    """Check Triton's cache: Triton compiles launchers into it and loads them, which fails on a file system mounted noexec."""
    home = machine.variables.get("HOME", "/root")
    folder = Path(machine.variables.get("TRITON_CACHE_DIR") or f"{home}/.triton")
    mounts = [line.split(" ") for line in (machine.read("/proc/mounts") or "").splitlines()]
    above = {str(path) for path in (folder, *folder.parents)}
    holding = [mount for mount in mounts if len(mount) > 3 and mount[1] in above]
    best = max(holding, key=lambda mount: len(mount[1]), default=None)
    if best is None:
        return Finding("triton cache", SKIP, f"{folder}: its file system is not known")
    allowed = "noexec" not in best[3].split(",")
    evidence = f"{folder} is on {best[1]}, " + ("which allows execution" if allowed else "which is mounted noexec")
    return found("triton cache", allowed, evidence, "export TRITON_CACHE_DIR as a folder that allows execution.")


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


_SHOWN_ROWS = 4
_LINE = 200
Info = Union[Mapping[str, Any], None]


def examine_vendor(target: Target, machine: Machine, info: Info, *, needed: bool, contained: bool = True) -> list[Finding]:
    """Return the findings about one target with a GPU. If the GPU is absent and was not requested, that is a single skip. `contained`: its
    runs use containers. If not, nothing needs to pass the GPU to a container."""
    if not machine.has_driver(target):
        return [_absent(target, machine, needed)]
    findings = [_access(target, machine)]
    checks = [check for check in target.doctor.checks if contained or not check.container]
    for name, alternatives in groupby(checks, key=lambda check: check.name):
        findings.append(_first_answer(f"{target.name}: {name}", list(alternatives), machine, info))
    return findings


def _absent(target: Target, machine: Machine, needed: bool) -> Finding:
    looked_for = ", ".join((*target.devices.nodes, *([target.probe.driver_file] if target.probe.driver_file else [])))
    if target.doctor.pci and (cards := machine.on_bus(target.doctor.pci)):
        evidence = f"{len(cards)} card(s) on the PCI bus ({', '.join(cards[:_SHOWN_ROWS])}) and no driver: {looked_for} is not there"
        return Finding(target.name, FAIL, evidence, target.doctor.no_driver or target.probe.fix)
    evidence = f"no card of this vendor, and no driver: {looked_for} is not there"
    return Finding(target.name, FAIL, evidence, target.probe.fix) if needed else Finding(target.name, SKIP, evidence)


def _access(target: Target, machine: Machine) -> Finding:
    """Check whether this user may open the device nodes. A target that requests GPUs from the engine has none."""
    nodes = machine.nodes(target)
    if missing := [pattern for pattern in target.devices.nodes if not machine.paths(pattern)]:
        return Finding(target.name, FAIL, f"no device node {', '.join(missing)}, though the driver is loaded", target.probe.fix)
    closed = [machine.name(node) for node in nodes if not machine.may_use(node)]
    files = machine.paths(target.probe.driver_file) if target.probe.driver_file else []
    version = _clip((machine.read(files[0]) or "").splitlines()[:1]) if files else ""
    driver = f"driver loaded: {machine.name(files[0])}" + (f" says {version}" if version else "") if files else ""
    evidence = f"no access to {', '.join(closed)}" if closed else f"{len(nodes)} device nodes, all accessible" if nodes else ""
    return found(target.name, not closed, "; ".join(filter(None, (driver, evidence))), target.probe.fix)


def _first_answer(name: str, alternatives: Sequence[Check], machine: Machine, info: Info) -> Finding:
    for check in alternatives:
        answer = _ask(check, machine, info)
        if answer.trouble != "absent":
            return _judge(name, check, answer, machine)
    last = alternatives[-1]
    asked = " and no ".join(check.run[0] if check.run else "engine" if check.engine else check.files[0] for check in alternatives)
    return Finding(name, last.absent, f"there is no {asked}", last.fix if last.absent != SKIP else "")


def _ask(check: Check, machine: Machine, info: Info) -> Answer:
    if check.run:
        return machine.run(check.run, check.limit_s)
    if check.engine:
        return Answer(json.dumps(info)) if info is not None else Answer(trouble="absent")
    texts = [(path, machine.read(path)) for pattern in check.files for path in machine.paths(pattern)]
    lines = [f"{machine.name(path)}: {line}" for path, text in texts if text is not None for line in text.splitlines() or [""]]
    return Answer("\n".join(lines)) if lines else Answer(trouble="absent")


def _judge(name: str, check: Check, answer: Answer, machine: Machine) -> Finding:
    def say(state: str, evidence: str) -> Finding:
        return Finding(name, state, evidence, "" if state in (PASS, SKIP) else check.fix, answer.seconds)

    if answer.trouble == "silent":
        return say(FAIL, f"`{' '.join(check.run)}` did not answer within {check.limit_s:g} s: its driver may hang")
    if check.bad and (bad := re.search(check.bad, answer.text, re.MULTILINE)):
        return say(check.breach, _line_of(answer.text, bad))
    if answer.trouble == "refused":
        return say(check.refused, f"`{' '.join(check.run)}` failed: {_clip(answer.text.strip().splitlines()[-1:])}")
    rows = [match.groupdict() for match in re.finditer(check.rows or "", answer.text, re.MULTILINE)] if check.rows else []
    if check.rows and not rows:
        return say(check.breach, f"unexpected output: {_clip(answer.text.strip().splitlines()[:1]) or 'nothing at all'}")
    if breaches := list(_breaches(check, rows)):
        return say(check.breach, "; ".join(dict.fromkeys(breaches)))
    if check.count is not None and len(rows) != (there := len(machine.paths(check.count))):
        return say(check.breach, f"{len(rows)} reported, {there} at {check.count}")
    return say(PASS, _told(check, rows))


def _breaches(check: Check, rows: Iterable[Mapping[str, str | None]]) -> Iterable[str]:
    for row in rows:
        shown = f" ({_show(check, row)})" if check.shown else ""
        for group, floor in check.at_least.items():
            if _version_numbers(row[group] or "") < _version_numbers(floor):
                yield f"{group} {row[group]} is older than {floor}{shown}"
        for group, most in check.at_most.items():
            value = _number(row[group] or "")
            if value is not None and value > most:
                yield f"{group} {row[group]} is more than {most:g}{shown}"
        for group, pattern in check.equal.items():
            if re.fullmatch(pattern, row[group] or "") is None:
                yield f"{group} is {row[group]!r}{shown}"


def _told(check: Check, rows: Sequence[Mapping[str, str | None]]) -> str:
    if not check.rows:
        return check.shown or "no problem found"
    shown = list(dict.fromkeys(_show(check, row) for row in rows)) if check.shown else []
    more = f" and {len(shown) - _SHOWN_ROWS} more" if len(shown) > _SHOWN_ROWS else ""
    return "; ".join(shown[:_SHOWN_ROWS]) + more if shown else "no problem found"


def _show(check: Check, row: Mapping[str, str | None]) -> str:
    return check.shown.format(**{group: value or "" for group, value in row.items()})


def _version_numbers(text: str) -> tuple[int, ...]:
    """Return the release numbers: `1.17.8-rc.1` becomes 1.17.8, which is exact enough for the rules."""
    first = re.match(r"\d+(\.\d+)*", text.strip())
    return tuple(int(part) for part in first[0].split(".")) if first else ()


def _number(text: str) -> float | None:
    """Return None for `[N/A]` and the like: an unreadable value breaks no rule."""
    try:
        return float(text)
    except ValueError:
        return None


def _line_of(text: str, match: re.Match[str]) -> str:
    start = text.rfind("\n", 0, match.start()) + 1
    end = text.find("\n", match.end())
    return _clip([text[start : end if end >= 0 else len(text)]])


def _clip(lines: Sequence[str]) -> str:
    """Return one line for a terminal: a tool's output may contain anything."""
    line = "".join(character if character.isprintable() else " " for character in " ".join(lines)).strip()
    return line if len(line) <= _LINE else f"{line[:_LINE]} …"


_LIMIT_S = 120.0
_PATIENCE_S = 10.0  # waits for another run of warpwave that has the GPU


def run_kernel(target: Target, engine: str | None) -> Finding:
    """Check whether the starter's kernel matches PyTorch on this target."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="warpwave-doctor-") as folder:
        options = RunOptions(
            Where(new_run_id(), Path(folder), engine=engine),
            Package(starter() / "kernels"),
            What(stages=(Stage.TEST,)),
            limits=Limits(test_s=_LIMIT_S, stage_s=_LIMIT_S, target_s=_LIMIT_S, gpu_wait_s=_PATIENCE_S),
        )
        run_target(target, options, say=lambda line: None, on_event=lambda event: None)
        seen = summarise(target.name, collect(Path(folder) / "raw" / target.name))
    seconds = round(time.monotonic() - started, 1)
    evidence = f"a small kernel passed {seen.tests.get('passed', 0)} tests" if seen.verdict is Verdict.PASSED else seen.reason
    fix = seen.hint or f"`warpwave run {target.name} --kernels {starter() / 'kernels'}` shows the whole run."
    return replace(found(f"{target.name}: kernel", seen.verdict is Verdict.PASSED, evidence, fix), seconds=seconds)
