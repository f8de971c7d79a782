"""Lease the cards of another machine. A lease is a container that is never started: the engine gives its name to one client only.

The leases are where the cards are, so they hold between users and clients, and no client has to stay alive for one: a lease names the
container that uses the card, and the time at which it ends at the latest. Once either is over, the next client takes it away.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from warpwave.engines.docker.container import slug
from warpwave.engines.protocol import Say
from warpwave.engines.remote.container import KEPT_UNTIL, MADE, OWNER, RUN, UNTIL, is_past
from warpwave.engines.remote.files import unused
from warpwave.errors import InfrastructureError

KIND, HOLDER = f"{MADE}.lease", f"{MADE}.holder"
ALL = "all"

_POLL_S = 1.0
_START_S = 60.0  # within this time of a lease its container starts
_TAKEN = 409


class Api(Protocol):
    """The methods of the SDK's client that this file uses."""

    def containers(self, *, all: bool, filters: Mapping[str, object]) -> list[dict[str, Any]]:
        """Return the containers that match."""
        ...

    def create_container_from_config(self, config: dict[str, Any], name: str) -> dict[str, Any]:
        """Create a container, and return its id."""
        ...

    def remove_container(self, container: str, *, force: bool, v: bool) -> None:
        """Remove a container."""
        ...


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
def leased(api: Api, claim: Claim, wait_s: float, say: Say, now: Callable[[], float]) -> Iterator[None]:
    """Hold the leases of a claim. `now` returns the time there.

    Raises:
        InfrastructureError: another run uses a card, and did not release it within `wait_s` seconds.
    """
    release(api, claim.holder)  # those of an earlier attempt
    _wait(lambda: _take(api, claim, now()), claim, wait_s, say)
    try:
        yield
    finally:
        release(api, claim.holder)


def _wait(other_run: Callable[[], str], claim: Claim, wait_s: float, say: Say) -> None:
    until, announced = time.monotonic() + wait_s, False
    while other := other_run():
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


def release(api: Api, holder: str) -> None:
    """Give up all leases of a container."""
    with suppress(OSError):
        for lease in api.containers(all=True, filters={"label": f"{HOLDER}={holder}"}):
            _remove(api, lease["Id"])


def _take(api: Api, claim: Claim, now: float) -> str:
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


def _in_the_way(api: Api, claim: Claim, now: float) -> str:
    """Return who holds a card of the claim. Take leases away whose runs are over."""
    found = ""
    containers = {_name(entry): entry for entry in api.containers(all=True, filters={})}
    wanted = {*claim.names, f"warpwave-lease-{slug(claim.kind)}-{ALL}"}
    for name, entry in containers.items():
        labels = entry.get("Labels") or {}
        if labels.get(KIND) == claim.kind and labels.get(HOLDER) != claim.holder:
            if _is_over(entry, containers.get(labels.get(HOLDER, "")), now):
                _remove(api, entry["Id"])
            elif not claim.cards or name in wanted:
                found = f"run {_text(labels, RUN)} of {_text(labels, OWNER)}"
    return found


def _is_over(lease: Mapping[str, Any], holder: Mapping[str, Any] | None, now: float) -> bool:
    """Return whether the run of a lease has ended, or never began."""
    if is_past(lease.get("Labels") or {}, UNTIL, now):
        return True
    if holder is not None and str(holder.get("State")) in ("running", "paused", "restarting"):
        return False
    if holder is not None and str(holder.get("State")) in ("exited", "dead"):
        return True
    return now - _created(lease, now) > _START_S


def _created(entry: Mapping[str, Any], otherwise: float) -> float:
    value = entry.get("Created")
    if isinstance(value, (int, float)):
        return float(value)
    with suppress(ValueError):
        return datetime.fromisoformat(re.sub(r"(\.\d{1,6})\d*", r"\1", str(value)).replace("Z", "+00:00")).timestamp()
    return otherwise


def _name(entry: Mapping[str, Any]) -> str:
    return str((entry.get("Names") or [entry.get("Id", "")])[0]).lstrip("/")


def _text(labels: Mapping[str, str], name: str) -> str:
    """Return a label for a message. Other clients have written it."""
    return "".join(character for character in str(labels.get(name, "somebody")) if character.isprintable())[:100]


def _remove(api: Api, container: str) -> None:
    with suppress(OSError):
        api.remove_container(container, force=True, v=True)


# Remove what remote runs have left in an engine, once its time is over. Any client may do it, on the machine itself or elsewhere.


def sweep(api: Any, now: float, dry_run: bool) -> list[str]:
    """Kill containers that are past their limit, and remove containers and volumes whose time is over. Return the names of those.

    `now` is the time of the engine's machine. With `dry_run`, only return the names.
    """
    found = []
    for entry in api.containers(all=True, filters={"label": MADE}):
        labels = entry.get("Labels") or {}
        if entry.get("State") == "running" and is_past(labels, UNTIL, now) and not dry_run:
            with suppress(OSError):  # its guard should have ended it
                api.kill(entry["Id"])
        if is_past(labels, KEPT_UNTIL, now):
            if not dry_run:
                with suppress(OSError):
                    api.remove_container(entry["Id"], force=True, v=True)
            found.append(f"container {(entry.get('Names') or [entry['Id'][:12]])[0].lstrip('/')}")
    for volume in unused(api, now):
        if not dry_run:
            with suppress(OSError):  # a container may use it
                api.remove_volume(volume)
        found.append(f"volume {volume}")
    return found
