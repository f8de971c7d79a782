"""Bring the archive and a run's results to another machine's engine, and the results back. Everything goes through the engine's API."""

from __future__ import annotations

import stat
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Protocol

from warpwave.engines import snapshot
from warpwave.engines.docker.deadlines import Beat, paced
from warpwave.engines.incoming import OURS, unpack
from warpwave.engines.remote.container import CODE, KEPT_UNTIL, MADE, OUTPUT, RESULTS, UNTIL, code_volume, is_past
from warpwave.errors import InfrastructureError
from warpwave.records import Cap

CODE_LABEL = f"{MADE}.code"

_UPLOAD_S = 1800.0  # for one archive
_LOAD_S = 3600  # after this time a client that loads an archive counts as dead
_KEPT_S = 7 * 24 * 3600  # how long an archive that no run uses may stay
_POLL_S = 1.0


class Api(Protocol):
    """The methods of the SDK's client that this file uses."""

    timeout: float

    def create_volume(self, name: str, *, labels: dict[str, str]) -> dict[str, Any]:
        """Create a volume, or return the one of that name."""
        ...

    def remove_volume(self, name: str) -> None:
        """Remove a volume that no container uses."""
        ...

    def volumes(self, filters: Mapping[str, object]) -> dict[str, Any]:
        """Return the volumes that match."""
        ...

    def create_container_from_config(self, config: dict[str, Any], name: str) -> dict[str, Any]:
        """Create a container, and return its id."""
        ...

    def inspect_container(self, container: str) -> dict[str, Any]:
        """Return the engine's description of a container."""
        ...

    def remove_container(self, container: str, *, force: bool, v: bool) -> None:
        """Remove a container."""
        ...

    def put_archive(self, container: str, path: str, data: IO[bytes]) -> bool:
        """Unpack a tar file in a folder of a container."""
        ...

    def get_archive(self, container: str, path: str) -> tuple[Iterator[bytes], dict[str, Any]]:
        """Return a file or folder of a container as a tar stream."""
        ...

    def ping(self) -> object:
        """Ask for a sign of life."""
        ...


def make_volumes(api: Api, archive: snapshot.Snapshot, results: str, labels: dict[str, str], now: float) -> None:
    """Make the volumes of a run: an empty one for its results, and that of the archive if it is not there."""
    api.create_volume(code_volume(archive), labels={CODE_LABEL: archive.digest, KEPT_UNTIL: str(int(now + _KEPT_S))})
    with suppress(OSError):  # usually there is none of that name
        api.remove_volume(results)
    api.create_volume(results, labels=labels)


def bring_code(api: Api, container: str, image: str, archive: snapshot.Snapshot, now: float) -> bool:
    """Unpack the archive in its volume, unless it is there. Return whether it was brought. `container` uses the volume already.

    One client at a time loads a volume: others may be running from it.
    """
    loader = f"warpwave-load-{archive.name}"
    until = time.monotonic() + _UPLOAD_S
    while not _is_complete(api, container):
        body = _loader(image, code_volume(archive), CODE, {MADE: "true", KEPT_UNTIL: str(int(now + _LOAD_S))})
        try:
            made = str(api.create_container_from_config(body, loader)["Id"])
        except OSError as error:
            if time.monotonic() >= until or "in use" not in str(getattr(error, "explanation", "")):
                raise
            _remove_if_dead(api, loader, now)
            time.sleep(_POLL_S)
            continue
        try:
            if not _is_complete(api, container):
                _put(api, made, CODE, archive.open)
                return True
        finally:
            with suppress(OSError):
                api.remove_container(made, force=True, v=False)
    return False


def bring_results(api: Api, image: str, results: str, raw: Path, owner: tuple[int, int], labels: dict[str, str]) -> None:
    """Put the job, and what an earlier attempt has left, into the volume of a run."""
    body = _loader(image, results, RESULTS, labels)
    loader = str(api.create_container_from_config(body, f"{results}-loader")["Id"])
    try:
        with _packed(raw, owner) as file:
            _put(api, loader, RESULTS, lambda: _rewound(file))
    finally:
        with suppress(OSError):
            api.remove_container(loader, force=True, v=False)


