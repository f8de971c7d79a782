"""Comparison → the table of what every target ran on, with differences marked. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from harness.compare.model import Comparison, DeviceSummary, TargetSummary
from harness.render.sections.cards import remarks, several, use_of_cards
from harness.render.text import number

_MOST = 16  # different GPUs per target
_MOST_PACKAGES = 200


@dataclass(frozen=True)
class Fact:
    """One fact of all targets. `refuses`: this difference alone forbids ratios."""

    name: str
    values: tuple[str, ...]
    differs: bool
    refuses: bool


@dataclass(frozen=True)
class Cards:
    """The GPUs of one target, and remarks about them."""

    target: str
    devices: tuple[DeviceSummary, ...]
    remarks: tuple[str, ...]


def facts(comparison: Comparison) -> tuple[Fact, ...]:
    """Return the facts that at least one target reports. A value is empty if a target does not report it."""
    known = [_told(target) for target in comparison.targets]
    refusing = {difference.name for difference in comparison.differences if difference.refuses}
    differing = {difference.name for difference in comparison.differences}
    names = list(dict.fromkeys(name for found in known for name in found))
    rows = [Fact(name, tuple(found.get(name, "") for found in known), name in differing, name in refusing) for name in names]
    return tuple(row for row in rows if any(row.values))


def cards(comparison: Comparison) -> tuple[Cards, ...]:
    """Return the targets whose work several GPUs shared."""
    return tuple(Cards(target.target, several(target), remarks(target)) for target in comparison.targets if several(target))


def _told(target: TargetSummary) -> dict[str, str]:
    seen, environment = target.facts, target.environment
    gpus = list(dict.fromkeys(map(_gpu, target.devices)))
    copies = list(dict.fromkeys(filter(None, map(_copy, target.devices))))
    found = {"GPU": _joined(gpus), "emulated": target.emulated, "copy bandwidth": _joined(copies)}
    if seen is not None:
        found |= {
            "driver": seen.driver or "",
            "runtime": "" if seen.runtime == "none" else seen.runtime,
            "torch": seen.torch,
            "triton": seen.triton,
            "python": seen.python,
            "FP fusion": seen.fp_fusion or "",
            "kernel sources": seen.kernels_hash[:12],
            "platform": seen.platform,
        }
    found |= {"host": target.host, "commit": target.commit, "snapshot": target.snapshot}
    if environment is not None:
        image = environment.image or ""
        digest = f" {environment.image_id[:19]}" if environment.image_id else ""
        found |= {"engine": environment.engine, "image": image + digest, "protections given up": ", ".join(environment.weakened)}
        installed = [f"{package} {version}" for package, version in environment.packages.items()]
        found |= {"installed for it": _joined(installed, _MOST_PACKAGES), "set up otherwise": "; ".join(environment.notes)}
    found |= {"use of the card": use_of_cards(target)}
    return found | {"run": target.run_id, "started": target.started, "took": f"{target.seconds:.0f} s" if target.seconds else ""}


def _joined(texts: list[str], most: int = _MOST) -> str:
    return " + ".join(texts if len(texts) <= most else [*texts[:most], f"{len(texts) - most} more"])


def _gpu(device: DeviceSummary) -> str:
    return f"{device.name}, {device.architecture}, {device.memory_bytes / (1 << 30):.0f} GiB"


def _copy(device: DeviceSummary) -> str:
    measured = f"{number(device.ceiling_gbps)} GB/s measured" if device.ceiling_gbps else ""
    derived = f"{number(device.derived_gbps)} by its driver's figures" if device.derived_gbps else ""
    return ", ".join(filter(None, (measured, derived)))
