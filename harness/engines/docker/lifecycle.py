"""Watch one container: enforce its deadline, stop it gracefully, and find containers of dead runs.

Every error of the SDK's HTTP calls is an `OSError` (through `requests`), so this file does not import the SDK.
"""

from __future__ import annotations

import math
import threading
import time
from contextlib import suppress
from typing import Any, Protocol

from harness.engines import signals
from harness.engines.docker.container import LABEL
from harness.engines.docker.host import owner_is_dead
from harness.engines.output import Output, Reader
from harness.engines.protocol import Say
from harness.records import Exit

_POLL_S = 1.0
_RECONNECT_S = 15.0
_TERMINATE_S = 10.0
_WRITING_S = 10.0  # a short grace: the run may be filling the disk
_KILL_S = 15.0
_DRAIN_S = 5.0
_SLICE_S = 0.1


class Api(Protocol):
    """The methods of the SDK's client that this file uses."""

    def inspect_container(self, container: str) -> dict[str, Any]:
        """Return the engine's description of a container."""
        ...

    def containers(self, *, all: bool, filters: dict[str, str]) -> list[dict[str, Any]]:
        """Return the containers that match."""
        ...

    def kill(self, container: str, signal: str = ...) -> None:
        """Send a signal."""
        ...


class Quota(Protocol):
    """Tells whether the results exceed their limit; see `results_limit.Watch`."""

    exceeded: str
    hopeless: bool


class _NoQuota:
    exceeded, hopeless = "", False


class _LostError(Exception):
    """The engine does not answer any more, or does not know the container any more."""


def watch(
    api: Api,
    container: str,
    output: Output,
    on_line: Say,
    limit_s: float,
    grace_s: float,
    quota: Quota | None = None,
    poll_s: float = _POLL_S,
) -> Exit:
    """Watch a started container until it ends, exceeds a limit, or the user stops it. Then make sure that it is not running.

    `poll_s` is how often to ask for its state; the end of its output is noticed at once.
    """
    quota = quota or _NoQuota()
    started = time.monotonic()
    reader = Reader(output, on_line)
    timed_out = interrupted = False
    state: dict[str, Any] | None = None
    error = ""
    try:
        try:
            with signals.interruptible():
                reader.start()
                ends = _ends_before(api, container, reader.ended, started + limit_s, quota, poll_s)
            if not ends:
                timed_out = not quota.exceeded
                end(api, container, min(grace_s, _WRITING_S) if quota.exceeded else grace_s, quota=quota)
        except KeyboardInterrupt:
            interrupted = True
            end(api, container, grace_s, patient_with=1)
        state = _state(api, container)
    except _LostError as lost:
        error = str(lost)
    _drain(reader)
    seconds = round(time.monotonic() - started, 3)
    if state is not None and state["Running"]:
        state, error = None, "the container survives SIGKILL: a process in it hangs in the driver; drain or reboot this machine"
    if state is None:
        return Exit(None, seconds, timed_out=timed_out, interrupted=interrupted, error=error, exceeded=quota.exceeded)
    oom_killed, error = bool(state.get("OOMKilled")), str(state.get("Error") or "")
    return Exit(int(state["ExitCode"]), seconds, oom_killed, timed_out, interrupted, error, quota.exceeded)


def end(api: Api, container: str, grace_s: float, patient_with: int = 0, quota: Quota | None = None) -> None:
    """Send SIGINT, then SIGTERM, then SIGKILL, with a wait after each. A GPU runtime that is killed at once can leak its memory.

    More than `patient_with` requests to stop skip the waits, and so do results over twice their limit.
    """
    quota = quota or _NoQuota()
    for rung, patience in (("SIGINT", grace_s), ("SIGTERM", min(grace_s, _TERMINATE_S))):
        if patience > 0 and signals.asked() <= patient_with and not quota.hopeless:
            with suppress(OSError):
                api.kill(container, signal=rung)
            if _is_over(api, container, patience, patient_with, quota):
                return
    with suppress(OSError):
        api.kill(container)
    _is_over(api, container, _KILL_S)


def leftovers(api: Api, kept: bool) -> list[tuple[str, str]]:
    """Return the id and name of each container whose run has certainly ended. Include kept containers only if `kept` is true."""
    found = []
    for entry in api.containers(all=True, filters={"label": f"{LABEL}.run"}):
        labels = entry.get("Labels") or {}
        if (kept or labels.get(f"{LABEL}.keep") != "true") and owner_is_dead(labels, LABEL, entry.get("State") == "running"):
            found.append((entry["Id"], (entry.get("Names") or [entry["Id"][:12]])[0].lstrip("/")))
    return found


def _ends_before(api: Api, container: str, ended: threading.Event, deadline: float, quota: Quota, poll_s: float) -> bool:
    while (left := deadline - time.monotonic()) > 0 and not quota.exceeded:
        if ended.is_set():
            time.sleep(min(left, 0.1))  # the output ends a moment before the engine notices the end of the container
        ended.wait(min(left, poll_s))
        if not _state(api, container)["Running"]:
            return True
    return not _state(api, container)["Running"]


def _state(api: Api, container: str) -> dict[str, Any]:
    """Return the container's state. If the connection broke meanwhile, do not trust an exit code: restarted engines have invented a 0."""
    broken, until = "", time.monotonic() + _RECONNECT_S
    while True:
        try:
            state = _inspect(api, container)
        except OSError as error:
            if getattr(error, "status_code", None) == 404:
                raise _LostError("the container was removed while it ran, or the engine was restarted") from None
            broken = f"the connection to the engine broke while the container ran: {error}"
            if time.monotonic() > until:
                raise _LostError(broken) from None
            time.sleep(0.5)
        else:
            if broken and not state["Running"]:
                raise _LostError(f"{broken}; it is back, but how the container ended is not known")
            return state


def _drain(reader: Reader) -> None:
    """Wait for the last lines of output, unless the user has asked twice to stop."""
    until = time.monotonic() + _DRAIN_S
    while time.monotonic() < until and signals.asked() < 2 and not reader.ended.wait(_SLICE_S):
        pass


def _inspect(api: Api, container: str) -> dict[str, Any]:
    try:
        state: dict[str, Any] = api.inspect_container(container)["State"]
        return {**state, "Running": bool(state["Running"]), "ExitCode": int(state.get("ExitCode") or 0)}
    except (ValueError, LookupError, TypeError, AttributeError) as error:  # the JSON error is both a ValueError and an OSError
        if isinstance(error, OSError):
            raise
        raise ConnectionError(f"its answer is not the state of a container: {type(error).__name__}") from None


def _is_over(api: Api, container: str, patience_s: float, patient_with: float = math.inf, quota: Quota | None = None) -> bool:
    until = time.monotonic() + patience_s
    while True:
        try:
            if not _inspect(api, container)["Running"]:
                return True
        except OSError as error:
            if getattr(error, "status_code", None) == 404:
                return True
        if time.monotonic() >= until or signals.asked() > patient_with or (quota and quota.hopeless):
            return False
        time.sleep(_SLICE_S)