def collect(api: Api, container: str, raw: Path, cap: Cap, where: str, limit_s: float) -> None:
    """Replace the results in `raw` by those of a container, which may have ended.

    Raises:
        InfrastructureError: they cannot be used.
        OSError: the connection broke, or this disk is full.
    """
    stream, _ = api.get_archive(container, OUTPUT)
    beat: Beat = api.ping
    unpack(paced(limit_s, stream, "the results", beat), raw, cap, where)


def unused(api: Any, now: float) -> Iterator[str]:
    """Yield the volumes whose time is over. One that a container uses cannot be removed."""
    for label in (CODE_LABEL, MADE):
        for volume in api.volumes(filters={"label": [label]}).get("Volumes") or []:
            labels = volume.get("Labels") or {}
            if is_past(labels, KEPT_UNTIL, now):
                yield str(volume["Name"])


def _is_complete(api: Api, container: str) -> bool:
    try:
        stream, _ = api.get_archive(container, f"{CODE}/{snapshot.COMPLETE}")
        for _ in stream:
            pass
    except OSError as error:
        if getattr(error, "status_code", None) == 404:
            return False
        raise
    return True


def _loader(image: str, volume: str, path: str, labels: Mapping[str, str]) -> dict[str, Any]:
    """Return a container that is never started: files of a volume can be written only through one."""
    mount = {"Type": "volume", "Source": volume, "Target": path, "ReadOnly": False}
    kept = {name: value for name, value in labels.items() if name in (MADE, UNTIL, KEPT_UNTIL)}
    return {"Image": image, "Entrypoint": ["load"], "Cmd": [], "Labels": kept, "HostConfig": {"Mounts": [mount], "NetworkMode": "none"}}


def _remove_if_dead(api: Api, loader: str, now: float) -> None:
    with suppress(OSError):
        found = api.inspect_container(loader)
        if is_past(found["Config"].get("Labels") or {}, KEPT_UNTIL, now):
            api.remove_container(found["Id"], force=True, v=False)  # by its id: another client may have made a new one


def _put(api: Api, container: str, path: str, opened: Any) -> None:
    """Send an archive, twice if the connection breaks."""
    short, api.timeout = api.timeout, _UPLOAD_S
    try:
        for last in (False, True):
            try:
                with opened() as file:
                    api.put_archive(container, path, file)
                return
            except OSError as error:
                if last or getattr(error, "status_code", None) is not None:
                    raise
    finally:
        api.timeout = short


def _packed(raw: Path, owner: tuple[int, int]) -> IO[bytes]:
    """Pack a results folder without the files that this machine writes about the run, but with the job."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it, which removes it
    folder = OUTPUT.rpartition("/")[2]
    try:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
            _add_folder(tar, folder, owner)
            for path in sorted(raw.rglob("*")):
                inside, state = path.relative_to(raw), path.lstat()
                if len(inside.parts) == 1 and inside.name in OURS - {"job.json"}:
                    continue
                if stat.S_ISDIR(state.st_mode):
                    _add_folder(tar, f"{folder}/{inside.as_posix()}", owner)
                elif stat.S_ISREG(state.st_mode):
                    entry = _entry(f"{folder}/{inside.as_posix()}", 0o644, owner)
                    entry.size = state.st_size
                    with path.open("rb") as content:
                        tar.addfile(entry, content)
    except OSError as error:
        file.close()
        happened = f"The results so far could not be packed: {error.strerror}."
        meaning = f"They are written to {tempfile.gettempdir()}, which is full or too small."
        raise InfrastructureError(happened, meaning, "Make room there, or set TMPDIR to a folder with room.") from None
    return file


def _rewound(file: IO[bytes]) -> IO[bytes]:
    return open(f"/proc/self/fd/{file.fileno()}", "rb")


def _add_folder(tar: tarfile.TarFile, name: str, owner: tuple[int, int]) -> None:
    entry = _entry(name, 0o700, owner)
    entry.type = tarfile.DIRTYPE
    tar.addfile(entry)


def _entry(name: str, mode: int, owner: tuple[int, int]) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.mode, entry.uid, entry.gid = mode, *owner
    entry.mtime = int(time.time())
    return entry
