"""The cards that share a stage's work, and how one process is shown one of them.

Which variable shows a process some of the cards is the target's, in targets.yml, and comes with the job. A worker sees one card, as its
first, and every number that it takes carries the index that this card has in `facts.json`.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.records import Job

CARD_VARIABLE = "WARPWAVE_CARD"


@dataclass(frozen=True)
class Card:
    """A card by its index among all that this run sees, and the variables with which a process sees no other."""

    index: int
    variables: dict[str, str] = field(default_factory=dict)


def cards(job: Job) -> tuple[Card, ...]:
    """The cards to share the work between; none where one process is to have all of it, on the first card."""
    if job.visible_devices is None or job.interpret:
        return ()
    devices = _devices(job)
    # Who has chosen cards before us, the engine or a scheduler, has named them in this variable: its order is torch's.
    shown = [name.strip() for name in os.environ.get(job.visible_devices, "").split(",") if name.strip()]
    names = shown if len(shown) >= len(devices) else list(map(str, range(len(devices))))
    found: dict[object, Card] = {}
    for device, name in zip(devices, names, strict=False):
        # The same card by two names is one card: two processes on it would spoil each other's times.
        found.setdefault(
            device.get("uuid") or device["index"],
            Card(device["index"], {job.visible_devices: name, CARD_VARIABLE: str(device["index"])}),
        )
    return tuple(found.values()) if len(found) > 1 else ()


def own_index() -> int:
    """In a worker: the index of its card; 0 where the cards are not shared out."""
    return int(os.environ.get(CARD_VARIABLE, "0"))


def is_shared() -> bool:
    """In a worker: whether other cards have workers of their own."""
    return CARD_VARIABLE in os.environ


def _devices(job: Job) -> list[dict[str, Any]]:
    """What the facts stage has seen; it has passed, or nobody would ask."""
    try:
        return list(json.loads((Path(job.output) / "facts.json").read_text(encoding="utf-8"))["devices"])
    except (OSError, ValueError, KeyError):
        return []
