"""A made-up second vendor beside the recorded run on one card, to look at a report of two vendors.

What is real: the tests, speeds and code that the recorded run holds, and the generated code of the other vendor's architecture, which a
compiler made without a card. What is made up: every test result, speed and copy of `rocm (made up)`. No such card has run this. The words
"made up" are in the target's name, so that no table can lose them.

`python tests/unit/two_vendors.py FOLDER` writes `comparison.html`, `.md` and `.json` of it, and what a terminal shows as `terminal.svg`.
"""

import dataclasses
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "harness"))

from warpwave.collect import (
    collect_all,
    find_raw,
)
from warpwave.compare import compare
from warpwave.compare.model import Comparison
from warpwave.records import (
    DeviceFacts,
    Stage,
    TargetRun,
    Verdict,
)

MADE_UP = "rocm (made up)"
_GPU = "Made-up card: no such card has run this"
_REAL_COPY, _COPY = 3021.0, 3900.0  # GB/s
# The made-up share of its real share that a kernel reaches: three of them fall below 70% of the copy.
_FACTORS = {"softmax": 0.56, "layer_norm": 0.66, "cross_entropy": 0.6, "dropout": 0.93, "gelu": 0.97, "attention": 0.5, "matmul": 0.8}
_MESSAGE = "AssertionError: made up: max_abs_err 0.31 > 0.01"
_FAILING = {"softmax": 4, "attention": 2}  # its first tests


@cache
def recorded() -> tuple[TargetRun, ...]:
    """The recorded run: code for both vendors from the target without a card, and the card of one."""
    return tuple(collect_all(find_raw([ROOT / "reports" / "h100"])))


def two_vendors() -> list[TargetRun]:
    """The recorded run, and a second vendor with made-up figures."""
    cpu, cuda = recorded()
    return [cuda, made_up(cuda, cpu), cpu]


@cache
def compared() -> Comparison:
    """The comparison of those."""
    return compare(two_vendors())


def made_up(real: TargetRun, compiler: TargetRun) -> TargetRun:
    """A target with the tests and points of `real`, made-up results, and the code that `compiler` made for another vendor's card."""
    device = DeviceFacts(index=0, name=_GPU, architecture="gfx942", memory_bytes=192 << 30, multiprocessors=304)
    ceilings = tuple(
        dataclasses.replace(
            entry,
            median_ms=entry.median_ms * _REAL_COPY / _COPY,
            p20_ms=entry.p20_ms * _REAL_COPY / _COPY,
            p80_ms=entry.p80_ms * _REAL_COPY / _COPY,
        )
        for entry in real.ceilings
    )
    left = dict(_FAILING)
    cases = []
    for case in real.cases:
        if left.get(case.kernel, 0) and case.verdict is Verdict.PASSED and "[" in case.id:
            left[case.kernel] -= 1
            case = dataclasses.replace(case, verdict=Verdict.FAILED, message=_MESSAGE, detail="made up")
        cases.append(case)
    return dataclasses.replace(
        real,
        record=dataclasses.replace(
            real.record,
            target=MADE_UP,
            label="made-up figures",
            run_id="made-up",
            reason=f"{sum(_FAILING.values())} tests fail",
            hint="",
            command=("warpwave", "run", MADE_UP),
        ),
        facts=dataclasses.replace(real.facts, runtime="made up", driver="made up", devices=(device,)) if real.facts else None,
        # The faults of the real card's code are not this one's.
        stages=tuple(
            dataclasses.replace(entry, verdict=Verdict.PASSED, reason="", hint="") if entry.stage is Stage.COMPILE else entry
            for entry in real.stages
        ),
        cases=tuple(cases),
        samples=tuple(_sample(entry) for entry in real.samples),
        ceilings=ceilings,
        compiled=tuple(entry for entry in compiler.compiled if entry.architecture == "gfx942"),
        launched=(),
    )


def _sample(entry):
    """A point with the made-up speed; a peer keeps its share of the copy."""
    factor = _COPY / _REAL_COPY * (_FACTORS.get(entry.kernel, 1.0) if entry.provider == "triton" else 1.0)

    def slower(time):
        return time and time / factor

    return dataclasses.replace(
        entry,
        value=entry.value and entry.value * factor,
        low=entry.low and entry.low * factor,
        high=entry.high and entry.high * factor,
        median_ms=slower(entry.median_ms),
        p20_ms=slower(entry.p20_ms),
        p80_ms=slower(entry.p80_ms),
        times_ms=tuple(map(slower, entry.times_ms)),
        graph_ms=slower(entry.graph_ms),
    )


def main(folder: Path) -> None:
    """Write the pages."""
    from warpwave.cli.show import draw_report
    from warpwave.report import write_files

    folder.mkdir(parents=True, exist_ok=True)
    comparison = compared()
    write_files(comparison, folder)
    draw_report(comparison, folder / "terminal.svg", full=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
