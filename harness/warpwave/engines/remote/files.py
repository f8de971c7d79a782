"""Bring the archive and a run's results to another machine's engine, and the results back. Everything goes through the engine's API."""

from __future__ import annotations

import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from warpwave.engines import snapshot
from warpwave.engines.docker.deadlines import paced
from warpwave.engines.incoming import OURS, unpack
from warpwave.engines.remote.container import CODE, KEPT_UNTIL, MADE, OUTPUT, RESULTS, UNTIL, code_volume, is_past
from warpwave.engines.snapshot import packing
from warpwave.records import Cap

CODE_LABEL = f"{MADE}.code"

_UPLOAD_S = 1800.0  # for one archive
_LOAD_S = 3600  # after this time a client that loads an archive counts as dead
_KEPT_S = 7 * 24 * 3600  # how long an archive that no run uses may stay
_POLL_S = 1.0


def make_volumes(api: Any, archive: snapshot.Snapshot, results: str, labels: dict[str, str], now: float) -> None:
    """Make the volumes of a run: an empty one for its results, and that of the archive if it is not there."""
    api.create_volume(code_volume(archive), labels={CODE_LABEL: archive.digest, KEPT_UNTIL: str(int(now + _KEPT_S))})
    with suppress(OSError):  # usually there is none of that name
        api.remove_volume(results)
    api.create_volume(results, labels=labels)


def bring_code(api: Any, container: str, image: str, archive: snapshot.Snapshot, now: float) -> bool:
    """Unpack the archive in its volume, unless it is there. Return whether it was brought. `container` uses the volume already. One client
    at a time loads a volume: others may be running from it."""
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


def bring_results(api: Any, image: str, results: str, raw: Path, owner: tuple[int, int], labels: dict[str, str]) -> None:
    """Put the job, and what an earlier attempt has left, into the volume of a run, without the other files that this machine writes."""
    body = _loader(image, results, RESULTS, labels)
    loader = str(api.create_container_from_config(body, f"{results}-loader")["Id"])
    try:
        folder = OUTPUT.rpartition("/")[2]
        with packing("The results so far", owner, int(time.time())) as pack:
            pack.folder(folder, 0o700)
            for path in sorted(raw.rglob("*")):
                inside, state = path.relative_to(raw), path.lstat()
                if len(inside.parts) == 1 and inside.name in OURS - {"job.json"}:
                    continue
                if stat.S_ISDIR(state.st_mode):
                    pack.folder(f"{folder}/{inside.as_posix()}", 0o700)
                elif stat.S_ISREG(state.st_mode):
                    with path.open("rb") as content:
                        pack.file(f"{folder}/{inside.as_posix()}", content, state.st_size)
        with pack.stream as file:
            _put(api, loader, RESULTS, lambda: snapshot.reopened(file))
    finally:
        with suppress(OSError):
            api.remove_container(loader, force=True, v=False)


def collect(api: Any, container: str, raw: Path, cap: Cap, where: str, limit_s: float) -> None:
    """Replace the results in `raw` by those of a container, which may have ended. Raises InfrastructureError if they cannot be used, and
    OSError if the connection broke, or this disk is full."""
    stream, _ = api.get_archive(container, OUTPUT)
    unpack(paced(limit_s, stream, "the results", api.ping), raw, cap, where)


def unused(api: Any, now: float) -> Iterator[str]:
    """Yield the volumes whose time is over. One that a container uses cannot be removed."""
    for label in (CODE_LABEL, MADE):
        for volume in api.volumes(filters={"label": [label]}).get("Volumes") or []:
            if is_past(volume.get("Labels") or {}, KEPT_UNTIL, now):
                yield str(volume["Name"])


def _is_complete(api: Any, container: str) -> bool:
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


def _remove_if_dead(api: Any, loader: str, now: float) -> None:
    with suppress(OSError):
        found = api.inspect_container(loader)
        if is_past(found["Config"].get("Labels") or {}, KEPT_UNTIL, now):
            api.remove_container(found["Id"], force=True, v=False)  # by its id: another client may have made a new one


def _put(api: Any, container: str, path: str, opened: Any) -> None:
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
