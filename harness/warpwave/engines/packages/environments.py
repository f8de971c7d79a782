"""The environments in the user's cache folder: where they are, which of them a run uses, and how to remove old ones."""

import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

from warpwave.engines.packages.plan import Plan, installer_files, is_wanted
from warpwave.engines.protocol import Request, Say
from warpwave.errors import InfrastructureError

_DAY_S = 86400.0
_MARK = "warpwave.json"
_PART = ".part"  # behind the name of an environment that is not complete


class Unused(NamedTuple):
    """An environment that no run uses: its folder, the days since a run used it, and its size in bytes."""

    folder: Path
    days: float
    bytes: int


def environments() -> Path:
    """Return the folder of all environments."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path(os.path.expanduser("~"), ".cache"))  # noqa: PTH111 - also without a home
    return cache / "warpwave" / "environments"


def use(venv: Path) -> None:
    """Note that a run uses the environment now, and keep it from being removed until this process ends."""
    with suppress(OSError):  # a cache that is read-only works, too
        os.utime(venv / _MARK)
        # Never closed: the end of this process closes it, and so ends the lock.
        fcntl.flock(
            os.open(venv.with_name(f"{venv.name}.used"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), fcntl.LOCK_SH | fcntl.LOCK_NB
        )


def unused(days: float, *, remove: bool = False) -> list[Unused]:
    """Return the environments that no run has used for so many days, the oldest first; those of a stopped installation too. With `remove`,
    remove them. One that a run uses, or that is being made, is left alone."""
    found = []
    folder = environments()
    for venv in sorted(folder.iterdir()) if folder.is_dir() else ():
        part = venv.suffix == _PART
        if venv.is_symlink() or not (venv.is_dir() if part else (venv / _MARK).is_file()):
            continue
        idle = (time.time() - (venv if part else venv / _MARK).stat().st_mtime) / _DAY_S
        if idle < days:
            continue
        lock = venv.with_suffix(".lock") if part else venv.with_name(f"{venv.name}.used")
        with lock.open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            size = sum(entry.lstat().st_size for entry in venv.rglob("*") if not entry.is_symlink() and entry.is_file())
            found.append(Unused(venv, idle, size))
            if remove:
                (venv / _MARK).unlink(missing_ok=True)  # a removal that is cut short leaves nothing that looks complete
                shutil.rmtree(venv, ignore_errors=True)
    return sorted(found, key=lambda one: -one.days)


# An environment is made once for each set of inputs, in a folder of another name, and renamed when it is complete: a killed run leaves no
# half of one. That folder stays if the run is stopped, and the next run with the same inputs continues there.

LOG = "install.log"
FAILED = "warpwave: "  # how the installer's last line begins if it failed
_BASE = """
import importlib.metadata, json, sys
found = {"python": sys.version, "prefix": sys.prefix}
for name in ("torch", "triton", "pytest"):
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Packages:
    """An environment with what a run asked for: its Python, the versions that it adds, and what a user should know."""

    python: str
    versions: dict[str, str]
    notes: tuple[str, ...]


def venv_of(request: Request, plan: Plan) -> Path:
    """Return the folder of the environment for this request. It exists if it was made before."""
    python = request.options.where.python or sys.executable
    try:
        below = subprocess.run([python, "-c", _BASE], capture_output=True, text=True, timeout=60, check=False).stdout
    except FileNotFoundError:  # of a toolchain that is not made yet
        below = python
    key = hashlib.sha256(f"{below}{plan.key}".encode()).hexdigest()[:16]
    return environments() / key


def provide(request: Request, plan: Plan, say: Say) -> Packages:
    """Find the environment of a plan, or make it. Raises InfrastructureError if something cannot be installed."""
    venv = venv_of(request, plan)
    venv.parent.mkdir(parents=True, exist_ok=True)
    with venv.with_name(f"{venv.name}.lock").open("ab") as file:  # keeps other runs from making the same environment at the same time
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another run that installs the same packages")
            fcntl.flock(file, fcntl.LOCK_EX)
        if not (venv / _MARK).is_file():
            say(f"{request.target.name}: installing packages into {venv}; the next run with the same inputs finds them there")
            _make(request, plan, venv)
        use(venv)
    return read_result(str(venv / "bin" / "python"), (venv / _MARK).read_text())


def read_result(python: str, text: str) -> Packages:
    """Return what the installer wrote."""
    found = json.loads(text)
    return Packages(python, dict(found["packages"]), tuple(found["notes"]))


def _make(request: Request, plan: Plan, venv: Path) -> None:
    build, work = request.options.build, venv.with_name(venv.name + _PART)
    files, made, scratch, temporary = (work / name for name in ("plan", "venv", "scratch", "tmp"))
    stopped = True
    try:
        for folder in (files, temporary):
            shutil.rmtree(folder, ignore_errors=True)
        for folder in (scratch, temporary):
            folder.mkdir(parents=True, exist_ok=True)
        for name, content in plan.files.items():
            (files / name).parent.mkdir(parents=True, exist_ok=True)
            (files / name).write_bytes(content)
        if build.wheelhouse:
            (files / "wheelhouse").symlink_to(build.wheelhouse.resolve())
        for name, source in (("pip.conf", build.pip_config), ("ca-bundle.crt", build.ca_bundle)):
            if source:
                shutil.copyfile(source, files / name)
        python = request.options.where.python or sys.executable
        command = [str(Path(shutil.which(python) or python).absolute()), "-m", "installing", str(files), str(made), str(scratch)]
        code = _run(command, files, temporary, request.raw / LOG)
        stopped = False
        if code or not (made / _MARK).is_file():
            raise install_failed(request.target.name, (request.raw / LOG).read_text(errors="replace"), request.raw / LOG)
        _move(made, venv)
    finally:
        if not stopped:  # what is there may be gigabytes: nobody waits for their removal
            shutil.rmtree(work, ignore_errors=True)


