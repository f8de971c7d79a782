"""Comparison → OpenMetrics text: gauges for Prometheus. Pure, and without timestamps: the scrape has one."""

from __future__ import annotations

from collections.abc import Iterable

from harness.compare.model import Comparison
from harness.render.exports.points import sound
from harness.render.text import visible

_Sample = tuple[dict[str, str], float]


def render_openmetrics(comparison: Comparison) -> str:
    """Return the metric families with distinct samples, and the end mark."""
    points = [
        (
            {"kernel": p.row.kernel, "case": p.row.case, "provider": p.row.provider, "target": p.cell.target, "gpu": p.cell.gpu}
            | {"device": str(p.cell.device), "unit": p.cell.unit},
            p,
        )
        for p in sound(comparison)
    ]
    tests = [
        ({"kernel": entry.kernel, "target": entry.target, "verdict": verdict}, float(count))
        for entry in comparison.kernels
        for verdict, count in entry.counts.items()
    ]
    compiled = [
        ({"target": target.target, "verdict": verdict}, float(count))
        for target in comparison.targets
        for verdict, count in target.compiled.items()
    ]
    devices = [(target, device) for target in comparison.targets for device in target.devices]
    copies = [
        ({"target": target.target, "gpu": device.name, "device": str(device.index)}, device.ceiling_gbps * 1e9)
        for target, device in devices
        if device.ceiling_gbps
    ]
    complete = [({"target": target.target, "verdict": target.verdict.value}, float(target.complete)) for target in comparison.targets]
    families = (
        _family("speed", "What the benchmark's author computed, in the unit of its label.", [(on, p.value) for on, p in points]),
        _family("speed_low", "The lower end of its 20 to 80 percent band.", [(on, p.low) for on, p in points if p.low is not None]),
        _family("speed_high", "The upper end of its 20 to 80 percent band.", [(on, p.high) for on, p in points if p.high is not None]),
        _family(
            "ceiling_share",
            "Its share of the ceiling (copy, or matrix product) measured in the same run.",
            [(on, p.cell.share) for on, p in points if p.cell.share],
        ),
        _family("copy_bytes_per_second", "Copy bandwidth measured on a GPU.", copies, unit="bytes_per_second"),
        _family("tests", "Tests of a kernel by what became of them.", tests),
        _family("compiled_kernels", "Compiled kernels by what became of them.", compiled),
        _family("target_complete", "Whether a target did all that it was asked to do.", complete),
    )
    return "".join(families) + "# EOF\n"


def _family(name: str, text: str, samples: Iterable[_Sample], unit: str = "") -> str:
    lines = {_labels(labels): value for labels, value in samples}  # the same labels twice would make the text invalid
    if not lines:
        return ""
    full = f"warpwave_{name}"
    head = f"# TYPE {full} gauge\n" + (f"# UNIT {full} {unit}\n" if unit else "") + f"# HELP {full} {text}\n"
    return head + "".join(f"{full}{labels} {value!r}\n" for labels, value in lines.items())


def _labels(labels: dict[str, str]) -> str:
    listed = (f'{name}="{_escaped(visible(value))}"' for name, value in labels.items())
    return "{" + ",".join(listed) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
