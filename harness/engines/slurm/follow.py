"""Follow a job from the queue to its end: show its state, pass on its output, and stop it if the user wants to.

Slurm's controller serves a whole site, so we ask it rarely. While a job runs, we look at the files that it writes.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime

from harness.config.hosts import Host
from harness.engines import signals
from harness.engines.output import split_lines
from harness.engines.protocol import Say
from harness.engines.slurm.endings import ending, not_begun
from harness.engines.slurm.errors import hopeless, is_silent
from harness.engines.slurm.files import Folders, broadcast
from harness.engines.slurm.queue import HOPELESS, PIECE, Entry, Seen, Status, ask_accounting, look, look_at_node
from harness.engines.slurm.site import Site, SiteLostError
from harness.errors import InfrastructureError
from harness.options import RunOptions
from harness.records import Exit

_WORDS = 6  # lines, of a job that fails before the inside says anything
_FIRST_S = 0.2
_SLOWER = 1.4
_LONGEST_S = 15.0  # between two looks while a job waits
_LOOK_S = 1.0  # while it runs, on this machine
_REMOTE_LOOK_S = 4.0  # the same over ssh
_ASK_S = 15.0  # how often Slurm is asked about a job that runs
_LOST_S = 900.0  # how long a login node may be out of reach
_LATE_S = 10.0  # how long a status file may take to reach this machine after the job has ended
_CANCEL_S = 20.0
_REPEAT_S = 60.0  # how often a changed estimate is shown


class Follower:
    """One job. `ended`, `status` and `entry` are known at the end of `lines`."""

    def __init__(
        self, site: Site, host: Host, options: RunOptions, folders: Folders, job: str, say: Say, bring: Callable[[], None]
    ) -> None:
        """`bring` is called once, as soon as there are results and before the job is cancelled: it brings them here."""
        self.site, self.host, self.options, self.folders, self.job, self.say = site, host, options, folders, job, say
        self._bring = bring
        self._sent = False
        self.status, self.interrupted = Status(), False
        self.entry: Entry | None = None
        self._offset = 0
        self._asked_at = -_ASK_S
        self._shown = ("", 0.0)
        self._started = self._begun = time.monotonic()
        self._running = False
        self._heard = False
        self._words: deque[str] = deque(maxlen=_WORDS)

    def lines(self) -> Iterator[str]:
        """Yield each line of the job's output, until it has ended."""
        for line in split_lines(self._pieces()):
            self._heard = self._heard or line.startswith('{"event"')
            self._words.append(line)
            yield line

    @property
    def ended(self) -> Exit:
        """How the job ended."""
        seconds = round(time.monotonic() - self._begun, 3)
        ended = ending(self.job, self.status, self.entry, self.interrupted, seconds, self.options.cap)
        return ended if self._heard else not_begun(ended, self.job, self.status, self.host.container, self._words)

    def _pieces(self) -> Iterator[bytes]:
        """Look again and again, and yield what is new.

        Raises:
            InfrastructureError: the site does not answer any more. The job goes on.
            UsageError: Slurm will never start the job. It was cancelled.
        """
        pause = _FIRST_S
        while True:
            seen = self._look(ask=not self._running or time.monotonic() - self._asked_at >= _ASK_S, read=True)
            if seen.output:
                yield seen.output
            if seen.status.code is not None or seen.gone or (seen.entry is not None and not seen.entry.lives):
                break
            if seen.status.waiting and not self._sent:
                self._send()
            if seen.status.started and not self._running:
                self._running, self._begun, pause = True, time.monotonic(), _FIRST_S
                self.say(f"{self.host.name}: Slurm job {self.job} runs on {seen.status.node or 'its node'}")
            self._show(seen.entry)
            self._refuse_hopeless(seen)
            try:
                with signals.interruptible():
                    time.sleep(pause if len(seen.output) < PIECE else 0.0)
            except KeyboardInterrupt:
                self.interrupted = True
                self._ask_to_stop()
                break
            longest = _LONGEST_S if not self._running else _REMOTE_LOOK_S if self.site.ssh else _LOOK_S
            pause = min(pause * _SLOWER, longest)
        # If the job's own script has ended, its files are complete. Files on a node are gone with the job.
        last = self._cancel if self.interrupted else self._hear_last_word
        complete = self.status.code is not None or bool(self.folders.node)
        if not complete:
            last()
        while output := self._look(ask=False, read=True).output:
            yield output
        self._bring()
        if complete:
            last()

    def _send(self) -> None:
        self._sent = True
        try:
            broadcast(self.site, self.folders, self.job)
        except InfrastructureError:
            self._cancel()
            raise

    def _look(self, ask: bool, read: bool = False) -> Seen:
        """Look once, and `ask` Slurm or `read` new output too. If the site is out of reach, wait for it."""
        until, announced = time.monotonic() + _LOST_S, False
        while True:
            try:
                at = look_at_node if self.folders.node else look
                seen = at(self.site, self.folders.work, self.job, ask, self._offset if read else None)
                break
            except SiteLostError as error:
                if signals.asked() or time.monotonic() >= until:
                    raise
                if not announced:
                    self.say(f"{self.host.name}: {error.happened} The job goes on; trying again.")
                    announced = True
                with signals.interruptible():
                    time.sleep(_LONGEST_S)
        if ask:
            self._asked_at = time.monotonic()
        if seen.trouble and is_silent(seen.trouble) and self._shown[0] != "silent":
            self._shown = ("silent", time.monotonic())
            self.say(f"{self.host.name}: Slurm's controller does not answer; trying again")
        self._offset += len(seen.output)
        # On a node, the status can be read only while the job runs.
        self.status = seen.status if seen.status.started or not self.status.started else self.status
        self.entry = seen.entry or self.entry
        return replace(seen, status=self.status)

    def _hear_last_word(self) -> None:
        """Wait until Slurm knows the job's final state. Do not wait if the job ended well, or if Slurm has forgotten it."""
        if self.status.code == 0 and not self.status.signal:
            return
        until = time.monotonic() + _LATE_S
        while time.monotonic() < until:
            seen = self._look(ask=True)
            is_done = seen.gone or (seen.entry is not None and not seen.entry.lives)
            if is_done and (seen.status.code is not None or not seen.status.started):
                break
            time.sleep(_FIRST_S)
        if seen.gone:
            self.entry = ask_accounting(self.site, self.job) or (None if self.entry and self.entry.lives else self.entry)

    def _show(self, entry: Entry | None) -> None:
        """Show a changed state, and a changed estimate from time to time."""
        if entry is None or self._running:
            return
        words, (shown, at) = entry.words(datetime.now()), self._shown
        same = words.partition(", estimated")[0] == shown.partition(", estimated")[0]
        if words != shown and (not same or ", estimated" not in shown or time.monotonic() - at >= _REPEAT_S):
            self._shown = (words, time.monotonic())
            self.say(f"{self.host.name}: Slurm job {self.job} {words}")

    def _refuse_hopeless(self, seen: Seen) -> None:
        if seen.entry is not None and seen.entry.waits and seen.entry.reason in HOPELESS:
            self._cancel()
            raise hopeless(self.host, self.job, seen.entry)

    def _ask_to_stop(self) -> None:
        """Give the job time to write its results. A second request to stop skips the wait."""
        if self._look(ask=False).status.started:  # it may have begun since we looked
            self.site.run(["scancel", "--batch", "--signal=TERM", self.job])
            until = time.monotonic() + self.options.grace_s
            while time.monotonic() < until and signals.asked() <= 1 and self._look(ask=False).status.code is None:
                time.sleep(_FIRST_S)

    def _cancel(self) -> None:
        """Cancel the job, and wait until its processes have ended."""
        self.site.run(["scancel", self.job])
        until = time.monotonic() + _CANCEL_S
        while time.monotonic() < until:
            seen = self._look(ask=True)
            if seen.gone or (seen.entry is not None and not seen.entry.lives):
                return
            time.sleep(_FIRST_S)
