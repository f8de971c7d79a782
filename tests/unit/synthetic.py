"""Synthetic data for the tests. Nothing here was measured: the GPUs do not exist and every figure is made up."""

import dataclasses
import json
import sys
from functools import cache
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from engine_requests import make_job
from recorded import recorded

from warpwave.collect import collect_all, find_raw
from warpwave.compare import compare
from warpwave.compare.changed_codegen import Concern, bundle
from warpwave.compare.model import Comparison
from warpwave.records import (
    OPEN,
    Architecture,
    CardShare,
    CaseResult,
    Ceiling,
    CompiledKernel,
    Defect,
    DeviceFacts,
    Environment,
    Facts,
    Finding,
    Gates,
    Profile,
    ProfiledLine,
    RunRecord,
    Sample,
    Stage,
    StageReport,
    Stages,
    TargetRun,
    Verdict,
    Waiver,
    Which,
    to_json,
)

GPU_A, GPU_B = "Synthetic GPU A", "Synthetic GPU B"
ARCHITECTURES = ("sy_80", "sy_90", "sy_100", "syn90a", "syn942", "syn950", "syn1100", "syn1201")
CEILING = Ceiling(device=0, bytes_moved=4_000_000_000, median_ms=1.0, p20_ms=0.99, p80_ms=1.01, when="before")  # 4000 GB/s, made up


def case(test="softmax/test_softmax.py::test_softmax[fp32-1823x781]", verdict=Verdict.PASSED, kernel="softmax", **more):
    return CaseResult(id=test, kernel=kernel, verdict=verdict, seconds=0.25, **more)


def sample(n=1024, value=3000.0, kernel="softmax", provider="triton", **more):
    """A point whose 20 to 80% band is 1% (or `scatter`) to either side of its made-up time."""
    time, scatter = more.pop("median_ms", 1000.0 / value if value else None), more.pop("scatter", 0.01)
    band = (
        {}
        if time is None
        else {"median_ms": time, "p20_ms": time * (1 - scatter), "p80_ms": time * (1 + scatter), "times_ms": times(time, scatter)}
    )
    base = Sample(
        case=f"{kernel}/N={n}",
        kernel=kernel,
        provider=provider,
        params={"N": n, "dtype": "fp32"},
        device=0,
        verdict=Verdict.PASSED,
        unit="GB/s",
        value=value,
        timer="synthetic",
        flush_bytes=1 << 28,
        warmup=25,
        bytes_moved=n * 4096,
        **band,
    )
    return dataclasses.replace(base, **more)


def times(median, scatter=0.01):
    """Made-up timings, evenly spread around their median and in no order."""
    return tuple(median * (1 + scatter * (place * 8 % 21 - 10) / 6) for place in range(21))


def compiled(architecture="sy_90", **more):
    base = CompiledKernel(
        kernel="softmax",
        function="_softmax_fwd",
        architecture=architecture,
        verdict=Verdict.PASSED,
        origin="bench",
        signature={"x_ptr": "*fp32", "n": "i32"},
        constants={"BLOCK": 1024},
        num_warps=4,
        num_stages=2,
        registers=34,
        spills=0,
        shared_bytes=16384,
    )
    return dataclasses.replace(base, **more)


def finding(**more):
    base = Finding(
        case="softmax/test_softmax.py::test_softmax[fp32-1823x781]",
        kernel="softmax",
        function="_softmax_fwd",
        defect=Defect.OUT_OF_BOUNDS,
        access="load",
        tensor="x_ptr",
        shape=(4, 100),
        index=400,
        indices=(4, 0),
        lane=100,
        lanes=28,
        block=(128,),
        program=(3, 0, 0),
        file="/kernels/softmax/rows.py",
        line=12,
        text="x = tl.load(x_ptr + i)",
    )
    return dataclasses.replace(base, **more)


