"""Find, pull and build images through the engine's API. As in `lifecycle`, every error of the SDK's calls is an `OSError`."""

from __future__ import annotations

import random
import re
import time
from collections import deque
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import IO, Any, Protocol

from harness.engines.docker.build_context import Recipe, pack
from harness.engines.docker.container import LABEL
from harness.engines.docker.errors import build_failed, pull_failed
from harness.engines.protocol import Request, Say

_TAIL = 20
_PAUSES_S = (5.0, 20.0)
# How registries and proxies report an error that may go away in a moment.
_PASSING = r"toomanyrequests|too many requests|\b429\b|\b50[0234]\b|service unavailable|timeout|timed out|connection reset|unexpected eof"


class Api(Protocol):
    """The methods of the SDK's client that this file uses."""

    def inspect_image(self, image: str) -> dict[str, Any]:
        """Return the engine's description of an image."""
        ...

    def pull(self, repository: str, *, stream: bool, decode: bool) -> Iterator[dict[str, Any]]:
        """Pull an image and yield its messages."""
        ...

    def build(self, *, fileobj: IO[bytes], tag: str, buildargs: dict[str, str], labels: dict[str, str], **more: object) -> Iterator[Any]:
        """Build an image and yield its messages."""
        ...

    def images(self, *, quiet: bool, filters: dict[str, object]) -> list[str]:
        """Return the ids of the images that match."""
        ...


def find(api: Api, image: str) -> dict[str, Any] | None:
    """Return the engine's description of an image, or None if it has no image of this name."""
    try:
        return api.inspect_image(image)
    except OSError as error:
        if getattr(error, "status_code", None) == 404:
            return None
        raise


def usable(api: Api, parts: Recipe) -> dict[str, Any] | None:
    """Return the image of this recipe. Return None if the name of its base image now belongs to another image."""
    image, base = find(api, parts.tag), find(api, parts.base)
    if image is None or base is None:
        return image
    recorded = (image.get("Config", {}).get("Labels") or {}).get(f"{LABEL}.base-digest")
    return image if recorded == digest(base) else None


def build(
    api: Api, request: Request, parts: Recipe, say: Say, on_line: Say | None = None, proxies: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """Build the image of a recipe, and print a line for each step. `on_line` gets every line. `proxies` are those of the engine's machine.

    Raises:
        InfrastructureError: the base image cannot be pulled, or a step failed.
    """
    base = find(api, parts.base) or _pull(api, parts.base, say)
    say(f"{parts.target}: building {parts.tag} on {parts.base}")
    tail: deque[str] = deque(maxlen=_TAIL)
    step = reason = ""
    with pack(parts) as context:
        messages = api.build(
            fileobj=context,
            custom_context=True,
            tag=parts.tag,
            decode=True,
            rm=True,
            forcerm=True,
            nocache=request.options.build.rebuild,
            network_mode=request.options.build.network,
            buildargs={**proxies, **parts.arguments, "BASE_IMAGE": parts.base},
            labels=parts.labels(request.options.commit, digest(base)),
            timeout=None,
        )
        for message in messages:
            for line in filter(None, (line.rstrip() for line in message.get("stream", "").splitlines())):
                tail.append(line)
                if on_line:
                    on_line(line)
                if re.match(r"(\[\d+/\d+\] )?step \d+/\d+", line, re.IGNORECASE):  # Podman counts the stages too
                    step = line
                    say(f"{parts.target}: {line}")
            # Read to the end after an error too: the engine sends nothing more, and the connection is released.
            reason = str(message.get("error", reason))
    image = None if reason else find(api, parts.tag)
    if image is None:
        raise build_failed(parts.target, step, reason or "the engine ended the build without an image", list(tail))
    return image


def unnamed_stages(api: Api) -> list[str]:
    """Return the unnamed build stages that hold wheels. They are large, and useless once the image is built."""
    return api.images(quiet=True, filters={"dangling": True, "label": f"{LABEL}.stage=builder"})


def digest(image: Mapping[str, Any]) -> str:
    """Return an image's digest in a registry, or its id if it never was in one."""
    digests = image.get("RepoDigests") or []
    return str(digests[0]).rpartition("@")[2] if digests else str(image.get("Id", ""))


def _pull(api: Api, base: str, say: Say) -> dict[str, Any]:
    """Pull the base image. If the registry is busy or limits requests, try again after a random pause."""
    for pause_s in (*_PAUSES_S, None):
        say(f"pulling {base}")
        reason = ""
        try:
            for message in api.pull(base, stream=True, decode=True):
                reason = str(message.get("error", reason))
        except OSError as error:
            reason = str(getattr(error, "explanation", None) or error)
        found = None if reason else find(api, base)
        if found is not None:
            return found
        if pause_s is None or not re.search(_PASSING, reason, re.IGNORECASE):
            break
        pause_s *= random.uniform(0.5, 1.5)  # noqa: S311 - spreads the machines in time; this is no secret
        say(f"{reason.rstrip('.')}: trying again in {pause_s:.0f} s")
        time.sleep(pause_s)
    raise pull_failed(base, reason or "the engine ended the pull without an image")
