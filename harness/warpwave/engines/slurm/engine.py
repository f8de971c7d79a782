"""The Slurm engine: runs each leg as a job of a Slurm cluster, submitted on this machine or on a login node over ssh. A job needs no
client: it ends by its own time limit, its files stay until someone collects them, and a later client finds it by its name."""

import math
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import PurePosixPath

from warpwave.config.hosts import Host
from warpwave.engines import waiting
from warpwave.engines.packages.environments import has_packages
from warpwave.engines.protocol import Answer, Layout, Request, Say
from warpwave.engines.results import clear, tidy
from warpwave.engines.slurm.queue import HOPELESS, PIECE, Entry, Seen, Status, ask_accounting, ending, look, look_at_node, not_begun
from warpwave.engines.slurm.script import Scratch, exported, layout_of, leg_file, protections, runtime_of, start_command
from warpwave.engines.slurm.site import Site, SiteLostError
from warpwave.engines.slurm.submit import (
    Folders,
    alone,
    broadcast,
    clean,
    fetch,
    folders_of,
    hopeless,
    is_silent,
    job_name,
    not_submitted,
    release,
    resources,
    send_archive,
    send_leg,
    send_tree,
    submit,
)
from warpwave.engines.snapshot import take_once
from warpwave.engines.ssh.command import place_of, ssh
from warpwave.engines.waiting import split_lines
from warpwave.errors import ConfigError, InfrastructureError, UnreachableError, UsageError, WarpwaveError
from warpwave.options import RunOptions
from warpwave.records import Environment, Exit

# Slurm's controller serves a whole site, so we ask it rarely. While a job runs, we look at the files that it writes.

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
    """One job. `ended`, `status` and `entry` are known at the end of `follow`."""

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
        self._begun = time.monotonic()
        self._running = False
        self._heard = False
        self._words: deque[str] = deque(maxlen=_WORDS)

    def follow(self, on_line: Say) -> None:
        """Pass on each line of the job's output, until it has ended."""
        for line in split_lines(self._pieces()):
            self._heard = self._heard or line.startswith('{"event"')
            self._words.append(line)
            on_line(line)

    @property
    def ended(self) -> Exit:
        """How the job ended."""
        seconds = round(time.monotonic() - self._begun, 3)
        ended = ending(self.job, self.status, self.entry, self.interrupted, seconds, self.options.limits.cap)
        return ended if self._heard else not_begun(ended, self.job, self.status, self.host.container, self._words)

    def _pieces(self) -> Iterator[bytes]:
        """Look again and again, and yield what is new. Raises InfrastructureError if the site does not answer any more, and UsageError if
        Slurm will never start the job. The job goes on. It was cancelled."""
        pause = _FIRST_S
        while True:
            seen = self._look(ask=not self._running or time.monotonic() - self._asked_at >= _ASK_S, read=True)
            if seen.output:
                yield seen.output
            if seen.status.code is not None or seen.is_over:
                break
            if seen.status.waiting and not self._sent:
                self._sent = True
                try:
                    broadcast(self.site, self.folders, self.job)
                except InfrastructureError:
                    self._cancel()
                    raise
            if seen.status.started and not self._running:
                self._running, self._begun, pause = True, time.monotonic(), _FIRST_S
                self.say(f"{self.host.name}: Slurm job {self.job} runs on {seen.status.node or 'its node'}")
            self._show(seen.entry)
            if seen.entry is not None and seen.entry.waits and seen.entry.reason in HOPELESS:
                self._cancel()
                raise hopeless(self.host, self.job, seen.entry)
            try:
                with waiting.interruptible():
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

    def _look(self, ask: bool, read: bool = False) -> Seen:
        """Look once, and `ask` Slurm or `read` new output too. If the site is out of reach, wait for it."""
        until, announced = time.monotonic() + _LOST_S, False
        while True:
            try:
                at = look_at_node if self.folders.node else look
                seen = at(self.site, self.folders.work, self.job, ask, self._offset if read else None)
                break
            except SiteLostError as error:
                if waiting.asked() or time.monotonic() >= until:
                    raise
                if not announced:
                    self.say(f"{self.host.name}: {error.happened} The job goes on; trying again.")
                    announced = True
                with waiting.interruptible():
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
            if seen.is_over and (seen.status.code is not None or not seen.status.started):
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

    def _ask_to_stop(self) -> None:
        """Give the job time to write its results. A second request to stop skips the wait."""
        if self._look(ask=False).status.started:  # it may have begun since we looked
            self.site.run(["scancel", "--batch", "--signal=TERM", self.job])
            until = time.monotonic() + self.options.limits.grace_s
            while time.monotonic() < until and waiting.asked() <= 1 and self._look(ask=False).status.code is None:
                time.sleep(_FIRST_S)

    def _cancel(self) -> None:
        self.site.run(["scancel", self.job])
        until = time.monotonic() + _CANCEL_S
        while time.monotonic() < until and not self._look(ask=True).is_over:
            time.sleep(_FIRST_S)


