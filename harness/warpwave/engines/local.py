"""The local engine: runs a job without a container, as a subprocess in a Python of this machine. Use it on a laptop, in a Kubernetes runner
pod (which is a container already), and for a target that needs no GPU."""

from __future__ import annotations

import compileall
import ctypes
import math
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import warpwave
from warpwave.config.hosts import Host
from warpwave.engines import waiting
from warpwave.engines.packages.environments import has_packages, on_toolchain, provide, provide_toolchain, venv_of
from warpwave.engines.packages.plan import is_wanted, make_plan
from warpwave.engines.protocol import Layout, Request, Say, import_path
from warpwave.engines.results import Watch, tidy
from warpwave.engines.waiting import Reader
from warpwave.errors import InfrastructureError
from warpwave.records import FORKS_VARIABLE, ROCJITSU, Environment, Exit
from warpwave.records.isolated import isolated

_SET_CHILD_SUBREAPER = 36
_ORPHAN_POLL_S = 0.02
_KILL_S = 10.0


@contextmanager
def adopted() -> Iterator[Callable[[float], None]]:
    """Become the parent of every orphan below this process. Yield a function that ends all of them. The function waits for the given
    seconds of grace, then sends SIGKILL. It leaves children alone that existed before."""

    def adopt(on: bool) -> None:
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, int(on), 0, 0, 0)

    def end(grace_s: float) -> None:
        now = time.monotonic()
        while (found := _children() - before) and time.monotonic() < now + grace_s + _KILL_S:
            for pid in found:
                if time.monotonic() >= now + grace_s:
                    with suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
                with suppress(OSError):  # `subprocess` may have waited for its own child already
                    os.waitpid(pid, os.WNOHANG)
            time.sleep(_ORPHAN_POLL_S)

    before = _children()
    adopt(True)
    try:
        yield end
    finally:
        adopt(False)


def _children() -> set[int]:
    found, own = set(), str(os.getpid())
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError):  # the process has ended in the meantime
                # The format is `pid (name) state parent …`. A name may contain spaces and brackets.
                if Path(entry.path, "stat").read_bytes().rpartition(b")")[2].split()[1].decode() == own:
                    found.add(int(entry.name))
    return found


_PIECE = 1 << 16
_DRAIN_S = 2.0
_ORPHANS_S = 1.0  # how long a run that ended normally may take to end its own helper processes
_SLICE_S = 0.1
_POLL_S = 0.5
_WRITING_S = 10.0  # a short grace: the run may be filling the disk
_NEEDS = ("torch", "triton", "pytest", "numpy")
# Look without importing: torch alone takes seconds to load, and the facts stage imports it anyway.
_LOOK = "import importlib.util, sys; print(*[name for name in sys.argv[1:] if importlib.util.find_spec(name) is None])"


def connect(host: Host | None = None) -> LocalEngine:
    """Return the engine; there is nothing to connect to."""
    return LocalEngine()


class _Warm:
    """The interpreter that the stages of several runs are forked from. It imports torch, and never code of the package."""

    def __init__(self, python: str, variables: Callable[[str], dict[str, str]]) -> None:
        self._folder = TemporaryDirectory(prefix="warpwave-")  # forks import more of the harness, and the link of a run is gone after it
        Path(self._folder.name, "warpwave").symlink_to(Path(warpwave.__file__).parent)
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [python, "-m", "warpwave.inside.process.warm"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=os.sep,
                env={**variables(self._folder.name), FORKS_VARIABLE: str(theirs.fileno())},
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )

    def end(self) -> None:
        self.channel.close()
        self.process.kill()
        self.process.wait()
        self._folder.cleanup()


_kept: dict[tuple[object, ...], _Warm] | None = None  # by Python and variables


@contextmanager
def keeping_warm() -> Iterator[None]:
    """Within this, a run forks its stages from the interpreter of an earlier run with the same Python and variables."""
    global _kept
    _kept = {}
    try:
        yield
    finally:
        for warm in _kept.values():
            warm.end()
        _kept = None


def _kept_for(request: Request, environment: Environment) -> _Warm | None:
    if _kept is None or request.target.rocjitsu:  # its session has the whole run as its child
        return None
    variables = partial(_variables, request, environment)
    made_for = environment.python, *sorted(variables("").items())
    if made_for in _kept and _kept[made_for].process.poll() is not None:
        _kept.pop(made_for).end()
    if made_for not in _kept:
        _kept[made_for] = _Warm(str(environment.python), variables)
    return _kept[made_for]


