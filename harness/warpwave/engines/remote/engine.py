"""The engine of another machine, reached with ssh: Docker, or Podman through its socket. A run there needs no client. A container ends
itself at its limits, and its results wait in a volume. So a connection that breaks loses nothing: the client connects again, or `--resume`
finds the container by its name."""

import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from warpwave.config.hosts import Host as HostEntry
from warpwave.engines import snapshot, waiting
from warpwave.engines.docker.client import BROKEN, client_at
from warpwave.engines.docker.container import (
    OPEN_FILES,
    Body,
    Host,
    Node,
    check_weakenings,
    container_name,
    container_user,
    is_rootless,
    layout,
    process_limit,
    readable,
)
from warpwave.engines.docker.engine import DockerEngine, watch
from warpwave.engines.docker.errors import not_created
from warpwave.engines.docker.images import PYTHON, final_recipe, proxies
from warpwave.engines.packages.plan import is_wanted
from warpwave.engines.protocol import Answer, Layout, Request, Say
from warpwave.engines.remote.connection import Followed, LostError, Reconnecting
from warpwave.engines.remote.container import (
    ARCHIVE,
    CODE,
    MADE,
    OUTPUT,
    UNTIL,
    Claim,
    bring_code,
    bring_results,
    collect,
    guard,
    labels_of,
    leased,
    make_volumes,
    options_of,
    release,
    results_volume,
    sweep,
)
from warpwave.engines.ssh.command import answer_of, look, not_forwarded, place_in, place_of
from warpwave.engines.ssh.tunnel import Tunnel, opened
from warpwave.errors import InfrastructureError, UnreachableError
from warpwave.options import GIB
from warpwave.records import OVERFULL, OVERTIME, Environment, Exit

_MOST_CARDS = 64
_COLLECT_S = 1800.0
_BUILDS = 3  # attempts at an image, if the connection breaks meanwhile
_ENV_S = 10.0
_POLL_S = 3.0  # the end of the output tells the end of a container sooner


