"""Benchmarks that are scripts, measured on a device whose clock only launches move: a quarter of a millisecond each."""

import json
import os
import re
import runpy
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest
from engine_requests import make_job

pytest.importorskip("torch", reason="the inside needs torch and triton; `nox -s tests` installs them")
pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

import command

from warpwave.inside.scripts.script import Names, Script, benches_of, how_to_run_scripts
from warpwave.records import BenchScript, Sample, Stage, StageReport, Verdict

REPOSITORY = Path(__file__).parents[4]
PROGRAM = """
import torch
from benching import FakeDevice
from warpwave.config.targets import load_targets
from warpwave.inside.bench import timing as do_bench, results, stage
from warpwave.inside.fake_gpu import card as driver
from warpwave.records import BenchScript, Job, Stage, What
device = FakeDevice()
do_bench.time = type("Still", (), dict(perf_counter=staticmethod(lambda: 0.0)))
driver.PretendedDriver.launcher_cls = lambda self, source, metadata: lambda *args, **kwargs: device.work(0.25)
torch.relu = lambda x: device.work(0.5)
stage.Timer.when_used = classmethod(lambda cls, *told: cls(device, device.flush, 1 << 20, told[0]))
stage.copy_ceiling, results.trouble = lambda *arguments: None, lambda: ""
card = next(card for card in load_targets()["cpu"].architectures if card.name == "sm_90")
asked = tuple(BenchScript(pattern, tuple(arguments)) for pattern, arguments in {scripts!r})
with driver.pretended_device(card, lambda binary: (32, 0, 1024)):
    stage.work(Job("run-1", "cuda", {package!r}, {output!r}, what=What(stages=(Stage.BENCH,), benches=(), bench_scripts=asked)))
"""
SUPERVISE = """
import sys
from pathlib import Path
from warpwave.inside.bench.results import Sink
from warpwave.inside.process.journal import Journal
from warpwave.inside.process.supervise import supervise
from warpwave.inside.process.workers import spawned
from warpwave.records import dump
folder, start = Path.cwd(), spawned([sys.executable, "program.py"])
sink = Sink(folder, "samples.jsonl")
deaths = supervise(start, Journal(folder / "journal.jsonl"), 120.0, folder / "log.txt", sink.on_event)
dump(sink.report(deaths), Path("report.json"))
"""


IMPORTS = "import argparse, torch, triton, triton.language as tl\n"
FILES = {
    "micro/time.py": (IMPORTS + "def main(): print(triton.testing.do_bench(f))", True),
    "micro/check.py": ("from triton import language\nif __name__ == '__main__':\n    pass", True),
    "demo.py": (IMPORTS + "add_kernel[(4,)](x, y, 4)", True),
    "loop.py": (IMPORTS + "for _ in range(3): add_kernel[grid](x)", True),
    "library.py": (IMPORTS + "def add(x):\n    add_kernel[(1,)](x)", False),
    "plain.py": ("import torch\nif __name__ == '__main__':\n    pass", False),
}


@pytest.mark.parametrize("name", FILES)
def test_a_package_of_scripts_is_told_which_files_run_as_such(tmp_path, name):
    text, is_script = FILES[name]
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text + "\n")

    assert (f"--bench-script {name} runs" in how_to_run_scripts(make_job("run-1", "cpu", (Stage.TEST,), str(tmp_path), "out"))) == is_script


@pytest.fixture
def ran(tmp_path, data):
    """Run scripts of a package in the bench stage: their samples by id, the stage's report, and what the scripts printed."""

    def run(*scripts, package=data / "scripts"):
        folders = {"package": package, "output": tmp_path}
        asked = [(pattern, arguments) for pattern, *arguments in scripts]
        program = PROGRAM.format(**{name: str(folder) for name, folder in folders.items()}, scripts=asked)
        (tmp_path / "program.py").write_text(program)
        (work := tmp_path / "work").mkdir()
        variables = {**os.environ, "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'tests' / 'unit'}", "WARPWAVE_WORK": str(work)}
        done = command.python("-c", SUPERVISE, cwd=tmp_path, env=variables, kind="compiler")
        assert done.returncode == 0, done.stderr
        report = SimpleNamespace(**json.loads((tmp_path / "report.json").read_text()))
        log = (tmp_path / "log.txt").read_text()
        lines = (tmp_path / "samples.jsonl").read_text().splitlines() if (tmp_path / "samples.jsonl").exists() else []
        samples = [Sample(**{**json.loads(line), "verdict": Verdict(json.loads(line)["verdict"])}) for line in lines]
        assert report.doubts == [], report
        return {f"{sample.case} [{sample.provider}]": sample for sample in samples}, report, log

    return run


