"""Where a package's sources come from: PyPI's source archive, or a pinned commit of its public repository."""

import hashlib
import io
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

LIST = Path(__file__).with_name("packages.yml")
_SLOW_S = 600  # a download


class NotReachedError(Exception):
    """The sources could not be had; the text says where they were looked for."""


@dataclass(frozen=True)
class Package:
    name: str
    author: str
    kernels: str
    options: list[str] = field(default_factory=list)
    pypi: str = ""
    repository: str = ""
    commit: str = ""
    seconds: int = 900

    @property
    def version(self) -> str:
        return self.pypi or f"{self.repository.removeprefix('https://github.com/')}@{self.commit[:12]}"


def packages() -> list[Package]:
    entries = yaml.safe_load(LIST.read_text(encoding="utf-8"))["packages"]
    return [Package(name, **entry) for name, entry in entries.items()]


def fetch(package: Package, folder: Path, offline: Path | None) -> Path:
    """Put the sources below `folder` and return their root. What is there from an earlier session stays.

    Args:
        offline: Look here alone: for `<pypi's name>-<version>.tar.gz`, and for a clone called as the package is or as GitHub calls it.

    Raises:
        NotReachedError: neither here nor there.
    """
    root = folder / f"{package.name}-{hashlib.sha256(package.version.encode()).hexdigest()[:8]}"
    if not root.exists():
        folder.mkdir(parents=True, exist_ok=True)
        partial = root.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)  # of a session that was stopped
        _unpack(_archive(package, folder, offline), partial)
        partial.rename(root)
    return root


def _archive(package: Package, folder: Path, offline: Path | None) -> bytes:
    if package.pypi:
        name, _, version = package.pypi.partition("==")
        if offline is None:
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest", str(folder)]
            _run([*pip, package.pypi], f"PyPI ({package.pypi})")
        found = sorted((offline or folder).glob(f"{name.replace('-', '[-_]')}-{version}.tar.gz"))
        if not found:
            raise NotReachedError(f"{package.pypi} is not in {(offline or folder).name}/")
        return found[0].read_bytes()
    clone = _clone(package, folder, offline)
    return _run(["git", "-C", str(clone), "archive", "--prefix=sources/", package.commit], f"commit {package.commit[:12]}")


def _clone(package: Package, folder: Path, offline: Path | None) -> Path:
    """Return a repository that has the commit: a clone from the cache, or one with nothing but that commit."""
    if offline is not None:
        called = (package.name, package.repository.rpartition("/")[2])
        found = next((offline / name for name in called if (offline / name).is_dir()), None)
        if found is None:
            raise NotReachedError(f"no clone called {' or '.join(dict.fromkeys(called))} in {offline.name}/")
        return found
    clone = folder / f"{package.name}.git"
    _run(["git", "init", "--quiet", "--bare", str(clone)], "git")
    _run(["git", "-C", str(clone), "fetch", "--quiet", "--depth", "1", package.repository, package.commit], package.repository)
    return clone


# Python before 3.11.4 has no filters; the archives are of commits that a table names.
_SAFELY: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


def _unpack(archive: bytes, root: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            member.name = member.name.partition("/")[2]
            if member.name:
                tar.extract(member, root, **_SAFELY)


def _run(command: list[str], what: str) -> bytes:
    try:
        return subprocess.run(command, check=True, capture_output=True, timeout=_SLOW_S).stdout
    except (subprocess.SubprocessError, OSError) as error:
        said = getattr(error, "stderr", None) or str(error).encode()
        last = (said.decode(errors="replace").strip().splitlines() or [""])[-1]
        raise NotReachedError(f"{what} cannot be reached: {last[:160]}") from error
