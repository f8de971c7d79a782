"""Compare the speeds of two commits of one package: which points became faster or slower. Pure.

The kernels' sources may differ: that is the question. The GPU, timer, flush, parameters and FP-fusion setting must be the same; if not, the
comparison is refused with the reason. Different versions are allowed and shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Union

from warpwave.compare.model import FAILING, Cell, Change, Noise, Since
from warpwave.compare.speeds import Doubts, as_text, cells, key_of, noise, other_settings, speedup, threshold
from warpwave.errors import UsageError
from warpwave.records import Sample, TargetRun, Verdict, grouped
from warpwave.stats import geometric_mean

_Key = tuple[str, str, str, int]
_VERSIONS = ("torch", "triton", "runtime", "driver", "python")


@dataclass(frozen=True)
class PointChange:
    """One point in both runs. `speedup` is BASE's median time over HEAD's, with its 95% interval.

    `lost`: only HEAD failed, or it fails for another reason. `skipped`: both runs skipped it. `failing`: it fails alike in both, or is a
    known failure, and has no speed.
    """

    kernel: str
    case: str
    provider: str
    target: str
    device: int
    change: Change
    base_ms: Union[float, None] = None
    head_ms: Union[float, None] = None
    speedup: Union[float, None] = None
    low: Union[float, None] = None
    high: Union[float, None] = None
    lost: bool = False
    skipped: bool = False
    failing: bool = False
    reason: str = ""


@dataclass(frozen=True)
class GroupChange:
    """All points of a kernel and provider on a target. `mean` is the geometric mean of the `n` speedups."""

    kernel: str
    provider: str
    target: str
    n: int
    mean: Union[float, None]
    changes: dict[str, int]


@dataclass(frozen=True)
class TargetPair:
    """A target in both runs. `barriers` forbid any comparison on it. `versions` differ and forbid nothing; BASE's comes first."""

    target: str
    gpus: tuple[str, ...]
    commits: tuple[str, str]
    run_ids: tuple[str, str]
    threshold: float
    noise: tuple[Noise, ...] = ()
    barriers: tuple[str, ...] = ()
    versions: dict[str, tuple[str, str]] | None = None


@dataclass(frozen=True)
class SpeedChanges:
    """What changed from BASE to HEAD. `only` lists targets that just one of the two measured."""

    pairs: tuple[TargetPair, ...]
    groups: tuple[GroupChange, ...]
    points: tuple[PointChange, ...]
    only: tuple[str, ...] = ()

    def of(self, change: Change) -> tuple[PointChange, ...]:
        """Return the points with this verdict, largest change first."""
        found = [point for point in self.points if point.change is change and not (point.lost or point.skipped or point.failing)]
        return tuple(sorted(found, key=lambda point: -max(point.speedup or 1.0, 1 / (point.speedup or 1.0))))

    @property
    def lost(self) -> tuple[PointChange, ...]:
        """The points that BASE measured and that failed in HEAD."""
        return tuple(point for point in self.points if point.lost)

    @property
    def failing(self) -> tuple[PointChange, ...]:
        """The points that fail alike in both runs, or as the known failures say. Nothing changed."""
        return tuple(point for point in self.points if point.failing)

    @property
    def skipped(self) -> tuple[PointChange, ...]:
        """The points that both runs skip, for example a peer that is not installed. Nothing was lost."""
        return tuple(point for point in self.points if point.skipped)


def changed_speeds(base: Sequence[TargetRun], head: Sequence[TargetRun], at_least: Union[float, None] = None) -> SpeedChanges:
    """Compare the targets of HEAD with those of BASE that have the same names. `at_least` replaces the threshold of an A/A run.

    Raises:
        UsageError: nothing can be compared.
    """
    sides = [{run.record.target: run for run in runs if run.samples and run.record.verdict is not Verdict.STALE} for runs in (base, head)]
    both = [name for name in sides[0] if name in sides[1]]
    only = tuple(
        f"{name} was measured in {where} alone"
        for where, one, two in (("BASE", *sides), ("HEAD", *sides[::-1]))
        for name in one
        if name not in two
    )
    if not both:
        measured = [", ".join(side) or "nothing" for side in sides]
        raise UsageError(
            f"No target was measured in both runs: BASE measured {measured[0]}, HEAD {measured[1]}.",
            "Speeds come from the bench stage, which needs a GPU.",
            "Give two runs of the same target, each made with `warpwave run TARGET --stage test,bench`.",
        )
    pairs = tuple(_pair(name, sides[0][name], sides[1][name], at_least) for name in both)
    if all(pair.barriers for pair in pairs):
        raise UsageError(
            f"BASE and HEAD cannot be compared: {'; '.join(barrier for pair in pairs for barrier in pair.barriers)}.",
            "A speed on another GPU, or of another arithmetic, says nothing about a change of the code.",
            "Measure both commits on the same card with the same settings.",
        )
    points = tuple(point for pair in pairs if not pair.barriers for point in _points(pair, sides[0][pair.target], sides[1][pair.target]))
    return SpeedChanges(pairs, tuple(_groups(points)), points, only)