def profile(**more):
    counters = {"instructions": 60, "memory": 20, "lines64": 1088, "least64": 128, "asked_bytes": 8192}
    base = Profile(
        case="softmax/test_softmax.py::test_softmax[fp32-1823x781]",
        kernel="softmax",
        function="_softmax_fwd",
        architecture="sy_90",
        card="Synthetic",
        launches=1,
        programs=4,
        waves=16,
        counters={**counters, "read_bytes": 32768, "written_bytes": 4096},
        bounds={"memory": 4.1, "vector": 0.2},
        lines=(ProfiledLine("/kernels/softmax/rows.py", 12, "x = tl.load(x_ptr + i)", counters),),
        registers=64,
        occupancy=0.5,
        limited_by=("registers",),
    )
    return dataclasses.replace(base, **more)


def facts(gpu=GPU_A, **more):
    devices = (DeviceFacts(index=0, name=gpu, architecture="sy_90", memory_bytes=1 << 36, multiprocessors=100, derived_gbps=4400.0),)
    base = Facts(
        python="3.12.0",
        platform="Linux-synthetic",
        torch="2.13.0+synthetic",
        triton="3.9.0",
        runtime="synthetic 1.0",
        driver="1.0",
        fp_fusion="1",
        kernels_hash="5e1f" * 16,
        devices=devices if gpu else (),
    )
    return dataclasses.replace(base, **more)


def record(target="alpha", **more):
    environment = Environment(engine="docker", python="python3", image="synthetic:1", image_id="sha256:" + "0" * 64)
    base = RunRecord(
        run_id="run-1",
        target=target,
        label=f"Synthetic {target}",
        verdict=Verdict.PASSED,
        reason="",
        hint="",
        started="2026-01-02T03:04:05+00:00",
        seconds=61.0,
        commit="0123abc",
        kernels="kernels",
        command=("warpwave", "run", target),
        environment=environment,
    )
    return dataclasses.replace(base, **more)


def run(target="alpha", gpu=GPU_A, **more):
    """A complete run of three tests, three points and one compiled kernel; any field can be replaced by name."""
    reports = tuple(StageReport(stage, Verdict.PASSED, seconds=1.0) for stage in Stage)
    base = TargetRun(
        record=record(target),
        facts=facts(gpu),
        stages=reports,
        cases=tuple(case(f"softmax/test_softmax.py::test_softmax[{n}]") for n in (1, 2, 3)),
        samples=tuple(sample(n, 3000.0 + n / 8) for n in (1024, 2048, 4096)),
        ceilings=(CEILING,),
        compiled=(compiled(),),
    )
    return dataclasses.replace(base, **more)


def junit(cases):
    words = {Verdict.FAILED: "failure", Verdict.NOT_RUN: "skipped"}
    found = []
    for entry in cases:
        result = ""
        if entry.verdict is not Verdict.PASSED:
            word = words.get(entry.verdict, "error")
            result = f"<{word} message={quoteattr(entry.message)} type={quoteattr(entry.verdict.value)}>{escape(entry.detail)}</{word}>"
        own = {"id": entry.id, "kernel": entry.kernel, **entry.properties}
        listed = "".join(f"<property name={quoteattr(k)} value={quoteattr(v)}/>" for k, v in own.items())
        inner = f"<properties>{listed}</properties>{result}"
        found.append(f'<testcase classname="synthetic" name={quoteattr(entry.id)} time="{entry.seconds}">{inner}</testcase>')
    return f'<?xml version="1.0" encoding="utf-8"?><testsuites><testsuite name="pytest">{"".join(found)}</testsuite></testsuites>'


