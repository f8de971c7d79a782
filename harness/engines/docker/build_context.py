"""Collect what an image is built from: the files sent to the engine, the build arguments, and the hash that names the image.

The same inputs give the same tag, so an image is built once per machine. A changed Dockerfile, pin or wheel gives another tag.
"""

from __future__ import annotations

import glob
import hashlib
import io
import json
import os
import re
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from harness.config.targets import default_file
from harness.engines.docker.container import LABEL, slug
from harness.engines.protocol import Request
from harness.errors import ConfigError, InfrastructureError, UsageError

_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY")


@dataclass(frozen=True)
class Recipe:
    """Everything that decides an image. `files` are small and hashed whole; for `wheels`, only names and sizes are hashed.

    `layer` is the key of the packages if this is a layer on top of a target's image: a package's sources are among its files, and an edit
    of a kernel does not change what is installed.
    """

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
    """Read the files that a build needs.

    Raises:
        ConfigError: the target's Dockerfile cannot be read.
        UsageError: a file or folder given on the command line cannot be read.
    """
    target, build = request.target, request.options.build
    script = target.dockerfile.parent / "install.sh"
    script = script if script.exists() else default_file().parent / "install.sh"
    try:
        files = {"Dockerfile": target.dockerfile.read_bytes(), "install.sh": script.read_bytes()}
    except OSError as error:
        meaning = "`image.dockerfile` in the targets file is relative to that file."
        remedy = "Fix the name, or put the Dockerfile there."
        raise ConfigError(f"{error.filename} cannot be read: {error.strerror}.", meaning, remedy) from None
    files |= _locks(target.dockerfile.parent / "locks", target.image.locks or target.kind)
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


def _locks(folder: Path, name: str) -> dict[str, bytes]:
    """Return the hash-locked requirements of this name, if any: `py3.12.txt`, and `py3.12-torch.txt` for the torch index."""
    found = sorted(folder.glob(f"{glob.escape(name)}-py*.txt"))
    return {f"locks/{path.name.removeprefix(name + '-')}": _read(path, "lock") for path in found}


def pinned(base: str, digest: str | None) -> str:
    """Return the base image with its digest, if it has one. Drop the tag then: the digest overrules it, and engines differ about both."""
    return f"{re.sub(r':[^/:@]+$', '', base)}@{digest}" if digest else base


def proxies(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the proxy settings among a machine's variables, as build arguments.

    Engines know these names and keep them out of the image's history.
    """
    names = [spelling for name in _PROXIES for spelling in (name, name.lower())]
    return {name: environment[name] for name in names if environment.get(name)}


def pack(parts: Recipe) -> IO[bytes]:
    """Write the build context to a tar file on disk: a wheelhouse with a GPU build of torch is too large for memory.

    Raises:
        InfrastructureError: the disk has no room for it.
    """
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it, which removes it
    try:
        _write(parts, file)
    except OSError as error:
        file.close()
        happened = f"The build context of {parts.target} could not be written: {error.strerror}."
        meaning = f"It is written to {tempfile.gettempdir()}, which is full or too small for the wheelhouse."
        raise InfrastructureError(happened, meaning, "Make room there, or set TMPDIR to a folder with room.") from None
    file.seek(0)
    return file


def _write(parts: Recipe, file: IO[bytes]) -> None:
    with tarfile.open(fileobj=file, mode="w") as tar:
        contents = {**parts.files, "ca-bundle.crt": parts.ca_bundle.read_bytes()} if parts.ca_bundle else parts.files
        for name, content in contents.items():
            tar.addfile(_entry(name, len(content), 0o755 if name.endswith(".sh") else 0o644), io.BytesIO(content))
        # Add the folder even if it is empty, so that the Dockerfiles need no condition.
        folder = _entry("wheelhouse", 0, 0o755)
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for path in parts.wheels:
            with path.open("rb") as wheel:
                tar.addfile(_entry(f"wheelhouse/{path.name}", os.fstat(wheel.fileno()).st_size, 0o644), wheel)


def _entry(name: str, size: int, mode: int) -> tarfile.TarInfo:
    # Set no owner and no time: equal input then gives equal bytes, so the engine's cache of build steps works too.
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, mode
    return entry


def _hash(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


def _read(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"The {what} at {path} cannot be read: {error.strerror}.", "The path is misspelt.", "Give a readable file."
        ) from None


def _wheels(folder: Path) -> tuple[Path, ...]:
    found = sorted(path for path in folder.glob("*") if path.suffix == ".whl" or path.name.endswith((".tar.gz", ".zip")))
    if not found:
        meaning = "The path is misspelt, or nothing has been downloaded into it yet."
        remedy = f"`pip download --dest {folder} torch==VERSION triton==VERSION pytest numpy` for the image's Python and platform."
        raise UsageError(f"There are no wheels in {folder}.", meaning, remedy)
    return tuple(found)
