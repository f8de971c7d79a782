"""Connect to Docker Engine, or to Podman through its socket. This is the only file that imports the docker SDK."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from warpwave.engines.docker.deadlines import within
from warpwave.engines.docker.errors import WITHOUT, no_engine
from warpwave.errors import InfrastructureError

try:
    import docker
    from docker import DockerClient as DockerClient  # also for the types of `engine`
    from docker.errors import DockerException
    from docker.utils.socket import frames_iter
    from urllib3.exceptions import HTTPError
except ImportError:  # in a checkout, Python finds the folder `docker/` instead, which has no `errors`
    docker = None  # type: ignore[assignment]

_DEFAULT = "unix:///var/run/docker.sock"
_CONNECT_S = 10  # for one read; connecting may take three times as long in all
_CALL_S = 60  # for a whole call
# What the SDK raises, also if an answer is not JSON or has an unexpected shape.
_BROKEN = (OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError)
# A stream that breaks off raises what the library below the SDK has.
BROKEN: tuple[type[Exception], ...] = (*_BROKEN, DockerException, HTTPError) if docker else _BROKEN
_OLDEST_API = (1, 40)  # Docker 19.03: device requests


def client_at(address: str) -> DockerClient:
    """Connect to the engine at an address; if it is empty, to that of DOCKER_HOST, or the default one. Raises InfrastructureError if the
    SDK is missing, or no usable engine answers."""
    if docker is None or not hasattr(docker, "from_env"):
        happened = "The Docker SDK for Python is not installed."
        meaning = "The package is called `docker`. Without it, Python may find this repository's folder `docker` instead."
        raise InfrastructureError(happened, meaning, f"`python3 -m pip install 'docker>=7.1'`. {WITHOUT}")
    where = address or os.environ.get("DOCKER_HOST") or _DEFAULT

    def make() -> DockerClient:
        return docker.DockerClient(address, timeout=_CONNECT_S) if address else docker.from_env(timeout=_CONNECT_S)

    try:
        if where.startswith("unix:///"):  # try the socket first: the SDK would hide the reason in its message and leave its own socket open
            with socket.socket(socket.AF_UNIX) as local:
                local.settimeout(_CONNECT_S)
                local.connect(where.removeprefix("unix://"))
        # The client asks for the version before `Bounds` can be set up.
        client = within(3 * _CONNECT_S, make, f"it did not answer GET /version within {3 * _CONNECT_S:g} s")
    except BROKEN as error:
        raise no_engine(error, where) from None
    version = str(client.api.api_version)
    if tuple(int(part) for part in version.split(".") if part.isdigit()) < _OLDEST_API:
        client.close()
        raise no_engine(ValueError(f"its API version is {version}"), where)
    client.api.timeout = _CALL_S
    return client


class Attached:
    """A container's output: standard output and standard error, in the order in which they arrive."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._frames: Iterator[tuple[int, bytes]] = frames_iter(stream, tty=False)  # type: ignore[no-untyped-call]

    def __next__(self) -> bytes:
        return next(self._frames)[1]

    def close(self) -> None:
        """Close the connection too: the SDK attaches it to the socket and leaves it to the garbage collector."""
        # Close the response only: it closes the socket that it reads from, and fails if that is closed already.
        with suppress(OSError, ValueError):
            getattr(self._stream, "_response", self._stream).close()
