"""What a run leaves in another machine's engine: containers and their guard, volumes in place of folders, and leases of cards.

A lease is a container that is never started: the engine gives its name to one client only. The leases are where the cards are, so they hold
between users and clients, and no client has to stay alive for one: a lease names the container that uses the card, and the time at which it
ends at the latest. Once either is over, the next client takes it away.
"""

import getpass
import math
import random
import re
import socket
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from warpwave.engines import snapshot
from warpwave.engines.docker.container import LABEL, Body, Host, container_name, container_options, name_in, slug
from warpwave.engines.docker.deadlines import paced
from warpwave.engines.incoming import OURS, unpack
from warpwave.engines.protocol import Request, Say
from warpwave.engines.snapshot import packing
from warpwave.errors import InfrastructureError, printable
from warpwave.records import Cap, Environment
from warpwave.records.isolated import isolated

CODE, RESULTS = "/warpwave", "/results"
OUTPUT = f"{RESULTS}/run"
"""A folder in the volume: engines give a volume itself to root."""

# Labels of what remote runs make. Runs on the machine itself sweep by another label, and leave these alone.
MADE = f"{LABEL}.remote"
RUN, LEG, OWNER, UNTIL, KEPT_UNTIL, ARCHIVE = (f"{MADE}.{name}" for name in ("run", "leg", "owner", "until", "kept-until", "archive"))

_SPARE_S = 120.0  # the client ends a run at its limit; the guard does where there is no client
_KEPT_S = 24 * 3600.0  # how long the results of a run wait for `--resume` after its limit


def results_volume(request: Request) -> str:
    """Return the name of the volume with the results of a run."""
    return f"{container_name(request)}-results"


def code_volume(archive: snapshot.Snapshot) -> str:
    """Return the name of the volume with the unpacked archive. Its content decides it, so runs of the same files share it."""
    return f"warpwave-code-{archive.name}"


def options_of(
    request: Request, environment: Environment, host: Host, archive: snapshot.Snapshot, now: float, command: Sequence[str] = ()
) -> Body:
    """Return the body of the create call. `command` replaces the guard and the inside, for tests of the isolation."""
    volumes = ((code_volume(archive), CODE, True), (results_volume(request), RESULTS, False))
    folders = [{"Type": "volume", "Source": name, "Target": place, "ReadOnly": only} for name, place, only in volumes]
    body = container_options(request, environment, host, tuple(command) or guard(request, environment.python), folders)
    body["Labels"] = {**labels_of(request, now), ARCHIVE: archive.digest}
    body["HostConfig"]["Init"] = False  # the guard is the first process, which no other can stop, and reaps orphans
    return body


def guard(request: Request, python: str) -> tuple[str, ...]:
    """Return the command that a container starts: what keeps the limits, and starts the inside."""
    options = request.options
    limits = [options.limits.target_s + _SPARE_S, options.limits.grace_s, options.limits.cap.bytes, options.limits.cap.files]
    return isolated(python, CODE, "warpwave.inside.watchdog", *(str(math.ceil(limit)) for limit in limits), f"{OUTPUT}/job.json")


def labels_of(request: Request, now: float) -> dict[str, str]:
    """Return the labels by which this and other clients recognize what belongs to a run. `now` is the time there."""
    options = request.options
    until = now + options.limits.target_s + options.limits.grace_s + 2 * _SPARE_S
    return {
        MADE: "true",
        RUN: options.where.run_id,
        LEG: request.target.name,
        OWNER: owner(),
        UNTIL: str(math.ceil(until)),
        KEPT_UNTIL: "" if options.build.keep else str(math.ceil(until + _KEPT_S)),
    }


def owner() -> str:
    """Return who runs this client, for a message to another one."""
    user = "unknown"
    with suppress(Exception):  # the user may have no name
        user = getpass.getuser()
    return re.sub(r"[^\w.@+-]", "_", f"{user}@{socket.gethostname()}")[:100]


def time_in(info: Mapping[str, Any]) -> float:
    """Return the time of the machine that an engine describes, in seconds: the clocks of clients may differ."""
    there = moment(str(info.get("SystemTime") or ""))
    return datetime.now(timezone.utc).timestamp() if there is None else there


def moment(text: str) -> float | None:
    """Return a date as an engine writes it, with nanoseconds, in seconds; None if the text is no date."""
    with suppress(ValueError):
        return datetime.fromisoformat(re.sub(r"(\.\d{1,6})\d*", r"\1", text).replace("Z", "+00:00")).timestamp()
    return None


def is_past(labels: Mapping[str, str], name: str, now: float) -> bool:
    """Return whether the time in a label is over. A label that is missing or wrong names no time."""
    text = labels.get(name, "")
    return text.isdigit() and len(text) < 15 and int(text) < now


CODE_LABEL = f"{MADE}.code"

_UPLOAD_S = 1800.0  # for one archive
_LOAD_S = 3600  # after this time a client that loads an archive counts as dead
_CODE_KEPT_S = 7 * 24 * 3600  # how long an archive that no run uses may stay
_POLL_S = 1.0


def make_volumes(api: Any, archive: snapshot.Snapshot, results: str, labels: dict[str, str], now: float) -> None:
    """Make the volumes of a run: an empty one for its results, and that of the archive if it is not there."""
    api.create_volume(code_volume(archive), labels={CODE_LABEL: archive.digest, KEPT_UNTIL: str(int(now + _CODE_KEPT_S))})
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
            with suppress(OSError):
                found = api.inspect_container(loader)
                if is_past(found["Config"].get("Labels") or {}, KEPT_UNTIL, now):
                    _drop(api, found["Id"])  # by its id: another client may have made a new one
            time.sleep(_POLL_S)
            continue
        try:
            if not _is_complete(api, container):
                _put(api, made, CODE, archive.open)
                return True
        finally:
            _drop(api, made)
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
        _drop(api, loader)


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


