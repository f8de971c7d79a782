"""Docker Engine, and what speaks its API (Podman's socket): the only file that imports the docker SDK.

Images are built through the classic build API, which needs no client program and which Podman answers too; the Dockerfiles therefore use
nothing that only BuildKit has.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from harness.engines import signals
from harness.engines.docker.build_context import recipe
from harness.engines.docker.container import PACKAGE, container_name, container_options, container_user, layout, readable
from harness.engines.docker.deadlines import Bounds, within
from harness.engines.docker.errors import no_engine, not_created, sdk_missing
from harness.engines.docker.host import Host, check_readable, lent, observe
from harness.engines.docker.images import build, find, unnamed_stages, usable
from harness.engines.docker.lifecycle import leftovers, watch
from harness.engines.docker.relaxations import check_weakenings
from harness.engines.results_folder import clear
from harness.engines.results_limit import Watch
from harness.engines.seam import Layout, Request, Say
from harness.records import Environment, Exit

try:
    import docker
    from docker.errors import DockerException
    from docker.utils.socket import frames_iter
except ImportError:  # from a checkout the folder `docker/` is found instead, and has no `errors`
    docker = None  # type: ignore[assignment]

_DEFAULT = "unix:///var/run/docker.sock"
_CONNECT_S = 10  # for one read, and three times as much for all of it
_CALL_S = 60  # for a whole call
_LONGEST_S = 3 * 3600.0  # for building an image, where the run has no limit of its own yet
# What the SDK raises; and what becomes of an answer that is no JSON, or not of the kind that was asked for.
_BROKEN = (OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError)
_OLDEST_API = (1, 40)  # Docker 19.03: device requests


class _Attached:
    """What a container prints; standard output and standard error in the order in which they come."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._frames: Iterator[tuple[int, bytes]] = frames_iter(stream, tty=False)  # type: ignore[no-untyped-call]

    def __next__(self) -> bytes:
        return next(self._frames)[1]

    def close(self) -> None:
        """Close the connection too, which the SDK hangs on the socket and leaves to the garbage collector."""
        # In this order only: the response closes the socket it reads from, and fails on one that is closed already.
        with suppress(OSError, ValueError):
            getattr(self._stream, "_response", self._stream).close()