def _pair(name: str, base: TargetRun, head: TargetRun, at_least: Union[float, None]) -> TargetPair:
    noises = tuple(found for found in (noise(f"{name} (BASE)", base), noise(f"{name} (HEAD)", head)) if found)
    facts = (base.facts, head.facts)
    barriers = [f"the facts of {name} are missing in {where}" for where, own in zip(("BASE", "HEAD"), facts, strict=True) if own is None]
    gpus = [tuple(device.name for device in found.devices) if found else () for found in facts]
    versions = {}
    if facts[0] and facts[1]:
        settings = (
            ("GPUs", *(" + ".join(dict.fromkeys(names)) for names in gpus)),
            ("FP fusion settings", facts[0].fp_fusion, facts[1].fp_fusion),
        )
        barriers += [f"different {setting} on {name}: BASE {one}, HEAD {two}" for setting, one, two in settings if one != two]
        found = {fact: (str(getattr(facts[0], fact)), str(getattr(facts[1], fact))) for fact in _VERSIONS}
        versions = {fact: values for fact, values in found.items() if values[0] != values[1]}
    return TargetPair(
        target=name,
        gpus=gpus[1],
        commits=(base.record.commit, head.record.commit),
        run_ids=(base.record.run_id, head.record.run_id),
        threshold=threshold(noises) if at_least is None else at_least,
        noise=noises,
        barriers=tuple(barriers),
        versions=versions,
    )


def _points(pair: TargetPair, base: TargetRun, head: TargetRun) -> Iterable[PointChange]:
    found = [{key_of(sample): (sample, cell) for sample, cell in cells(pair.target, run)} for run in (base, head)]
    devices = [{key[:3]: key[3] for key in side} for side in found]
    doubts = Doubts(base), Doubts(head)
    for key in dict.fromkeys([*found[0], *found[1]]):
        point = _point(key, pair, doubts, found[0].get(key), found[1].get(key))
        missing = 0 if key not in found[0] else 1
        if key not in found[missing] and key[:3] in devices[missing]:
            where = f"on GPU {devices[missing][key[:3]]} in {('BASE', 'HEAD')[missing]}, here on GPU {key[3]}"
            point = replace(point, change=Change.REFUSED, reason=f"{where}: speeds of different GPUs are not compared")
        yield point


def _point(
    key: _Key,
    pair: TargetPair,
    doubts: tuple[Doubts, Doubts],
    base: Union[tuple[Sample, Cell], None],
    head: Union[tuple[Sample, Cell], None],
) -> PointChange:
    blank = PointChange(
        *(key[0], key[1], key[2], pair.target, key[3]),
        change=Change.REFUSED,
        base_ms=base[1].median_ms if base else None,
        head_ms=head[1].median_ms if head else None,
    )
    if base is None or head is None:
        return replace(blank, change=Change.ONE_SIDED, reason=f"not in {'BASE' if base is None else 'HEAD'}")
    idle = [cell.verdict is Verdict.NOT_RUN for _, cell in (base, head)]
    if all(idle):
        return replace(blank, skipped=True, reason=f"skipped in both: {head[1].reason}")
    if idle[0] and head[1].value is not None:
        return replace(blank, change=Change.ONE_SIDED, reason=f"skipped in BASE: {base[1].reason}")
    if head[1].verdict is Verdict.KNOWN or (head[1].verdict in FAILING and base[1].verdict is head[1].verdict):
        return replace(blank, change=Change.SAME, failing=True, reason=head[1].reason)
    if head[1].verdict in FAILING and (base[1].value is not None or base[1].verdict in FAILING):
        return replace(blank, lost=True, reason=head[1].reason)
    differing = other_settings(base[0], head[0])
    barred = [f"different {setting}: BASE {as_text(one)}, HEAD {as_text(two)}" for setting, one, two in differing]
    # Speeds of a kernel that is wrong in the same way in both are compared, and marked.
    wrong = [own.of(sample).tests for own, (sample, _) in zip(doubts, (base, head), strict=True)]
    alike = bool(wrong[0]) and wrong[0] == wrong[1]
    usable = [cell.sound or (alike and cell.value is not None and not cell.suspect) for _, cell in (base, head)]
    barred += [
        f"{where}: {as_text(cell.reason)}" for where, cell, can in zip(("BASE", "HEAD"), (base[1], head[1]), usable, strict=True) if not can
    ]
    if barred:
        return replace(blank, reason="; ".join(barred))
    made = speedup(base[0], head[0], pair.threshold)
    marked = f"unverified in both: {head[1].reason}" if alike else ""
    judged = replace(blank, change=made.change, reason="; ".join(filter(None, (made.reason, marked))))
    return replace(judged, speedup=made.interval.value, low=made.interval.low, high=made.interval.high) if made.interval else judged


def _groups(points: Iterable[PointChange]) -> Iterable[GroupChange]:
    for key, found in grouped(((point.kernel, point.provider, point.target), point) for point in points).items():
        values = [point.speedup for point in found if point.speedup is not None]
        counts = dict(Counter("skipped" if point.skipped else str(point.change.value) for point in found))
        yield GroupChange(*key, len(values), geometric_mean(values) if values else None, counts)


def since_base(base: Sequence[TargetRun], head: Sequence[TargetRun]) -> tuple[tuple[Since, ...], tuple[str, ...]]:
    """Return a line per kernel, provider and target that both runs measured, and why others could not be compared.

    The rules are those of `warpwave compare`: the same card, timer, cache flush, parameters and FP-fusion setting.
    """
    if not base:
        return (), ()
    try:
        found = changed_speeds(base, head)
    except UsageError as error:
        return (), (f"not compared with the base run: {error.happened}",)
    commits = {pair.target: pair.commits[0] for pair in found.pairs}
    refused = tuple(f"{pair.target} is not compared with the base run: {barrier}" for pair in found.pairs for barrier in pair.barriers)
    lines = (Since(one.kernel, one.provider, one.target, one.n, one.mean, one.changes, commits[one.target]) for one in found.groups)
    return tuple(lines), refused
