"""Lease the cards of another machine. A lease is a container that is never started: the engine gives its name to one client only.

The leases are where the cards are, so they hold between users and clients, and no client has to stay alive for one: a lease names the
container that uses the card, and the time at which it ends at the latest. Once either is over, the next client takes it away.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from warpwave.engines.docker.container import name_in, slug
from warpwave.engines.protocol import Say
from warpwave.engines.remote.container import KEPT_UNTIL, MADE, OWNER, RUN, UNTIL, is_past, moment
from warpwave.engines.remote.files import unused
from warpwave.errors import InfrastructureError, printable

KIND, HOLDER = f"{MADE}.lease", f"{MADE}.holder"
ALL = "all"

_POLL_S = 1.0
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
            raise InfrastructureError(
                f"{claim.words} is in use by {other}.",
                f"Another run uses it and did not end within {wait_s:g} s. Two runs at a time would spoil both.",
                "Wait for it, choose another card with --gpu, or end that run.",
            )
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
            _remove(api, lease["Id"])


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
            _remove(api, lease)
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
            if _is_over(entry, containers.get(labels.get(HOLDER, "")), now):
                _remove(api, entry["Id"])
            elif not claim.cards or name in wanted:
                run, owner = (str(labels.get(name, "unknown")) for name in (RUN, OWNER))  # other clients have written them
                found = printable(f"run {run[:100]} of {owner[:100]}")
    return found


def _is_over(lease: Mapping[str, Any], holder: Mapping[str, Any] | None, now: float) -> bool:
    if is_past(lease.get("Labels") or {}, UNTIL, now):
        return True
    state = str(holder.get("State")) if holder else ""
    if state in ("running", "paused", "restarting", "exited", "dead"):
        return state in ("exited", "dead")
    created = lease.get("Created")  # seconds of Docker, a date of Podman
    created = created if isinstance(created, (int, float)) else moment(str(created))
    return created is not None and now - created > _START_S


def _remove(api: Any, container: str) -> None:
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
                _remove(api, entry["Id"])
            found.append(f"container {name_in(entry)}")
    for volume in unused(api, now):
        if not dry_run:
            with suppress(OSError):  # a container may use it
                api.remove_volume(volume)
        found.append(f"volume {volume}")
    return found