_QUEUE_S = 10.0
_MOST_ANSWER = 1 << 18  # characters
_GREET_S = 13.0  # a machine that does not answer is reported within 15 s
_GREET = 'command -v sbatch >/dev/null || exit 127; printf "%s\\n" "$HOME"'
# A leg's folder from a client that was killed: the id of its job, or that it has none.
_FIND = r"""
[ -d "$1" ] || exit 0
if [ -s "$1/id" ]; then head -n 1 -- "$1/id"; else squeue -h -n "$2" -o %i 2>/dev/null | head -n 1; fi
exit 0
"""


class SlurmEngine:
    """Runs jobs on the cluster of one leg. `root` is the folder for files where the nodes see them; empty: the run's results folder."""

    name = "slurm"

    def __init__(self, host: Host, site: Site, root: str) -> None:
        self._host, self.site, self._root = host, site, root
        self._say: Say = lambda line: None

    def prepare(self, request: Request, say: Say) -> Environment:
        """Check what the leg asks for, and pack what it runs."""
        self._say = say
        host, options = self._host, request.options
        if has_packages(request):
            happened = f"{host.name}: warpwave installs no packages and no toolchain on a Slurm site."
            meaning = "--requirements, --install and --toolchain build an image or an environment, which a site does its own way."
            raise UsageError(happened, meaning, "Install them in the site's Python or image, and leave the option out.")
        if options.where.gpu:
            happened = f"{host.name}: a card was chosen ({options.where.gpu}), and Slurm assigns the cards there."
            meaning = "A job sees the cards that it was given, and no other."
            raise UsageError(happened, meaning, "Ask for a number of cards with `slurm.gpus` in hosts.yml.")
        weakened = protections(host, options.build.weaken)
        say(f"{host.name}: protections given up with `container: {host.container}`: {', '.join(weakened)}")
        take_once(options)
        python = options.where.python or request.target.python
        return Environment(engine=self.name, python=python, image=host.image or None, weakened=weakened)

    def image_id(self, request: Request) -> str | None:
        """Return None: a site's image has a path and no id that we could know here."""
        return None

    def layout(self, request: Request) -> Layout:
        """Return the paths on the node, in its container if it has one."""
        options = request.options
        kernels = options.package.kernels.resolve().relative_to(options.package.folder.resolve()).as_posix()
        return layout_of(self._host, self._folders(request).places, options.package.folder.resolve().name, kernels)

    def execute(self, request: Request, environment: Environment, on_line: Say) -> tuple[Environment, Exit]:
        """Submit the job, or find that of a client that was killed; follow it to its end; bring back its results."""
        with waiting.held():
            follower = self._followed(request, on_line) or self._fresh(request, environment, on_line)
        digest = take_once(request.options).digest
        shown = {"job": follower.job, "node": follower.status.node, "cards": follower.status.cards, "snapshot": digest}
        return replace(environment, options={"slurm": shown}), follower.ended

    def _followed(self, request: Request, on_line: Say) -> Follower | None:
        """Follow the job that an earlier client submitted for this leg; None if there is none, or it left work to do."""
        folders = self._folders(request)
        name = job_name(request.options, folders.leg)
        job = self.site.script(_FIND, folders.path, name).text.strip()
        if not re.fullmatch(r"\d+", job):
            return None
        self._say(f"{self._host.name}: found Slurm job {job} of an earlier client")
        follower = self._follow(request, job, on_line)
        return follower if follower.ended.code == 0 or follower.interrupted else None

    def _fresh(self, request: Request, environment: Environment, on_line: Say) -> Follower:
        folders = self._folders(request)
        try:
            with alone(request.options.where.folder):
                self._send(request, environment, folders)
            with waiting.interruptible():
                pass  # the last moment at which Ctrl-C leaves no job behind
            name = job_name(request.options, folders.leg)
            job = submit(self.site, self._host, request.options, folders.path, folders.node or folders.path, name)
        except (WarpwaveError, KeyboardInterrupt):
            clean(self.site, folders)
            raise
        self._say(f"{self._host.name}: submitted Slurm job {job}")
        return self._follow(request, job, on_line)

    def _send(self, request: Request, environment: Environment, folders: Folders) -> None:
        host, target, options, places = self._host, request.target, request.options, folders.places
        runtime = runtime_of(host)
        job = leg_file(
            start_command(host, target, places, environment.python, options),
            exported(host, target, places, options.package.variables),
            forward="" if runtime.renames else runtime.prefix,
            modules=host.module,
            cards=target.visible_devices or "",
            relays=runtime.relays,
        )
        send_leg(self.site, folders, request.raw, job)
        (send_archive if folders.node else send_tree)(self.site, folders, take_once(options))

    def _follow(self, request: Request, job: str, on_line: Say) -> Follower:
        """Follow a job to its end, and bring back its results. If the site is lost on the way, everything stays for a later client."""
        folders = self._folders(request)

        def bring() -> None:
            clear(request.raw)
            if follower.status.started:
                self._fetch(request, folders, follower)
            tidy(request.raw)

        follower = Follower(self.site, self._host, request.options, folders, job, self._say, bring)
        try:
            follower.follow(on_line)
        except UsageError:  # the job never began
            clean(self.site, folders)
            raise
        with alone(request.options.where.folder):
            clean(self.site, folders)
        return follower

    def _fetch(self, request: Request, folders: Folders, follower: Follower) -> None:
        if not folders.node:
            fetch(self.site, folders, request.raw, request.options.limits.cap)
            return
        try:
            fetch(self.site.node_of(follower.job), folders, request.raw, request.options.limits.cap)
            release(self.site, folders, follower.job)
        except InfrastructureError:
            if follower.status.code is not None:
                raise
            self._say(f"{self._host.name}: the results on {follower.status.node} are lost with the job")

    def _folders(self, request: Request) -> Folders:
        return folders_of(request.options, request.target.name, self._root, take_once(request.options).name)


