"""Find, pull and build images through the engine's API. As in `engine`, every error of the SDK's calls is an `OSError`."""

import glob
import hashlib
import io
import json
import os
import random
import re
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

from warpwave.config.files import default_file
from warpwave.engines.docker.container import LABEL, slug
from warpwave.engines.docker.errors import build_failed, short
from warpwave.engines.incoming import first_file
from warpwave.engines.packages.environments import Packages, read_result
from warpwave.engines.packages.plan import is_wanted, make_plan
from warpwave.engines.protocol import Request, Say
from warpwave.engines.snapshot import packing
from warpwave.errors import ConfigError, InfrastructureError, UsageError

_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY")


@dataclass(frozen=True)
class Recipe:
    """Everything that decides an image, and so its tag. `files` are small and hashed whole; for `wheels`, only names and sizes are hashed.
    `layer` is the key of the packages if this is a layer on top of a target's image: a package's sources are among its files, and an edit
    of a kernel does not change what is installed."""

    target: str
    base: str
    files: dict[str, bytes]
    wheels: tuple[Path, ...]
    arguments: dict[str, str]
    ca_bundle: Path | None = None
    layer: str = ""

    @property
    def requirements(self) -> str:
        """A hash of the packages that get installed, whatever the base image."""
        locks = {name: self._text(name) for name in self.files if name.startswith("locks/")}
        wheels = [[wheel.name, wheel.stat().st_size] for wheel in self.wheels]
        layer = [self.layer] if self.layer else []
        return _hash(self._text("install.sh"), self._text("pip.conf"), self.arguments, wheels, locks, *layer)

    @property
    def tag(self) -> str:
        """The name of the image: its target, and a hash of everything that goes into it."""
        kind = "-packages" if self.layer else ""
        return f"warpwave/{slug(self.target)}{kind}:{_hash(self._text('Dockerfile'), self.base, self.requirements)}"

    def labels(self, commit: str, base_digest: str) -> dict[str, str]:
        """Return the labels that `docker image inspect` shows."""
        return {
            f"{LABEL}.target": self.target,
            f"{LABEL}.commit": commit,
            f"{LABEL}.base": self.base,
            f"{LABEL}.base-digest": base_digest,
            f"{LABEL}.requirements": self.requirements,
        }

    def _text(self, name: str) -> str:
        return self.files.get(name, b"").decode("utf-8", "replace")


def recipe(request: Request) -> Recipe:
    """Read the files that a build needs. Raises ConfigError if the target's Dockerfile cannot be read, and UsageError if a file or folder
    given on the command line cannot be read."""
    target, build = request.target, request.options.build
    script = target.dockerfile.parent / "install.sh"
    script = script if script.exists() else default_file().parent / "install.sh"
    try:
        files = {"Dockerfile": target.dockerfile.read_bytes(), "install.sh": script.read_bytes()}
    except OSError as error:
        meaning = "`image.dockerfile` in the targets file is relative to that file."
        remedy = "Fix the name, or put the Dockerfile there."
        raise ConfigError(f"{error.filename} cannot be read: {error.strerror}.", meaning, remedy) from None
    name = target.image.locks or target.kind  # hash-locked requirements: `NAME-py3.12.txt`, and `NAME-py3.12-torch.txt` for the torch index
    locks = sorted((target.dockerfile.parent / "locks").glob(f"{glob.escape(name)}-py*.txt"))
    files |= {f"locks/{path.name.removeprefix(name + '-')}": _read(path, "lock") for path in locks}
    if build.pip_config:
        files["pip.conf"] = _read(build.pip_config, "pip settings")
    if build.ca_bundle:
        _read(build.ca_bundle, "CA bundle")
    return Recipe(
        target=target.kind,
        base=build.base_image or pinned(target.image.base, target.image.digest),
        files=files,
        wheels=_wheels(build.wheelhouse) if build.wheelhouse else (),
        arguments={**target.image.build_args, **build.args},
        ca_bundle=build.ca_bundle,
    )


def pinned(base: str, digest: str | None) -> str:
    """Return the base image with its digest, if it has one. Drop the tag then: the digest overrules it, and engines differ about both."""
    return f"{re.sub(r':[^/:@]+$', '', base)}@{digest}" if digest else base