def write_raw(folder: Path, source: TargetRun, finished=True) -> Path:
    """Lay a run out on disk as the host and the inside would."""
    stages = tuple(report.stage for report in source.stages)
    card = source.record.emulated and Architecture("synthetic", source.record.emulated, 64, {}, name=source.record.emulated)
    job = make_job(source.record.run_id, source.record.target, stages, kernels="/kernels", output="/out", emulate=card or None)
    files = {
        "job.json": to_json(job),
        "run.json": to_json(source.record),
        "facts.json": to_json(source.facts),
        "stages.json": to_json(Stages(source.record.run_id, source.record.target, finished, source.stages)),
        "test/junit.xml": junit(source.cases),
        "bench/samples.jsonl": "".join(to_json(entry) + "\n" for entry in source.samples),
        **({"bench/again.jsonl": "".join(to_json(entry) + "\n" for entry in source.again)} if source.again else {}),
        "bench/ceilings.jsonl": "".join(to_json(entry) + "\n" for entry in source.ceilings),
        "compile/kernels.jsonl": "".join(to_json(entry) + "\n" for entry in source.compiled),
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def edit(path: Path, **changes) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def two_targets():
    """Two made-up GPUs: the second fails a test of one kernel, lacks another test, and spills."""
    kernels = ("vector_add", "softmax", "layer_norm", "cross_entropy")
    tests = [case(f"{k}/test_{k}.py::test_{k}[fp32-{n}x781]", kernel=k) for k in kernels for n in (16, 1823, 4096)]
    second = [dataclasses.replace(entry) for entry in tests[:-1]]
    second[4] = dataclasses.replace(second[4], verdict=Verdict.FAILED, message="AssertionError: max_abs_err 0.3 > 1e-5", detail="trace")
    points = [sample(1 << p, 800.0 + 200 * p, kernel=k, provider=v) for k in kernels for v in ("triton", "torch") for p in range(8, 16)]
    other = [sample(p.params["N"], p.value * 1.2, kernel=p.kernel, provider=p.provider) for p in points]
    other[3] = dataclasses.replace(other[3], value=None, verdict=Verdict.INVALID, reason="not a number")
    other[50] = dataclasses.replace(other[50], flush_bytes=1 << 27)
    code = [compiled(a, kernel=k, function=f"_{k}_fwd", registers=30 + len(k) * 3) for a in ARCHITECTURES[:3] for k in kernels]
    code_b = [
        compiled(a, kernel=k, function=f"_{k}_fwd", spills=12 if k == "layer_norm" else 0) for a in ARCHITECTURES[3:] for k in kernels
    ]
    ceiling = dataclasses.replace(CEILING, median_ms=0.8, p20_ms=0.79, p80_ms=0.81)
    return [
        run("alpha", cases=tuple(tests), samples=tuple(points), compiled=tuple(code)),
        run(
            "beta",
            GPU_B,
            record=record("beta", verdict=Verdict.FAILED, reason="1 test failed", seconds=93.0),
            facts=facts(GPU_B, runtime="synthetic 2.0", driver="7.7", triton="3.9.1"),
            cases=tuple(second),
            samples=tuple(other),
            compiled=tuple(code_b),
            ceilings=(ceiling,),
        ),
    ]


def no_gpu():
    """A target without a GPU: tests in the interpreter, code for eight made-up architectures, one failure and one spill."""
    code = [
        compiled(a, kernel=k, function=f"_{k}_{d}", num_warps=w, registers=24 + 4 * w + i, constants={"BLOCK": 1024 * w})
        for k in ("softmax", "layer_norm", "attention")
        for d in ("fwd", "bwd")
        for w in (4, 8)
        for i, a in enumerate(ARCHITECTURES)
    ]
    code[-1] = dataclasses.replace(code[-1], verdict=Verdict.FAILED, registers=None, reason="out of resource: shared memory, 98304 > 65536")
    code[40] = dataclasses.replace(code[40], registers=255, spills=112)
    stages = tuple(StageReport(stage, Verdict.PASSED, seconds=1.0) for stage in (Stage.FACTS, Stage.TEST))
    stages += (StageReport(Stage.COMPILE, Verdict.FAILED, seconds=3.5, reason="1 of 96 launches did not compile"),)
    tests = tuple(case(f"softmax/test_softmax.py::test_softmax[{n}]") for n in range(27))
    return run("cpu", None, stages=stages, cases=tests, samples=(), ceilings=(), compiled=tuple(code))


def emulated(*cases, **more):
    """A run without a GPU and without speeds, of tests that a made-up emulator executed."""
    target = more.pop("target", "syn942-emulated")
    stages = tuple(StageReport(stage, Verdict.PASSED, seconds=1.0) for stage in (Stage.FACTS, Stage.TEST))
    nothing = {"stages": stages, "samples": (), "ceilings": (), "compiled": (), "cases": cases or run().cases}
    return run(target, None, **{**nothing, "record": record(target, emulated="syn942"), **more})


def pair(left=None, right=None):
    """Two complete runs that differ in what is given."""
    return [run("alpha", **(left or {})), run("beta", GPU_B, **{"facts": facts(GPU_B), **(right or {})})]


def day(number, *times, target="alpha", **more):
    """The run of a day, with a point a made-up time in ms."""
    samples = tuple(sample(1 << n, median_ms=time) for n, time in enumerate(times) if time)
    who = record(target, run_id=f"run-{number}", started=f"2026-01-{number:02d}T00:00:00+00:00", commit=f"c{number}")
    return run(target, **{"record": who, "samples": samples, **more})


# Compiled kernels that are made up, and every way in which they can change.


def row(architecture="sy_90", **more):
    told = {
        "binary_hash": "a",
        "binary_bytes": 10_000,
        "stack_bytes": 0,
        "load_widths": (64, 128),
        "store_widths": (128,),
        "instructions": {},
        "programs": 8,
        "resident_warps": 32,
        "occupancy": 0.5,
        "limited_by": ("registers",),
    }
    return compiled(architecture, **{**told, "binary_hash": "b" if more else "a", **more})


BASE = row(signature={"x": "*fp32", "n": "i32", "B": "constexpr"}, constants={"B": 1024, "E": True}, num_warps=4, num_stages=2)


def other(**more):
    return dataclasses.replace(BASE, **more)


def products(**counts):
    """Matrix instructions by name, with `__` for a dot."""
    named = {name.replace("__", "."): count for name, count in counts.items()}
    return {"instructions": named, "matrix": tuple(sorted(named))}


FAILED = {
    "verdict": Verdict.FAILED,
    "reason": "out of LDS",
    "registers": None,
    "binary_bytes": None,
    "instructions": None,
    "occupancy": None,
    "shared_bytes": None,
}


WGMMA, MMA, FLOAT = {"wgmma__m64n64k16__bf16": 4}, {"mma__sync__m16n8k16__bf16": 16}, {"v_mfma_f32_32x32x8_f16": 4}


def side(*rows, folder="runs/x", **more):
    return bundle(folder, [run(compiled=tuple(rows), **more)])


MOVES = {
    "it does not compile any more": (Concern.VERDICT, {}, FAILED),
    "its matrix instructions are gone": (Concern.MATRIX, products(**WGMMA), products()),
    "they are of an earlier generation": (Concern.MATRIX, products(**WGMMA), products(**MMA)),
    "one of two kinds of them is gone": (Concern.MATRIX, products(**FLOAT, v_mfma_f32_32x32x8_bf16=2), products(**FLOAT)),
    "registers are spilled": (Concern.SPILLS, {}, {"spills": 3, "stack_bytes": 16}),
    "private memory is used": (Concern.SPILLS, {}, {"stack_bytes": 64}),
    "fewer programs fit": (Concern.OCCUPANCY, {}, {"programs": 4, "resident_warps": 16, "occupancy": 0.25}),
    "loads are narrower": (Concern.ACCESS, {}, {"load_widths": (32,)}),
    "stores are narrower": (Concern.ACCESS, {}, {"store_widths": (16, 32)}),
    "it does not copy asynchronously any more": (Concern.ACCESS, {"instructions": {"cp.async.cg": 4}}, {}),
    "it needs more registers": (Concern.REGISTERS, {}, {"registers": 35}),
    "it needs more shared memory": (Concern.SHARED, {}, {"shared_bytes": 16385}),
    "its binary is larger": (Concern.SIZE, {}, {"binary_bytes": 10_501}),
    "it takes long to compile": (Concern.COMPILE, {"seconds": 1.0}, {"seconds": 4.0}),
}


# A made-up second vendor beside the recorded run on one card, to look at a report of two vendors.
#
# What is real: the tests, speeds and code that the recorded run holds, and the generated code of the other vendor's architecture, which a
# compiler made without a card. What is made up: every test result, speed and copy of `rocm (made up)`. No such card has run this. The
# words
# "made up" are in the target's name, so that no table can lose them.
#
# `python tests/unit/synthetic.py FOLDER` writes `comparison.html`, `.md` and `.json` of it, and what a terminal shows as
# `terminal.svg`.

ROOT = Path(__file__).parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "harness"))


