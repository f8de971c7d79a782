"""Run jobs in Docker Engine, or in Podman through its socket. Images are built with the classic build API: it needs no client program, and
Podman supports it. So the Dockerfiles use no feature that only BuildKit has."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from warpwave.engines import waiting
from warpwave.engines.docker.client import BROKEN, Attached, client_at
from warpwave.engines.docker.container import (
    LABEL,
    PACKAGE,
    Host,
    check_readable,
    check_weakenings,
    container_name,
    container_options,
    container_user,
    inside,
    labels_of,
    layout,
    lent,
    name_in,
    observe,
    owner_is_dead,
    readable,
)
from warpwave.engines.docker.deadlines import Bounds
from warpwave.engines.docker.errors import no_engine, not_created, socket_of
from warpwave.engines.docker.images import PYTHON, Recipe, build, final_recipe, find, layer_recipe, proxies, read_packages, recipe, usable
from warpwave.engines.packages.environments import FAILED, LOG, install_failed
from warpwave.engines.packages.plan import is_wanted
from warpwave.engines.protocol import Layout, Request, Say
from warpwave.engines.remote.container import Claim, leased, release, sweep, time_in
from warpwave.engines.remote.container import labels_of as lease_labels
from warpwave.engines.results import NO_QUOTA, Quota, Watch, clear, put
from warpwave.engines.waiting import Reader
from warpwave.errors import InfrastructureError
from warpwave.records import Environment, Exit

if TYPE_CHECKING:
    from _typeshed import SupportsNext

    from warpwave.config.hosts import Host as HostEntry
    from warpwave.engines.docker.client import DockerClient


# Every error of the SDK's HTTP calls is an `OSError` (through `requests`), so this file does not import the SDK.
_POLL_S = 1.0
_RECONNECT_S = 15.0
_TERMINATE_S = 10.0
_WRITING_S = 10.0  # a short grace: the run may be filling the disk
_KILL_S = 15.0
_DRAIN_S = 5.0
_SLICE_S = 0.1


class _LostError(Exception):
    """The engine does not answer any more, or does not know the container any more."""


def watch(
    api: Any,
    container: str,
    output: SupportsNext[bytes],
    on_line: Say,
    limit_s: float,
    grace_s: float,
    quota: Quota = NO_QUOTA,
    poll_s: float = _POLL_S,
) -> Exit:
    """Watch a started container until it ends, exceeds a limit, or the user stops it. Then make sure that it is not running. `poll_s` is
    how often to ask for its state; the end of its output is noticed at once."""
    started = time.monotonic()
    reader = Reader(output, on_line)
    timed_out = interrupted = False
    state: dict[str, Any] | None = None
    error = ""
    try:
        try:
            with waiting.interruptible():
                reader.start()
                ends = _ends_before(api, container, reader.ended, started + limit_s, quota, poll_s)
            if not ends:
                timed_out = not quota.exceeded
                end(api, container, min(grace_s, _WRITING_S) if quota.exceeded else grace_s, quota=quota)
        except KeyboardInterrupt:
            interrupted = True
            end(api, container, grace_s, patient_with=1)
        state = _state(api, container)
    except _LostError as lost:
        error = str(lost)
    until = time.monotonic() + _DRAIN_S
    while time.monotonic() < until and waiting.asked() < 2 and not reader.ended.wait(_SLICE_S):
        pass  # the last lines of output are on their way
    seconds = round(time.monotonic() - started, 3)
    if state is not None and state["Running"]:
        state, error = None, "the container survives SIGKILL: a process in it hangs in the driver; drain or reboot this machine"
    if state is None:
        return Exit(None, seconds, timed_out=timed_out, interrupted=interrupted, error=error, exceeded=quota.exceeded)
    oom_killed, error = bool(state.get("OOMKilled")), str(state.get("Error") or "")
    return Exit(int(state["ExitCode"]), seconds, oom_killed, timed_out, interrupted, error, quota.exceeded)


def end(api: Any, container: str, grace_s: float, patient_with: int = 0, quota: Quota = NO_QUOTA) -> None:
    """Send SIGINT, then SIGTERM, then SIGKILL, with a wait after each. A GPU runtime that is killed at once can leak its memory. More than
    `patient_with` requests to stop skip the waits, and so do results over twice their limit."""
    for rung, patience in (("SIGINT", grace_s), ("SIGTERM", min(grace_s, _TERMINATE_S))):
        if patience > 0 and waiting.asked() <= patient_with and not quota.hopeless:
            with suppress(OSError):
                api.kill(container, signal=rung)
            if _is_over(api, container, patience, patient_with, quota):
                return
    with suppress(OSError):
        api.kill(container)
    _is_over(api, container, _KILL_S)


def leftovers(api: Any, kept: bool) -> list[tuple[str, str]]:
    """Return the id and name of each container whose run has certainly ended. Include kept containers only if `kept` is true."""
    found = []
    for entry in api.containers(all=True, filters={"label": f"{LABEL}.run"}):
        labels = entry.get("Labels") or {}
        if (kept or labels.get(f"{LABEL}.keep") != "true") and owner_is_dead(labels, LABEL, entry.get("State") == "running"):
            found.append((entry["Id"], name_in(entry)))
    return found


def _ends_before(api: Any, container: str, ended: threading.Event, deadline: float, quota: Quota, poll_s: float) -> bool:
    while (left := deadline - time.monotonic()) > 0 and not quota.exceeded:
        if ended.is_set():
            time.sleep(min(left, 0.1))  # the output ends a moment before the engine notices the end of the container
        ended.wait(min(left, poll_s))
        if not _state(api, container)["Running"]:
            return True
    return not _state(api, container)["Running"]


def _state(api: Any, container: str) -> dict[str, Any]:
    """Return the container's state. If the connection broke meanwhile, do not trust an exit code: restarted engines have invented a 0."""
    broken, until = "", time.monotonic() + _RECONNECT_S
    while True:
        try:
            state = _inspect(api, container)
        except OSError as error:
            if getattr(error, "status_code", None) == 404:
                raise _LostError("the container was removed while it ran, or the engine was restarted") from None
            broken = f"the connection to the engine broke while the container ran: {error}"
            if time.monotonic() > until:
                raise _LostError(broken) from None
            time.sleep(0.5)
        else:
            if broken and not state["Running"]:
                raise _LostError(f"{broken}; it is back, but how the container ended is not known")
            return state


