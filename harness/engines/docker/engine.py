"""Run jobs in Docker Engine, or in Podman through its socket.

Images are built with the classic build API: it needs no client program, and Podman supports it. So the Dockerfiles use no feature that only
BuildKit has.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from harness.engines import signals
from harness.engines.docker.build_context import Recipe, proxies, recipe
from harness.engines.docker.client import BROKEN, Attached, client_at
from harness.engines.docker.container import PACKAGE, container_name, container_options, container_user, labels_of, layout, readable
from harness.engines.docker.deadlines import Bounds
from harness.engines.docker.errors import no_engine, not_created
from harness.engines.docker.host import Host, check_readable, lent, observe
from harness.engines.docker.images import build, find, unnamed_stages, usable
from harness.engines.docker.layer import final_recipe, layer_recipe, read_packages
from harness.engines.docker.lifecycle import leftovers, watch
from harness.engines.docker.relaxations import check_weakenings
from harness.engines.docker.sockets import socket_of
from harness.engines.packages.plan import is_wanted
from harness.engines.packages.venv import FAILED, LOG, install_failed
from harness.engines.protocol import Layout, Request, Say
from harness.engines.remote.container import labels_of as lease_labels
from harness.engines.remote.container import time_in
from harness.engines.remote.lease import Claim, leased, release
from harness.engines.remote.sweep import sweep
from harness.engines.results_folder import clear, put
from harness.engines.results_limit import Watch
from harness.errors import InfrastructureError
from harness.records import Environment, Exit

if TYPE_CHECKING:
    from harness.config.hosts import Host as HostEntry
    from harness.engines.docker.client import DockerClient

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
        self._bounds.longest_s = request.options.limit_s
        check_weakenings(request.options.weaken)
        parts = recipe(request)
        with self._answering():
            self._host(request)  # fail now if the GPU is missing, and not after the download of many gigabytes
            self._sweep(request)
            image = None if request.options.build.rebuild else usable(self._api, parts)
            built = image is None
            if image is None:
                image = build(self._api, request, parts, say, proxies=self._proxies())
            else:
                say(f"{parts.target}: image {parts.tag} is there already")
            environment = Environment(
                engine=self.name, python=request.target.python, image=parts.tag, image_id=image["Id"], base_image=parts.base, built=built
            )
            if is_wanted(request.options):
                environment = self._with_packages(request, layer_recipe(request, parts), environment, say)
        return replace(environment, prepare_s=round(time.monotonic() - started, 3))

    def _with_packages(self, request: Request, parts: Recipe, below: Environment, say: Say) -> Environment:
        """Find the layer with the package's requirements, or build it. Its log is in the run's folder."""
        image = None if request.options.build.rebuild else usable(self._api, parts)
        lines: list[str] = []
        if image is None:
            try:
                image = build(self._api, request, parts, say, lines.append, self._proxies())
            except InfrastructureError as error:
                if not any(line.startswith(FAILED) for line in lines):
                    raise
                raise install_failed(parts.target, "\n".join(lines), request.raw / LOG) from error
            finally:
                put(request.raw / LOG, "\n".join(lines) + "\n")
        else:
            say(f"{parts.target}: image {parts.tag} is there already")
        name = f"{container_name(request)}-packages"
        found = read_packages(self._api, str(image["Id"]), name, self._labels(request))
        return replace(
            below,
            python=found.python,
            image=parts.tag,
            image_id=image["Id"],
            built=below.built or bool(lines),
            packages=found.versions,
            notes=found.notes,
        )

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

    def execute(self, request: Request, environment: Environment, on_line: Say) -> tuple[Environment, Exit]:
        """Run the job in a new container, and remove the container afterwards."""
        return self._run(request, environment, on_line)

    @contextmanager
    def leased(self, request: Request, environment: Environment) -> Iterator[None]:
        """Hold the run's cards in this engine too, where clients of other machines look. The lock of this machine is held already.

        Raises:
            InfrastructureError: a client of another machine has one of them, and did not release it in time.
        """
        options, image = request.options, str(environment.image_id or environment.image)
        chosen = tuple(options.gpu.split(",")) if options.gpu else ()
        cards = chosen if all(card.isdigit() for card in chosen) else ()  # a card that is named by its UUID may be any of them
        with ExitStack() as stack:
            with self._answering():
                labels = lease_labels(request, self._now())
                claim = Claim(request.target.kind, cards, container_name(request), image, labels, "this machine")
                stack.enter_context(leased(self._api, claim, options.gpu_wait_s, self._say, self._now))
            yield

    def info(self) -> dict[str, Any]:
        """Return the engine's description of itself, as `docker info` shows it."""
        with self._answering():
            return dict(self._api.info())

    def clean(self, dry_run: bool) -> list[str]:
        """Remove what finished runs left behind: containers (also kept ones) and unnamed build stages. Return their names.

        With `dry_run`, only return the names.
        """
        with self._answering():
            containers, stages = leftovers(self._api, kept=True), unnamed_stages(self._api)
            if not dry_run:
                for container, _ in containers:
                    self._remove(container)
                for stage in stages:
                    with suppress(*BROKEN):  # another image may be built on it
                        self._api.remove_image(stage)
            remote = sweep(self._api, self._now(), dry_run)
        return (
            [f"container {name}" for _, name in containers] + remote + [f"build stage {stage.rpartition(':')[2][:12]}" for stage in stages]
        )

    def _run(self, request: Request, environment: Environment, on_line: Say, command: Sequence[str] = ()) -> tuple[Environment, Exit]:
        check_weakenings(request.options.weaken)
        with signals.interruptible(), self._answering():
            self._sweep(request)
            host = self._host(request)
        body = container_options(request, environment, host, command)
        user = container_user(request, host)
        for folder in dict.fromkeys((request.options.package, request.options.kernels, PACKAGE)):
            check_readable(folder, user, host)
        container: str | None = None
        output: Attached | None = None
        with signals.held(), lent(request.raw, user, host):
            try:
                try:
                    with signals.interruptible():
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
                with Watch(request.raw, request.options.cap, layout(request).output) as quota:
                    ended = watch(self._api, container, output, on_line, request.options.limit_s, request.options.grace_s, quota)
                clear(request.raw)  # before slower work, because a CI system may kill this process
            finally:
                if not request.options.keep:  # use the name if the call ended before the engine returned the id
                    self._remove(container or container_name(request))
                if output:
                    output.close()
        return replace(environment, options=readable(body, request.options.variables), weakened=request.options.weaken), ended

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


def connect(host: HostEntry | None = None) -> DockerEngine:
    """Connect to the engine of this machine that hosts.yml or DOCKER_HOST names, or to the default one.

    Raises:
        InfrastructureError: the SDK is missing, or no usable engine answers.
    """
    return DockerEngine(client_at(socket_of(host)))
