"""The local engine's packages: a virtual environment in the user's cache folder, on top of the chosen Python.

It is made once for each set of inputs, in a folder of another name, and renamed when it is complete: a killed run leaves no half of one.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from harness.engines.packages.environments import environments, use
from harness.engines.packages.plan import Plan, make_plan
from harness.engines.protocol import Request, Say
from harness.errors import InfrastructureError

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
_POLL_S = 0.2


@dataclass(frozen=True)
class Packages:
    """An environment with what a run asked for: its Python, the versions that it adds, and what a user should know."""

    python: str
    versions: dict[str, str]
    notes: tuple[str, ...]


def venv_of(request: Request, plan: Plan) -> Path:
    """Return the folder of the environment for this request. It exists if it was made before."""
    python = request.options.python or sys.executable
    try:
        below = subprocess.run([python, "-c", _BASE], capture_output=True, text=True, timeout=60, check=False).stdout
    except FileNotFoundError:  # of a toolchain that is not made yet
        below = python
    key = hashlib.sha256(f"{below}{plan.key}".encode()).hexdigest()[:16]
    return environments() / key


def provide(request: Request, say: Say) -> Packages:
    """Find the environment, or make it.

    Raises:
        InfrastructureError: something cannot be installed.
    """
    return provide_plan(request, make_plan(request), say)


def provide_plan(request: Request, plan: Plan, say: Say) -> Packages:
    """Find the environment of a plan, or make it.

    Raises:
        InfrastructureError: something cannot be installed.
    """
    venv = venv_of(request, plan)
    venv.parent.mkdir(parents=True, exist_ok=True)
    with _alone(venv.with_name(f"{venv.name}.lock"), say):
        if not (venv / "warpwave.json").is_file():
            say(f"{request.target.name}: installing packages into {venv}; the next run with the same inputs finds them there")
            _make(request, plan, venv)
        use(venv)
    return read_result(str(venv / "bin" / "python"), (venv / "warpwave.json").read_text())


def read_result(python: str, text: str) -> Packages:
    """Return what the installer wrote."""
    found = json.loads(text)
    return Packages(python, dict(found["packages"]), tuple(found["notes"]))


def write_files(files: dict[str, bytes], folder: Path) -> None:
    """Write a plan's files."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _make(request: Request, plan: Plan, venv: Path) -> None:
    build, work = request.options.build, venv.with_name(f"{venv.name}.{os.getpid()}")
    files, made = work / "plan", work / "venv"
    try:
        write_files(plan.files, files)
        if build.wheelhouse:
            (files / "wheelhouse").symlink_to(build.wheelhouse.resolve())
        for name, source in (("pip.conf", build.pip_config), ("ca-bundle.crt", build.ca_bundle)):
            if source:
                shutil.copyfile(source, files / name)
        python = request.options.python or sys.executable
        code = _run(
            [str(Path(shutil.which(python) or python).absolute()), "-m", "installing", str(files), str(made)], files, request.raw / LOG
        )
        if code or not (made / "warpwave.json").is_file():
            raise install_failed(request.target.name, (request.raw / LOG).read_text(errors="replace"), request.raw / LOG)
        _move(made, venv)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _run(command: list[str], folder: Path, log: Path) -> int:
    """Run the installer. If this process is interrupted, end what it started."""
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    with log.open("ab") as output:
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
    return InfrastructureError(
        f"{target}: the packages could not be installed: {last.strip()[:300].rstrip('.')}.",
        f"A requirement has no version for this Python, or the package index cannot be reached. {log} holds all of pip's output.",
        "Fix the requirement, or give a source with --wheelhouse, --pip-config or --ca-bundle.",
    )


@contextmanager
def _alone(path: Path, say: Say) -> Iterator[None]:
    """Keep other runs from making the same environment at the same time."""
    with path.open("ab") as file:
        announced = False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not announced:
                    say("waiting for another run that installs the same packages")
                announced = True
                time.sleep(_POLL_S)
        yield
