"""Bundles that are as large as the readers' caps let them be, each in one direction. Synthetic: nothing in them was measured."""

import itertools
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from warpwave.collect import untrusted
from warpwave.collect.cases import MAX_MEMORY as MAX_CASES_MEMORY
from warpwave.records import DeviceFacts, Facts, GateLimits, Gates, Job, Stage, StageReport, Stages, Verdict, Waiver, What, Which, to_json

FAILED = '<failure message="m" type="x">' + "a line of a traceback\n" * 20 + "</failure>"
SKIPPED = '<skipped message="no such card"/>'
MOST = 200_000


def _points_with_parameters(root: Path) -> None:
    target(root, samples=(sample(f"k/s/N={n}", params={f"p{i}_{n}": n * i for i in range(100)}) for n in range(2000)))


def _parameters_that_rise(root: Path) -> None:
    """Every parameter could be the axis: all of them rise, but one."""
    target(root, samples=(sample(f"k/s/N={n}", params={**{f"p{i}": n + i for i in range(90)}, "z": n % 2}) for n in range(5000)))


def _kernels_of_tests(root: Path) -> None:
    target(root, tests=(case(f"{n}/test_a.py::test_a", f"k{n}") for n in range(99_000)))


def _kernels_of_points(root: Path) -> None:
    target(root, samples=(sample(f"k{n}/a/N=1", f"k{n}") for n in range(MOST)), ceilings=[ceiling()])


def _kernels_on_targets(root: Path) -> None:
    for t in range(300):
        name = f"t{t}"
        rows = (sample(f"k{t}_{n}/a/N=1", f"k{t}_{n}") for n in range(200))
        tests = (case(f"k{t}_{n}/test_a.py::test_a", f"k{t}_{n}") for n in range(600))
        target(root, name, tests=tests, samples=rows, ceilings=[ceiling()])


def _targets(root: Path) -> None:
    for t in range(5000):
        target(root, f"t{t}", tests=[case("k/test_a.py::test_a")], samples=[sample("k/a/N=1")], compiled=[kernel()], launched=[kernel()])


def _one_against_many(root: Path) -> None:
    """A baseline of many points, and many targets of one."""
    target(root, "a", samples=(sample(f"k/a/N={n}", params={"N": n}) for n in range(50_000)), ceilings=[ceiling()])
    for t in range(3000):
        target(root, f"t{t}", samples=[sample("k/a/N=1")], ceilings=[ceiling()])


def _large_parameters(root: Path) -> None:
    """A refused ratio names the parameters that differ."""
    target(root, "a", samples=[sample("k/a/N=1", params={f"p{i}": "x" * 90_000 for i in range(90)})])
    for t in range(3000):
        target(root, f"t{t}", samples=[sample("k/a/N=1")])


def _providers(root: Path) -> None:
    target(root, samples=(sample(f"k/a/N={n % 3}", provider=f"p{n}") for n in range(MOST)), ceilings=[ceiling()])


def _sweeps(root: Path) -> None:
    target(root, samples=(sample(f"k/s{n // 3}/N={n % 3 + 1}", params={"N": n % 3 + 1}) for n in range(MOST)), ceilings=[ceiling()])


def _benchmarks(root: Path) -> None:
    """Sweeps of many kernels, in many units."""
    rows = (sample(f"k{n // 3}/s/N={n % 3 + 1}", f"k{n // 3}", params={"N": n % 3 + 1}, unit=f"u{n // 3}") for n in range(MOST))
    target(root, samples=rows)


def _timings(root: Path) -> None:
    times = [1.0 + n % 97 / 1000 for n in range(90_000)]
    target(root, samples=(sample(f"k/s/N={n}", params={"N": n}, times_ms=times) for n in range(90)), ceilings=[ceiling()])


def _short_timings(root: Path) -> None:
    times = [1.0 + n / 1000 for n in range(25)]
    rows = [sample(f"k/s/N={n}", params={"N": n}, times_ms=times) for n in range(40_000)]
    for name in ("a", "b"):
        target(root, name, samples=rows, again=rows, ceilings=[ceiling()])


