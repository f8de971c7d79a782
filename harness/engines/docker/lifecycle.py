"""The life of one container: hold it to its deadline, end it gently, and find what dead runs left behind.

Every error of the SDK's HTTP calls is an `OSError` (through `requests`), so nothing of the SDK is imported here.
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
from harness.engines.seam import Say
from harness.records import Exit

_POLL_S = 1.0
_RECONNECT_S = 15.0
_TERMINATE_S = 10.0
_WRITING_S = 10.0  # for what fills the disk meanwhile
_KILL_S = 15.0
_DRAIN_S = 5.0
_SLICE_S = 0.1


class Api(Protocol):
    """What is used of the SDK's client."""

    def inspect_container(self, container: str) -> dict[str, Any]:
        """What the engine knows of a container."""
        ...

    def containers(self, *, all: bool, filters: dict[str, str]) -> list[dict[str, Any]]:
        """The containers that match."""
        ...

    def kill(self, container: str, signal: str = ...) -> None:
        """Send a signal."""
        ...


class Quota(Protocol):
    """Whether the results are over their cap."""

    exceeded: str
    hopeless: bool


class _NoQuota:
    exceeded, hopeless = "", False


class _LostError(Exception):
    """The engine no longer answers, or no longer knows the container."""


def watch(api: Api, container: str, output: Output, on_line: Say, limit_s: float, grace_s: float, quota: Quota | None = None) -> Exit:
    """Stay with a started container until it ends, its time or its room is up or the user has had enough; it is not running afterwards."""
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
                ends = _ends_before(api, container, reader.ended, started + limit_s, quota)
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
    """SIGINT, then SIGTERM, then SIGKILL, each rung with a bound: a GPU runtime that is killed outright can leak its memory.

    More than `patient_with` requests to stop skip the grace, and so does a quota that is used up twice over.
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
    """Id and name of each container whose run is over for certain; those that a user asked to keep only if `kept`."""
    found = []
    for entry in api.containers(all=True, filters={"label": f"{LABEL}.run"}):
        labels = entry.get("Labels") or {}
        if (kept or labels.get(f"{LABEL}.keep") != "true") and owner_is_dead(labels, LABEL, entry.get("State") == "running"):
            found.append((entry["Id"], (entry.get("Names") or [entry["Id"][:12]])[0].lstrip("/")))
    return found


def _ends_before(api: Api, container: str, ended: threading.Event, deadline: float, quota: Quota) -> bool:
    while (left := deadline - time.monotonic()) > 0 and not quota.exceeded:
        if ended.is_set():
            time.sleep(min(left, 0.1))  # the output ends a moment before the engine knows
        ended.wait(min(left, _POLL_S))
        if not _state(api, container)["Running"]:
            return True
    return not _state(api, container)["Running"]


def _state(api: Api, container: str) -> dict[str, Any]:
    """The engine's view. After it was away, an end of the container is not believed: engines have made up exit code 0 on restart."""
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
    """The last lines; who has asked twice to stop does not wait for them."""
    until = time.monotonic() + _DRAIN_S
    while time.monotonic() < until and signals.asked() < 2 and not reader.ended.wait(_SLICE_S):
        pass


def _inspect(api: Api, container: str) -> dict[str, Any]:
    try:
        state: dict[str, Any] = api.inspect_container(container)["State"]
        return {**state, "Running": bool(state["Running"]), "ExitCode": int(state.get("ExitCode") or 0)}
    except (ValueError, LookupError, TypeError, AttributeError) as error:  # that of JSON is a ValueError, and an OSError too
        if isinstance(error, OSError):
            raise
        raise ConnectionError(f"it answers something else than the state of a container: {type(error).__name__}") from None


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
