"""A run's lease of its cards: locked when a stage asks for them, released when it has done with them, and added up. A run that cannot get
them ends before anything starts. Later each stage asks just before it uses one (`inside/process/lease.py`). If several cards share a stage,
each is released when it has no more work there."""

import fcntl
import json
import os
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Union

from warpwave.collect.untrusted import RejectedError, opened
from warpwave.engines.protocol import Engine, Request, Say
from warpwave.errors import InfrastructureError
from warpwave.records import LEASE_FILE, Environment, Stage
from warpwave.records.registry import ENGINES

# A GPU, where two runs would spoil each other's times, and a results folder are locked by `flock`: the lock ends with the process.

_POLL_S = 0.2


class Held:
    """The GPUs that a run chose and has locked. It can release each one alone. Empty if the run locked all GPUs of the machine."""

    def __init__(self, descriptors: dict[str, int]) -> None:
        self._descriptors = descriptors

    def __len__(self) -> int:
        return len(self._descriptors)

    def release(self, position: int) -> bool:
        """Release the GPU at a position among the chosen ones, as a process that sees them all counts them. Return whether it was held.
        Engines and drivers count GPUs in the order of their numbers. In a list that is in another order, or of names, the position does not
        say which one it is, and nothing is released."""
        names = list(self._descriptors)
        if not all(map(str.isdecimal, names)) or sorted(names, key=int) != names or not 0 <= position < len(names):
            return False
        descriptor, self._descriptors[names[position]] = self._descriptors[names[position]], -1
        if descriptor >= 0:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        return descriptor >= 0


@contextmanager
def gpus(target: str, chosen: Union[str, None], run_id: str, wait_s: float, say: Say) -> Iterator[Held]:
    """Lock the chosen GPUs of a target, or all of them if none is chosen. Raises InfrastructureError if another run on this machine uses
    one of them, and did not release it within `wait_s` seconds."""
    machine = _open(f"warpwave-{target}.lock")
    with ExitStack() as stack:
        stack.callback(os.close, machine)
        # Runs that choose GPUs share this lock. A run that uses all GPUs takes it exclusively.
        _take(machine, fcntl.LOCK_SH if chosen else fcntl.LOCK_EX, f"a GPU of {target}", wait_s, say)
        held = {"": machine}
        # All runs lock in the same order, so that two runs never wait for each other.
        for index in sorted({word.strip() for word in chosen.split(",")}) if chosen else ():
            card = _open(f"warpwave-{target}-{index.replace('/', '_')}.lock")
            stack.callback(os.close, card)
            _take(card, fcntl.LOCK_EX, f"GPU {index} of {target}", wait_s, say)
            held[index] = card
        for descriptor in held.values():
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"run {run_id}, process {os.getpid()}".encode(), 0)
        names = [word.strip() for word in chosen.split(",")] if chosen else []
        yield Held({name: held[name] for name in names})