class DockerEngine:
    """The engine behind `DOCKER_HOST`, or the default socket."""

    name = "docker"

    def __init__(self, client: docker.DockerClient) -> None:
        """Take over a client that has already heard from the engine."""
        self._client = client
        self._api: Any = client.api
        self._bounds = Bounds(client.api, _LONGEST_S)

    def close(self) -> None:
        """Close the connections to the engine."""
        self._client.close()

    def prepare(self, request: Request, say: Say) -> Environment:
        """The image of the target: found by its hash, or built."""
        started = time.monotonic()
        self._bounds.longest_s = request.options.limit_s
        check_weakenings(request.options.weaken)
        parts = recipe(request)
        with self._answering():
            self._host(request)  # whether the GPU is here at all is known now, and not after an image of many gigabytes
            self._sweep(request)
            image = None if request.options.build.rebuild else usable(self._api, parts)
            built = image is None
            if image is None:
                image = build(self._api, request, parts, say)
            else:
                say(f"{parts.target}: image {parts.tag} is there already")
        return Environment(
            engine=self.name,
            python=request.target.python,
            image=parts.tag,
            image_id=image["Id"],
            base_image=parts.base,
            built=built,
            prepare_s=round(time.monotonic() - started, 3),
        )

    def image_id(self, request: Request) -> str | None:
        """The id of the target's image; empty where its base image was replaced since, None where the engine does not have it."""
        parts = recipe(request)
        with self._answering():
            if find(self._api, parts.tag) is None:
                return None
            image = usable(self._api, parts)
        return "" if image is None else str(image["Id"])

    def layout(self, request: Request) -> Layout:
        """The mount points, the same for every target."""
        return layout(request)

    def execute(self, request: Request, environment: Environment, on_line: Say) -> tuple[Environment, Exit]:
        """Run the job in a container of its own, which is gone afterwards."""
        return self._run(request, environment, on_line)

    def info(self) -> dict[str, Any]:
        """What the engine says of itself, as `docker info` shows it."""
        with self._answering():
            return dict(self._api.info())

    def clean(self, dry_run: bool) -> list[str]:
        """Remove, or only name, what runs that are over have left: containers, kept ones included, and build stages without a name."""
        with self._answering():
            containers, stages = leftovers(self._api, kept=True), unnamed_stages(self._api)
            if not dry_run:
                for container, _ in containers:
                    self._remove(container)
                for stage in stages:
                    with suppress(DockerException, *_BROKEN):  # another image may be built on it
                        self._api.remove_image(stage)
        return [f"container {name}" for _, name in containers] + [f"build stage {stage.rpartition(':')[2][:12]}" for stage in stages]

    def _run(self, request: Request, environment: Environment, on_line: Say, command: Sequence[str] = ()) -> tuple[Environment, Exit]:
        check_weakenings(request.options.weaken)
        with signals.interruptible(), self._answering():
            self._sweep(request)
            host = self._host(request)
        body = container_options(request, environment, host, command)
        user = container_user(request, host)
        for folder in (request.options.kernels, PACKAGE):
            check_readable(folder, user, host)
        container: str | None = None
        output: _Attached | None = None
        with signals.held(), lent(request.raw, user, host):
            try:
                try:
                    with signals.interruptible():
                        container = str(self._api.create_container_from_config(body, container_name(request))["Id"])
                        # Attached before it starts: logs followed afterwards can miss a last line without an end.
                        output = _Attached(self._api.attach_socket(container))
                        self._api.start(container)
                except (DockerException, *_BROKEN) as error:
                    raise not_created(error, request) from None
                except KeyboardInterrupt:  # it may have started before the engine said so
                    self._remove(container or container_name(request))
                    clear(request.raw)
                    raise
                with Watch(request.raw, request.options.cap, layout(request).output) as quota:
                    ended = watch(self._api, container, output, on_line, request.options.limit_s, request.options.grace_s, quota)
                clear(request.raw)  # first: a CI system may kill this process before slower work ends
            finally:
                if not request.options.keep:  # by its name where the engine was left before it said the id
                    self._remove(container or container_name(request))
                if output:
                    output.close()
        return replace(environment, options=readable(body), weakened=request.options.weaken), ended

    def _sweep(self, request: Request) -> None:
        """Remove what a killed run of before left here, which may still hold a GPU, and what an earlier attempt at this one did."""
        for leftover, _ in leftovers(self._api, kept=False):
            self._remove(leftover)
        self._remove(container_name(request))

    def _host(self, request: Request) -> Host:
        return observe(request, self._api.info())

    def _remove(self, container: str) -> None:
        # One that cannot be removed now is found by its labels at the next start.
        with suppress(DockerException, *_BROKEN):
            self._api.remove_container(container, force=True, v=True)

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """Turn whatever the SDK raises into an error that a user can act on."""
        try:
            yield
        except (DockerException, *_BROKEN) as error:
            raise no_engine(error) from error


def connect() -> DockerEngine:
    """The engine that the environment names, after it has answered.

    Raises:
        InfrastructureError: the SDK is missing, or no usable engine answers.
    """
    if docker is None or not hasattr(docker, "from_env"):
        raise sdk_missing()
    where = os.environ.get("DOCKER_HOST") or _DEFAULT
    try:
        _knock(where)
        # It asks for the version, before `Bounds` can be there.
        client = within(3 * _CONNECT_S, lambda: docker.from_env(timeout=_CONNECT_S), "GET /version")
    except (DockerException, *_BROKEN) as error:
        raise no_engine(error, where) from None
    version = str(client.api.api_version)
    if tuple(int(part) for part in version.split(".") if part.isdigit()) < _OLDEST_API:
        client.close()
        raise no_engine(ValueError(f"its API version is {version}"), where)
    client.api.timeout = _CALL_S
    return DockerEngine(client)


def _knock(where: str) -> None:
    """Try a local socket before the SDK does, which hides the reason in its message and leaves its own socket open."""
    if where.startswith("unix:///"):
        with socket.socket(socket.AF_UNIX) as local:
            local.settimeout(_CONNECT_S)
            local.connect(where.removeprefix("unix://"))


def clean(dry_run: bool) -> list[str]:
    """Connect, and remove (or only name) the containers of runs that are over."""
    engine = connect()
    try:
        return engine.clean(dry_run)
    finally:
        engine.close()
