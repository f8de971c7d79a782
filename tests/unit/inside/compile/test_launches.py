"""Launches of a package's tests, captured without a GPU and without data."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from types import SimpleNamespace

import pytest
from engine_requests import make_job

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

import command
from slow_cases import slow_but

from warpwave.compare.grid import cause
from warpwave.config.targets import load_targets
from warpwave.inside.compile.candidates import Candidates, Discarded, _Launch, key
from warpwave.inside.compile.stage import _as_expected
from warpwave.inside.process.journal import Audit
from warpwave.records import ADVICE, OPEN, BenchScript, CompiledKernel, Gates, Limits, NotRun, Stage, Verdict, dump

BOTH = ("sm_90", "gfx942")


@pytest.fixture(scope="module")
def rows(run_inside, data):
    cards = tuple(card for card in load_targets()["cpu"].architectures if card.name in BOTH)
    output = run_inside(data / "launching", Stage.COMPILE, architectures=cards, benches=("bench_*.py",))
    return [json.loads(line) for line in (output / "compile" / "kernels.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("function", "configurations"),
    [
        ("double_kernel", 3),  # two lengths, one of them divisible by 16, and the one that was warmed up
        ("first_kernel", 1),  # behind assertions on data that is not there
        ("second_kernel", 1),  # in a backward
        ("tuned_kernel", 2),
        ("guessed_kernel", 2),
        ("described_kernel", 1),
        ("describing_kernel", 1),
        ("gluon_kernel", 1),
    ],
)
def test_every_way_to_launch_is_seen(rows, function, configurations):
    seen = Counter(row["architecture"] for row in rows if row["function"] == function and row["verdict"] == "passed")
    assert seen == dict.fromkeys(BOTH, configurations), [row for row in rows if row["function"] == function]


def test_what_was_not_run_says_why_and_rows_name_their_test(rows):
    """Data that decides, a skip, an expected failure and an import that fails: one row for each card, none missing, none more."""
    left_out = {(row["verdict"], row["not_run"], row["origin"].rpartition("::")[2], row["reason"]) for row in rows if row["not_run"]}
    data = next(reason for _, why, _, reason in left_out if why == "decided-by-data")

    assert left_out == {
        ("not-run", "decided-by-data", "test_the_data_decides", data),
        ("not-run", "skipped", "test_skipped", "Skipped: needs two GPUs"),
        ("not-run", "xfailed", "test_unlike", "XFailed: unittest.expectedFailure"),  # though its assertion holds for unknown data
        ("error", "import-failed", "test_unimportable.py", "ModuleNotFoundError: No module named 'json.no_such_module'"),
    }
    assert "depends on the data of a tensor" in data
    assert Counter(row["architecture"] for row in rows if row["not_run"]) == dict.fromkeys(BOTH, 4)

    # The origin is pytest's own name for the test, so that it can be run alone.
    origins = {row["origin"] for row in rows if row["function"] == "tuned_kernel"}
    assert origins == {"test_launching.py::test_autotuned"}

    # Host code that asks which vendor's torch it runs on takes the way of the pretended card's.
    blocks = {row["architecture"]: row["constants"]["BLOCK"] for row in rows if row["function"] == "vendor_kernel"}
    assert blocks == {"sm_90": 256, "gfx942": 512}


def _writing_to(folder: Path) -> list[str]:
    """Processes whose output goes below a folder, as the workers' does."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            target = str((process / "fd" / "1").readlink())
        except OSError:
            continue
        if target.startswith(str(folder)):
            found.append(process.name)
    return found