def test_each_measurement_of_a_loop_is_a_point(ran):
    """Its line, what it calls and the loop's size name it; the autotuner's own timings are none; a helper of the package is."""
    samples, report, log = ran(("benchmarks/loop.py", "--dtype", "float16"))
    lead = re.escape(next(iter(samples)).partition("/")[0] + "/benchmarks/loop.py:")

    assert report.verdict == Verdict.PASSED.value
    assert [re.sub(f"^{lead}", "", name) for name in samples] == [
        f"{line}/--dtype float16/n={n} [{provider}]"
        for n in (1024, 4096)
        for line, provider in ((16, "relu"), (17, "torch.relu"), (18, "helper"))
    ]
    found = list(samples.values())
    assert [sample.params for sample in found[:3]] == [{"n": 1024}] * 3
    assert [sample.source for sample in found[:3]] == [f"benchmarks/loop.py:{line}" for line in (16, 17, 18)]
    assert [tuple(sample.launched) for sample in found[:3]] == [("relu_kernel",), (), ("relu_kernel",)]
    assert (found[0].unit, found[0].value, set(found[0].times_ms), found[0].flush_bytes) == ("ms", 0.25, {0.25}, 1 << 20)
    assert "argv=['--dtype', 'float16']" in log


def test_the_script_gets_what_it_asked_for(ran):
    """A median, three quantiles, and a helper's first quantile; it runs as the main module."""
    _, _, log = ran(("benchmarks/loop.py",))

    assert "n=1024 ours=0.25 theirs=[0.5, 0.5, 0.5] tagged=0.25 name=__main__ argv=[]" in log


def test_graphs_and_torchs_timer_are_points(ran, data):
    """A command of click; its author's words for a statement; the same call again has a number; what it writes is not in the package."""
    samples, report, _ = ran(("benchmarks/clicked.py", "--size", "4096"))
    ends = [name.partition("/--size 4096/")[2] for name in samples]
    graph, timed, again = samples.values()

    assert ends == ["size=4096 [relu]", "size=4096,label=relu [ours]", "size=4096,label=relu#2 [ours]"]
    assert [tuple(sample.launched) for sample in (graph, timed, again)] == [("relu_kernel",)] * 3
    assert [sample.timer for sample in (graph, timed)] == ["replays of a graph, warm cache", "torch.utils.benchmark, wall clock"]
    assert timed.value == timed.median_ms > 0
    assert len(timed.times_ms) == 1
    assert report.counts == {"passed": 3}
    assert not list((data / "scripts").rglob("results.csv"))
    assert not (Path.cwd() / "results.csv").exists()


def test_a_report_made_in_a_function_is_a_sweep(ran):
    """Its points have the names of any `perf_report`, and its author's numbers; made again, they have a number."""
    samples, report, _ = ran(("benchmarks/report.py",))
    names = [name.partition("/")[2] for name in samples]

    assert report.counts == {"passed": 8}
    assert [name for name in names if "#2" not in name] == [
        f"relu/N={n} [{provider}]" if not names[0].startswith("N=") else f"N={n} [{provider}]"
        for n in (1024, 2048)
        for provider in ("triton", "torch")
    ]
    sample = next(iter(samples.values()))
    assert (sample.unit, sample.value) == ("GB/s", pytest.approx(2 * 1024 * 4 / 0.25 * 1e-6))
    assert len(sample.times_ms) > 5


@pytest.mark.parametrize(
    ("script", "points", "verdict", "reason"),
    [
        (("benchmarks/broken.py",), 1, Verdict.ERROR, "ValueError: no such size"),
        (("benchmarks/nothing.py",), 0, Verdict.NOT_RUN, "it ended without a measurement: no do_bench"),
        (("benchmarks/loop.py", "--help"), 0, Verdict.NOT_RUN, "it ended without a measurement"),
        (("benchmarks/loop.py", "--foo"), 0, Verdict.ERROR, "it exited with 2: loop.py: error: unrecognized arguments: --foo"),
    ],
    ids=["raises", "measures-nothing", "help", "wrong-argument"],
)
def test_a_script_that_ends_early_or_empty_has_a_row(ran, script, points, verdict, reason):
    """Its points stay, and no traceback shows our own code."""
    samples, report, log = ran(script)
    rows = [sample for name, sample in samples.items() if "[running " in name]

    assert [(row.verdict, reason in row.reason) for row in rows] == [(verdict, True)]
    assert report.counts == {verdict.value: 1, **({"passed": points} if points else {})}
    assert "harness/warpwave/inside/scripts" not in log


def test_a_measurement_that_kills_its_process_costs_itself_only(ran):
    """The next worker runs the script again: what was measured is not measured again, and the culprit has no number."""
    samples, report, log = ran(("benchmarks/dies.py",), ("benchmarks/nothing.py",))
    ended = {name.partition("[")[2][:-1]: sample.verdict for name, sample in samples.items() if "[running" not in name}

    assert report.counts == {"passed": 2, "crashed": 1, "not-run": 1}
    assert list(ended.values()).count(Verdict.CRASHED) == 1
    assert [line.split() for line in log.splitlines() if line.startswith(("before", "dies", "behind"))] == [
        ["before", "0.25"],
        ["before", "0.25"],
        ["dies", "nan"],
        ["behind", "0.25"],
    ]