class LocalEngine:
    """Runs the inside as a child of this process, in the caller's own environment."""

    name = "local"

    def prepare(self, request: Request, say: Say) -> Environment:
        """Make sure that the Python of the toolchain has what the inside needs, and add what the package needs."""
        simulator = _rocjitsu_version() if request.target.rocjitsu else {}
        request, toolchain = provide_toolchain(request, say)
        python = request.options.where.python or sys.executable
        try:
            done = subprocess.run([python, "-c", _LOOK, *_NEEDS], capture_output=True, text=True, timeout=60)
        except (OSError, subprocess.TimeoutExpired) as error:
            happened = f"{python} cannot be started: {error}."
            meaning = "The path given with --python is not a Python interpreter of this machine."
            raise InfrastructureError(happened, meaning, "Give the path of a Python that has torch, triton and pytest.") from None
        missing = done.stdout.split() if done.returncode == 0 else [f"a working Python ({done.stderr.strip()[-200:]})"]
        if missing:
            meaning = "The local engine uses a Python of this machine as it is; it installs nothing."
            remedy = f"`{python} -m pip install {' '.join(_NEEDS)}`, or name another one with --python, or use `--engine docker`."
            raise InfrastructureError(f"The local engine cannot run in {python}: it lacks {', '.join(missing)}.", meaning, remedy)
        environment = Environment(engine=self.name, python=python, packages=simulator)
        if toolchain:
            environment = replace(environment, packages={**simulator, **toolchain.versions}, notes=toolchain.notes)
        if is_wanted(request.options):
            packages = provide(request, make_plan(request), say)
            versions, notes = {**environment.packages, **packages.versions}, environment.notes + packages.notes
            environment = replace(environment, python=packages.python, packages=versions, notes=notes)
        return environment

    def image_id(self, request: Request) -> str | None:
        """Return None: this engine has no images."""
        return None

    def layout(self, request: Request) -> Layout:
        """Return real paths. The harness is a link in a folder of its own, so PYTHONPATH holds no other package of its environment."""
        options = request.options
        return Layout(str(request.raw / ".harness"), str(options.package.kernels), str(request.raw), str(options.package.folder))

    def execute(self, request: Request, environment: Environment, on_line: Say) -> tuple[Environment, Exit]:
        """Run the job to its end, to its limit, or until the user stops it. Leave no process behind."""
        layout = self.layout(request)
        links = Path(layout.harness)
        links.mkdir(exist_ok=True)  # a killed run leaves it behind
        (links / "warpwave").unlink(missing_ok=True)
        (links / "warpwave").symlink_to(harness := Path(warpwave.__file__).parent)
        if not sys.dont_write_bytecode:  # the inside must write none beside the package's code, and some installers leave ours out, too
            compileall.compile_dir(harness / "inside", quiet=2)
        command = _inside(request, environment.python)
        warm = _kept_for(request, environment)  # before all new children are orphans
        with waiting.held(), adopted() as end_orphans:
            try:
                return environment, _run(command, request, environment, layout, on_line, end_orphans, warm)
            finally:
                tidy(request.raw)  # removes the link to the harness too
                with suppress(OSError):  # the code under test may have written to it
                    links.rmdir()


def planned(request: Request) -> tuple[str, tuple[str, ...]]:
    """Return no image, and the command that a run would start, without making an environment."""
    options = on_toolchain(request).options
    python = str(venv_of(request, make_plan(request)) / "bin" / "python") if is_wanted(options) else options.where.python or sys.executable
    return "", _inside(request, python)


def _inside(request: Request, python: str) -> tuple[str, ...]:
    """Return the command of the inside, within a session of rocJITsu if the target has one.

    In this process's children, so that each test's races are in the log when it ends; the default, another process, has its own output.
    """
    layout = LocalEngine().layout(request)
    command = isolated(python, layout.harness, "warpwave.inside", f"{layout.output}/job.json")
    if request.target.rocjitsu is None:
        return command
    profile = request.target.rocjitsu.card.lower().replace(" ", "-")  # as rocJITsu names its own: mi300x
    return (ROCJITSU, "run", "--profile", profile, "--plugin", "race", "--in-process", "--", *command)


