"""The GPUs that share a stage's work, and how one process is limited to one of them.

The variable that limits a process to some GPUs is set per target in targets.yml and comes with the job. A worker sees a single GPU, as its
first. Every result carries the index that this GPU has in `facts.json`.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.records import Job

CARD_VARIABLE = "WARPWAVE_CARD"
SEAT_VARIABLE = "WARPWAVE_SEAT"
SEAT_STEP = 1000  # more cards than a host has


@dataclass(frozen=True)
class Card:
    """A GPU by its index among all GPUs of this run, and the variables that hide the others from a process."""

    index: int
    variables: dict[str, str] = field(default_factory=dict)


def cards(job: Job) -> tuple[Card, ...]:
    """Return the GPUs that share the work; empty if a single process does everything on the first GPU."""
    if job.visible_devices is None or not job.needs_card:
        return ()
    devices = _devices(job)
    # An engine or scheduler that selected GPUs has listed them in this variable, in torch's order.
    shown = [name.strip() for name in os.environ.get(job.visible_devices, "").split(",") if name.strip()]
    names = shown if len(shown) >= len(devices) else list(map(str, range(len(devices))))
    found: dict[object, Card] = {}
    for device, name in zip(devices, names, strict=False):
        # The same GPU under two names is one GPU: two processes on it would disturb each other's timings.
        found.setdefault(
            device.get("uuid") or device["index"],
            Card(device["index"], {job.visible_devices: name, CARD_VARIABLE: str(device["index"])}),
        )
    return tuple(found.values()) if len(found) > 1 else ()


def own_index() -> int:
    """In a worker: return the index of its GPU; 0 if the GPUs are not shared out."""
    return int(os.environ.get(CARD_VARIABLE, "0"))


def own_seat() -> int:
    """In a worker: return the number of its seat; 0 if no other worker shares its stage."""
    return int(os.environ.get(SEAT_VARIABLE, "0"))


def card_of(seat: int) -> int:
    """Return the index of the card of a seat, by the seat's number."""
    return seat % SEAT_STEP


def is_shared() -> bool:
    """In a worker: return whether other GPUs have workers too."""
    return CARD_VARIABLE in os.environ


def _devices(job: Job) -> list[dict[str, Any]]:
    """Return the devices that the facts stage found. It has passed, otherwise no other stage runs."""
    try:
        return list(json.loads((Path(job.output) / "facts.json").read_text(encoding="utf-8"))["devices"])
    except (OSError, ValueError, KeyError):
        return []