def planned(request: Request) -> tuple[str, tuple[str, ...]]:
    """Return the image that a job would use, and what it starts on its node, without asking the site. The archive has no name yet."""
    host, options = request.options.where.host, request.options
    assert host is not None  # the engine needs one
    assert host.slurm is not None
    root = host.slurm.folder.rstrip("/") or ("~/.warpwave" if host.ssh else "")
    places = folders_of(options, request.target.name, root, "ARCHIVE").places
    words = start_command(host, request.target, places, options.where.python or request.target.python, options)
    return host.image, tuple(f"{word.before}SCRATCH{word.after}" if isinstance(word, Scratch) else word for word in words)


def ask(host: Host, argv: Sequence[str], limit_s: float) -> Answer:
    """Run one command on a node with the leg's card, in a job of its own, and return what it prints. Raises InfrastructureError if no card
    becomes free in time, or the site refuses the job, and UnreachableError if the login node does not answer."""
    engine, started = connect(host), time.monotonic()
    assert host.slurm is not None  # `connect` has looked
    words = ["srun", "--quiet", f"--immediate={math.ceil(limit_s)}", "--time=2", "--ntasks=1", "--job-name=warpwave-doctor"]
    try:
        done = engine.site.run([*words, *resources(host.slurm), *host.slurm.options, *argv], limit_s=limit_s + _QUEUE_S)
    except SiteLostError as error:
        raise UnreachableError(error.happened, error.meaning, error.remedy) from None
    if re.search(r"srun: error: (Unable to|Invalid|Job|Requested)|srun: fatal|unrecognized option", done.said) and not done.out:
        refused = not_submitted(host, done.said, done.code)
        raise InfrastructureError(refused.happened, refused.meaning, refused.remedy)
    return Answer(done.text[:_MOST_ANSWER], seconds=round(time.monotonic() - started, 3))


def connect(host: Host | None = None) -> SlurmEngine:
    """Find Slurm's commands on this machine, or on the login node that the leg names. Raises InfrastructureError if they are missing, or
    the login node cannot be reached, and ConfigError if the leg does not say how to run."""
    if host is None or host.slurm is None:
        raise ConfigError("The engine slurm has no host.", "The partition and the container are in hosts.yml.", "Name a leg of hosts.yml.")
    runtime_of(host)
    site = Site(tuple(ssh(place_of(host), command=())), host.ssh) if host.ssh else Site()
    try:
        done = site.script(_GREET, limit_s=_GREET_S)
    except SiteLostError as error:  # nothing has been submitted yet
        raise UnreachableError(error.happened, error.meaning, error.remedy) from None
    if done.code != 0:
        raise site.unreachable("there is no sbatch" if done.code == 127 else done.said or f"exit code {done.code}")
    folder = host.slurm.folder
    if not host.ssh or folder:
        return SlurmEngine(host, site, folder.rstrip("/"))
    home = PurePosixPath(done.text.rpartition("\n")[0].rpartition("\n")[2])
    if not home.is_absolute() or not str(home).isprintable():
        raise InfrastructureError(
            f"{host.ssh} did not say where the home folder is.",
            "The login shell there prints something else, or fails.",
            f"Set {host.name}.slurm.folder in hosts.yml to a folder there that the nodes see.",
        )
    return SlurmEngine(host, site, f"{home}/.warpwave")
