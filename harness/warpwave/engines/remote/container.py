"""What a container on another machine is made of: its volumes instead of folders, its labels, and the guard that ends it."""

from __future__ import annotations

import getpass
import math
import re
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any

from warpwave.engines import snapshot
from warpwave.engines.docker.container import LABEL, Body, Host, container_name, container_options
from warpwave.engines.protocol import Request
from warpwave.records import Environment
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
    folders = [_volume(code_volume(archive), CODE, True), _volume(results_volume(request), RESULTS, False)]
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


def _volume(name: str, destination: str, read_only: bool) -> dict[str, Any]:
    return {"Type": "volume", "Source": name, "Target": destination, "ReadOnly": read_only}
