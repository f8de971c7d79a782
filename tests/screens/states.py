"""The states of a report that a reader can meet. Only `recorded` and `no_speeds` were measured; every other figure is made up."""

import dataclasses
import functools
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tests" / "unit"))
sys.path.append(str(ROOT / "harness"))

from synthetic import (
    ARCHITECTURES,
    CEILING,
    GPU_B,
    case,
    compiled,
    emulated,
    facts,
    finding,
    made_up,
    no_gpu,
    record,
    recorded_runs,
    run,
    sample,
    two_targets,
    two_vendors,
)

from warpwave.compare import compare
from warpwave.compare.model import Comparison
from warpwave.records import Ceiling, NotRun, Sample, Verdict


def scaled(point: Sample, factor: float) -> Sample:
    """Return a point whose speed is `factor` times as high."""

    def slower(time: float | None) -> float | None:
        return time and time / factor

    return dataclasses.replace(
        point,
        value=point.value and point.value * factor,
        median_ms=slower(point.median_ms),
        p20_ms=slower(point.p20_ms),
        p80_ms=slower(point.p80_ms),
        times_ms=tuple(time / factor for time in point.times_ms),
    )


def beta(**changes: object) -> Comparison:
    """Two made-up targets, of which the second differs in `changes`."""
    first, second = two_targets()
    return compare([first, dataclasses.replace(second, **changes)], ["alpha", "beta"])


def ended(verdict: Verdict, reason: str, hint: str, **changes: object) -> Comparison:
    """Two made-up targets, of which the second ended badly."""
    return beta(record=record("beta", verdict=verdict, reason=reason, hint=hint), **changes)


def with_cases(**changed: tuple[Verdict, str]) -> tuple:
    """The tests of the second target, with other ends at the places named `at2`, `at3` …"""
    cases = list(two_targets()[1].cases)
    for place, (verdict, message) in changed.items():
        number = int(place.removeprefix("at"))
        cases[number] = dataclasses.replace(cases[number], verdict=verdict, message=message, detail=f"{message}\n" * 3)
    return tuple(cases)


def all_good() -> Comparison:
    first, second = two_targets()
    good = tuple(dataclasses.replace(entry, spills=0) for entry in second.compiled)
    return beta(record=record("beta"), cases=first.cases, samples=tuple(scaled(p, 1.2) for p in first.samples), compiled=good)


def crashed() -> Comparison:
    cases = with_cases(at2=(Verdict.CRASHED, "killed by SIGSEGV while it ran"))
    return ended(Verdict.CRASHED, "the process of stage test died: SIGSEGV", "Run the test alone.", cases=cases)


def incomplete() -> Comparison:
    _, second = two_targets()
    hint = "`warpwave run beta --resume reports/runs/20260101-000000-abcd` continues."
    left = {"cases": second.cases[:5], "samples": (), "ceilings": (), "stages": second.stages[:2]}
    return ended(Verdict.INCOMPLETE, "stopped by Ctrl-C after 12 s", hint, **left)


def out_of_time() -> Comparison:
    hang, memory = (Verdict.GPU_HANG, "the card did not answer for 60 s"), (Verdict.OOM, "out of memory: 12 GB asked, 3 GB free")
    cases = with_cases(at2=(Verdict.TIMEOUT, "took longer than 300 s"), at3=hang, at5=memory)
    return ended(Verdict.TIMEOUT, "the target took longer than 3600 s", "Give it more time: `--timeout 7200`.", cases=cases)


def no_docker() -> Comparison:
    nothing = {"facts": None, "stages": (), "cases": (), "samples": (), "ceilings": (), "compiled": ()}
    return ended(Verdict.INFRA, "Docker does not answer at /var/run/docker.sock", "Start it: `sudo systemctl start docker`.", **nothing)


def not_run() -> Comparison:
    cases = [case(f"softmax/test_softmax.py::test_softmax[{n}]") for n in range(3)]
    for number, why in enumerate(NotRun):
        entry = case(f"softmax/test_s.py::test_o[{number}]", Verdict.NOT_RUN, message=f"a reason for {why.value}")
        cases.append(dataclasses.replace(entry, not_run=why))
    return compare([run("alpha", cases=tuple(cases)), run("beta", GPU_B, facts=facts(GPU_B))])


def suspected() -> Comparison:
    bad = case("softmax/test_softmax.py::test_softmax[2]", Verdict.FAILED, message="AssertionError: 0.3 > 1e-5", detail="trace")
    good = [case(f"softmax/test_softmax.py::test_softmax[{n}]") for n in (1, 3)]
    interpreted = run("cpu", None, cases=(*good, case("softmax/test_softmax.py::test_softmax[2]")), samples=(), ceilings=())
    return compare([dataclasses.replace(interpreted, findings=(finding(),)), emulated(bad, *good)])


def broken_gates() -> Comparison:
    more = {"spills": 12, "verdict": Verdict.FAILED, "reason": "", "broken": {"spills": "12 spilled registers, 0 allowed"}}
    second = two_targets()[1]
    code = tuple(
        dataclasses.replace(entry, source="layer_norm/layer_norm.py:17", **more) if entry.kernel == "layer_norm" else entry
        for entry in second.compiled
    )
    return beta(compiled=code)


def three_vendors() -> Comparison:
    cpu, cuda = recorded_runs()
    other = made_up(cuda, cpu)
    third = dataclasses.replace(other, record=dataclasses.replace(other.record, target="xpu (made up)", run_id="third"))
    return compare([cuda, other, third, cpu])


def toolchains() -> Comparison:
    first = dataclasses.replace(two_targets()[0], samples=(), ceilings=())
    names = {"cpu": "3.9.0", "cpu@triton-3.8.0": "3.8.0", "cpu@triton-3.6.0": "3.6.0"}
    return compare([dataclasses.replace(first, record=record(name), facts=facts(None, triton=what)) for name, what in names.items()])


