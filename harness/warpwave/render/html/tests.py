"""Comparison → test results: failures with commands to repeat them, gaps with reasons, and recorded numbers side by side. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from warpwave.compare.model import FAILING, Comparison, DeviceSummary, Parity, ParityRow, TargetSummary
from warpwave.records import CaseResult, Verdict, grouped, with_card
from warpwave.render.commands import repro
from warpwave.render.sections.testing import remarks, several, suspicion, use_of_cards
from warpwave.render.text import first_line, number

_FAILURES, _DETAIL, _ALL_DETAILS = 200, 8_000, 160_000  # failures shown, characters of one traceback, and of all tracebacks
_STORIES = 20  # targets per test
_EXAMPLES = 12
MOST_NUMERICS = 1000  # rows of numbers
MOST_FINDINGS = 200  # lines of kernels


@dataclass(frozen=True)
class Gap:
    """Tests of one kernel with the same parity and reason. `ids` are some of the `n`."""

    parity: Parity
    kernel: str
    on: tuple[str, ...]
    reason: str
    n: int
    ids: list[str]


@dataclass(frozen=True)
class Standing:
    """How many of all tests passed on every target, and the gaps, gravest first."""

    everywhere: int
    total: int
    gaps: list[Gap]


@dataclass(frozen=True)
class Numeric:
    """One property recorded by a kernel's tests: per target its largest value and the test that recorded it, or None."""

    kernel: str
    name: str
    n: int
    worst: list[tuple[float, str] | None]


def failures(comparison: Comparison) -> dict[str, Any]:
    """Return the tests that failed: the first ones, and no more of their output than a page can carry.

    Each has a story for each target on which it failed, with the command that runs it alone, and why the failure is only suspected.
    """
    rows = [row for row in comparison.tests if any(cell.result.verdict in FAILING for cell in row.cells)]
    targets = {target.target: target for target in comparison.targets}
    room = _ALL_DETAILS
    shown = []
    for row in rows[:_FAILURES]:
        stories: list[dict[str, Any]] = []
        for cell in row.cells:
            result = cell.result
            if result.verdict in FAILING and len(stories) < _STORIES:
                detail = result.detail[: min(_DETAIL, room)]
                room -= len(detail)
                stories.append(
                    {
                        "target": cell.target,
                        "verdict": result.verdict,
                        "message": _message(result),
                        "detail": detail.splitlines(),
                        "again": repro(targets[cell.target], result),
                        "doubt": suspicion(row, cell.target, comparison.targets),
                    }
                )
        elsewhere = [cell.target for cell in row.cells if cell.result.verdict is Verdict.PASSED]
        shown.append({"id": _name(row), "stories": stories, "elsewhere": elsewhere})
    return {"shown": shown, "more": len(rows) - len(shown)}


# Gravest first.
_ORDER = (
    *(Parity.FAILED_ON, Parity.PASSED_NOWHERE, Parity.MISSING_ON, Parity.ONE_TARGET),
    *(Parity.SKIPPED_ON, Parity.XFAILED_ON, Parity.KNOWN_ON, Parity.ALL_PASSED),
)


def parity(comparison: Comparison) -> Standing:
    """Group the tests that did not pass everywhere by parity, kernel, targets and reason."""
    found = []
    for row in comparison.tests:
        skipped = tuple(cell.target for cell in row.cells if cell.result.verdict is Verdict.NOT_RUN)
        if behind := row.on or tuple(cell.target for cell in row.cells if cell.result.verdict is not Verdict.PASSED):
            # A test on one target only has no parity. If it was skipped, list it with its reason all the same.
            kind = Parity.SKIPPED_ON if row.parity is Parity.ONE_TARGET and skipped == behind else row.parity
            reasons = dict.fromkeys(_message(cell.result) for cell in row.cells if cell.target in behind)
            found.append(((kind, row.kernel, behind, "; ".join(filter(None, reasons))), _name(row)))
    gaps = [Gap(*key, len(ids), ids[:_EXAMPLES]) for key, ids in grouped(found).items()]
    total = len(comparison.tests)
    return Standing(total - len(found), total, sorted(gaps, key=lambda gap: _ORDER.index(gap.parity))[:_FAILURES])


def numerics(comparison: Comparison) -> list[Numeric]:
    """Return the numbers that tests recorded with `record_property`: per target the largest of each."""
    found: dict[tuple[str, str], dict[str, tuple[int, float, ParityRow]]] = {}
    for row in comparison.tests:
        for cell in row.cells:
            for name, value in _numbers(cell.result.properties.items()):
                if (row.kernel, name) in found or len(found) < MOST_NUMERICS:
                    known = found.setdefault((row.kernel, name), {})
                    n, most, of = known.get(cell.target, (0, value, row))
                    known[cell.target] = (n + 1, value, row) if value > most else (n + 1, most, of)
    targets = [target.target for target in comparison.targets if target.tests]
    return [
        Numeric(
            kernel,
            name,
            max(n for n, _, _ in values.values()),
            [(values[target][1], _short_name(values[target][2])) if target in values else None for target in targets],
        )
        for (kernel, name), values in sorted(found.items(), key=lambda entry: entry[0])
    ]


def _short_name(row: ParityRow) -> str:
    """Return the test's own name, without the file: the kernel is shown already."""
    test = _name(row)
    return test[: test.find("[")].rpartition("::")[2] + test[test.find("[") :] if "[" in test else test.rpartition("::")[2]


def _numbers(properties: Iterable[tuple[str, str]]) -> Iterable[tuple[str, float]]:
    for name, text in properties:
        try:
            value = float(text)
        except ValueError:
            continue
        if math.isfinite(value):
            yield name, value


def _name(row: ParityRow) -> str:
    return row.id if row.occurrence == 1 else f"{row.id} ({row.occurrence})"


def _message(result: CaseResult) -> str:
    return first_line(result.message or result.detail, 400)


# Comparison → the table of what every target ran on, with differences marked. Pure.

_MOST = 16  # different GPUs per target
_MOST_PACKAGES = 200


def facts(comparison: Comparison) -> list[dict[str, Any]]:
    """Return the facts that at least one target reports. A value is empty if a target does not report it."""
    known = [_told(target) for target in comparison.targets]
    refuses = {difference.name: difference.refuses for difference in comparison.differences}
    rows = {name: [found.get(name, "") for found in known] for name in dict.fromkeys(name for found in known for name in found)}
    return [
        {"name": name, "each": texts, "differs": name in refuses, "refuses": refuses.get(name, False)}
        for name, texts in rows.items()
        if any(texts)
    ]


def cards(comparison: Comparison) -> list[dict[str, Any]]:
    """Return the targets whose work several GPUs shared, with these GPUs and remarks about them."""
    shared = [(target, several(target)) for target in comparison.targets]
    return [{"target": target.target, "devices": devices, "remarks": remarks(target)} for target, devices in shared if devices]


def _told(target: TargetSummary) -> dict[str, str]:
    seen, environment = target.facts, target.environment
    gpus = list(dict.fromkeys(map(_gpu, target.devices)))
    copies = list(dict.fromkeys(filter(None, map(_copy, target.devices))))
    found = {"GPU": _joined(gpus), "emulated": with_card(target.emulated, target.card), "copy bandwidth": _joined(copies)}
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