def _long_names(root: Path) -> None:
    long, wide = "ü" * 195, "ü" * 1900
    tests = (case(f"{long[:170]}/{n}{wide[:700]}", f"{long[:170]}{n}", FAILED) for n in range(30_000))
    rows = (
        sample(f"{n}{wide}", f"{n % 999}{long}"[:200], provider=f"{n % 99}{long}"[:200], unit=long, timer=long, reason=wide, weak=wide)
        for n in range(MOST)
    )
    code = (
        kernel(f"{n % 999}{long}"[:200], f"{n}{long}"[:200], long, origin=f"{n}{wide}", reason=wide, verdict="failed") for n in range(MOST)
    )
    facts = {"torch": "t" * 90_000, "platform": "\x1b" * 90_000}
    for name in ("a" * 190, "b" * 190):
        target(root, name, tests=tests, samples=rows, compiled=code, facts=facts, label="l" * 90_000)


def _long_reasons(root: Path) -> None:
    for name in ("a", "b"):
        rows = (sample(f"k/s/N={n}", value=None, verdict="failed", reason=f"{n} " + "r" * 90_000) for n in range(MOST))
        target(root, name, samples=rows, compiled=(kernel(verdict="failed", reason=f"{n} " + "r" * 90_000) for n in range(MOST)))


def _problems(root: Path) -> None:
    for t in range(3000):
        target(root, f"t{t}", tests=["<"], samples=[{"x": 1}] * 150, ceilings=[{}], compiled=[{}], launched=[{}], facts={"x": 1})


def _failures(root: Path) -> None:
    for name in ("a", "b"):
        target(root, name, tests=(case(f"k{n % 50}/test_a.py::test_a[{n}]", f"k{n % 50}", FAILED) for n in range(99_000)))


def _skipped(root: Path) -> None:
    for name in ("a", "b"):
        skipped = (f'<skipped message="{n}"/>' for n in range(99_000))
        target(root, name, tests=(case(f"k/test_a.py::test_a[{n}]", inner=why) for n, why in enumerate(skipped)))


def _different_tests(root: Path) -> None:
    """Each target has tests of its own: every test is missing on all others."""
    for t in range(2000):
        target(root, f"t{t}", tests=(case(f"k/test_a.py::test_a[{t}-{n}]") for n in range(200)))


def _properties(root: Path) -> None:
    rows = (case(f"k{n}/test_a.py::test_a", f"k{n}", **{f"p{i}_{n}": f"{i}.5" for i in range(14)}) for n in range(60_000))
    target(root, tests=rows)


def _gpus(root: Path) -> None:
    told = {f"f{i}": "x" for i in range(40)}
    base = {"name": "g", "architecture": "a", "memory_bytes": 1, "multiprocessors": 1}
    for name in ("a", "b"):
        devices = [
            {"index": n, **base, "name": f"g{n}", "told": {k: f"{v}{n}" for k, v in told.items()} if n < 1000 else {}} for n in range(4000)
        ]
        samples = (sample(f"k/a/N={n}", device=n % 4000) for n in range(40_000))
        target(root, name, facts={"devices": devices}, samples=samples, ceilings=(ceiling(n % 4000) for n in range(60_000)))


def _attempts(root: Path) -> None:
    attempts = [{"started": "2026", "seconds": 1.0, "verdict": "infra", "reason": "r" * 1000}] * 1000
    for t in range(100):
        target(
            root,
            f"t{t}",
            attempts=attempts,
            command=["--kernels", "x" * 9000] * 450,
            tests=[case(f"a[{n}]", inner=FAILED) for n in range(9)],
        )


def _architectures(root: Path) -> None:
    """Many configurations, of which each case launched one an architecture."""
    for t in range(20):
        rows = (kernel(f"k{n // 640}", f"_f{n // 64}", f"sy_{n % 64}", origin=f"o{n // 64}", constants={f"c{n}": n}) for n in range(20_000))
        target(root, f"t{t}", compiled=rows)


def _configurations(root: Path) -> None:
    """One launch of one function, and everything else different."""
    rows = (kernel(constants={"B": n, "C": -n}, num_warps=n % 8) for n in range(MOST))
    target(root, compiled=rows, launched=(kernel(constants={"B": n}, attributes={"a": str(n)}) for n in range(MOST)))