def _rocjitsu_version() -> dict[str, str]:
    try:
        said = subprocess.run([ROCJITSU, "--version"], capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        happened = f"rocJITsu does not start: `{ROCJITSU} --version` failed with {error}."
        meaning = "The simulator is not installed, or not on PATH."
        remedy = "docs/guides/emulated.md says where it comes from. Or run a target such as gfx942-emulated, which does not need it."
        raise InfrastructureError(happened, meaning, remedy) from None
    return {ROCJITSU: " ".join(said.split()).removeprefix(f"{ROCJITSU} ")}


def _run(
    command: Sequence[str],
    request: Request,
    environment: Environment,
    layout: Layout,
    on_line: Say,
    end_orphans: Callable[[float], None],
    warm: _Warm | None,
) -> Exit:
    started = time.monotonic()
    channel = {FORKS_VARIABLE: warm.channel.fileno()} if warm else {}
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
        cwd=layout.output,
        env={**_variables(request, environment, layout.harness), **{name: str(number) for name, number in channel.items()}},
        start_new_session=True,
        # If this process is killed, the lock keeps other runs out of the folder until the child has ended too.
        pass_fds=(*channel.values(), *(() if request.lock is None else (request.lock,))),
    )
    assert process.stdout is not None  # asked for above
    reader = Reader(iter(partial(process.stdout.read, _PIECE), b""), on_line)
    timed_out = interrupted = False
    quota = Watch(request.raw, request.options.limits.cap)
    try:
        with quota, waiting.interruptible():
            reader.start()
            timed_out = not _ends_before(process, started + request.options.limits.target_s, quota)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        limits = request.options.limits
        _stop(process, min(limits.grace_s, _WRITING_S) if quota.exceeded else limits.grace_s, patient_with=int(interrupted))
        end_orphans(0.0 if timed_out or interrupted or quota.exceeded else _ORPHANS_S)
        if reader.ended.wait(_DRAIN_S):
            process.stdout.close()
    exceeded = quota.exceeded if not interrupted else ""
    seconds = round(time.monotonic() - started, 3)
    return Exit(process.returncode, seconds, timed_out=timed_out, interrupted=interrupted, exceeded=exceeded)


def _variables(request: Request, environment: Environment, harness: str) -> dict[str, str]:
    """Return the caller's environment variables, overridden by the target's. Their PYTHONPATHs come behind the harness."""
    chosen = {
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        # Triton warns if this is unset, because its default will change. Setting it also makes vendors comparable.
        "TRITON_DEFAULT_FP_FUSION": "1",
        **request.target.environment,
        **request.options.package.variables,
    }
    if has_packages(request):  # packages bring tools, such as ninja
        chosen["PATH"] = os.pathsep.join([str(Path(environment.python).parent), os.environ.get("PATH", os.defpath)])
    if request.target.visible_devices and request.options.where.gpu is not None:
        chosen[request.target.visible_devices] = request.options.where.gpu
    return {
        **os.environ,
        **chosen,
        "PYTHONPATH": import_path(harness, os.environ, request.target.environment, request.options.package.variables),
    }


def _ends_before(process: subprocess.Popen[bytes], deadline: float, quota: Watch) -> bool:
    """Return False if the time is up. Return True if the process has ended or exceeded its limit on results."""
    ended = select.poll()  # `Popen.wait` with a limit would look twenty times a second, for hours
    with ExitStack() as stack:
        with suppress(OSError):  # an old kernel, or a sandbox that forbids it: the end is then seen a little later
            descriptor = os.pidfd_open(process.pid)
            stack.callback(os.close, descriptor)
            ended.register(descriptor, select.POLLIN)
        while (left := deadline - time.monotonic()) > 0 and not quota.exceeded:
            ended.poll(1000 * min(left, _POLL_S))
            if process.poll() is not None:
                return True
    return bool(quota.exceeded) or process.poll() is not None


def _stop(process: subprocess.Popen[bytes], grace_s: float, patient_with: int) -> None:
    """Send SIGINT, wait for results to be written, then send SIGKILL. More than `patient_with` requests to stop skip the wait."""
    for number, patience, requests in ((signal.SIGINT, grace_s, patient_with), (signal.SIGKILL, 10.0, math.inf)):
        if process.poll() is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        until = time.monotonic() + patience
        while process.poll() is None and time.monotonic() < until and waiting.asked() <= requests:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_SLICE_S)