def _run(command: list[str], folder: Path, temporary: Path, log: Path) -> int:
    """Run the installer, with a folder for its temporary files. If this process is interrupted, end what it started."""
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    variables["TMPDIR"] = str(temporary)
    with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644), "ab") as output:  # of an earlier attempt
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output, env=variables, start_new_session=True)
        try:
            return process.wait()
        finally:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _move(made: Path, venv: Path) -> None:
    """Give the environment its name. Its scripts begin with the path of their Python."""
    for script in (made / "bin").iterdir():
        if script.is_file() and not script.is_symlink():
            content = script.read_bytes()
            if os.fsencode(made) in content and b"\0" not in content:
                script.write_bytes(content.replace(os.fsencode(made), os.fsencode(venv)))
    shutil.rmtree(venv, ignore_errors=True)  # of a run that was killed while it removed it
    made.rename(venv)


def install_failed(target: str, output: str, log: Path) -> InfrastructureError:
    """Return the error of an installation, with the last line of pip."""
    said = [line.removeprefix(FAILED) for line in output.splitlines() if line.startswith(FAILED)]
    last = said[-1] if said else next((line for line in reversed(output.splitlines()) if line.strip()), "it printed nothing")
    meaning = "A requirement has no version for this Python, or its build fails, or the package index cannot be reached."
    remedy = "Fix the requirement, leave it out, or give a source with `build` in a targets file: wheelhouse, pip_config or ca_bundle."
    if last.strip().endswith(" to build"):
        meaning = "It has no wheel for this Python, and what compiles it is not here."
        remedy = "Install that, or leave the requirement out: what imports it is then counted as not checked, and fails no run."
    remedy = f"{remedy} {log} has pip's whole output."
    return InfrastructureError(f"{target}: the packages could not be installed: {last.strip()[:300].rstrip('.')}.", meaning, remedy)


def provide_toolchain(request: Request, say: Say) -> tuple[Request, Packages | None]:
    """Find the environment of the request's toolchain, or make it. Return the request with its Python, and what is in it. Raises
    InfrastructureError if something cannot be installed."""
    if not has_environment(request):
        return request, None
    packages = provide(request, _plan(request), say)
    return replace(request, options=request.options.placed(python=packages.python)), packages


def on_toolchain(request: Request) -> Request:
    """Return the request with the Python that `provide_toolchain` gives it, without making anything."""
    if not has_environment(request):
        return request
    return replace(request, options=request.options.placed(python=str(venv_of(request, _plan(request)) / "bin" / "python")))


def has_environment(request: Request) -> bool:
    """Return whether the request's toolchain has an environment of its own."""
    return request.target.toolchain is not None and request.target.toolchain.installs


def has_packages(request: Request) -> bool:
    """Return whether anything is installed for this request beside what the chosen Python has."""
    return is_wanted(request.options) or has_environment(request)


def releases(python: str | None, wheelhouse: Path | None, index: str = "") -> list[str]:
    """Return the releases of Triton for this Python, oldest first: those of the package index, or of a folder of wheels. `index` is another
    package index. Builds that are no releases count there, too: it is one of nightly builds. Raises InfrastructureError if the index cannot
    be asked."""
    if wheelhouse is not None:
        found = [match[1] for path in wheelhouse.glob("triton-*.whl") if (match := re.match(r"triton-([^-]+)-", path.name))]
        return sorted(set(found), key=_order)
    command = [python or sys.executable, "-m", "pip", "--disable-pip-version-check", "index", "versions", "triton"]
    command += ["--pre", "--index-url", index] if index else []
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        said, why = done.stdout, (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
    except (OSError, subprocess.TimeoutExpired) as error:
        said, why = "", str(error)
    line = re.search(r"^\s*Available versions: (.+)$", said, re.MULTILINE)
    if not line:
        raise InfrastructureError(
            f"The releases of Triton cannot be listed: {why}.",
            f"pip asked {index or 'the package index that it is set up for'}, which cannot be reached, or has no Triton for this Python.",
            "Name a release, as in 3.9.0, or give a folder of wheels: build.wheelhouse in a targets file.",
        )
    return sorted((version.strip() for version in line[1].split(",")), key=_order)


def _order(version: str) -> list[tuple[int, str]]:
    """Order versions as people do: `3.9.0.post10` after `3.9.0.post2`, and a release after its candidates."""
    words = re.findall(r"\d+|[a-z]+", version.replace("+", "."))
    return [(int(word), "") if word.isdigit() else (-1 if word in ("a", "b", "rc", "dev") else 0, word) for word in words] + [(0, "")]


def _plan(request: Request) -> Plan:
    toolchain, build = request.target.toolchain, request.options.build
    assert toolchain is not None  # asked before
    wanted = {**asdict(toolchain), "name": "", "environment": {}, "base_image": ""}
    index = Path(toolchain.index) if toolchain.index and Path(toolchain.index).is_dir() else None  # a folder of wheels
    files = installer_files()
    deciding = [hashlib.sha256(content).hexdigest() for content in files.values()]
    wheels = [path for folder in (build.wheelhouse, index) if folder for path in sorted(folder.glob("triton-*.whl"))]
    deciding += [f"{path.name} {path.stat().st_size}" for path in wheels]
    key = hashlib.sha256(json.dumps([wanted, *deciding]).encode()).hexdigest()[:16]
    plan = {"toolchain": {**wanted, "index": str(index.resolve()) if index else toolchain.index}}
    return Plan({**files, "plan.json": json.dumps(plan).encode()}, key)