def _inspect(api: Any, container: str) -> dict[str, Any]:
    try:
        state: dict[str, Any] = api.inspect_container(container)["State"]
        return {**state, "Running": bool(state["Running"]), "ExitCode": int(state.get("ExitCode") or 0)}
    except (ValueError, LookupError, TypeError, AttributeError) as error:  # the JSON error is both a ValueError and an OSError
        if isinstance(error, OSError):
            raise
        raise ConnectionError(f"its answer is not the state of a container: {type(error).__name__}") from None


def _is_over(api: Any, container: str, patience_s: float, patient_with: float = math.inf, quota: Quota = NO_QUOTA) -> bool:
    until = time.monotonic() + patience_s
    while True:
        try:
            if not _inspect(api, container)["Running"]:
                return True
        except OSError as error:
            if getattr(error, "status_code", None) == 404:
                return True
        if time.monotonic() >= until or waiting.asked() > patient_with or quota.hopeless:
            return False
        time.sleep(_SLICE_S)


# Build stages that hold wheels: large, and useless once the image is built.
_UNNAMED = {"dangling": True, "label": f"{LABEL}.stage=builder"}
_LONGEST_S = 3 * 3600.0  # for building an image, before the run's own limit is known


class DockerEngine:
    """The engine behind `DOCKER_HOST`, or the default socket."""

    name = "docker"

    def __init__(self, client: DockerClient) -> None:
        """Use a client that is connected to an engine."""
        self._client = client
        self._api: Any = client.api
        self._bounds = Bounds(client.api, _LONGEST_S)
        self._say: Say = lambda line: None

    def close(self) -> None:
        """Close the connections to the engine."""
        self._client.close()

    def prepare(self, request: Request, say: Say) -> Environment:
        """Find the target's image by its hash, or build it."""
        started = time.monotonic()
        self._say = lambda line: say(f"{request.target.name}: {line}")
        self._bounds.longest_s = request.options.limits.target_s
        check_weakenings(request.options.build.weaken)
        parts = recipe(request)
        with self._answering():
            self._host(request)  # fail now if the GPU is missing, and not after the download of many gigabytes
            self._sweep(request)
            image, built = self._image(request, parts, say)
            environment = Environment(
                engine=self.name, python=request.target.python, image=parts.tag, image_id=image, base_image=parts.base, built=built
            )
            if is_wanted(request.options):
                environment = self._with_packages(request, layer_recipe(request, parts), environment, say)
        return replace(environment, prepare_s=round(time.monotonic() - started, 3))

    def _image(self, request: Request, parts: Recipe, say: Say, on_line: Say | None = None) -> tuple[str, bool]:
        """Find the image of a recipe, or build it. Return its id, and whether it was built."""
        image = None if request.options.build.rebuild else usable(self._api, parts)
        if image is None:
            return str(build(self._api, request, parts, say, on_line, self._proxies())["Id"]), True
        say(f"{parts.target}: image {parts.tag} is there already")
        return str(image["Id"]), False

    def _with_packages(self, request: Request, parts: Recipe, below: Environment, say: Say) -> Environment:
        """Find the layer with the package's requirements, or build it. Its log is in the run's folder."""
        lines: list[str] = []
        try:
            image, built = self._image(request, parts, say, lines.append)
        except InfrastructureError as error:
            if not any(line.startswith(FAILED) for line in lines):
                raise
            raise install_failed(parts.target, "\n".join(lines), request.raw / LOG) from error
        finally:
            if lines:
                put(request.raw / LOG, "\n".join(lines) + "\n")
        found = read_packages(self._api, image, f"{container_name(request)}-packages", self._labels(request))
        built = below.built or built
        return replace(below, python=found.python, image=parts.tag, image_id=image, built=built, packages=found.versions, notes=found.notes)

    def image_id(self, request: Request) -> str | None:
        """Return the id of the target's image: empty if its base image was replaced, None if the engine does not have the image."""
        parts = final_recipe(request)
        with self._answering():
            if find(self._api, parts.tag) is None:
                return None
            image = usable(self._api, parts)
        return "" if image is None else str(image["Id"])

    def layout(self, request: Request) -> Layout:
        """Return the mount points, which are the same for every target."""
        return layout(request)

    def execute(self, request: Request, environment: Environment, on_line: Say, command: Sequence[str] = ()) -> tuple[Environment, Exit]:
        """Run the job in a new container, and remove the container afterwards. Tests of the isolation replace the `command`."""
        check_weakenings(request.options.build.weaken)
        with waiting.interruptible(), self._answering():
            self._sweep(request)
            host = self._host(request)
        body = container_options(request, environment, host, command)
        user = container_user(request, host)
        for folder in dict.fromkeys((request.options.package.folder, request.options.package.kernels, PACKAGE)):
            check_readable(folder, user, host)
        container: str | None = None
        output: Attached | None = None
        with waiting.held(), lent(request.raw, user, host):
            try:
                try:
                    with waiting.interruptible():
                        container = str(self._api.create_container_from_config(body, container_name(request))["Id"])
                        # Attach before the start: `docker logs --follow` can miss a last line that has no line end.
                        output = Attached(self._api.attach_socket(container))
                        self._api.start(container)
                except BROKEN as error:
                    raise not_created(error, request) from None
                except KeyboardInterrupt:  # the container may have started before the engine answered
                    self._remove(container or container_name(request))
                    clear(request.raw)
                    raise
                limits = request.options.limits
                with Watch(request.raw, limits.cap, layout(request).output) as quota:
                    ended = watch(self._api, container, output, on_line, limits.target_s, limits.grace_s, quota)
                clear(request.raw)  # before slower work, because a CI system may kill this process
            finally:
                if not request.options.build.keep:  # use the name if the call ended before the engine returned the id
                    self._remove(container or container_name(request))
                if output:
                    output.close()
        return replace(environment, options=readable(body, request.options.package.variables), weakened=request.options.build.weaken), ended

    @contextmanager
    def leased(self, request: Request, environment: Environment) -> Iterator[None]:
        """Hold the run's cards in this engine too, where clients of other machines look. The lock of this machine is held already. Raises
        InfrastructureError if a client of another machine has one of them, and did not release it in time."""
        options, image = request.options, str(environment.image_id or environment.image)
        chosen = tuple(options.where.gpu.split(",")) if options.where.gpu else ()
        cards = chosen if all(card.isdigit() for card in chosen) else ()  # a card that is named by its UUID may be any of them
        with ExitStack() as stack:
            with self._answering():
                labels = lease_labels(request, self._now())
                claim = Claim(request.target.kind, cards, container_name(request), image, labels, "this machine")
                stack.enter_context(leased(self._api, claim, options.limits.gpu_wait_s, self._say, self._now))
            yield

    def info(self) -> dict[str, Any]:
        """Return the engine's description of itself, as `docker info` shows it."""
        with self._answering():
            return dict(self._api.info())

    def clean(self, dry_run: bool) -> list[str]:
        """Remove what finished runs left behind: containers (also kept ones) and unnamed build stages. Return their names. With `dry_run`,
        only return the names."""
        with self._answering():
            containers, stages = leftovers(self._api, kept=True), list(self._api.images(quiet=True, filters=_UNNAMED))
            if not dry_run:
                for container, _ in containers:
                    self._remove(container)
                for stage in stages:
                    with suppress(*BROKEN):  # another image may be built on it
                        self._api.remove_image(stage)
            remote = sweep(self._api, self._now(), dry_run)
        found = [f"container {name}" for _, name in containers] + remote
        return found + [f"build stage {stage.rpartition(':')[2][:12]}" for stage in stages]

    def _sweep(self, request: Request) -> None:
        """Remove containers of killed runs, which may still hold a GPU, and the container of an earlier attempt at this run."""
        for leftover, name in leftovers(self._api, kept=False):
            self._remove(leftover)
            release(self._api, name)
        self._remove(container_name(request))

    def _now(self) -> float:
        return time_in(self._api.info())

    def _proxies(self) -> dict[str, str]:
        return proxies(os.environ)

    def _host(self, request: Request) -> Host:
        return observe(request, self._api.info(), podman=self._is_podman())

    def _labels(self, request: Request) -> dict[str, str]:
        return labels_of(request, self._host(request))

    def _is_podman(self) -> bool:
        return any("podman" in str(part.get("Name")).lower() for part in self._api.version().get("Components") or [])

    def _remove(self, container: str) -> None:
        # If this fails, the next run finds the container by its labels.
        with suppress(*BROKEN):
            self._api.remove_container(container, force=True, v=True)

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """Turn the SDK's exceptions into an error that a user can act on."""
        try:
            yield
        except BROKEN as error:
            raise no_engine(error) from error


def planned(request: Request) -> tuple[str, tuple[str, ...]]:
    """Return the image that a run would use, and the command in its container, without asking the engine."""
    return final_recipe(request).tag, inside(PYTHON if is_wanted(request.options) else request.target.python)


def connect(host: HostEntry | None = None) -> DockerEngine:
    """Connect to the engine of this machine that hosts.yml or DOCKER_HOST names, or to the default one. Raises InfrastructureError if the
    SDK is missing, or no usable engine answers."""
    return DockerEngine(client_at(socket_of(host)))