def test_a_stage_with_scripts_only_is_no_empty_one(tmp_path, data, monkeypatch):
    """And one whose globs match nothing says what it looked for."""
    from warpwave.inside.bench import stage

    monkeypatch.setattr(stage, "_sweep", lambda *arguments: StageReport(Stage.BENCH, Verdict.PASSED, reason="swept"))
    (tmp_path / "bench").mkdir()
    for pattern, found in (("benchmarks/loop.py", True), ("no/*.py", False)):
        job = make_job("r", "cuda", (Stage.BENCH,), str(data / "scripts"), str(tmp_path), benches=(), bench_scripts=(BenchScript(pattern),))
        report = stage.measure(job)
        assert (report.reason == "swept") is found
    assert "no/*.py" in report.hint
    assert list((tmp_path / "bench").iterdir()) == []


def test_a_script_is_not_loaded_as_a_bench_too(tmp_path):
    """Its row would say that it has no `perf_report` at module level; other benches are what they were."""
    for name in ("bench_script.py", "bench_module.py"):
        (tmp_path / name).touch()
    job = make_job("r", "cuda", (Stage.BENCH,), str(tmp_path), str(tmp_path), bench_scripts=(BenchScript("bench_s*.py"),))

    assert [path.name for path in benches_of(job)] == ["bench_module.py"]


# The names of measurements in scripts: the same in every run, and different for what differs.


@pytest.fixture
def named(tmp_path):
    """Run a script whose `measure(function)` only names the call: case without its lead, and provider."""

    def run(text, arguments=()):
        path = tmp_path / "package" / "speed.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text))
        names = Names(Script(path, "speed.py", "speed", arguments), path.parent)
        found = []
        runpy.run_path(str(path), init_globals={"measure": lambda function, **more: found.append(names.of(function, **more))})
        assert all(call.case.startswith("speed/speed.py:") for call in found)
        return [(call.case.removeprefix("speed/speed.py:"), call.provider) for call in found]

    return run


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("for n in (1, 2):\n    last_ms = n * 1.5\n    measure(lambda: f(n))\ndef f(n): pass\n", [("3/n=1", "f"), ("3/n=2", "f")]),
        (
            "def main(size, mode='fwd', device='cuda:0', base_ms=0.123, path='/tmp/x'):\n    measure(lambda: k[(1,)](size))\nmain(64)\n",
            [("2/size=64,mode=fwd", "k")],
        ),
        ("for provider in ('ours', 'theirs'):\n    measure(lambda: 1)\n", [("2", "ours"), ("2", "theirs")]),
        (
            "def ours(): pass\ndef theirs(): pass\nfor call in (ours, theirs):\n    measure(lambda: call())\n",
            [("4", "ours"), ("4", "theirs")],
        ),
        ("def f(): pass\nmeasure(f)\nmeasure(f)\n", [("2", "f"), ("3", "f")]),
        ("def f(): pass\nfor _ in range(2):\n    for again in range(2):\n        measure(f)\n", None),
        ("import functools\ndef f(): pass\nmeasure(functools.partial(f, 3))\n", [("3", "f")]),
        ("[measure(lambda: n) for n in (1, 2)]\n", [("1/n=1", "script"), ("1/n=2", "script")]),
        ("measure('torch.softmax(x, -1)')\n", [("1", "torch.softmax")]),
        ("import torch\nx = torch.empty(2, 3, dtype=torch.bfloat16)\nmeasure(lambda: f(x))\n", [("3/x=2x3:bf16", "f")]),
        (
            "import torch\nfor d in (torch.float16,):\n    measure(lambda: f(d), described={'label': 'fast'})\n",
            [("3/d=fp16,label=fast", "f")],
        ),
        ("for shape in ((8, 16), [32, 64]):\n    measure(lambda: f(shape))\n", [("2/shape=8x16", "f"), ("2/shape=32x64", "f")]),
        (
            "def helper(call, n):\n    return measure(call)\nfor n in (1, 2):\n    helper(lambda: f(n), n)\n",
            [("2/n=1", "f"), ("2/n=2", "f")],
        ),
        ("def run(call):\n    return measure(call)\nfor n in (1, 2):\n    run(lambda: f(n))\n", [("2/n=1", "f"), ("2/n=2", "f")]),
    ],
)
def test_a_name_holds_what_its_author_varies(named, text, expected):
    """Loops, parameters and what is called; never a time, a device or a path; tensors where there is nothing else."""
    found = named(text)
    if expected is None:
        assert len(set(found)) == len(found) == 4
        assert found == named(text)
        return
    assert found == expected


def test_arguments_are_in_the_name(named):
    """The same script with others is another benchmark."""
    text = "def f(): pass\nmeasure(f)\n"
    assert (named(text, ("--dtype", "bf16")), named(text)) == ([("2/--dtype bf16", "f")], [("2", "f")])


def test_a_configuration_is_named_by_its_parts(named):
    """A dataclass or a table of numbers."""
    text = """
    from dataclasses import dataclass
    @dataclass
    class Shape:
        m: int
        device: str = "cuda"
    for shape in (Shape(8), {"m": 16}):
        measure(lambda: f(shape))
    """
    assert [case for case, _ in named(text)] == ["8/m=8", "8/m=16"]
