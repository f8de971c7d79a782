"""What a run consists of: legs, and which of them may run side by side."""

import ctypes
import gc
import importlib
import json
import os
import selectors
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, Protocol, TextIO, Union

from pydantic import TypeAdapter, ValidationError

from warpwave.config.targets import Target
from warpwave.engines import waiting
from warpwave.engines.snapshot import take_once
from warpwave.errors import UsageError, WarpwaveError
from warpwave.options import RunOptions
from warpwave.records import RunRecord, grouped
from warpwave.records.registry import ENGINES
from warpwave.run.target import run_target


@dataclass(frozen=True)
class Leg:
    """One line of a run: a target, by the leg's name, with its own options. A leg on several shards is several of these."""

    target: Target
    options: RunOptions

    @property
    def name(self) -> str:
        """The leg's name, with its shard."""
        shard = self.options.where.shard
        return f"{self.target.name} {shard}" if shard and self.options.where.whole else self.target.name

    @property
    def where(self) -> str:
        """Where the leg runs, in words."""
        return self.options.where.host.where if self.options.where.host else "this machine"

    @property
    def engine(self) -> str:
        """The name of the engine that runs the leg, if no option names another."""
        return (self.options.where.host.runs_with if self.options.where.host else "") or self.options.where.engine or self.target.engine

    @property
    def raw(self) -> Path:
        """The folder of the leg's results."""
        return self.options.where.out / "raw" / self.target.name

    @property
    def log(self) -> Path:
        """The file in which a leg that runs beside others keeps what it says."""
        shard = self.options.where.shard
        part = f"-{shard.number}of{shard.of}" if shard and self.options.where.whole else ""
        return self.options.where.folder / "logs" / f"{self.target.name}{part}.log"

    @property
    def _machine(self) -> Hashable:
        """What tells apart the legs that would disturb each other: the machine. Slurm gives each job cards and cores of its own."""
        host = self.options.where.host
        if host is None or (host.slurm is None and not host.ssh):
            return ""
        # Shards of one leg are there to use one machine's cards at once; the lease of each card decides.
        return self.name if host.slurm is not None or self.options.where.whole else host.ssh


def lanes(legs: Sequence[Leg]) -> list[list[Leg]]:
    """Return the legs in lanes: those of one lane run one after the other, the lanes side by side. All legs of this machine share a lane,
    also those without a card: they use every core, and would spoil the times of the others."""
    return list(grouped((leg._machine, leg) for leg in legs).values())


# The child tells what happens in lines of JSON through a pipe. It ends as a run of its own would: a signal stops its kernels gracefully,
# and
# its results are kept. If this process is killed, the child gets SIGTERM.

SAY, EVENT, RECORD, REFUSED, FAILED = "say", "event", "record", "refused", "failed"
"""What a child tells: a line, an event of the inside, and at its end a record, a refusal, or its own failure."""

Tell = Callable[[str, Any], None]

_STOPPING = {signal.SIGINT, signal.SIGTERM}
_SET_DEATH_SIGNAL = 1
_MOST_BYTES = 1 << 16  # of one line: the package can print events, too
_PIECE = 1 << 16


class LegProcess:
    """One leg, running in a child process. `pipe` is readable when it has told something. `siblings` are the pipes of other legs."""

    def __init__(self, leg: Leg, siblings: Collection[int] = ()) -> None:
        self.leg, self.told_its_end = leg, False
        self.status: Union[int, None] = None
        self._held = b""
        leg.log.parent.mkdir(parents=True, exist_ok=True)
        parent = os.getpid()
        self.pipe, write = os.pipe()
        gc.freeze()  # what exists now stays shared: the collector would write to it
        # A signal must not arrive in the child before it counts signals.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
        try:
            self.pid = os.fork()
            if self.pid == 0:
                os.close(self.pipe)
                _run(leg, write, parent, before, siblings)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            gc.unfreeze()
        os.close(write)

    def read(self) -> list[tuple[str, Any]]:
        """Return what the child has told since the last call. At its end, wait for it and close the pipe."""
        piece = os.read(self.pipe, _PIECE)
        *lines, self._held = (self._held + piece).split(b"\n")
        if not piece:
            os.close(self.pipe)
            self.status = os.waitpid(self.pid, 0)[1]
        return [(kind, value) for line in lines for kind, value in json.loads(line).items()]

    def stop(self, number: int) -> None:
        """Ask the child to stop, as the user asked this process."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)


def _run(leg: Leg, pipe: int, parent: int, mask: set[Any], siblings: Collection[int]) -> NoReturn:
    """Run the leg and end this process, whatever happens. Never return into the parent's code."""
    try:
        for sibling in siblings:  # a pipe that this process holds open would never break for its writer
            os.close(sibling)
        os.setsid()  # the terminal's Ctrl-C goes to the parent, which passes it on once
        with waiting.held(), _redirected(leg) as log, open(pipe, "wb", buffering=0) as stream:
            tell = _teller(stream, log)
            with suppress(OSError, AttributeError):  # end with the parent, however it ends
                ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, int(signal.SIGTERM), 0, 0, 0)
            if os.getppid() != parent:
                os.kill(os.getpid(), signal.SIGTERM)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            try:
                record = run_target(leg.target, leg.options, lambda line: tell(SAY, line), lambda event: tell(EVENT, event))
                tell(RECORD, asdict(record))
            except UsageError as error:
                tell(REFUSED, [error.happened, error.meaning, error.remedy])
            except BaseException as error:
                log.write(traceback.format_exc())
                tell(FAILED, f"{type(error).__name__}: {error}")
    finally:
        os._exit(0)


