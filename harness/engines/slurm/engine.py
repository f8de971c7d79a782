"""The Slurm engine: runs each leg as a job of a Slurm cluster, submitted on this machine or on a login node over ssh.

A job needs no client: it ends by its own time limit, its files stay until someone collects them, and a later client finds it by its name.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from harness.config.hosts import Host
from harness.engines import signals
from harness.engines.packages.toolchain import has_packages
from harness.engines.protocol import Answer, Layout, Request, Say
from harness.engines.results_folder import clear, tidy
from harness.engines.slurm.errors import not_submitted
from harness.engines.slurm.files import Folders, alone, clean, fetch, folders_of, release, send_archive, send_leg, send_tree
from harness.engines.slurm.follow import Follower
from harness.engines.slurm.runtimes import layout_of, protections, runtime_of, start_command, variables_of
from harness.engines.slurm.script import leg_file
from harness.engines.slurm.site import Site, SiteLostError
from harness.engines.slurm.submit import job_name, resources, submit
from harness.engines.snapshot import Snapshot, take_once
from harness.engines.ssh.command import place_of, ssh
from harness.errors import ConfigError, InfrastructureError, UnreachableError, UsageError, WarpwaveError
from harness.records import Environment, Exit

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
        self._snapshot: Snapshot | None = None
        self._say: Say = lambda line: None

    def prepare(self, request: Request, say: Say) -> Environment:
        """Check what the leg asks for, and pack what it runs."""
        self._say = say
        host, options = self._host, request.options
        if has_packages(request):
            raise UsageError(
                f"{host.name}: warpwave installs no packages and no toolchain on a Slurm site.",
                "--requirements, --install and --toolchain build an image or an environment, which a site does its own way.",
                "Install them in the site's Python or image, and leave the option out.",
            )
        if options.gpu:
            raise UsageError(
                f"{host.name}: a card was chosen ({options.gpu}), and Slurm assigns the cards there.",
                "A job sees the cards that it was given, and no other.",
                "Ask for a number of cards with `slurm.gpus` in hosts.yml.",
            )
        weakened = protections(host, options.weaken)
        say(f"{host.name}: protections given up with `container: {host.container}`: {', '.join(weakened)}")
        self._snapshot = take_once(options)
        return Environment(engine=self.name, python=self._python(request), image=host.image or None, weakened=weakened)

    def image_id(self, request: Request) -> str | None:
        """Return None: a site's image has a path and no id that we could know here."""
        return None

    def layout(self, request: Request) -> Layout:
        """Return the paths on the node, in its container if it has one."""
        options = request.options
        kernels = options.kernels.resolve().relative_to(options.package.resolve()).as_posix()
        return layout_of(self._host, self._folders(request).places, options.package.resolve().name, kernels)

    def execute(self, request: Request, environment: Environment, on_line: Say) -> tuple[Environment, Exit]:
        """Submit the job, or find that of a client that was killed; follow it to its end; bring back its results."""
        with signals.held():
            follower = self._followed(request, on_line) or self._fresh(request, environment, on_line)
        shown = {"job": follower.job, "node": follower.status.node, "cards": follower.status.cards, "snapshot": self._taken.digest}
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
            with alone(request.options.folder):
                self._send(request, environment, folders)
            with signals.interruptible():
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
        start = start_command(host, target, places, environment.python, options)
        variables, cards = variables_of(host, target, places, options.variables), target.visible_devices or ""
        runtime = runtime_of(host)
        job = leg_file(start, variables, prefix=runtime.prefix, modules=host.module, cards=cards, relays=runtime.relays)
        send_leg(self.site, folders, request.raw, job)
        (send_archive if folders.node else send_tree)(self.site, folders, self._taken)

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
            for line in follower.lines():
                on_line(line)
        except UsageError:  # the job never began
            clean(self.site, folders)
            raise
        with alone(request.options.folder):
            clean(self.site, folders)
        return follower

    def _fetch(self, request: Request, folders: Folders, follower: Follower) -> None:
        if not folders.node:
            fetch(self.site, folders, request.raw, request.options.cap)
            return
        try:
            fetch(self.site.node_of(follower.job), folders, request.raw, request.options.cap)
            release(self.site, folders, follower.job)
        except InfrastructureError:
            if follower.status.code is not None:
                raise
            self._say(f"{self._host.name}: the results on {follower.status.node} are lost with the job")

    def _folders(self, request: Request) -> Folders:
        return folders_of(request.options, request.target.name, self._root, self._taken.name)

    def _python(self, request: Request) -> str:
        return request.options.python or request.target.python

    @property
    def _taken(self) -> Snapshot:
        assert self._snapshot is not None  # `prepare` comes first
        return self._snapshot


def ask(host: Host, argv: Sequence[str], limit_s: float) -> Answer:
    """Run one command on a node with the leg's card, in a job of its own, and return what it prints.

    Raises:
        InfrastructureError: no card becomes free in time, or the site refuses the job.
        UnreachableError: the login node does not answer.
    """
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
    """Find Slurm's commands on this machine, or on the login node that the leg names.

    Raises:
        InfrastructureError: they are missing, or the login node cannot be reached.
        ConfigError: the leg does not say how to run.
    """
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