class RemoteEngine(DockerEngine):
    """The engine of one other machine."""

    name = "ssh"

    def __init__(self, tunnel: Tunnel) -> None:
        """Use a tunnel that is open."""
        super().__init__(client_at(f"unix://{tunnel.path}"))
        self._tunnel, self._place = tunnel, tunnel.place
        self._reconnecting = Reconnecting(self._api, tunnel)

    def close(self) -> None:
        """Close the connections to the engine, and the tunnel."""
        super().close()
        self._tunnel.close()

    def prepare(self, request: Request, say: Say) -> Environment:
        """Find the target's image there by its hash, or build it there."""
        self._reconnecting.say = lambda line: say(f"{request.target.name}: {line}")
        for _ in range(_BUILDS):
            try:
                return super().prepare(request, say)
            except InfrastructureError as error:
                if not self._reconnecting.is_broken():
                    raise
                with self._answering():
                    self._reconnecting.reconnect(error)  # the engine has kept the steps that were finished
        return super().prepare(request, say)

    def layout(self, request: Request) -> Layout:
        """Return the paths in the container, which are the same for every target."""
        return layout(request, f"{CODE}/{snapshot.PACKAGE}", OUTPUT)

    def clean(self, dry_run: bool) -> list[str]:
        """Remove the containers and volumes whose time is over. Return their names."""
        with self._answering():
            return sweep(self._api, self._now(), dry_run)

    def execute(self, request: Request, environment: Environment, on_line: Say, command: Sequence[str] = ()) -> tuple[Environment, Exit]:
        """Run the job in a new container, or follow the container of an earlier client, and bring its results back."""
        check_weakenings(request.options.build.weaken)
        archive = snapshot.take_once(request.options)
        with waiting.interruptible(), self._answering():
            host, now = self._host(request), self._now()
            body = options_of(request, environment, host, archive, now, command)
            options = {**readable(body, request.options.package.variables), "archive": body["Labels"][ARCHIVE]}
            shown = replace(environment, options=options, weakened=request.options.build.weaken)
            found = self._find(request)
        with waiting.held():
            if found is not None and (ended := self._taken_up(request, found, on_line)) is not None:
                return shown, ended
            with self._created(request, body, host, archive) as container, self._cards(request, str(body["Image"])):
                try:
                    self._api.start(container)
                except BROKEN as error:
                    raise self._refused(error, request) from None
                ended = self._followed(request, container, on_line, request.options.limits.target_s)
        return shown, ended

    @contextmanager
    def _created(self, request: Request, body: Body, host: Host, archive: snapshot.Snapshot) -> Iterator[str]:
        """Make a container with its files, and yield its id. Then remove everything, unless the machine was lost meanwhile."""
        volume, image, labels = results_volume(request), str(body["Image"]), body["Labels"]
        try:
            try:
                with waiting.interruptible():
                    now = self._now()
                    make_volumes(self._api, archive, volume, labels, now)
                    container = str(self._api.create_container_from_config(body, container_name(request))["Id"])
                    self._say(f"bringing the package to {self._place.name}")
                    brought = bring_code(self._api, container, image, archive, now)
                    mib = archive.size / (1 << 20)
                    self._say(f"{mib:.1f} MiB brought" if brought else f"{self._place.name} has these {mib:.1f} MiB already")
                    bring_results(self._api, image, volume, request.raw, container_user(request, host), labels)
            except BROKEN as error:
                raise self._refused(error, request) from None
            yield container
        finally:
            if not self._tunnel.is_broken() and not request.options.build.keep:
                self._discard(request)

    def _taken_up(self, request: Request, found: dict[str, Any], on_line: Say) -> Exit | None:
        """Follow or collect the container of an earlier client. Return how it ended, or None if the rest is still to be run."""
        state, labels = found["State"], found["Config"].get("Labels") or {}
        name = self._place.name
        if str(state.get("Status")) in ("created", "configured"):
            self._discard(request)
            return None
        left = int(labels.get(UNTIL) or 0) - self._now()
        self._say(f"found the container on {name}: " + ("it still runs, following it" if state.get("Running") else "it has ended"))
        ended = self._followed(request, str(found["Id"]), on_line, max(1.0, left))
        if ended.code is None and ended.error:
            return ended
        self._discard(request)
        return ended if ended.code == 0 or ended.interrupted or ended.timed_out or ended.exceeded else None

    def _followed(self, request: Request, container: str, on_line: Say, limit_s: float) -> Exit:
        options, api = request.options, self._api

        def runs() -> bool:
            return bool(api.inspect_container(container)["State"]["Running"])

        output = Followed(lambda: api.logs(container, stdout=True, stderr=True, stream=True, follow=True), runs)
        try:
            ended = watch(api, container, output, on_line, limit_s, options.limits.grace_s, poll_s=_POLL_S)
        finally:
            output.close()
        if ended.code is None and self._tunnel.is_broken():
            return replace(ended, error=self._waits(ended.error, request))
        try:
            collect(api, container, request.raw, options.limits.cap, self._place.name, _COLLECT_S)
        except OSError as error:
            if self._tunnel.is_broken():
                return replace(ended, code=None, error=self._waits(f"the connection to {self._place.name} was lost", request))
            happened = f"The results on {self._place.name} could not be brought back: {' '.join(str(error).split())[:300]}."
            meaning = "The engine there fails, or the disk here is full."
            raise InfrastructureError(happened, meaning, "Fix that, then continue with --resume.") from None
        if ended.code == OVERFULL:  # these two codes are those of the guard
            return replace(ended, exceeded=f"it wrote too much to its results; the limit is {request.options.limits.cap}")
        return replace(ended, timed_out=True) if ended.code == OVERTIME else ended

    def _waits(self, why: str, request: Request) -> str:
        ends = time.strftime("%H:%M", time.gmtime(time.time() + request.options.limits.target_s))
        return f"{why}; the container goes on there until {ends} UTC at the latest, and --resume collects what it has"

    @contextmanager
    def _cards(self, request: Request, image: str) -> Iterator[None]:
        """Lease the cards of a run, if its target uses any. Raises InfrastructureError if the machine has other cards than the chosen ones,
        or another run does not release one in time."""
        target, chosen = request.target, request.options.where.gpu.split(",") if request.options.where.gpu else []
        if not (target.visible_devices or target.probe.require):
            yield
            return
        with waiting.interruptible(), self._answering():
            known = self._known_cards(request)
            if lacking := [card for card in chosen if known and card.isdigit() and card not in known]:
                happened = f"{self._place.name} has no GPU {', '.join(lacking)} of {target.kind}."
                meaning = f"It has {', '.join(known)}."
                raise InfrastructureError(happened, meaning, "Choose one of them with --gpu, or with `gpu` in hosts.yml.")
            # A card that is named in another way, such as by its UUID, may be any of them.
            cards = tuple(dict.fromkeys(chosen)) if chosen and all(card in known for card in chosen) else known
            labels = labels_of(request, self._now())
        claim = Claim(target.kind, cards, container_name(request), image, labels, self._place.name)
        with leased(self._api, claim, request.options.limits.gpu_wait_s, self._say, self._now):
            yield

    def _known_cards(self, request: Request) -> tuple[str, ...]:
        """Return the indices of a target's cards there, as the vendor's tool lists them; nothing if it does not."""
        for check in request.target.doctor.checks:
            if check.name != "cards" or not check.run or "index" not in re.compile(check.rows or "").groupindex:
                continue
            answer = answer_of(self._place, check.run, check.limit_s)
            found = {match["index"] for match in re.finditer(check.rows or "", answer.text, re.MULTILINE)}
            if not answer.trouble and 0 < len(found) <= _MOST_CARDS:
                return tuple(sorted(found, key=lambda index: (len(index), index)))
        return ()

    def _find(self, request: Request) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = self._api.inspect_container(container_name(request))
        except OSError as error:
            if getattr(error, "status_code", None) == 404:
                return None
            raise
        return found if (found["Config"].get("Labels") or {}).get(MADE) else None

    def _discard(self, request: Request) -> None:
        """Remove everything that belongs to a run. If that fails, a later client does it."""
        patience, self._reconnecting.patience_s = self._reconnecting.patience_s, 0.0
        try:
            name = container_name(request)
            release(self._api, name)
            labels: dict[str, str] = {}
            with suppress(OSError, LookupError):
                labels = self._api.inspect_container(name)["Config"]["Labels"]
            for leftover in (name, f"{results_volume(request)}-loader"):
                self._remove(leftover)
            for volume in (results_volume(request), f"warpwave-code-{labels.get(ARCHIVE, '')[:24]}"):
                with suppress(OSError):  # other runs may use the archive
                    self._api.remove_volume(volume)
        finally:
            self._reconnecting.patience_s = patience

    def _sweep(self, request: Request) -> None:
        """Remove what is left of runs whose time is over. An earlier container of this run stays: it may have results."""
        sweep(self._api, self._now(), dry_run=False)

    def _proxies(self) -> dict[str, str]:
        """Return the proxy settings of that machine: those of this one may not be reachable there, or hold a password."""
        lines = answer_of(self._place, ["env"], _ENV_S).text.splitlines()
        return proxies(dict(line.partition("=")[::2] for line in lines if line.isprintable()))

    def _host(self, request: Request) -> Host:
        info, podman, target, name = self._api.info(), self._is_podman(), request.target, self._place.name
        there = look(self._place, target.devices.nodes)
        if target.devices.nodes and not there.nodes:
            happened = f"{target.name}: there is no device node {' or '.join(target.devices.nodes)} on {name}."
            meaning = "It has no such GPU, or its kernel driver is not loaded."
            raise InfrastructureError(happened, meaning, target.probe.fix or "Load the driver of the GPU, or choose another machine.")
        limited = podman or there.uid == 0 or is_rootless(info)
        return Host(
            uid=0,  # the container's user is then `nobody`: no folder of the user there has to be written to
            gid=0,
            cpus=int(info.get("NCPU") or 1),
            memory_bytes=int(info.get("MemTotal") or 8 << 30),
            # An engine that may not raise limits has those of its user. The limits of a user in a group of an engine say nothing about it.
            open_files=min(OPEN_FILES, there.files) if limited and there.files >= 0 else OPEN_FILES,
            nodes=tuple(Node(path, group) for path, group in there.nodes),
            processes=process_limit(there.processes) if podman else None,
        )

    def _labels(self, request: Request) -> dict[str, str]:
        return labels_of(request, self._now())

    def _refused(self, error: Exception, request: Request) -> Exception:
        if isinstance(error, LostError):
            return UnreachableError(f"{error}.", "It is off, or the network between is.", "Continue with --resume when it answers again.")
        if "no space left on device" in str(getattr(error, "explanation", error)).lower():
            meaning = f"The package and its results need room there: up to {request.options.limits.cap.bytes / GIB:g} GiB."
            remedy = f"On {self._place.name}: `docker system df`, then `docker system prune`; then continue with --resume."
            return InfrastructureError(f"The disk of the engine on {self._place.name} is full.", meaning, remedy)
        return not_created(error, request)


def planned(request: Request) -> tuple[str, tuple[str, ...]]:
    """Return the image that a run would use, and the command in its container, without asking the machine."""
    return final_recipe(request).tag, guard(request, PYTHON if is_wanted(request.options) else request.target.python)


def connect(host: HostEntry | None = None) -> RemoteEngine:
    """Connect to the engine of the machine that hosts.yml names, or else DOCKER_HOST. Raises UnreachableError if the machine does not
    answer, and InfrastructureError if it has no engine that this user may use."""
    place = place_of(host) if host and host.ssh else place_in(os.environ.get("DOCKER_HOST", ""))
    tunnel = opened(place, look(place))
    try:
        return RemoteEngine(tunnel)
    except InfrastructureError as error:
        said = tunnel.said()
        tunnel.close()
        raise not_forwarded(place, said) if "open failed" in said or "refused" in said else error from None


def ask(host: HostEntry, argv: Sequence[str], limit_s: float) -> Answer:
    """Run a command on the machine itself, such as a vendor's question for `doctor`. Its exit code is no error. Raises UnreachableError if
    the machine does not answer."""
    return answer_of(place_of(host), argv, limit_s)