def _teller(stream: BinaryIO, log: TextIO) -> Tell:
    """Return a function that writes to the pipe, and what a reader wants to the log. If the parent is gone, only the log is left."""

    def tell(kind: str, value: Any) -> None:
        if text := _logged(kind, value):
            with suppress(OSError):  # a full disk costs the log, not the run
                log.write(f"{time.strftime('%H:%M:%S')} {text}\n")
        line = json.dumps({kind: value}, default=str).encode() + b"\n"
        if kind == EVENT and len(line) > _MOST_BYTES:
            return
        with suppress(OSError):
            while line:
                line = line[stream.write(line) :]

    return tell


def _logged(kind: str, value: Any) -> str:
    if kind == SAY:
        text = str(value)
    elif kind == EVENT:
        kind = value.get("event")
        worth = kind in ("stage", "stage-end") or (kind == "result" and value.get("verdict") != "passed")
        words = [str(value[name]) for name in ("stage", "verdict", "id", "seconds", "message") if value.get(name) not in (None, "")]
        text = f"{kind}: {' '.join(words)}" if worth else ""
    elif kind == RECORD:
        text = f"ended: {value['verdict'].value}{': ' + value['reason'] if value['reason'] else ''}"
    else:
        text = " ".join(value) if kind == REFUSED else str(value)
    return "".join(character if character.isprintable() else " " for character in text)


@contextmanager
def _redirected(leg: Leg) -> Iterator[TextIO]:
    descriptor = os.open(leg.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644)
    with open(os.devnull) as nothing, open(descriptor, "w", buffering=1, encoding="utf-8", errors="backslashreplace") as log:
        os.dup2(nothing.fileno(), 0)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        yield log


_TICK_S = 0.25


class Watcher(Protocol):
    """Shows what the legs do: that one has started, a line of progress, an event of the inside, how it ended; and that time passes."""

    def started(self, leg: Leg) -> None: ...  # noqa: D102
    def say(self, leg: Leg, line: str) -> None: ...  # noqa: D102
    def on_event(self, leg: Leg, event: dict[str, Any]) -> None: ...  # noqa: D102
    def ended(self, leg: Leg, verdict: str, reason: str) -> None: ...  # noqa: D102
    def tick(self) -> None: ...  # noqa: D102


def run_side_by_side(lanes: Sequence[Sequence[Leg]], watcher: Watcher) -> tuple[list[RunRecord], list[WarpwaveError]]:
    """Run the legs of each lane one after the other, and the lanes side by side. Return the records, and why legs were refused. If the user
    stops the run, every running leg stops, and no other starts. A leg whose process was killed has no record here: its `run.json` says that
    it has not ended. Raises UsageError if the package cannot be sent to another machine. Nothing was started."""
    _prepare(lanes)
    records: list[RunRecord] = []
    refused: list[WarpwaveError] = []
    with waiting.held(), selectors.DefaultSelector() as selector:
        running: dict[int, tuple[LegProcess, deque[Leg]]] = {}

        def start_next(lane: deque[Leg]) -> None:
            if lane and not waiting.asked():
                child = LegProcess(lane.popleft(), list(running))
                running[child.pipe] = (child, lane)
                selector.register(child.pipe, selectors.EVENT_READ)
                watcher.started(child.leg)

        for lane in lanes:
            start_next(deque(lane))
        passed_on = False
        while running:
            for key, _ in selector.select(_TICK_S):
                child, lane = running[key.fd]
                for kind, value in child.read():
                    _take(child, kind, value, watcher, records, refused)
                if child.status is not None:
                    selector.unregister(key.fd)
                    del running[key.fd]
                    if not child.told_its_end:
                        reason = f"its process ended before it could tell how (status {child.status}); --resume continues the leg"
                        watcher.ended(child.leg, "incomplete", reason)
                    start_next(lane)
            if waiting.asked() and not passed_on:
                passed_on = True
                for child, _ in running.values():
                    child.stop(signal.SIGTERM if waiting.terminated() else signal.SIGINT)
            watcher.tick()
    return records, refused


def _take(child: LegProcess, kind: str, value: Any, watcher: Watcher, records: list[RunRecord], refused: list[WarpwaveError]) -> None:
    leg = child.leg
    child.told_its_end = child.told_its_end or kind in (RECORD, REFUSED, FAILED)
    if kind == SAY:
        watcher.say(leg, value)
    elif kind == EVENT:
        watcher.on_event(leg, value)
    elif kind == REFUSED:
        refused.append(UsageError(*value))
        watcher.ended(leg, "refused", value[0])
    elif kind == FAILED:
        watcher.ended(leg, "infra", f"warpwave itself failed: {value}" + (f"; see {leg.log}" if leg.log.is_file() else ""))
    elif kind == RECORD:
        try:
            record = TypeAdapter(RunRecord).validate_python(value)
        except ValidationError as error:  # the folder has the same record
            watcher.ended(leg, "infra", f"its record cannot be read: {error.errors()[0]['msg']}")
        else:
            records.append(record)
            watcher.ended(leg, record.verdict.value, record.reason)


def _prepare(lanes: Sequence[Sequence[Leg]]) -> None:
    """Import the engines, and pack what goes to other machines, before the children are forked: they share both."""
    legs = [leg for lane in lanes for leg in lane]
    for name in {leg.engine for leg in legs}:
        importlib.import_module(ENGINES[name].module)
    for leg in legs:
        if ENGINES[leg.engine].needs_host:
            take_once(leg.options)
