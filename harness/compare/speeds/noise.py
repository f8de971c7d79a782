"""How far a point moves on a target though nobody changed it, from an A/A run. Pure.

The bench stage runs twice, all of it and then all of it again in a fresh process, because BASE and HEAD are measured that way. The second
pass has other addresses in memory, and a GPU at another temperature. Two halves of one pass, or alternating rounds, share both. They would
call any drift between two runs a change of the code.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Union

from harness.compare.model import Noise
from harness.compare.speeds.speedup import interval_of
from harness.records import Sample, TargetRun, Verdict
from harness.stats import quantile

# Nobody would act on a smaller difference, however well it is measured.
SMALLEST = 0.01
# The threshold without an A/A run, or with too few points. This is an assumption, and reports say so.
ASSUMED = 0.03
# Of 20 equal points, a new point is the one that moves most with a probability of 1 in 20. Fewer points cannot support 95%.
ENOUGH = 19
# A comparison has as many points as the A/A run, and one of them may move further than all of those. Without a margin, every second
# comparison of the same code would report a change. With this margin, fewer than 1 in 20 do in simulations on recorded timings
# (tests/unit/compare/speeds/test_stats.py), and fewer than 1 in 100 single points.
_MARGIN = 2.5


def noise(name: str, run: TargetRun) -> Union[Noise, None]:
    """Return how far the points moved between the two passes, beyond their own intervals; None without an A/A run.

    Verdicts compare intervals, so this does too. A noisy point has a wide interval and does not raise the threshold for quiet ones.
    """
    first = {_key(sample): sample for sample in run.samples}
    beyond, moved = [], []
    for second in run.again:
        base = first.get(_key(second))
        interval = interval_of(base, second) if base and _sound(base) and _sound(second) else None
        if interval:
            beyond.append((max(interval.low, 1 / interval.high, 1.0) - 1, f"{second.case} {second.provider}"))
            moved.append(max(interval.value, 1 / interval.value) - 1)
    if not beyond:
        return None
    largest, case = max(beyond)
    enough = len(beyond) >= ENOUGH
    threshold = max(SMALLEST if enough else ASSUMED, _MARGIN * largest)
    return Noise(name, len(beyond), enough, threshold, quantile(moved, 0.95), largest, case if largest else "")


def threshold(sides: Iterable[Union[Noise, None]]) -> float:
    """Return the smallest change that counts (0.03 is 3%): the larger threshold of the two sides, or `ASSUMED` without A/A runs."""
    return max((side.threshold for side in sides if side), default=ASSUMED)


def explain(noises: Sequence[Noise]) -> str:
    """Return a sentence on where the thresholds come from."""
    if not noises:
        return f"A change below {ASSUMED:.0%} is assumed to be noise; `warpwave run TARGET --aa` measures it."
    each = "; ".join(
        f"{entry.target} {entry.threshold:.1%} ({entry.n} points measured twice{'' if entry.enough else ', too few to be sure'})"
        for entry in noises
    )
    return f"A change below this is noise, by an A/A run: {each}."


def _sound(sample: Sample) -> bool:
    return sample.verdict is Verdict.PASSED and not sample.weak


def _key(sample: Sample) -> tuple[str, str, str, int]:
    return (sample.kernel, sample.case, sample.provider, sample.device)
