"""The performance goals of the kernels on an H200, checked against a recorded run: `python -m kernels.goals reports/runs/h100/raw/cuda`.

A goal is a ratio of two medians of one run: the kernel's, and that of a copy of as many bytes, of the vendor's library, or of the matrix
products that cannot be avoided. If a goal covers several sizes, the worst one counts.
"""

import json
import math
import sys
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

MIB = 1 << 20
# Providers that are lower bounds, or belong to this package.
NO_PEERS = {"copy", "floor", "triton", "low", "plain", "tl"}


@dataclass(frozen=True)
class Goal:
    """Cases (patterns of their ids), the provider to compare with, and the ratio to reach.

    `speed` is the kernel's speed over the other's, at least. With `time`, it is the kernel's time over the other's, at most. With `gib`,
    the benchmark returned memory, and there may be no more of it. `sizes` are the first and last value of the parameter `axis`; `floor_mib`
    leaves out cases that move less. With `mean`, the geometric mean must reach the goal instead of the worst case.
    """

    what: str
    cases: tuple[str, ...]
    against: str = ""
    speed: float = 0.0
    time: float = 0.0
    gib: float = 0.0
    axis: str = "N"
    sizes: tuple[int, float] = (0, math.inf)
    floor_mib: int = 0
    mean: bool = False
    mine: str = "triton"

    @property
    def asked(self) -> str:
        """The goal in words."""
        if self.gib:
            return f"at most {self.gib:.2f} GiB"
        asked = f"at most {self.time:.2f} x the time of {self.against}" if self.time else f"at least {self.speed:.2f} of {self.against}"
        return asked + (", geometric mean" if self.mean else "")

    def covers(self, case: str, sample: dict[str, Any]) -> bool:
        """Return whether the goal covers a case with this sample of the kernel."""
        named = any(fnmatchcase(case, pattern) for pattern in self.cases)
        first, last = self.sizes
        moved = sample["value"] * (sample.get("median_ms") or 0.0) * 1e6
        return named and first <= sample["params"].get(self.axis, first) <= last and moved >= self.floor_mib * MIB


@dataclass(frozen=True)
class Reached:
    """A goal's ratios by case, the best peer's, and the cases where a peer is more than 2 % faster."""

    goal: Goal
    ratios: dict[str, float]
    peers: dict[str, float]
    faster: dict[str, tuple[str, float]]

    @property
    def figure(self) -> float:
        """The ratio that must reach the goal."""
        if self.goal.mean:
            return math.exp(math.fsum(map(math.log, self.ratios.values())) / len(self.ratios))
        return min(self.ratios.values()) if self.goal.speed else max(self.ratios.values())

    @property
    def met(self) -> bool:
        """Whether the goal is met, rounded to its two digits."""
        figure = round(self.figure, 2)
        return figure >= self.goal.speed if self.goal.speed else figure <= (self.goal.time or self.goal.gib)


Medians = dict[str, dict[str, dict[str, Any]]]


def read(raw: Path) -> Medians:
    """Return the medians of the samples that passed, by case and provider."""
    found: Medians = {}
    for line in (raw / "bench" / "samples.jsonl").read_text(encoding="utf-8").splitlines():
        sample = json.loads(line)
        if sample["verdict"] == "passed" and (sample.get("median_ms") or sample["unit"] == "GiB"):
            found.setdefault(sample["case"], {})[sample["provider"]] = sample
    return found


def measure(goal: Goal, samples: Medians, peers: tuple[str, ...] = ("compile", "liger", "quack")) -> Reached | None:
    """Return the goal's ratios in a run; None if the run has none of its cases."""
    ratios, best, faster = {}, {}, {}
    for case, providers in samples.items():
        if not {goal.mine, goal.against or goal.mine} <= providers.keys() or not goal.covers(case, providers[goal.mine]):
            continue
        cost = {name: sample["value" if goal.gib else "median_ms"] for name, sample in providers.items()}
        other, mine = cost.get(goal.against, 1.0), cost[goal.mine]
        ratios[case] = other / mine if goal.speed else mine / other
        if rivals := [value for name, value in cost.items() if name not in NO_PEERS]:
            best[case] = other / min(rivals) if goal.speed else min(rivals) / other
        for name in () if goal.gib else peers:
            if name in cost and mine > 1.02 * cost[name]:
                faster[case] = (name, mine / cost[name])
    return Reached(goal, ratios, best, faster) if ratios else None


def table(goals: tuple[Goal, ...], samples: Medians) -> str:
    """Return the goals as a Markdown table, with what was reached and the best peer's result."""
    lines = ["| op | goal | reached, worst to best | best peer | met |", "|---|---|---|---|---|"]
    met, faster = 0, {}
    for goal in goals:
        reached = measure(goal, samples)
        if reached is None:
            lines.append(f"| {goal.what} | {goal.asked} | not in this run | | |")
            continue
        met += reached.met
        faster.update(reached.faster)
        span = _span(reached.ratios.values()) + (f", mean {reached.figure:.2f}" if goal.mean else "")
        peer = _span(reached.peers.values()) if reached.peers else "none installed"
        cases = "1 case" if len(reached.ratios) == 1 else f"{len(reached.ratios)} cases"
        lines.append(f"| {goal.what} | {goal.asked} | {span} ({cases}) | {peer} | {'yes' if reached.met else 'no'} |")
    lines += ["", f"{met} of {len(goals)} reached."]
    lines += [f"- {case}: {peer} is {ratio:.2f} x as fast" for case, (peer, ratio) in faster.items()]
    return "\n".join(lines)


