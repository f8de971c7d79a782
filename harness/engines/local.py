"""The engine without a container: a subprocess in a Python of this machine.

For a laptop, for a Kubernetes runner pod that is the container already, and for the target that needs no GPU.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import harness
from harness.engines import signals
from harness.engines.orphans import adopted
from harness.engines.output import Reader
from harness.engines.results_folder import tidy
from harness.engines.results_limit import Watch
from harness.engines.seam import Layout, Request, Say
from harness.errors import InfrastructureError
from harness.records import Environment, Exit

_PIECE = 1 << 16
_DRAIN_S = 2.0
_ORPHANS_S = 1.0  # what a run that has ended well may take to end its own helpers
_SLICE_S = 0.1
_POLL_S = 0.5
_WRITING_S = 10.0  # for what fills the disk meanwhile
_NEEDS = ("torch", "triton", "pytest", "numpy")
# Looks without importing: torch alone takes seconds to load, and the facts stage does it anyway.
_LOOK = "import importlib.util, sys; print(*[name for name in sys.argv[1:] if importlib.util.find_spec(name) is None])"


def connect() -> LocalEngine:
    """There is nothing to connect to."""
    return LocalEngine()


class LocalEngine:
    """Runs the inside as a child of this process, in the caller's own environment."""

    name = "local"

    def prepare(self, request: Request, say: Say) -> Environment:
        """Make sure that the chosen Python has what the inside needs."""
        python = request.options.python or sys.executable
        try:
            done = subprocess.run([python, "-c", _LOOK, *_NEEDS], capture_output=True, text=True, timeout=60)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InfrastructureError(
                f"{python} cannot be started: {error}.",
                "The path given with --python is not a Python interpreter of this machine.",
                "Give the path of a Python that has torch, triton and pytest.",
            ) from None
        missing = done.stdout.split() if done.returncode == 0 else [f"a working Python ({done.stderr.strip()[-200:]})"]
        if missing:
            raise InfrastructureError(
                f"The local engine cannot run in {python}: it lacks {', '.join(missing)}.",
                "The local engine uses a Python of this machine as it is; it installs nothing.",
                f"`{python} -m pip install {' '.join(_NEEDS)}`, or name another one with --python, or use `--engine docker`.",
            )
        return Environment(engine=self.name, python=python)

    def image_id(self, request: Request) -> str | None:
        """There is no image."""
        return None

    def layout(self, request: Request) -> Layout:
        """Real paths; the harness is reached through a folder of links, so that nothing else of its environment comes along."""
        return Layout(harness=str(request.raw / ".harness"), kernels=str(request.options.kernels), output=str(request.raw))

    def execute(self, request: Request, environment: Environment, on_line: Say) -> tuple[Environment, Exit]:
        """Run the job to its end, to its limit, or until the user stops it; then nothing of it is left."""
        layout = self.layout(request)
        links = Path(layout.harness)
        links.mkdir(exist_ok=True)  # a run that was killed has left it
        (links / "harness").unlink(missing_ok=True)
        (links / "harness").symlink_to(Path(harness.__file__).parent)
        command = [environment.python, "-m", "harness.inside", f"{layout.output}/job.json"]
        with signals.held(), adopted() as end_orphans:
            try:
                return environment, _run(command, request, layout, on_line, end_orphans)
            finally:
                tidy(request.raw)  # the link in there too
                with suppress(OSError):  # the code under test has put something there
                    links.rmdir()


def _run(command: list[str], request: Request, layout: Layout, on_line: Say, end_orphans: Callable[[float], None]) -> Exit:
    started = time.monotonic()
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
        cwd=layout.output,
        env=_variables(request, layout),
        start_new_session=True,
        # Should we be killed, nobody else may write to the folder until this child is gone, too.
        pass_fds=() if request.lock is None else (request.lock,),
    )
    assert process.stdout is not None  # asked for above
    reader = Reader(iter(partial(process.stdout.read, _PIECE), b""), on_line)
    timed_out = interrupted = False
    quota = Watch(request.raw, request.options.cap)
    try:
        with quota, signals.interruptible():
            reader.start()
            timed_out = not _ends_before(process, started + request.options.limit_s, quota)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        _stop(
            process, min(request.options.grace_s, _WRITING_S) if quota.exceeded else request.options.grace_s, patient_with=int(interrupted)
        )
        end_orphans(0.0 if timed_out or interrupted or quota.exceeded else _ORPHANS_S)
        if reader.ended.wait(_DRAIN_S):
            process.stdout.close()
    exceeded = quota.exceeded if not interrupted else ""
    seconds = round(time.monotonic() - started, 3)
    return Exit(process.returncode, seconds, timed_out=timed_out, interrupted=interrupted, exceeded=exceeded)


def _variables(request: Request, layout: Layout) -> dict[str, str]:
    """The caller's environment, with what the target wants on top."""
    chosen = {
        "PYTHONPATH": layout.harness,
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        # Triton warns while this is unset because its default will change; it is also a fairness switch between vendors.
        "TRITON_DEFAULT_FP_FUSION": "1",
        **request.target.environment,
    }
    if request.target.visible_devices and request.options.gpu is not None:
        chosen[request.target.visible_devices] = request.options.gpu
    return {**os.environ, **chosen}


def _ends_before(process: subprocess.Popen[bytes], deadline: float, quota: Watch) -> bool:
    """False where its time is up; also over, in a way, where it has used up its room."""
    while (left := deadline - time.monotonic()) > 0 and not quota.exceeded:
        with suppress(subprocess.TimeoutExpired):
            process.wait(min(left, _POLL_S))
            return True
    return bool(quota.exceeded) or process.poll() is not None


def _stop(process: subprocess.Popen[bytes], grace_s: float, patient_with: int) -> None:
    """SIGINT and time to write results, then SIGKILL; more than `patient_with` requests to stop skip the wait."""
    for number, patience, requests in ((signal.SIGINT, grace_s, patient_with), (signal.SIGKILL, 10.0, math.inf)):
        if process.poll() is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        until = time.monotonic() + patience
        while process.poll() is None and time.monotonic() < until and signals.asked() <= requests:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_SLICE_S)