MADE_UP = "rocm (made up)"
_GPU = "Made-up card: no such card has run this"
_REAL_COPY, _COPY = 3021.0, 3900.0  # GB/s
# The made-up share of its real share that a kernel reaches: three of them fall below 70% of the copy.
_FACTORS = {"softmax": 0.56, "layer_norm": 0.66, "cross_entropy": 0.6, "dropout": 0.93, "gelu": 0.97, "attention": 0.5, "matmul": 0.8}
_MESSAGE = "AssertionError: made up: max_abs_err 0.31 > 0.01"
_FAILING = {"softmax": 4, "attention": 2}  # its first tests


@cache
def recorded_runs() -> tuple[TargetRun, ...]:
    """The recorded run: code for both vendors from the target without a card, and the card of one."""
    return tuple(collect_all(find_raw([recorded()])))


def two_vendors() -> list[TargetRun]:
    """The recorded run, and a second vendor with made-up figures."""
    cpu, cuda = recorded_runs()
    return [cuda, made_up(cuda, cpu), cpu]


@cache
def compared() -> Comparison:
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
    from warpwave.cli.show import draw_report
    from warpwave.report import write_files

    folder.mkdir(parents=True, exist_ok=True)
    comparison = compared()
    write_files(comparison, folder)
    draw_report(comparison, folder / "terminal.svg", full=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]))