def _span(values: Any) -> str:
    low, high = min(values), max(values)
    return f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"


SOFTMAX = ("softmax/forward-fp32/*", "softmax/forward-bf16/*", "softmax/forward-log/*")
MATMUL = ("matmul/forward/*", "matmul/forward-fp16/*")
LONG: dict[str, Any] = {"against": "cudnn", "axis": "S", "sizes": (4096, math.inf)}
GOALS: tuple[Goal, ...] = (
    Goal("add", ("add/*",), "copy", speed=1.00, floor_mib=512),
    Goal("gelu forward", ("gelu/forward-*",), "copy", speed=0.99, floor_mib=128),
    Goal("gelu backward", ("gelu/backward-*",), "copy", speed=1.00, floor_mib=128),
    Goal("softmax, log_softmax forward, N to 32768", SOFTMAX, "copy", speed=0.98, sizes=(64, 32768)),
    Goal("softmax forward, many short rows", ("softmax/forward-short/*",), "copy", time=1.03),
    Goal("softmax, log_softmax forward, N = 65536", SOFTMAX, "copy", speed=0.96, sizes=(65536, 65536)),
    Goal("softmax, log_softmax forward, N = 131072", SOFTMAX, "copy", speed=0.92, sizes=(131072, 131072)),
    Goal("softmax, log_softmax forward, N from 262144", SOFTMAX, "copy", speed=0.90, sizes=(262144, math.inf)),
    Goal("softmax backward, N to 16384", ("softmax/backward-*",), "copy", speed=1.01, sizes=(0, 16384)),
    Goal("softmax backward, N = 65536 to 262144", ("softmax/backward-*",), "copy", speed=0.92, sizes=(65536, 262144)),
    Goal("rms_norm forward, N = 1K to 16K", ("rms_norm/forward/*",), "copy", speed=0.99, sizes=(1024, 16384)),
    Goal("rms_norm forward, N = 65536", ("rms_norm/forward/*",), "copy", speed=0.96, sizes=(65536, 65536)),
    Goal("layer_norm forward, N = 1K to 16K", ("layer_norm/forward/*",), "copy", speed=0.98, sizes=(1024, 16384)),
    Goal("layer_norm forward, N = 65536", ("layer_norm/forward/*",), "copy", speed=0.93, sizes=(65536, 65536)),
    Goal("rms_norm, layer_norm backward", ("*_norm/backward/*",), "copy", speed=0.93, sizes=(1024, 16384)),
    Goal("cross_entropy, V = 32K to 262K", tuple(f"cross_entropy/bf16/V={v}" for v in (32768, 128256, 262144)), "copy", speed=1.00),
    Goal("cross_entropy, V = 50257, on no boundary", ("cross_entropy/bf16/V=50257",), "copy", speed=0.90),
    Goal("cross_entropy and gradient in place", ("cross_entropy/cross_entropy_and_gradient/*",), "copy", speed=0.93),
    Goal("matmul, K from 2048", MATMUL, "torch", speed=0.98, axis="K", sizes=(2048, math.inf), mean=True),
    Goal("matmul with bias and GELU", ("matmul/forward-linear-gelu/*",), "plain", time=1.02),
    Goal("linear_cross_entropy, for speed", ("linear_cross_entropy/*",), "floor", time=1.06),
    Goal("linear_cross_entropy, for memory", ("linear_cross_entropy/*",), "floor", time=1.13, mine="low"),
    Goal("linear_cross_entropy, for speed: peak above inputs", ("linear_cross_entropy/memory*",), gib=1.60),
    Goal("linear_cross_entropy, for memory: peak above inputs", ("linear_cross_entropy/memory*",), gib=1.23, mine="low"),
    Goal("attention forward, no mask", ("attention/forward-D128-full/*",), speed=0.93, **LONG),
    Goal("attention forward, causal", ("attention/forward-D128-causal/*",), speed=0.90, **LONG),
    Goal("attention backward", ("attention/backward-D128-*",), speed=0.88, **LONG),
    Goal("attention forward, no mask, Triton language", ("attention/forward-D128-full/*",), speed=0.75, mine="tl", **LONG),
    Goal("attention forward, causal, Triton language", ("attention/forward-D128-causal/*",), speed=0.72, mine="tl", **LONG),
    Goal("attention backward, Triton language", ("attention/backward-D128-*",), speed=0.65, mine="tl", **LONG),
)

if __name__ == "__main__":
    sys.stdout.write(table(GOALS, read(Path(sys.argv[1]))) + "\n")