def proxies(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the proxy settings among a machine's variables, as build arguments. Engines know these names and keep them out of the image's
    history."""
    names = [spelling for name in _PROXIES for spelling in (name, name.lower())]
    return {name: environment[name] for name in names if environment.get(name)}


def pack(parts: Recipe) -> IO[bytes]:
    """Write the build context to a tar file on disk. Equal input gives equal bytes, so the engine's cache of build steps works. Raises
    InfrastructureError if the disk has no room for it."""
    with packing(f"The build context of {parts.target}") as pack:
        contents = {**parts.files, "ca-bundle.crt": parts.ca_bundle.read_bytes()} if parts.ca_bundle else parts.files
        for name, content in contents.items():
            pack.file(name, io.BytesIO(content), len(content), 0o755 if name.endswith(".sh") else 0o644)
        pack.folder("wheelhouse")  # even if it is empty, so that the Dockerfiles need no condition
        for path in parts.wheels:
            with path.open("rb") as wheel:
                pack.file(f"wheelhouse/{path.name}", wheel, os.fstat(wheel.fileno()).st_size)
    return pack.stream


def _hash(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


def _read(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        happened = f"The {what} at {path} cannot be read: {error.strerror}."
        raise UsageError(happened, "The path is misspelt.", "Give a readable file.") from None


def _wheels(folder: Path) -> tuple[Path, ...]:
    found = sorted(path for path in folder.glob("*") if path.suffix == ".whl" or path.name.endswith((".tar.gz", ".zip")))
    if not found:
        meaning = "The path is misspelt, or nothing has been downloaded into it yet."
        remedy = f"`pip download --dest {folder} torch==VERSION triton==VERSION pytest numpy` for the image's Python and platform."
        raise UsageError(f"There are no wheels in {folder}.", meaning, remedy)
    return tuple(found)


_TAIL = 20
_PAUSES_S = (5.0, 20.0)
# How registries and proxies report an error that may go away in a moment.
_PASSING = r"toomanyrequests|too many requests|\b429\b|\b50[0234]\b|service unavailable|timeout|timed out|connection reset|unexpected eof"


def find(api: Any, image: str) -> dict[str, Any] | None:
    """Return the engine's description of an image, or None if it has no image of this name."""
    try:
        return dict(api.inspect_image(image))
    except OSError as error:
        if getattr(error, "status_code", None) == 404:
            return None
        raise


def usable(api: Any, parts: Recipe) -> dict[str, Any] | None:
    """Return the image of this recipe. Return None if the name of its base image now belongs to another image."""
    image, base = find(api, parts.tag), find(api, parts.base)
    if image is None or base is None:
        return image
    recorded = (image.get("Config", {}).get("Labels") or {}).get(f"{LABEL}.base-digest")
    return image if recorded == digest(base) else None


def build(
    api: Any, request: Request, parts: Recipe, say: Say, on_line: Say | None = None, proxies: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """Build the image of a recipe, and print a line for each step. `on_line` gets every line. `proxies` are those of the engine's machine.
    Raises InfrastructureError if the base image cannot be pulled, or a step failed."""
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
            labels=parts.labels(request.options.package.commit, digest(base)),
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


def digest(image: Mapping[str, Any]) -> str:
    """Return an image's digest in a registry, or its id if it never was in one."""
    digests = image.get("RepoDigests") or []
    return str(digests[0]).rpartition("@")[2] if digests else str(image.get("Id", ""))


def _pull(api: Any, base: str, say: Say) -> dict[str, Any]:
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
    raise InfrastructureError(
        f"The base image {base} is not on this machine and could not be pulled: {short(reason or 'the pull gave none')}.",
        "This machine cannot reach the registry, the name is misspelt, or the registry limits anonymous pulls.",
        "`docker login`, or use --base-image with one of `docker images` (and build.wheelhouse in a targets file if pip has no index).",
    )


PYTHON = "/opt/packages/bin/python"
_RESULT = "/opt/packages/warpwave.json"
_MOST_BYTES = 8 << 20


def layer_recipe(request: Request, below: Recipe) -> Recipe:
    """Return the recipe of the layer on top of the image `below`."""
    plan = make_plan(request)
    files = {**plan.files, "Dockerfile": (default_file().parent / "packages.Dockerfile").read_bytes()}
    if "pip.conf" in below.files:
        files["pip.conf"] = below.files["pip.conf"]
    return replace(below, base=below.tag, files=files, arguments={"PYTHON": request.target.python}, layer=plan.key)


def final_recipe(request: Request) -> Recipe:
    """Return the recipe of the image that a run uses: the target's, or the layer on top of it."""
    below = recipe(request)
    return layer_recipe(request, below) if is_wanted(request.options) else below


def read_packages(api: Any, image: str, name: str, labels: dict[str, str]) -> Packages:
    """Return what the layer holds. A file of an image can be read only through a container; this one is never started."""
    body = {"Image": image, "Entrypoint": [PYTHON], "Cmd": ["-c", ""], "Labels": labels}
    container = str(api.create_container_from_config(body, name)["Id"])
    try:
        stream, _ = api.get_archive(container, _RESULT)
        # A package's build ran in that image and can write any text here.
        text = first_file(stream, _MOST_BYTES).decode("utf-8", "replace")
    finally:
        api.remove_container(container, force=True, v=True)
    json.loads(text)
    return read_result(PYTHON, text)
