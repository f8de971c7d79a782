"""A run's lease of its cards: locked when a stage asks for them, released when it has done with them, and added up.

A run that cannot have them ends before anything starts. Then each stage asks when it is about to use one (`inside/process/lease.py`).
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Union

from harness.engines.protocol import Engine, Request, Say
from harness.errors import InfrastructureError
from harness.records import LEASE_FILE, Environment, Stage
from harness.records.engines import ENGINES
from harness.run import locks

# Locks the cards of this run for as long as the context is open.
Lock = Callable[[], AbstractContextManager[None]]


class Lease:
    """The cards of one attempt. `held` are the seconds for which each stage had them."""

    def __init__(self, lock: Union[Lock, None], raw: Path) -> None:
        """Without a `lock` no card of this machine is used, and nothing is held or counted."""
        self.held: dict[str, float] = {}
        self._lock, self._raw = lock, raw
        self._stack = ExitStack()
        self._since: Union[float, None] = None
        self._stage = Stage.FACTS.value
        self._turn = threading.Lock()
        self._over = False

    @property
    def is_needed(self) -> bool:
        """Whether stages have to ask."""
        return self._lock is not None

    def take(self) -> None:
        """Lock the cards.

        Raises:
            InfrastructureError: another run has one of them, and did not release it in time.
        """
        if self._lock is not None:
            self._stack.enter_context(self._lock())
            self._since = time.monotonic()

    def on_event(self, event: dict[str, Any]) -> None:
        """Take a stage's event. Locks in another thread: the events of the run must not wait for a card."""
        stage = str(event.get("stage"))
        if self._lock is None or stage not in {known.value for known in Stage}:
            return
        if event.get("wanted"):
            threading.Thread(target=self._take_and_answer, args=(stage,), daemon=True).start()
        else:
            self.give_back()

    def give_back(self) -> None:
        """Release the cards, if they are locked."""
        with self._turn:
            if self._since is not None:
                seconds = time.monotonic() - self._since
                self.held[self._stage] = round(self.held.get(self._stage, 0.0) + seconds, 3)
                self._since = None
                self._stack.close()

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


def lock_of(engine: Engine, request: Request, environment: Environment, say: Say) -> Union[Lock, None]:
    """Return what locks this run's GPUs against other runs; None if the target or the engine uses none of this machine.

    Runs of this machine lock files. An engine that clients of other machines use as well keeps a lease beside it, which they see.
    """
    options = request.options
    if not ENGINES[engine.name].local_gpus or not (request.target.visible_devices or request.target.probe.require):
        return None
    here = partial(locks.gpus, request.target.kind, options.gpu, options.run_id, options.gpu_wait_s, say)
    leased = getattr(engine, "leased", None)
    return partial(_both, here, partial(leased, request, environment)) if leased else here


@contextmanager
def _both(first: Lock, second: Lock) -> Iterator[None]:
    with first(), second():
        yield