def four_cards() -> Comparison:
    first, second = two_targets()
    cards = tuple(dataclasses.replace(facts().devices[0], index=n, uuid=f"GPU-{n}") for n in range(4))
    shared = tuple(dataclasses.replace(entry, device=n % 4) for n, entry in enumerate(first.samples))
    copies = tuple(dataclasses.replace(CEILING, device=n) for n in range(4))
    return compare([dataclasses.replace(first, facts=facts(devices=cards), samples=shared, ceilings=copies), second])


def compile_only() -> Comparison:
    whole = no_gpu()
    return compare([dataclasses.replace(whole, cases=(), stages=tuple(entry for entry in whole.stages if entry.stage.value != "test"))])


def empty() -> Comparison:
    none = {"cases": (), "samples": (), "ceilings": (), "compiled": ()}
    found = record("alpha", verdict=Verdict.NOT_RUN, reason="no test was found in `kernels`", hint="Give a folder with test_*.py files.")
    return compare([run("alpha", record=found, **none)])


def long_names() -> Comparison:
    long = "a_very_long_kernel_name_of_a_fused_layer_norm_backward_with_dropout_and_residual_connection_" * 2
    found = []
    for target in two_targets():
        name = target.record.target + "-a-target-with-a-name-that-is-much-too-long-for-a-column"
        parts = {}
        for field, key in (("cases", "id"), ("samples", "case"), ("compiled", "function")):
            parts[field] = tuple(
                dataclasses.replace(row, kernel=long + row.kernel, **{key: long + getattr(row, key)}) if row.kernel == "softmax" else row
                for row in getattr(target, field)
            )
        found.append(dataclasses.replace(target, record=dataclasses.replace(target.record, target=name), **parts))
    return compare(found)


def many() -> Comparison:
    names = [f"kernel_{number:03d}" for number in range(300)]
    tests = tuple(
        case(f"{name}/test_{name}.py::test_{name}[{dtype}-{size}]", kernel=name)
        for name in names
        for dtype in ("fp32", "bf16")
        for size in (16, 1823, 4096)
    )
    points = tuple(
        sample(1 << power, 600.0 + 200 * power + 3 * at, kernel=name, provider=provider)
        for at, name in enumerate(names)
        for provider in ("triton", "torch")
        for power in range(8, 16)
    )
    code = tuple(
        compiled(architecture, kernel=name, function=f"_{name}_{way}", registers=30 + at % 100)
        for at, name in enumerate(names)
        for way in ("fwd", "bwd")
        for architecture in ARCHITECTURES[:4]
    )
    found = []
    for number in range(4):
        card = f"Synthetic GPU {number}"
        speeds = tuple(scaled(point, 1 - 0.12 * number) for point in points)
        found.append(run(f"target{number}", card, facts=facts(card), cases=tests, samples=speeds, compiled=code))
    return compare(found)


def rooflines() -> Comparison:
    """Three targets whose points have operations and bytes, below a copy and products of four dtypes each."""
    found = []
    for number, name in enumerate(("alpha", "beta (made up)", "gamma")):
        factor = 1 + number / 2
        products = {"bf16": 50, "fp16": 48, "fp32": 5, "fp8": 98}
        ceilings = (
            Ceiling(0, 10**9, 1 / factor, 1.0, 1.0, "before"),
            *(Ceiling(0, 3, 1 / factor, 1.0, 1.0, "after", dtype, speed * 10**10) for dtype, speed in products.items()),
        )
        points = tuple(
            dataclasses.replace(
                sample(size, factor * min(0.9 * size / 4, 380.0), kernel, unit="TFLOP/s", params={"N": size, "dtype": "bf16"}),
                **{"median_ms": 1.0 / factor, "times_ms": (), "argument_bytes": 10**9 * 1024 // size},
            )
            for kernel in ("matmul", "attention")
            for size in (16, 64, 256, 1024, 4096)
        )
        found.append(run(name, f"GPU {name}", record=record(name), facts=facts(f"GPU {name}"), ceilings=ceilings, samples=points))
    return compare(found)


def trend() -> Comparison:
    """Beside a base run: one kernel is slower than there, and one faster."""
    factors = {"softmax": 0.8, "layer_norm": 1.25}
    before = two_targets()
    now = [dataclasses.replace(t, samples=tuple(scaled(p, factors.get(p.kernel, 1)) for p in t.samples)) for t in before]
    return compare(now, base=before)


STATES: dict[str, Callable[[], Comparison]] = {
    "recorded": lambda: compare(recorded_runs()),
    "two_vendors": lambda: compare(two_vendors()),
    "three_vendors": three_vendors,
    "all_good": all_good,
    "failed": beta,
    "absent": lambda: compare(two_targets()[:1], ["alpha", "rocm"]),
    "crashed": crashed,
    "incomplete": incomplete,
    "out_of_time": out_of_time,
    "no_docker": no_docker,
    "not_run": not_run,
    "emulated": suspected,
    "no_speeds": lambda: compare([recorded_runs()[0]]),
    "no_tests": lambda: compare([dataclasses.replace(target, cases=()) for target in two_targets()]),
    "broken_gates": broken_gates,
    "compile_only": compile_only,
    "one_target": lambda: compare(two_targets()[:1]),
    "one_kernel": lambda: compare([run("alpha"), run("beta", GPU_B, facts=facts(GPU_B))]),
    "toolchains": toolchains,
    "four_cards": four_cards,
    "rooflines": rooflines,
    "trend": trend,
    "empty": empty,
    "long_names": long_names,
    "many": functools.cache(many),
}
