"""How a run over the list compares with its ceilings: `python -m kernels.models.table raw/cuda`, Markdown.

For each op: speed over a copy of as many bytes, or for products and attention over the best peer, as a geometric mean and at least; for the
half of the list that configurations may be fitted to, and for the other half. Below, each point that falls short, to be given a reason.
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kernels.goals import NO_PEERS, Medians, read
from kernels.models.points import LARGE, Point, for_tuning, points

# Parts of an op that have a goal of their own: their name, op, direction, which sizes, and the peer that the goal names ("": the fastest).
PARTS: tuple[tuple[str, str, str, Callable[[dict[str, int]], bool], str], ...] = (
    ("matmul, M, N and K from 1024", "matmul", "forward", lambda of: min(of["M"], of["N"], of["K"]) >= 1024, "torch"),
    ("matmul, M below 512", "matmul", "forward", lambda of: of["M"] < 512, "torch"),
    ("attention forward, S from 1024", "attention", "forward", lambda of: of["S"] >= 1024, "fa3"),
    ("attention forward, S from 1024", "attention", "forward", lambda of: of["S"] >= 1024, "cudnn"),
    ("attention forward, one query", "attention", "forward", lambda of: of["S"] == 1, ""),
    ("attention backward, S from 1024", "attention", "backward", lambda of: of["S"] >= 1024, "cudnn"),
    ("of these, up to 128 columns", "attention", "backward", lambda of: of["S"] >= 1024 and of["D"] <= 128, "cudnn"),
)
COPIED = ("layer_norm", "rms_norm", "softmax", "gelu", "add", "dropout", "cross_entropy")
LEAST_OF_COPY, LEAST_OF_PEER = 0.90, 0.85


@dataclass(frozen=True)
class Found:
    """A point's speed over the copy (None without one, or below `LARGE` bytes), over the fastest peer and its name, and over each peer."""

    point: Point
    of_copy: float | None
    of_peer: float | None
    peer: str
    of_each: dict[str, float] = field(default_factory=dict)

    @property
    def share(self) -> float | None:
        """What its op is judged by."""
        return self.of_copy if self.point.op in COPIED else self.of_peer

    @property
    def falls_short(self) -> bool:
        """Whether the copy or a peer is ahead by more than is allowed."""
        return (self.of_copy or 1.0) < LEAST_OF_COPY or (self.of_peer or 1.0) < LEAST_OF_PEER


def find(samples: Medians) -> list[Found]:
    """Return the points of the list that a run has measured."""
    by_sizes = {}
    for case, providers in samples.items():
        if "triton" in providers:
            params = providers["triton"]["params"]
            by_sizes[case.split("/")[-2] if "/" in case else case, _sizes(params)] = providers
    found = []
    for point in points():
        providers = by_sizes.get((f"{point.op}-{point.direction}", _sizes(dict(point.sizes))))
        if not providers:
            continue
        times = {name: float(str(sample["median_ms"])) for name, sample in providers.items()}
        mine, copy = times["triton"], times.get("copy")
        moved = float(str(providers["triton"]["value"])) * mine * 1e6  # GB/s and ms
        large = copy is not None and point.op in COPIED and moved >= LARGE
        of_each = {name: ms / mine for name, ms in times.items() if name not in NO_PEERS}
        fastest = min(of_each, key=lambda name: of_each[name], default="")
        found.append(Found(point, copy / mine if large and copy else None, of_each.get(fastest), fastest, of_each))
    return found


def _sizes(params: dict[str, object]) -> tuple[tuple[str, object], ...]:
    return tuple(sorted((name, size) for name, size in params.items() if isinstance(size, int)))


def table(found: list[Found], tuned: frozenset[Point]) -> str:
    """Return the table and the list of what falls short."""
    lines = ["| op | against | points | tuning half: mean, least | other half: mean, least |", "|---|---|---|---|---|"]
    for op, direction in dict.fromkeys((each.point.op, each.point.direction) for each in found):
        of_op = [each for each in found if (each.point.op, each.point.direction) == (op, direction) and each.share is not None]
        halves = [[each.share for each in of_op if each.share and (each.point in tuned) == half] for half in (True, False)]
        against = f"copy, from {LARGE >> 20} MiB" if op in COPIED else "best peer"
        lines.append(f"| {op} {direction} | {against} | {len(of_op)} | {_mean_and_least(halves[0])} | {_mean_and_least(halves[1])} |")
    lines += ["", "| part | against | points | mean, least |", "|---|---|---|---|"]
    for part, op, direction, belongs, peer in PARTS:
        of_part = [each for each in found if (each.point.op, each.point.direction) == (op, direction) and belongs(dict(each.point.sizes))]
        shares = [share for each in of_part if (share := each.of_each.get(peer or each.peer))]
        lines.append(f"| {part} | {peer or 'best peer'} | {len(shares)} | {_mean_and_least(shares)} |")
    short = [each for each in found if each.falls_short]
    lines += ["", f"{len(found)} of {len(points())} points measured; {len(short)} fall short.", ""]
    for each in short:
        sizes = " ".join(f"{name}={size}" for name, size in each.point.sizes)
        shares = [f"{each.of_copy:.2f} of copy"] if each.of_copy else []
        shares += [f"{each.of_peer:.2f} of {each.peer}"] if each.of_peer else []
        lines.append(f"- {each.point.op} {each.point.direction}, {each.point.model}, {sizes}: {', '.join(shares)}")
    return "\n".join(lines)


def _mean_and_least(shares: list[float]) -> str:
    return f"{math.exp(math.fsum(map(math.log, shares)) / len(shares)):.2f}, {min(shares):.2f}" if shares else "-"


if __name__ == "__main__":
    sys.stdout.write(table(find(read(Path(sys.argv[1]))), for_tuning()) + "\n")
