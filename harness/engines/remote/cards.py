"""What another machine has: its hardware as the container's options need it, and the cards that a run claims."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from harness.engines.docker.container import container_name
from harness.engines.docker.host import OPEN_FILES, Host, Node, is_rootless, process_limit
from harness.engines.protocol import Request
from harness.engines.remote.lease import Claim
from harness.engines.ssh.ask import answer_of, look
from harness.engines.ssh.command import Place
from harness.errors import InfrastructureError

_MOST_CARDS = 64


def hardware(place: Place, request: Request, info: Mapping[str, Any], podman: bool) -> Host:
    """Return the facts of a machine. `info` is its engine's description of itself.

    Raises:
        InfrastructureError: a device node that the target needs is missing there.
    """
    target = request.target
    there = look(place, target.devices.nodes)
    if target.devices.nodes and not there.nodes:
        raise InfrastructureError(
            f"{target.name}: there is no device node {' or '.join(target.devices.nodes)} on {place.name}.",
            "It has no such GPU, or its kernel driver is not loaded.",
            target.probe.fix or "Load the driver of the GPU, or choose another machine.",
        )
    limited = podman or there.uid == 0 or is_rootless(info)
    return Host(
        uid=0,  # the container's user is then `nobody`: no folder of the user there has to be written to
        gid=0,
        cpus=int(info.get("NCPU") or 1),
        memory_bytes=int(info.get("MemTotal") or 8 << 30),
        # An engine that may not raise limits has those of its user. The limits of a user in a group of an engine say nothing about it.
        open_files=min(OPEN_FILES, there.files) if limited and there.files >= 0 else OPEN_FILES,
        pid=0,
        boot="remote",
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        nodes=tuple(Node(path, group) for path, group in there.nodes),
        processes=process_limit(there.processes) if podman else None,
    )


def claimed(place: Place, request: Request, labels: dict[str, str], image: str) -> Claim | None:
    """Return which cards a run claims; None if its target uses none.

    Raises:
        InfrastructureError: the machine has other cards than the chosen ones.
    """
    target, chosen = request.target, request.options.gpu.split(",") if request.options.gpu else []
    if not (target.visible_devices or target.probe.require):
        return None
    known = cards_of(place, request)
    if lacking := [card for card in chosen if known and card.isdigit() and card not in known]:
        raise InfrastructureError(
            f"{place.name} has no GPU {', '.join(lacking)} of {target.kind}.",
            f"It has {', '.join(known)}.",
            "Choose one of them with --gpu, or with `gpu` in hosts.yml.",
        )
    # A card that is named in another way, such as by its UUID, may be any of them.
    cards = tuple(dict.fromkeys(chosen)) if chosen and all(card in known for card in chosen) else known
    return Claim(target.kind, cards, container_name(request), image, labels, place.name)


def cards_of(place: Place, request: Request) -> tuple[str, ...]:
    """Return the indices of a target's cards there, as the vendor's tool tells them; nothing if it does not."""
    for check in request.target.doctor.checks:
        if check.name != "cards" or not check.run or "index" not in re.compile(check.rows or "").groupindex:
            continue
        answer = answer_of(place, check.run, check.limit_s)
        found = {match["index"] for match in re.finditer(check.rows or "", answer.text, re.MULTILINE)}
        if not answer.trouble and 0 < len(found) <= _MOST_CARDS:
            return tuple(sorted(found, key=lambda index: (len(index), index)))
    return ()
