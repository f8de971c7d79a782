"""Speeds: a row per case, and the summaries of the rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Union

from harness.compare.model.common import Strict
from harness.records import Scalar, Verdict


class Change(str, Enum):
    """How the speed on a target compares with that on the baseline."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    AMBIGUOUS = "ambiguous"
    ONE_SIDED = "one-sided"
    REFUSED = "refused"


@dataclass(frozen=True)
class Cell(Strict):
    """One number: a case under one provider on one GPU. `value` is None unless the verdict is `passed`.

    `share` is the value over the ceiling that `share_of` names, measured on that GPU in the same run: `the copy`, or for operations a
    second `the bf16 product` of the card's library. `flops_per_byte` are the operations for each byte of the tensors that its kernels were
    given. `verified`: the kernel's tests passed on that target. `suspect`: the value exceeds the ceiling by more than memory can. `reason`
    explains any of these. `weak` says why the timings are unreliable. `half_width` is half the 95% interval of their median, over the
    median; `quiet` is whether that is as narrow as the bench stage asks for. `graph_ms` is the time of one launch among many in a graph,
    with a warm cache: do not derive a memory bandwidth from it. `tuned` is what autotuners chose, by function.
    """

    target: str
    device: int
    gpu: str
    verdict: Verdict
    unit: str
    value: Union[float, None] = None
    low: Union[float, None] = None
    high: Union[float, None] = None
    median_ms: Union[float, None] = None
    p20_ms: Union[float, None] = None
    p80_ms: Union[float, None] = None
    share: Union[float, None] = None
    share_of: str = ""
    flops_per_byte: Union[float, None] = None
    verified: bool = False
    suspect: bool = False
    reason: str = ""
    timings: int = 0
    timer: str = ""
    flush_bytes: int = 0
    warmup: int = 0
    bytes_moved: Union[int, None] = None
    half_width: Union[float, None] = None
    quiet: Union[bool, None] = None
    graph_ms: Union[float, None] = None
    cache_bytes: Union[int, None] = None
    weak: str = ""
    tuned: dict[str, str] = field(default_factory=dict)

    @property
    def sound(self) -> bool:
        """Whether the value may be used in a ratio."""
        return self.value is not None and self.verified and not self.suspect


@dataclass(frozen=True)
class Ratio(Strict):
    """`target`'s value over `baseline`'s. None, with the reason, if the two cannot be compared.

    `speedup` is the baseline's median time over the target's, whatever the unit. It lies between `low` and `high` with 95% confidence.
    `change` is `faster` or `slower` if that whole interval is further from 1 than `threshold`, `same` if none of it is.
    """

    target: str
    baseline: str
    value: Union[float, None]
    change: Change
    reason: str = ""
    speedup: Union[float, None] = None
    low: Union[float, None] = None
    high: Union[float, None] = None
    threshold: Union[float, None] = None


@dataclass(frozen=True)
class Row(Strict):
    """One case under one provider, on all targets. `portability`: harmonic mean of the shares, 0 if a benchmarked target has none."""

    kernel: str
    case: str
    provider: str
    unit: str
    params: dict[str, Scalar]
    cells: tuple[Cell, ...]
    ratios: tuple[Ratio, ...] = ()
    portability: Union[float, None] = None


@dataclass(frozen=True)
class Noise(Strict):
    """What an A/A run of a target found: `n` points measured twice. A change below `threshold` (0.02 is 2%) is noise on it.

    95% of the medians moved by at most `moved`. `largest` is the largest distance of a ratio's interval from 1, and `largest_case` its
    case. `enough`: `n` is large enough. If not, the threshold is at least the one assumed without an A/A run.
    """

    target: str
    n: int
    enough: bool
    threshold: float
    moved: float
    largest: float
    largest_case: str


@dataclass(frozen=True)
class Speed(Strict):
    """The sweep of one kernel and provider on one GPU, condensed to `n` numbers; `left_out` were invalid or suspect.

    `largest` is the value at the largest product of the numeric parameters. Each share belongs to the same point as its value.
    """

    kernel: str
    provider: str
    unit: str
    target: str
    gpu: str
    n: int
    left_out: int
    verified: bool
    reason: str = ""
    best: Union[float, None] = None
    best_share: Union[float, None] = None
    share_of: str = ""
    best_case: str = ""
    median: Union[float, None] = None
    median_share: Union[float, None] = None
    largest: Union[float, None] = None
    largest_share: Union[float, None] = None
    largest_case: str = ""


@dataclass(frozen=True)
class Exclusion(Strict):
    """A case that a geometric mean leaves out."""

    case: str
    reason: str


@dataclass(frozen=True)
class Geomean(Strict):
    """The geometric mean of `target`/`baseline` over the `n` cases that are sound on both. `ratio` is None if `n` is 0."""

    kernel: str
    provider: str
    unit: str
    target: str
    baseline: str
    n: int
    ratio: Union[float, None]
    exclusions: tuple[Exclusion, ...] = ()


@dataclass(frozen=True)
class Since(Strict):
    """How the speed of a kernel and provider on a target changed since the run of `commit`.

    `speedup` is the geometric mean, over the `n` cases of both runs, of the earlier median time over this one; None without such a case.
    `changes` counts all cases by their verdict.
    """

    kernel: str
    provider: str
    target: str
    n: int
    speedup: Union[float, None]
    changes: dict[str, int]
    commit: str = ""


@dataclass(frozen=True)
class Portability(Strict):
    """Pennycook's performance portability of a kernel: the harmonic mean of the targets' `efficiencies`, 0 if one target has none.

    A target's efficiency is the geometric mean of its shares of the ceiling, over the `n` cases that are sound on all targets.
    """

    kernel: str
    provider: str
    efficiencies: dict[str, float]
    n: int
    value: float
    exclusions: tuple[Exclusion, ...] = ()


@dataclass(frozen=True)
class Refusal(Strict):
    """Cases that could not be compared, and the reason they share."""

    kernel: str
    provider: str
    target: str
    baseline: str
    reason: str
    cases: tuple[str, ...]