def _vendors(root: Path) -> None:
    """Half of it dies on one vendor and lives on the other."""
    dead = {"verdict": "failed", "reason": "out of resource", "registers": None}
    rows = (
        kernel(architecture=f"{'sy_' if n % 2 else 'gy'}{n % 60}", signature={}, constants={}, **({} if n % 2 else dead))
        for n in range(MOST)
    )
    target(root, "a", compiled=rows)
    rows = (
        kernel(architecture=f"{'sy_' if n % 2 else 'gy'}{n % 60}", signature={"x": f"t{n}"}, **({} if n % 2 else dead)) for n in range(MOST)
    )
    target(root, "b", compiled=rows)


def _signatures(root: Path) -> None:
    rows = (kernel(signature={f"a{i}_{n % 2}": "*fp32" for i in range(990)}, constants={f"c{i}": n for i in range(9)}) for n in range(MOST))
    target(root, compiled=rows, launched=(kernel(signature={}, constants={"q": n}) for n in range(50_000)))


def _fidelity(root: Path) -> None:
    for t in range(400):
        target(
            root,
            f"t{t}",
            compiled=(kernel(constants={"B": n}) for n in range(150)),
            launched=(kernel(constants={"C": n}) for n in range(150)),
        )


def _gates(root: Path) -> None:
    which = [Which(kernel=tuple(f"*a{w}*b{i}*c*" for i in range(5))) for w in range(200)]
    gates = Gates(GateLimits(), waivers=tuple(Waiver("spills", f"r{n}", each) for n, each in enumerate(which)))
    broken = {f"g{i}": "found 9, allowed 0" for i in range(19)}
    rows = (kernel(f"aab{n}c", f"_f{n}", verdict="failed", broken={**broken, "spills": str(n)}) for n in range(MOST))
    target(root, compiled=rows, gates=gates)


def _shards(root: Path) -> None:
    for n in range(1, 65):
        rows = (sample(f"k{n}/a/N={i}", f"k{n}") for i in range(1000))
        tests = (case(f"k{n}/test_a.py::test_a[{i}]", f"k{n}") for i in range(5000))
        target(
            root, f"s{n}", samples=rows, tests=tests, compiled=(kernel(f"k{n}", constants={"B": i}) for i in range(500)), shard=f"{n}/64"
        )
        (root / "raw" / f"s{n}" / "run.json").write_text((root / "raw" / f"s{n}" / "run.json").read_text().replace(f'"s{n}"', '"all"'))


def _elements(root: Path) -> None:
    """XML that leaves nothing behind, and lines of spaces."""
    for t in range(40):
        target(root, f"t{t}", tests=itertools.repeat("<a/>", 900_000))
        path = root / "raw" / f"t{t}" / "bench" / "samples.jsonl"
        path.write_text((" " * 8_000_000 + "\n") * 3)


def _everything(root: Path) -> None:
    for name in ("a", "b", "c"):
        target(
            root,
            name,
            tests=(case(f"k{n % 500}/test_a.py::test_a[{n}]", f"k{n % 500}", FAILED if n % 3 else "", e=f"{n}e-9") for n in range(99_000)),
            samples=(sample(f"k{n // 60}/s/N={n % 60 + 1}", f"k{n // 60}", 3000 + n % 99, params={"N": n % 60 + 1}) for n in range(MOST)),
            again=(sample(f"k{n // 60}/s/N={n % 60 + 1}", f"k{n // 60}", params={"N": n % 60 + 1}) for n in range(MOST)),
            ceilings=(ceiling() for _ in range(MOST)),
            compiled=(kernel(f"k{n // 90}", f"_f{n // 9}", f"sy_{n % 9}", constants={"B": n}) for n in range(MOST)),
            launched=(kernel(f"k{n // 90}", f"_f{n // 9}", constants={"B": n}) for n in range(MOST)),
        )


def _thousand_files(root: Path) -> None:
    """What a large project's run is: a thousand files of a thousand tests."""
    for t in range(1000):
        target(
            root,
            f"t{t}",
            tests=(case(f"softmax/test_softmax.py::test_softmax[bf16-{n}x781]", "softmax", max_ulp=n % 7) for n in range(1000)),
        )


SHAPES: dict[str, Callable[[Path], None]] = {
    name[1:].replace("_", " "): found
    for name, found in list(globals().items())
    if name.startswith("_") and callable(found) and name[1] != "_"
}


# Raw folders of any size, written row by row. Synthetic: nothing in them was measured.


