"""A run's lease of its cards: locked when a stage asks for them, released when it has done with them, and added up.

A run that cannot get them ends before anything starts. Later each stage asks just before it uses one (`inside/process/lease.py`). If
several cards share a stage, each is released when it has no more work there.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Union

from harness.collect.untrusted_files import RejectedError, opened
from harness.engines.protocol import Engine, Request, Say
from harness.errors import InfrastructureError
from harness.records import LEASE_FILE, Environment, Stage
from harness.records.registry.engines import ENGINES
from harness.run import locks

_MOST_FACTS, _MOST_CARDS = 1 << 20, 64
# Locks the cards of this run for as long as the context is open.
Lock = Callable[[], AbstractContextManager[Union[locks.Held, None]]]


class Lease:
    """The cards of one attempt. `held` are the seconds for which each stage had them, added up over the cards that share it."""

    def __init__(self, lock: Union[Lock, None], raw: Path) -> None:
        """Without a `lock` no card of this machine is used, and nothing is held or counted."""
        self.held: dict[str, float] = {}
        self._lock, self._raw = lock, raw
        self._stack = ExitStack()
        self._since: Union[float, None] = None
        self._cards: Union[locks.Held, None] = None
        self._gone: set[int] = set()
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
    """Return what locks this run's GPUs against other runs; None if the target or the engine uses none of this machine.

    Runs of this machine lock files. An engine that clients of other machines use as well keeps a lease beside it, which they see. A run
    that shares all visible GPUs locks each of them by its number once the facts stage has counted them, so that each can be released.
    """
    options = request.options
    if not ENGINES[engine.name].local_gpus or not (request.target.visible_devices or request.target.probe.require):
        return None
    leased = getattr(engine, "leased", None)

    @contextmanager
    def lock() -> Iterator[locks.Held]:
        chosen = options.gpu or (_numbers(raw) if options.share and not os.environ.get(request.target.visible_devices or "") else None)
        here = locks.gpus(request.target.kind, chosen, options.run_id, options.gpu_wait_s, say)
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