# A run with every file that a raw folder can hold. All data is synthetic.


def lines(*entries):
    return "".join(to_json(entry) + "\n" for entry in entries)


WHOLE = run(
    again=(sample(1),),
    launched=(compiled(origin="elsewhere"),),
    shares=(CardShare(Stage.TEST, 0, 3, 1.0), CardShare(Stage.BENCH, 1, 2, 1.0, "lost")),
    findings=(finding(),),
    profiles=(profile(),),
    gates=Gates(OPEN, waivers=(Waiver("spills", "why", Which(("softmax",))),)),
    peers=("torch",),
)
EXTRA = {
    "bench/kernels.jsonl": lines(*WHOLE.launched),
    "test/findings.jsonl": lines(*WHOLE.findings),
    "test/profile.jsonl": lines(*WHOLE.profiles),
    "test/cards.jsonl": lines(WHOLE.shares[0]),
    "bench/cards.jsonl": lines(WHOLE.shares[1]),
}


def write_whole(parent: Path) -> Path:
    made = write_raw(parent / "alpha", WHOLE)
    for name, text in EXTRA.items():
        (made / name).write_text(text)
    stages = tuple(report.stage for report in WHOLE.stages)
    (made / "job.json").write_text(to_json(make_job("run-1", "alpha", stages, "/kernels", "/out", gates=WHOLE.gates, peers=WHOLE.peers)))
    return made
