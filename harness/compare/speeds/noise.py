"""What an A/A run says about a target: how far a point moves that nobody changed. Pure.

The bench is measured twice, all of it and then all of it again in a fresh process, because that is how BASE and HEAD are measured: the two
passes have another place in memory and another temperature of the card. Halves of one pass, or rounds of the two in turn, share both, and
would call a drift between two runs a change of the code.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Union

from harness.compare.comparison import Noise
from harness.compare.speeds.speedup import interval_of
from harness.records import Sample, TargetRun, Verdict
from harness.stats import quantile

# A difference that nobody would act on, however well it is measured.
SMALLEST = 0.01
# Without an A/A run, or with one of few points. An assumption, and reports say so.
ASSUMED = 0.03
# Of 20 points that are alike the one that moves most is a new one with a probability of 1 in 20: fewer tell nothing at 95 %.
ENOUGH = 19
# A comparison has as many points as the A/A run had, and one of them may move further than all of those did: without a margin every second
# comparison of the same code would find something. With this one fewer than 1 in 20 do on recorded timings, by simulation
# (tests/unit/compare/test_stats.py); of single points fewer than 1 in 100.
_MARGIN = 2.5


def noise(name: str, run: TargetRun) -> Union[Noise, None]:
    """How far the points moved between the two passes, beyond their own intervals; None without an A/A run.

    That is what a verdict looks at, too. A point whose timings scatter has a wide interval and takes nothing from the quiet ones.
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
    """By how much a speed has to change to be called changed: what the noisier of the sides asks for; 3 % where none was measured twice."""
    return max((side.threshold for side in sides if side), default=ASSUMED)


def explain(noises: Sequence[Noise]) -> str:
    """Where thresholds come from, as a sentence."""
    if not noises:
        return f"A change below {ASSUMED:.0%} is assumed to be noise; `warpwave run TARGET --aa` measures it."
    each = "; ".join(
        f"{entry.target} {entry.threshold:.1%} ({entry.n} points measured twice{'' if entry.enough else ', too few to tell'})"
        for entry in noises
    )
    return f"A change below this is noise, by an A/A run: {each}."


def _sound(sample: Sample) -> bool:
    return sample.verdict is Verdict.PASSED and not sample.weak


def _key(sample: Sample) -> tuple[str, str, str, int]:
    return (sample.kernel, sample.case, sample.provider, sample.device)
