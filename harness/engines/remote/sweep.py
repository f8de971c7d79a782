"""Remove what remote runs have left in an engine, once its time is over. Any client may do it, on the machine itself or elsewhere."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from harness.engines.remote.container import KEPT_UNTIL, MADE, UNTIL, is_past
from harness.engines.remote.files import unused


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