@pytest.mark.parametrize("number", slow_but([signal.SIGINT, signal.SIGKILL], [signal.SIGKILL]))
def test_a_stage_that_is_stopped_leaves_no_worker(tmp_path, data, number):
    """Neither Ctrl-C, which no thread hears, nor a kill leaves a compiler running."""
    cards = tuple(card for card in load_targets()["cpu"].architectures if card.name in BOTH)
    (tmp_path / "compile").mkdir()
    dump(make_job("run-1", "cpu", (Stage.COMPILE,), str(data / "launching"), str(tmp_path), architectures=cards), tmp_path / "job.json")
    variables = {"PYTHONPATH": str(Path(__file__).parents[4]), "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "warpwave.inside.compile.stage", str(tmp_path / "job.json")]
    stage = subprocess.Popen(command, env={**os.environ, **variables}, start_new_session=True, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (tmp_path / "compile" / "kernels.jsonl").exists():
        assert stage.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert _writing_to(tmp_path)
    os.killpg(stage.pid, number)
    stage.wait(60)
    deadline = time.monotonic() + 3  # what is left alone works on for many times as long
    while _writing_to(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.1)
    rows = [json.loads(line) for line in (tmp_path / "compile" / "kernels.jsonl").read_text().splitlines()]
    left = [row for row in rows if row["not_run"] != "stopped"]

    assert _writing_to(tmp_path) == []
    assert len(left) < len(cards) * 12


# A launch that is bound (kernels/launches/bound.py) gives the driver what Triton's own gives it. The driver here only notes.

REPO = Path(__file__).parents[4]
DRIVER = """
import json, sys
import torch, triton
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.compiler.compiler import LazyDict
from triton.runtime.jit import JITFunction
LAUNCHED, STREAM = [], [7]
class Launcher:
    global_scratch_size = profile_scratch_size = 0
    def __init__(self, together):
        self.together, self.launch = together, lambda *args: LAUNCHED.append(args)
    def __call__(self, x, y, z, stream, function, *args):
        if args[2]: args[2](args[1])  # a hook
        # As in Triton's own for NVIDIA: up to 3.6, the kernel's arguments come one by one.
        rest = (*args[:4], args[4:]) if self.together else args
        self.launch(x, y, z, stream, function, *rest)
class Noting(DriverBase):
    utils = property(lambda self: self)
    def __init__(self, target): self.target = target
    @classmethod
    def is_active(cls): return True
    def map_python_to_cpp_type(self, ty): return ty
    def get_current_target(self): return self.target
    def get_current_device(self): return 0
    def get_current_stream(self, device=0): return STREAM[0]
    def get_active_torch_device(self): return torch.device("cpu")
    def get_benchmarker(self): return None
    def get_device_properties(self, device): return {"multiprocessor_count": 132, "max_shared_mem": 232448}
    def load_binary(self, name, kernel, shared, device): return 1, 11, 0, 0, 1024
    def unload_module(self, module): pass
    def launcher_cls(self, src, metadata):
        return Launcher(sys.argv[2] == "together") if len(sys.argv) > 2 else lambda *args: LAUNCHED.append(args)
target = GPUTarget("cuda", 90, 32) if sys.argv[1] == "sm_90" else GPUTarget("hip", sys.argv[1], 64)
triton.runtime.driver.set_active(Noting(target))
"""
SCRIPT = """
from kernels.launches.bound import Bound, descriptors
from kernels.gelu.gelu import gelu_kernel
bound = Bound(gelu_kernel, (4,), TANH=True, BLOCK_SIZE=1024, num_warps=4)
own, watched = JITFunction.run, []
x, y = torch.randn(4096), torch.randn(4096)
bound(x, x, 4096)
bound(y, x, 4096)
JITFunction.run = lambda *args, **kwargs: watched.append(1) or own(*args, **kwargs)
bound(y, x, 4096)
JITFunction.run = own
first, second, third = LAUNCHED
print(json.dumps({
    "runs": bound._run is not None,
    "as_triton": [a is b or a == b or type(a) is type(b) is LazyDict for a, b in zip(second, third) if not isinstance(a, torch.Tensor)],
    "tensors": [[t is y for t in args if isinstance(t, torch.Tensor)] for args in LAUNCHED],
    "lengths": [len(args) for args in LAUNCHED],
    "watched": len(watched),
    "constants": [args[-2:] for args in LAUNCHED],
}))
"""


PLAYED = """
from kernels.gelu import gelu
from kernels.launches import note, tape
tape.possible, note.current_device = True, lambda: -1
note._NAMES["empty"] = lambda size, stride, dtype: torch.empty_strided(size, stride, dtype=dtype)  # it is of CUDA
found = []
class Counting(note.Tape):
    def __init__(self, *args):
        super().__init__(*args)
        own = self.play
        self.play = lambda *args: found.append(own(*args)) or found[-1]
note.Tape = tape.Tape = Counting
def call(x):
    found.clear()
    out = gelu(x)
    x_, y_, z_, stream, function, *_, given = LAUNCHED[-1] if sys.argv[2] == "together" else (*LAUNCHED[-1][:9], LAUNCHED[-1][9:])
    addresses = [each.data_ptr() if isinstance(each, torch.Tensor) else each for each in given]
    return [bool(found) and found[0] is not None, stream, addresses[:2] == [x.data_ptr(), out.data_ptr()], list(addresses[2:])]
whole = torch.randn(4097)
calls = {"first": [call(whole[:4096]) for _ in range(3)], "moved": call(torch.randn(4096)), "odd": [call(whole[1:]) for _ in range(3)]}
STREAM[0] = 8
calls["stream"] = call(whole[:4096])
triton.knobs.runtime.launch_enter_hook.add(lambda data: calls.setdefault("hook", []).append(1))
calls["watched"] = call(whole[:4096])
print(json.dumps({**calls, "launches": len(LAUNCHED)}))
"""


def launches(architecture: str, script: str = SCRIPT, *more: str) -> dict:
    run = command.python("-c", DRIVER + script, architecture, *more, kind="compiler", env={**os.environ, "PYTHONPATH": str(REPO)})
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def test_a_compiled_kernel_gets_what_triton_gives_it():
    found = launches("sm_90")
    assert found["runs"]
    assert all(found["as_triton"])
    assert len(set(found["lengths"])) == 1
    assert found["tensors"] == [[False, False], [True, False], [True, False]]
    assert found["constants"] == [[True, 1024]] * 3
    assert found["watched"] == 1  # a tool that replaces launches of Triton sees each one


@pytest.mark.parametrize("arguments", ["together", "apart"])
def test_a_call_that_was_made_before_is_played(arguments):
    found = launches("sm_90", PLAYED, arguments)
    rest = [4096, False, 1024]
    assert found["first"] == [[False, 7, True, rest], [False, 7, True, rest], [True, 7, True, rest]]
    assert found["moved"] == [True, 7, True, rest]
    # Memory that starts elsewhere needs another binary.
    assert [played for played, *_ in found["odd"]] == [False, False, True]
    assert found["stream"] == [True, 8, True, rest]
    assert found["watched"] == [False, 8, True, rest]
    assert found["hook"] == [1]
    assert found["launches"] == 9


# Autotuned launches: a candidate that spills or does not fit is a finding only where no candidate is clean.


@pytest.fixture(scope="module")
def compiled(run_inside, data):
    """The stage's report, and its rows by the launch that they are of, for one card on which one warp spills."""
    card = next(card for card in load_targets()["cpu"].architectures if card.name == "sm_90")

    def run(candidates):
        gates = Gates(
            dataclasses.replace(ADVICE, lds_waits=True, release_waits=True, undefined_lanes=True), candidates=candidates, advice=OPEN
        )
        output = run_inside(data / "candidates", Stage.COMPILE, architectures=(card,), benches=("bench_*.py",), gates=gates)
        rows = defaultdict(list)
        for line in (output / "compile" / "kernels.jsonl").read_text().splitlines():
            row = json.loads(line)
            rows[row["origin"].partition("[")[2][:-1]].append(row)
        return json.loads((output / "compile" / "report.json").read_text()), dict(rows)

    return run


@pytest.fixture(scope="module")
def judged(compiled):
    """Under the default, where one clean candidate is enough."""
    return compiled("best")


def verdicts(rows):
    return Counter((row["verdict"], row["not_run"]) for row in rows)


DISCARDED = Counter({("not-run", "discarded"): 1, ("passed", None): 1})


@pytest.mark.parametrize(
    "launch",
    slow_but(["guessed", "tuned_guess", "derived", "warmed", "product", "caught"], ["guessed", "tuned_guess", "product", "caught"]),
)
def test_a_candidate_beside_a_clean_one_is_discarded(judged, launch):
    """Heuristics around the tuner or in it, a tuner of a package's own, a warm-up, what does not fit the card, and is caught."""
    assert verdicts(judged[1][launch]) == DISCARDED


def test_what_a_package_catches_is_a_finding_if_it_launches_nothing_else(judged):
    assert verdicts(judged[1]["caught_alone"]) == {("failed", None): 1}


def test_what_needs_another_launch_or_is_remembered_keeps_its_rows(judged):
    """A tuner's key leaves out what the compiler specializes on: for 1023 elements, the others are tried as well."""
    rows = judged[1]["tuned"]
    lengths = Counter((bool(row["attributes"].get("n")), row["not_run"]) for row in rows)

    assert lengths == {(aligned, why): 1 for aligned in (True, False) for why in (None, "discarded")}

    # A tuner has a clean one; the same kernel is launched without the tuner too.
    assert verdicts(judged[1]["shared"]) == {("failed", None): 2, ("passed", None): 1}

    # It is counted by its reason, and the stage's own reason is a real finding.
    report, rows = judged
    row = next(row for row in rows["guessed"] if row["not_run"])

    assert row["spills"] > 0
    assert row["broken"]["spills"] in row["reason"]
    assert row["reason"].endswith("1 of 2 candidates for this launch is clean")
    assert report["not_run"] == {"discarded": 8}
    assert (report["verdict"], "candidates" in report["reason"]) == ("failed", False)


@pytest.mark.parametrize(("launch", "failed"), [("hopeless", 2), ("pruned", 1), ("plain", 1)])
def test_where_nothing_is_clean_the_kernel_fails(judged, launch, failed):
    """All candidates spill, the only one that pruning leaves does, or nobody tunes."""
    assert verdicts(judged[1][launch]) == {("failed", None): failed}


def test_a_kernel_whose_compiler_never_ends_does_not_compile(run_inside, tmp_path):
    """It is that kernel's fault, and no host code's; what the other test launches is compiled."""
    (tmp_path / "test_ends.py").write_text(
        "import torch, triton\nimport triton.language as tl\n"
        "@triton.constexpr_function\ndef endless(n):\n    while n:\n        n += 1\n    return n\n"
        "@triton.jit\ndef endless_kernel(x, N: tl.constexpr):\n    n: tl.constexpr = endless(N)\n    tl.store(x + tl.arange(0, n), 1.0)\n"
        "@triton.jit\ndef kernel(x, N: tl.constexpr):\n    tl.store(x + tl.arange(0, N), 1.0)\n"
        "def test_never():\n    endless_kernel[(1,)](torch.zeros(64, device='cuda'), 64)\n"
        "def test_ends():\n    kernel[(1,)](torch.zeros(64, device='cuda'), 64)\n"
    )
    cards = tuple(card for card in load_targets()["cpu"].architectures if card.name == "gfx942")
    output = run_inside(tmp_path, Stage.COMPILE, architectures=cards, benches=(), limits=Limits(test_s=5.0))
    rows = [json.loads(line) for line in (output / "compile" / "kernels.jsonl").read_text().splitlines()]
    found = {row["function"]: (row["verdict"], row["kernel"]) for row in rows}

    assert found == {"endless_kernel": ("timeout", "ends"), "kernel": ("passed", "ends")}
    reason = next(row["reason"] for row in rows if row["verdict"] == "timeout")
    assert reason == "it ran longer than 5 s while `endless_kernel` (test_ends.py:8) was compiled"
    assert cause(reason) == "too long"


def test_a_test_that_compiles_until_its_limit_is_no_kernels_fault(run_inside, tmp_path):
    (tmp_path / "test_many.py").write_text(
        "import torch, triton\nimport triton.language as tl\n"
        "@triton.jit\ndef kernel(x, N: tl.constexpr):\n    tl.store(x, N)\n"
        "def test_many():\n    for n in range(10**6):\n        kernel[(1,)](torch.zeros(1, device='cuda'), n)\n"
    )
    cards = tuple(card for card in load_targets()["cpu"].architectures if card.name == "gfx942")
    output = run_inside(tmp_path, Stage.COMPILE, architectures=cards, benches=(), limits=Limits(test_s=3.0))
    rows = [json.loads(line) for line in (output / "compile" / "kernels.jsonl").read_text().splitlines()]

    assert {(row["function"], row["verdict"]) for row in rows} == {("kernel", "passed"), ("(host code)", "timeout")}


@pytest.mark.slow
def test_a_strict_package_is_judged_by_every_candidate(compiled):
    report, rows = compiled("all")

    assert report["not_run"] == {}
    assert verdicts(rows["guessed"]) == {("failed", None): 1, ("passed", None): 1}


def row(**more):
    return CompiledKernel("k", "f", "sm_90", Verdict.FAILED, reason="spills: 3 registers, 0 allowed", **more)


def test_one_launch_that_needs_it_is_enough():
    """In whatever order they come, from whatever worker; a row is known whatever launched it first."""
    names = [key(row(num_warps=warps)) for warps in (1, 2)]
    for events in ([(names, 1), (names[:1], 0)], [(names[:1], 0), (names, 1)]):
        discarded = Discarded()
        for rows, clean in events:
            discarded.note({"event": "candidates", "rows": rows, "clean": clean, "of": 3})
        marked = [discarded.mark(row(num_warps=warps, origin="elsewhere", seconds=2.0)) for warps in (1, 2, 4)]
        assert [each.not_run for each in marked] == [None, NotRun.DISCARDED, None]

    advised = CompiledKernel("k", "f", "sm_90", Verdict.PASSED, advice={"spills": "3 registers"})
    for clean, left in ((1, {}), (0, {"spills": "3 registers"})):
        discarded = Discarded()
        discarded.note({"event": "candidates", "rows": [key(advised)], "clean": clean, "of": 2})
        assert discarded.mark(advised) == dataclasses.replace(advised, advice=left)

    # The same refusal in another test fails; a note without a row is left out.
    expected, audit = {f"{key(row(origin='here'))} here"}, Audit()
    audit.begin()

    assert _as_expected(row(origin="here", seconds=1.0), expected).not_run is NotRun.SKIPPED
    assert _as_expected(row(origin="elsewhere"), expected).verdict is Verdict.FAILED
    assert audit.check({"event": "expected"}) is None


def test_what_does_not_fit_is_discarded_beside_what_breaks_a_gate():
    """An autotuner keeps one that can be launched, whatever a gate says of it. That gate fails."""
    notes, discarded, launch = [], Discarded(), _Launch(None, "f")
    gated, large = (row(binary_hash=name, broken=broken) for name, broken in (("a", {"spills": "3"}), ("b", {})))
    for each in (gated, large):
        launch.add(each, None)
    Candidates(SimpleNamespace(write=lambda kind, **fields: notes.append(fields)))._close(launch, None)
    for note in notes:
        discarded.note(note)

    assert [discarded.mark(each).not_run for each in (gated, large)] == [None, NotRun.DISCARDED]


@pytest.mark.parametrize("fields", [{}, {"rows": "x", "clean": 1, "of": 2}, {"rows": ["x"], "clean": None, "of": 2}])
def test_a_note_that_means_nothing_is_left_out(fields):
    audit = Audit()
    audit.begin()

    assert audit.check({"event": "candidates", **fields}) is None
    assert audit.check({"event": "candidates", "rows": ["x"], "clean": 1, "of": 2}) is not None


# Benchmark scripts without a GPU: what they launch is compiled, and each of them has a row if it has nothing else.

SCRIPTS = (
    BenchScript("benchmarks/[blr]*.py"),
    BenchScript("benchmarks/nothing.py"),
    BenchScript("benchmarks/clicked.py", ("--size", "64")),
    BenchScript("benchmarks/loop.py", ("--dtype", "float16")),
    BenchScript("benchmarks/loop.py", ("--foo",)),
)


@pytest.fixture(scope="module")
def compiled_of_script_launches(run_inside, data):
    """The rows and the journal of one run over scripts of every kind."""
    card = next(card for card in load_targets()["cpu"].architectures if card.name == "sm_90")
    settings = {"architectures": (card,), "benches": (), "launches": ("bench",), "bench_scripts": SCRIPTS, "peers": ("torch",)}
    output = run_inside(data / "scripts", Stage.COMPILE, **settings) / "compile"
    rows = [json.loads(line) for line in (output / "kernels.jsonl").read_text().splitlines()]
    return rows, (output / "journal-sm_90.jsonl").read_text(), (output / "log-sm_90.txt").read_text()


def of(rows, words):
    return [row for row in rows if words in row["origin"]]


def test_what_a_script_launches_is_compiled_under_the_name_of_its_point(compiled_of_script_launches):
    """By argparse and by click, in a loop and as a statement; what stands before a measurement is the script's own."""
    rows, _, _ = compiled_of_script_launches
    types = {row["signature"]["x_ptr"] for row in of(rows, "--dtype float16")}

    assert types == {"*fp16"}
    assert [row["function"] for row in of(rows, "loop.py:16/--dtype float16/n=1024 [relu]")] == ["relu_kernel"]
    assert {row["constants"]["BLOCK"] for row in of(rows, "[running benchmarks/loop.py --dtype float16]")} == {256, 512}
    assert {row["verdict"] for row in rows if row["function"] == "relu_kernel"} == {"passed"}

    # The provider `torch` of a `perf_report`; both of the modes that the script makes one for are there.
    _, journal, _ = compiled_of_script_launches
    started = [json.loads(line)["id"] for line in journal.splitlines() if json.loads(line)["event"] == "start"]
    points = [name.rpartition("/")[2] for name in started if "N=" in name]

    assert points == ["N=1024 [triton]", "N=2048 [triton]", "N=1024#2 [triton]", "N=2048#2 [triton]"]


@pytest.mark.parametrize(
    ("script", "verdict", "why", "reason"),
    [
        ("broken.py", "failed", None, "it raises ValueError on sm_90 (H100): no such size"),  # after its measurement, whatever that said
        ("read_back.py", "not-run", "raised", "it became no slower"),
        ("nothing.py", "not-run", "empty", "it ended without a measurement"),
        ("loop.py --foo", "not-run", "raised", "it exited with 2: loop.py: error: unrecognized arguments: --foo"),
    ],
)
def test_a_script_without_an_end_or_a_measurement_has_a_row(compiled_of_script_launches, script, verdict, why, reason):
    rows, _, log = compiled_of_script_launches
    found = [row for row in of(rows, f"[running benchmarks/{script}]") if row["function"] == "(host code)"]

    assert [(row["verdict"], row["not_run"], reason in row["reason"]) for row in found] == [(verdict, why, True)]
    assert [row for row in of(rows, "[running benchmarks/report.py]") if row["function"] == "(host code)"] == []
    assert "harness/warpwave/inside/scripts" not in log