@contextmanager
def folder(path: Path, wait_s: float, say: Say) -> Iterator[int]:
    """Lock a results folder. Yield the lock's descriptor, so that a child process can hold it too. Raises InfrastructureError if another
    run, or a remaining process of a killed run, still writes to the folder."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        _take(descriptor, fcntl.LOCK_EX, f"the folder {path}", wait_s, say)
        yield descriptor
    finally:
        os.close(descriptor)


def _open(name: str) -> int:
    path = Path(tempfile.gettempdir()) / name
    with suppress(PermissionError):  # in a shared folder, the kernel may refuse O_CREAT on another user's file
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        with suppress(PermissionError):
            os.fchmod(descriptor, 0o666)
        return descriptor
    return os.open(path, os.O_RDWR | os.O_NOFOLLOW)


def _take(descriptor: int, how: int, what: str, wait_s: float, say: Say) -> None:
    until, announced = time.monotonic() + wait_s, False
    while True:
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            owner = _owner(descriptor)
        if time.monotonic() > until:
            meaning = f"Another run on this machine uses it and did not end within {wait_s:g} s. Two runs at a time would spoil both."
            remedy = "Wait for it, choose another card with --gpu, or end that process; `warpwave clean` lists what dead runs left behind."
            raise InfrastructureError(f"{what} is in use{owner}.", meaning, remedy) from None
        if not announced:
            say(f"{what} is in use{owner}: waiting up to {wait_s:g} s")
            announced = True
        time.sleep(_POLL_S)


def _owner(descriptor: int) -> str:
    with suppress(OSError):  # a folder cannot be read like a file
        text = os.pread(descriptor, 200, 0).decode("utf-8", "replace")
        return f" by {text}" if text.isprintable() and text else ""
    return ""


_MOST_FACTS, _MOST_CARDS = 1 << 20, 64
# Locks the cards of this run for as long as the context is open.
Lock = Callable[[], AbstractContextManager[Union[Held, None]]]


class Lease:
    """The cards of one attempt. `held` are the seconds for which each stage had them, added up over the cards that share it."""

    def __init__(self, lock: Union[Lock, None], raw: Path) -> None:
        """Without a `lock` no card of this machine is used, and nothing is held or counted."""
        self.held: dict[str, float] = {}
        self._lock, self._raw = lock, raw
        self._stack = ExitStack()
        self._since: Union[float, None] = None
        self._cards: Union[Held, None] = None
        self._gone: set[int] = set()
        self._stage = Stage.FACTS.value
        self._turn = threading.Lock()
        self._over = False

    @property
    def is_needed(self) -> bool:
        """Whether stages have to ask."""
        return self._lock is not None

    def take(self) -> None:
        """Lock the cards. Raises InfrastructureError if another run has one of them, and did not release it in time."""
        if self._lock is not None:
            self._cards, self._gone = self._stack.enter_context(self._lock()), set()
            self._since = time.monotonic()

    def on_event(self, event: dict[str, Any]) -> None:
        """Take a stage's event. Locks in another thread: the events of the run must not wait for a card."""
        stage = str(event.get("stage"))
        if self._lock is None or stage not in {known.value for known in Stage}:
            return
        if event.get("wanted"):
            threading.Thread(target=self._take_and_answer, args=(stage,), daemon=True).start()
        elif "card" in event:
            self._give_back_one(event["card"])
        else:
            self.give_back()

    def give_back(self) -> None:
        """Release the cards, if they are locked."""
        with self._turn:
            if self._since is not None:
                self._count(max(1, len(self._cards or ()) - len(self._gone)))
                self._since = None
                self._stack.close()

    def _give_back_one(self, card: object) -> None:
        """Release one of several cards, which has no more work in this stage. The last one is released with the stage."""
        with self._turn:
            if self._since is None or self._cards is None or type(card) is not int or card in self._gone:
                return
            if len(self._gone) + 1 < len(self._cards) and self._cards.release(card):
                self._gone.add(card)
                self._count(1)

    def _count(self, cards: int) -> None:
        if self._since is not None:
            seconds = (time.monotonic() - self._since) * cards
            self.held[self._stage] = round(self.held.get(self._stage, 0.0) + seconds, 3)

    def end(self) -> None:
        """Release the cards for good: the run has ended, and a lock that is still waited for is not wanted any more."""
        self._over = True
        self.give_back()

    def _take_and_answer(self, stage: str) -> None:
        answer = ""
        with self._turn:
            if self._over:
                return
            try:
                if self._since is None:
                    self._stage = stage
                    self.take()
            except InfrastructureError as error:
                answer = f"{error.happened} {error.meaning}"
        if self._over:
            self.give_back()
            return
        self._write(stage, answer)

    def _write(self, stage: str, answer: str) -> None:
        """Write the answer into the stage's folder. The package can write there too, so follow no link."""
        with suppress(OSError):
            folder = os.open(self._raw / stage, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                name = f".{LEASE_FILE}-{secrets.token_hex(8)}"
                file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=folder)
                with os.fdopen(file, "wb") as writing:
                    writing.write(answer.encode())
                os.rename(name, LEASE_FILE, src_dir_fd=folder, dst_dir_fd=folder)
            finally:
                os.close(folder)


def lock_of(engine: Engine, request: Request, environment: Environment, say: Say, raw: Path) -> Union[Lock, None]:
    """Return what locks this run's GPUs against other runs; None if the target or the engine uses none of this machine. Runs of this
    machine lock files. An engine that clients of other machines use as well keeps a lease beside it, which they see. A run that shares all
    visible GPUs locks each of them by its number once the facts stage has counted them, so that each can be released."""
    where = request.options.where
    if not ENGINES[engine.name].local_gpus or not (request.target.visible_devices or request.target.probe.require):
        return None
    leased = getattr(engine, "leased", None)

    @contextmanager
    def lock() -> Iterator[Held]:
        counted = where.share and not os.environ.get(request.target.visible_devices or "")
        chosen = where.gpu or (_numbers(raw) if counted else None)
        here = gpus(request.target.kind, chosen, where.run_id, request.options.limits.gpu_wait_s, say)
        with here as held, leased(request, environment) if leased else nullcontext():
            yield held

    return lock


def _numbers(raw: Path) -> Union[str, None]:
    """Return `0,1,2` for the GPUs that the facts stage found; None if there is one, or it cannot be read: then all are locked together."""
    try:
        with opened(raw, "facts.json", _MOST_FACTS) as file:
            count = len(json.load(file)["devices"])
    except (RejectedError, OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return ",".join(map(str, range(count))) if 1 < count <= _MOST_CARDS else None
