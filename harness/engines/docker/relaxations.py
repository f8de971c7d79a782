"""The named ways to weaken a container's isolation. Each removes one protection, and the results record it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from harness.errors import UsageError

Body = dict[str, Any]


def _set(key: str, value: object) -> Callable[[Body], None]:
    return lambda body: body["HostConfig"].update({key: value})


def _security(option: str) -> Callable[[Body], None]:
    return lambda body: body["HostConfig"]["SecurityOpt"].append(option)


def _as_root(body: Body) -> None:
    # Without capabilities, even root could not write to a results folder that another user owns.
    body["User"] = "0:0"
    body["HostConfig"]["CapAdd"] = ["DAC_OVERRIDE"]


WEAKENINGS: dict[str, Callable[[Body], None]] = {
    "seccomp=unconfined": _security("seccomp=unconfined"),
    "label=disable": _security("label=disable"),
    "network=bridge": _set("NetworkMode", "bridge"),
    "network=host": _set("NetworkMode", "host"),
    "ipc=host": _set("IpcMode", "host"),
    "writable-root": _set("ReadonlyRootfs", False),
    "user=root": _as_root,
}


def check_weakenings(names: Sequence[str]) -> None:
    """Refuse an unknown weakening, before anything is built.

    Raises:
        UsageError: a name is unknown.
    """
    for name in names:
        if name not in WEAKENINGS:
            meaning = "Each protection of the container is given up by its own name, so that the report can show it."
            raise UsageError(f"There is no weakening named {name!r}.", meaning, f"Choose from: {', '.join(WEAKENINGS)}.")