sys.path.insert(0, str(Path(__file__).parents[2] / "harness"))


Rows = Iterable[dict[str, Any]]
DISK = 250 << 20


def target(
    root: Path,
    name: str = "alpha",
    *,
    tests: Iterable[str] = (),
    samples: Rows = (),
    again: Rows = (),
    ceilings: Rows = (),
    compiled: Rows = (),
    launched: Rows = (),
    gates: Gates | None = None,
    facts: dict[str, Any] | None = None,
    **record: Any,
) -> None:
    folder = root / "raw" / name
    for part in ("test", "bench", "compile"):
        (folder / part).mkdir(parents=True)
    run_id = f"run-{name}"[:150]
    stages = tuple(Stage)
    base = {"run_id": run_id, "target": name, "label": name, "verdict": "passed", "reason": "", "hint": "", "seconds": 1.0, "commit": "c"}
    (folder / "run.json").write_text(
        json.dumps({**base, "started": "2026-01-01T00:00:00+00:00", "kernels": "k", "command": ["warpwave"], **record})
    )
    (folder / "job.json").write_text(to_json(Job(run_id, name, "/kernels", "/out", what=What(stages=stages, gates=gates))))
    reports = tuple(StageReport(stage, Verdict.PASSED, 1.0) for stage in stages)
    (folder / "stages.json").write_text(to_json(Stages(run_id, name, True, reports)))
    devices = (DeviceFacts(0, "GPU A", "sy_90", 1 << 36, 100),)
    known = Facts("3.12", "Linux", "2.13", "3.9", "synthetic", "1.0", "1", "5e1f" * 16, devices)
    (folder / "facts.json").write_text(json.dumps({**json.loads(to_json(known)), **(facts or {})}))
    with (folder / "test" / "junit.xml").open("w") as file:
        file.write('<testsuites><testsuite name="pytest">')
        written = 0
        for line in tests:
            written += len(line)
            # A file that is too large by a line is refused whole: then it would cost nothing.
            if written > 63 << 20 or 4 * written > 3 * MAX_CASES_MEMORY:
                break
            file.write(line)
        file.write("</testsuite></testsuites>")
    lines = {
        "bench/samples.jsonl": samples,
        "bench/again.jsonl": again,
        "bench/ceilings.jsonl": ceilings,
        "compile/kernels.jsonl": compiled,
        "bench/kernels.jsonl": launched,
    }
    for path, rows in lines.items():
        with (folder / path).open("w") as file:
            size = memory = 0
            for row in rows:
                line = json.dumps(row) + "\n"
                size += len(line)
                memory += untrusted._measure(row) if len(line) < 1 << 20 else 4 * len(line)
                if size > DISK or memory > 0.98 * untrusted.MAX_MEMORY:
                    break
                file.write(line)


def case(name: str, kernel: str = "k", inner: str = "", **properties: object) -> str:
    listed = "".join(f'<property name="{key}" value="{value}"/>' for key, value in properties.items())
    return (
        f'<testcase classname="c" name="n" time="0.1"><properties><property name="id" value="{name}"/>'
        f'<property name="kernel" value="{kernel}"/>{listed}</properties>{inner}</testcase>'
    )


def sample(case: str, kernel: str = "k", value: float = 3000.0, **more: Any) -> dict[str, Any]:
    base = {"case": case, "kernel": kernel, "provider": "triton", "params": {"N": 1}, "device": 0, "verdict": "passed", "unit": "GB/s"}
    return {**base, "value": value, "median_ms": 1.0, "p20_ms": 0.99, "p80_ms": 1.01, "timer": "t", "flush_bytes": 1, **more}


def ceiling(device: int = 0) -> dict[str, Any]:
    return {"device": device, "bytes_moved": 4_000_000_000, "median_ms": 1.0, "p20_ms": 0.99, "p80_ms": 1.01, "when": "before"}


def kernel(name: str = "k", function: str = "_f", architecture: str = "sy_90", **more: Any) -> dict[str, Any]:
    base = {"kernel": name, "function": function, "architecture": architecture, "verdict": "passed", "signature": {"x": "*fp32"}}
    return {**base, "constants": {"B": 1}, "num_warps": 4, "num_stages": 2, "registers": 30, "spills": 0, "origin": "o", **more}