KIND, HOLDER = f"{MADE}.lease", f"{MADE}.holder"
ALL = "all"

_START_S = 60.0  # within this time of a lease its container starts
_TAKEN = 409


@dataclass(frozen=True)
class Claim:
    """Which cards a run wants: those of one kind of target, by their names there, or all of them. `labels` are the run's own."""

    kind: str
    cards: tuple[str, ...]
    holder: str
    image: str
    labels: dict[str, str]
    where: str

    @property
    def names(self) -> list[str]:
        """The names of its leases."""
        return [f"warpwave-lease-{slug(self.kind)}-{slug(card)}" for card in self.cards or (ALL,)]

    @property
    def words(self) -> str:
        """The cards, for a message."""
        which = f"GPU {', '.join(self.cards)}" if self.cards else "the GPUs"
        return f"{which} of {self.kind} on {self.where}"


@contextmanager
def leased(api: Any, claim: Claim, wait_s: float, say: Say, now: Callable[[], float]) -> Iterator[None]:
    """Hold the leases of a claim. `now` returns the time there. Raises InfrastructureError if another run uses a card, and did not release
    it within `wait_s` seconds."""
    release(api, claim.holder)  # those of an earlier attempt
    until, announced = time.monotonic() + wait_s, False
    while other := _take(api, claim, now()):
        if time.monotonic() >= until:
            happened = f"{claim.words} is in use by {other}."
            meaning = f"Another run uses it and did not end within {wait_s:g} s. Two runs at a time would spoil both."
            raise InfrastructureError(happened, meaning, "Wait for it, choose another card with --gpu, or end that run.")
        if not announced:
            say(f"{claim.words} is in use by {other}: waiting up to {wait_s:g} s")
            announced = True
        time.sleep(_POLL_S * random.uniform(0.5, 1.5))  # noqa: S311 - so that two clients do not meet for ever; this is no secret
    try:
        yield
    finally:
        release(api, claim.holder)


def release(api: Any, holder: str) -> None:
    """Give up all leases of a container."""
    with suppress(OSError):
        for lease in api.containers(all=True, filters={"label": f"{HOLDER}={holder}"}):
            _drop(api, lease["Id"])


def _take(api: Any, claim: Claim, now: float) -> str:
    """Take all leases of a claim, or none. Return who is in the way."""
    mine: list[str] = []
    for name in claim.names:
        labels = {**claim.labels, KIND: claim.kind, HOLDER: claim.holder}
        body = {"Image": claim.image, "Entrypoint": ["lease"], "Cmd": [], "Labels": labels, "HostConfig": {"NetworkMode": "none"}}
        try:
            mine.append(str(api.create_container_from_config(body, name)["Id"]))
        except OSError as error:
            # Podman answers with 500 where Docker does with 409.
            if getattr(error, "status_code", None) != _TAKEN and "already in use" not in str(getattr(error, "explanation", "")):
                raise
            break
    # Every client takes first and looks then, so of two that want all cards and one of them, at least one sees the other.
    other = _in_the_way(api, claim, now)
    if other or len(mine) < len(claim.names):
        for lease in mine:
            _drop(api, lease)
        return other or "a run that has ended a moment ago"
    return ""


def _in_the_way(api: Any, claim: Claim, now: float) -> str:
    """Return who holds a card of the claim. Take leases away whose runs are over."""
    found = ""
    containers = {name_in(entry): entry for entry in api.containers(all=True, filters={})}
    wanted = {*claim.names, f"warpwave-lease-{slug(claim.kind)}-{ALL}"}
    for name, entry in containers.items():
        labels = entry.get("Labels") or {}
        if labels.get(KIND) == claim.kind and labels.get(HOLDER) != claim.holder:
            if _has_ended(entry, containers.get(labels.get(HOLDER, "")), now):
                _drop(api, entry["Id"])
            elif not claim.cards or name in wanted:
                run, owner = (str(labels.get(name, "unknown")) for name in (RUN, OWNER))  # other clients have written them
                found = printable(f"run {run[:100]} of {owner[:100]}")
    return found


def _has_ended(lease: Mapping[str, Any], holder: Mapping[str, Any] | None, now: float) -> bool:
    if is_past(lease.get("Labels") or {}, UNTIL, now):
        return True
    state = str(holder.get("State")) if holder else ""
    if state in ("running", "paused", "restarting", "exited", "dead"):
        return state in ("exited", "dead")
    created = lease.get("Created")  # seconds of Docker, a date of Podman
    created = created if isinstance(created, (int, float)) else moment(str(created))
    return created is not None and now - created > _START_S


def _drop(api: Any, container: str) -> None:
    with suppress(OSError):
        api.remove_container(container, force=True, v=True)


def sweep(api: Any, now: float, dry_run: bool) -> list[str]:
    """Kill containers that are past their limit, and remove containers and volumes whose time is over. Return the names of those. `now` is
    the time of the engine's machine. With `dry_run`, only return the names."""
    found = []
    for entry in api.containers(all=True, filters={"label": MADE}):
        labels = entry.get("Labels") or {}
        if entry.get("State") == "running" and is_past(labels, UNTIL, now) and not dry_run:
            with suppress(OSError):  # its guard should have ended it
                api.kill(entry["Id"])
        if is_past(labels, KEPT_UNTIL, now):
            if not dry_run:
                _drop(api, entry["Id"])
            found.append(f"container {name_in(entry)}")
    for volume in unused(api, now):
        if not dry_run:
            with suppress(OSError):  # a container may use it
                api.remove_volume(volume)
        found.append(f"volume {volume}")
    return found
