"""Tests that were asked for by their ids: exactly those run, in both stages, and nothing else of the package is touched."""

import ctypes
import errno
import json
import random
import subprocess
import sys
import tempfile
import time
import unittest
from concurrent.futures.process import BrokenProcessPool
from dataclasses import make_dataclass
from pathlib import Path
from types import ModuleType

import pytest
from slow_cases import slow_but

torch = pytest.importorskip("torch", reason="the inside needs torch and triton; `nox -s tests` installs them")

from triton.runtime.errors import InterpreterError

from warpwave.config.targets import load_targets
from warpwave.inside.fake_gpu import streams, torch_device
from warpwave.inside.fake_gpu.unknown import unknown
from warpwave.inside.process.lacking import Package
from warpwave.inside.process.outcomes import DecidedByData, NotPretended, Pretended, describe, why_not_run, with_reasons
from warpwave.inside.sanitize.pytest_plugin import failure
from warpwave.records import Chosen, NotRun, Selection, Stage, StageReport, Verdict

TESTS = """\
import pytest
@pytest.mark.parametrize("value", ["(1, 2)", "a::b", "x/y[z]", "it's plain"])
def test_values(value):
    pass
class TestIn:
    def test_one(self):
        pass
def test_other():
    pass
"""
FILES = {
    "tests/test_a.py": TESTS,
    "tests/test_b.py": TESTS,
    "tests/test_broken.py": "import no_such_module",
    "behind/conftest.py": "import no_such_module",
    "behind/test_c.py": "def test_c(): pass",
    "bench_d.py": "raise SystemExit('a bench that nobody asked for')",
}


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("package")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


def _chosen(*tests, without=(), must_exist=True):
    return Chosen(tests or None, without, how=("--test",), must_exist=must_exist)


IDS = {
    "parentheses and spaces": "tests/test_a.py::test_values[(1, 2)]",
    "colons": "tests/test_a.py::test_values[a::b]",
    "slash and brackets": "tests/test_a.py::test_values[x/y[z]]",
    "a quote": "tests/test_a.py::test_values[it's plain]",
    "in a class": "tests/test_a.py::TestIn::test_one",
}
ALL = [*IDS.values(), "tests/test_a.py::test_other"]


# What is asked for → the tests that run.
CHOICES = {
    **{what: ([nodeid], [nodeid]) for what, nodeid in IDS.items()},
    "a function": (["tests/test_a.py::test_values"], ALL[:4]),
    "a class": (["tests/test_a.py::TestIn"], [ALL[4]]),
    "a file": (["tests/test_a.py"], ALL),
    "two files": (["tests/test_a.py::test_other", "tests/test_b.py::test_other"], [ALL[5], "tests/test_b.py::test_other"]),
}


def test_ids_stand_for_what_is_below_them():
    selection = Selection(_chosen("tests/test_a.py::test_values", "unit"))

    assert selection.takes("tests/test_a.py::test_values[a::b]")
    assert selection.takes("unit/deep/test_x.py::test_y")
    assert not selection.takes("tests/test_a.py::test_values_too")
    assert not selection.takes("united/test_x.py::test_y")
    assert [selection.looks_into(path) for path in (".", "tests", "tests/test_a.py", "unit/deep", "tests/test_b.py", "other")] == [
        *(True, True, True, True, False, False),
    ]

    selection = Selection(_chosen("test_a.py", "test_b.py::test_x", "test_c.py::test_y"), files=["test_a.py", "test_c.py"])

    assert [selection.takes(f"test_{name}.py::test_x") for name in "abc"] == [True, False, False]
    assert selection.unmet(["test_a.py::test_x"]) == (["test_c.py::test_y"], [])
    assert not Selection(Chosen(), files=[]).looks_into("test_a.py")


def _report(output):
    return json.loads((output / "stages.json").read_text())["reports"][1]


def _started(journal):
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    return [event["id"] for event in events if event["event"] == "start"]


@pytest.mark.parametrize("what", slow_but(CHOICES, ("colons", "a class", "two files")))
def test_the_test_stage_runs_what_was_asked_for(run_inside, package, what):
    """Files without a chosen test are not imported: those here would fail."""
    asked, expected = CHOICES[what]
    output = run_inside(package, Stage.TEST, light=True, chosen=_chosen(*asked))
    report = _report(output)

    assert _started(output / "test" / "journal.jsonl") == expected
    files = len({nodeid.partition("::")[0] for nodeid in asked})
    assert (report["verdict"], report["counts"]) == ("passed", {"passed": len(expected)})
    assert report["deselected"] == 6 * files - len(expected)


def _names(journal):
    return [name.partition("::")[2] for name in _started(journal)]


def test_the_compile_stage_runs_the_same_tests(run_inside, package):
    pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")
    cards = tuple(card for card in load_targets()["cpu"].architectures if card.name in ("sm_90", "gfx942"))
    chosen = _chosen(*IDS.values(), "bench_d.py::module", "tests/test_a.py::test_gone")
    output = run_inside(package, Stage.COMPILE, architectures=cards, launches=("test",), chosen=chosen)

    for card in cards:  # the test stage alone loads benches as tests
        assert set(_started(output / "compile" / f"journal-{card.name}.jsonl")) == {*IDS.values(), "tests/test_a.py::test_gone"}


def test_tests_are_left_out_by_their_ids(run_inside, package):
    without = (IDS["colons"], "tests/test_b.py", "tests/test_broken.py", "behind", "tests/test_a.py::test_gone")
    output = run_inside(package, Stage.TEST, light=True, benches=(), chosen=_chosen(without=without))
    report = _report(output)

    assert sorted(_started(output / "test" / "journal.jsonl")) == sorted(set(ALL) - {IDS["colons"]})
    assert (report["counts"], report["deselected"]) == ({"passed": 5}, 1)
    assert report["notes"] == ["1 of the ids to leave out have no test here: tests/test_a.py::test_gone"]


@pytest.mark.parametrize(("must_exist", "verdict", "outcome"), [(True, "error", "error"), (False, "passed", "not-run")])
def test_an_id_without_a_test_is_named(run_inside, package, must_exist, verdict, outcome):
    """It is an error if somebody typed it, and a row if it was listed before the test was deleted."""
    quiet = () if must_exist else ("pyproject.toml", "tests/test_nowhere.py")
    chosen = _chosen("tests/test_a.py::test_other", "tests/test_a.py::test_gone", *quiet, must_exist=must_exist)
    report = _report(run_inside(package, Stage.TEST, light=True, chosen=chosen))

    assert (report["verdict"], report["counts"]) == (verdict, {"passed": 1, outcome: 1})


def test_an_import_that_fails_is_the_reason_and_a_shard_runs_its_files(run_inside, package):
    """Not that there is no such test: nobody knows. What is not installed is no fault of the package."""
    report = _report(run_inside(package, Stage.TEST, light=True, chosen=_chosen("tests/test_broken.py::test_x")))

    assert (report["verdict"], report["counts"], report["not_run"]) == ("not-run", {"not-run": 1}, {"missing-requirement": 1})
    assert "no_such_module" in report["hint"]

    # And says nothing of the others.
    report = _report(run_inside(package, Stage.TEST, light=True, benches=(), files=("tests/test_b.py",), division="x"))

    assert (report["verdict"], report["counts"], report["deselected"]) == ("passed", {"passed": 6}, 0)


def test_a_quick_run_chooses_from_what_was_asked_for(run_inside, package):
    """Of so few, nothing."""
    report = _report(run_inside(package, Stage.TEST, light=True, quick=True, chosen=_chosen("tests/test_a.py::test_values")))

    assert (report["counts"], report["left_out"], report["deselected"]) == ({"passed": 4}, 0, 2)


# `--quick` runs a few tests of each function: which ones, the same in both stages, and counted.

PACKAGE = """\
import pytest
@pytest.mark.parametrize("shape", [(1, 2), (2, 3)], ids=str)
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_many(shape, dtype, size):
    pass
class TestIn:
    @pytest.mark.parametrize("size", range(3))
    def test_three(self, size):
        pass
    def test_one(self):
        pass
@pytest.mark.parametrize("size", range(9))
def test_a_line(size):
    pass
"""
# The first, the last, and what adds most: the third dtype, at the size in the middle.
KEPT = [
    *("test_many[1-fp16-(1, 2)]", "test_many[3-bf16-(1, 2)]", "test_many[5-fp32-(2, 3)]", "TestIn::test_three[0]"),
    *("TestIn::test_three[1]", "TestIn::test_three[2]", "TestIn::test_one", "test_a_line[0]", "test_a_line[4]", "test_a_line[8]"),
]
LEFT_OUT = 30 - 3 + 9 - 3


@pytest.fixture(scope="module")
def package_of_quick(tmp_path_factory):
    folder = tmp_path_factory.mktemp("package")
    (folder / "test_many.py").write_text(PACKAGE)
    return folder


def test_the_test_stage_runs_a_few_of_each_function(run_inside, package_of_quick):
    """Each value that three tests can cover is covered; the first and the last are among them; the rest is counted."""
    output = run_inside(package_of_quick, Stage.TEST, light=True, benches=(), quick=True)
    report = json.loads((output / "stages.json").read_text())["reports"][1]

    assert _names(output / "test" / "journal.jsonl") == KEPT
    assert (report["verdict"], report["counts"], report["left_out"]) == ("passed", {"passed": 10}, LEFT_OUT)
    ended = [json.loads(line) for line in (output / "stdout.txt").read_text().splitlines() if "stage-end" in line]
    assert ended[-1]["left_out"] == LEFT_OUT


def test_the_compile_stage_runs_the_same_tests_of_quick(run_inside, package_of_quick):
    pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")
    cards = tuple(card for card in load_targets()["cpu"].architectures if card.name in ("sm_90", "gfx942"))
    output = run_inside(package_of_quick, Stage.COMPILE, architectures=cards, benches=(), quick=True)

    assert [_names(output / "compile" / f"journal-{card.name}.jsonl") for card in cards] == [KEPT, KEPT]
    assert json.loads((output / "compile" / "report.json").read_text())["left_out"] == LEFT_OUT


class Item:
    parent, originalname, name = None, "test_it", "test_it[…]"

    def __init__(self, **places: int) -> None:
        self.callspec = type("CallSpec", (), {"indices": places, "params": {}})


def test_large_sizes_are_left_out_and_ordinary_ones_beside_the_smallest_are_not(monkeypatch):
    """An interpreter takes longer for one of them than for all others. Seeds, types and switches are no sizes."""
    from warpwave.inside.test import collection
    from warpwave.inside.test.collection import few_of_each

    monkeypatch.setattr(collection, "FEW", 3)  # as if these were a part of more

    items = []
    for place, shape in enumerate([(64, 128), (8192, 8192), (128, 1000), (4096, 64), (1, 8192, 8192)]):
        for other, exact in enumerate([True, False]):
            items.append(Item(shape=place, exact=other))
            items[-1].callspec.params = {"shape": shape, "exact": exact, "dtype": "fp16", "scale": 1e9, "options": {"block": [4]}}
    chosen = [item.callspec.indices for item in few_of_each(items)]

    assert {place["shape"] for place in chosen} == {0, 2, 3}
    lengths = [Item(size=place) for place in range(4)]
    for item, length in zip(lengths, [0, 1, 1023, 100_000], strict=True):
        item.callspec.params = {"size": length}
    assert [item.callspec.indices["size"] for item in few_of_each(lengths)] == [0, 1, 3]
    large = [Item(model=place) for place in range(3)]
    for item, hidden in zip(large, [256, 16384, 512], strict=True):
        item.callspec.params = {"model": make_dataclass("Model", ["hidden", "tokens"])(hidden, 4096)}
    assert [item.callspec.indices["model"] for item in few_of_each(large)] == [0, 2]
    large = [Item(shape=place) for place in range(3)]
    for item, shape in zip(large, [(512, 612, 1024), (2048, 2048, 80), (612, 512, 1024)], strict=True):
        item.callspec.params = {"shape": shape}
    assert [item.callspec.indices["shape"] for item in few_of_each(large)] == [0, 2]


def test_generated_methods_are_cases_of_one_function():
    """If there are very many: torch's own test classes have a method for each combination. The number is limited in any case."""
    from types import SimpleNamespace

    from warpwave.inside.test.collection import ENOUGH, few_of_each

    def made(name):
        return SimpleNamespace(name=name, parent=SimpleNamespace(nodeid="test_a.py::TestAxpy"))

    combinations = [made(f"test_axpy_n_{n}_block_{block}_cpu_float32") for n in range(100) for block in (64, 128)]
    others = [made("test_alone"), made("test_fp16_gemm"), made("test_fp32_gemm")]
    letters = [made(f"test_{first}{second}") for first in "abcdefghijklmnop" for second in "abcdefghijklmnop"]

    assert len(few_of_each([*combinations[:50], *others])) == 53
    chosen = [item.name for item in few_of_each([*combinations, *others])]
    assert chosen[-3:] == ["test_alone", "test_fp16_gemm", "test_fp32_gemm"]
    assert chosen[0] == combinations[0].name
    assert len(chosen) == 6
    assert len(few_of_each(letters)) == ENOUGH

    from warpwave.inside.test.collection import few_of_each

    items = [SimpleNamespace(parent=None, name=f"testSparse{n}", originalname=f"testSparse{n}") for n in range(48)]
    other = SimpleNamespace(parent=None, name="testDense", originalname="testDense")

    assert [item.name for item in few_of_each([*items, other])] == ["testSparse0", "testSparse1", "testSparse47", "testDense"]


def test_the_choice_does_not_depend_on_the_order_of_collection():
    from warpwave.inside.test.collection import few_of_each

    items = [Item(a=a, b=b, c=c) for a in range(4) for b in range(3) for c in range(2)]
    chosen = few_of_each(items)

    for seed in range(10):
        shuffled = random.Random(seed).sample(items, len(items))
        assert set(map(id, few_of_each(shuffled))) == set(map(id, chosen))
    assert {item.callspec.indices["b"] for item in chosen} == {0, 1, 2}


@pytest.mark.parametrize(("functions", "each"), [(50, 3), (51, 2), (75, 2), (76, 1), (200, 1)])
def test_of_many_functions_each_gets_fewer_tests(functions, each):
    from warpwave.inside.test.collection import few_of_each

    items = [Item(a=a) for _ in range(functions) for a in range(5)]
    for position, item in enumerate(items):
        item.originalname = f"test_{position // 5}"
    chosen = few_of_each(items)

    assert len(chosen) == min(functions, 150) * each
    assert each > 1 or {item.callspec.indices["a"] for item in chosen} == {2}


# Why something did not run, found out from the exception that ended it.


def _raised(function):
    with pytest.raises(BaseException) as caught:
        function()
    return caught.value


def _from_a_cause():
    try:
        raise DecidedByData("how many rows")
    except DecidedByData as error:
        raise ValueError("no such shape") from error


def _in_several_ways(*errors):
    def fail():
        raise ExceptionGroup("2 ways", errors)  # noqa: F821 - new in Python 3.11

    return fail


def _from_c_code():
    torch.zeros((2, unknown(torch.int64)))


def _interpreted_kernel():
    from triton.runtime.interpreter import InterpretedFunction

    return InterpretedFunction(_module_skip)


def _asked(name):
    """Have a number that only a card knows, as `torch.cuda.memory_allocated()` gives it."""
    Pretended.asked.add(name)
    return 512


def _peak(work):
    work()
    return elapsed_time()


def elapsed_time():
    return _asked("elapsed_time")


def memory_allocated():
    return _asked("memory_allocated")


def _compared_memory():
    x = torch.zeros(4)
    before = memory_allocated()
    assert memory_allocated() - before >= x.nbytes, f"saves memory: {x}"


def _compared_by_a_helper():
    x, limit = torch.zeros(4), 3
    ratio = _peak(lambda: x + 1) / _peak(x.sum)
    if ratio < limit:
        raise AssertionError("not faster")


def _compared_a_list():
    times = []
    for _ in range(3):
        times.append(elapsed_time())
    unittest.TestCase().assertLess(sum(times) / len(times), 1)  # noqa: PT009 - as torch's own test classes do


def _gives_up():
    rows = {"ours": elapsed_time(), "limit": 1}
    if not rows["ours"] < rows["limit"]:
        pytest.fail(f"slower: {rows}")


def _refuses_nothing():
    elapsed_time()
    with pytest.raises(ValueError, match="shape"):
        torch.zeros(3)


def _at_most(value, limit):
    assert value <= limit


def _compared_elsewhere():
    began = time.perf_counter()
    _at_most(time.perf_counter() - began, -1)


def _elements_compared_elsewhere():
    elapsed_time()
    _at_most(torch.ones(1), 0)


def _equal_after_memory():
    x = torch.zeros(3)
    memory_allocated()
    unittest.TestCase().assertEqual(x.tolist(), [1, 1, 1])  # noqa: PT009 - as above


def _compared_the_hosts_clock():
    began = time.perf_counter()
    torch.zeros(1)
    took = time.perf_counter() - began
    assert took < 0


def _divided_by_memory():
    memory_allocated()
    return 1 / (memory_allocated() - 512)


def _elements_after_memory():
    x = torch.zeros(3)
    memory_allocated()
    assert torch.equal(x, x + 1)


def _an_error_after_timing():
    x = torch.zeros(3)
    took = elapsed_time()
    error = (x - 1).abs().max().item()
    assert error < 0.5, f"after {took} ms"


def _a_shape_after_timing():
    x = torch.zeros(3)
    elapsed_time()
    assert x.shape == (4,)


def _elements_of_what_was_read():
    from torch._inductor.utils import run_and_get_code

    Pretended.compiled = True
    y, _ = run_and_get_code(lambda: torch.zeros(3))
    assert torch.allclose(y, y + 1)


def _counted_what_was_read():
    from torch._inductor.utils import run_and_get_kernels

    Pretended.compiled = True
    x = torch.zeros(3)
    _, kernels = run_and_get_kernels(lambda: x + 1)
    assert len(kernels) == 1


def _counted_graphs():
    from torch._dynamo.utils import counters

    Pretended.compiled = True
    assert counters["stats"]["unique_graphs"] == 1, "compiled once"


def _compared_after_compiling():
    Pretended.compiled = True
    assert torch.zeros(1).sum() > 0


def _compared_tensors():
    memory_allocated()
    torch.testing.assert_close(torch.zeros(1), torch.ones(1))


def _another_python(code, *, captured=True):
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE if captured else subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr


def _reads_a_pointer():
    path = Path(tempfile.mkdtemp(), "sizes.json")
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    json.loads(path.read_text())


def _without_fixture(name):
    raise type("FixtureLookupError", (LookupError,), {"argname": name, "formatrepr": lambda self: self})


def _finds_after_memory():
    """Whatever was asked, a finding stands."""
    Pretended.asked.add("mem_get_info")
    raise failure("out-of-bounds in f at a.py:3")


def _after_an_import(words):
    try:
        import no_such_module  # noqa: F401
    except ImportError as error:
        raise ValueError(f"the pattern is wrong{f': {error}' if words else ''}") from error


def _no_other_way():
    try:
        __import__("no_such_module")
    except ImportError as error:
        raise RuntimeError("install no_such_module") from error


def _from_one_that_nobody_raised():
    Pretended.compiled = True
    raise ValueError("no such size") from TypeError("no_such_function() takes no argument")


def call_once(function):
    return function()


def Event(size):  # noqa: N802 - as torch's class, which a pretended card has, too
    return size


_of_another_module = ModuleType("another")
_of_another_module.call_once = call_once


def _module_skip():
    pytest.skip("needs two GPUs")


CASES = {
    "skip": (_module_skip, NotRun.SKIPPED),
    "unittest": (lambda: (_ for _ in ()).throw(unittest.SkipTest("no")), NotRun.SKIPPED),
    "data": (lambda: (_ for _ in ()).throw(DecidedByData("a size")), NotRun.DATA),
    "behind another exception": (_from_a_cause, NotRun.DATA),
    "memory of several cards": (
        lambda: (_ for _ in ()).throw(RuntimeError("SymmetricMemory does not support device type cuda")),
        NotRun.NOT_PRETENDED,
    ),
    "a kernel of another compiler": (
        lambda: (_ for _ in ()).throw(RuntimeError("kernel main input Query device_type mismatch, expected cuda; expected: 2, got: 1")),
        NotRun.NOT_PRETENDED,
    ),
    "another Python": (lambda: subprocess.run([sys.executable, "-c", "1 / 0"], check=True, capture_output=True), NotRun.RAISED),
    "another Python whose end is asserted": (lambda: _another_python("torch = 1; 1 / 0"), NotRun.RAISED),
    "another Python that finds no card": (
        lambda: subprocess.run([sys.executable, "-c", "print('0 active ' + 'drivers'); 1 / 0"], check=True, capture_output=True),
        NotRun.NEEDS_CARD,
    ),
    "another Python that says so": (lambda: _another_python("raise SystemExit('device 7 is busy')"), NotRun.NEEDS_CARD),
    "another Python whose words are asserted": (
        lambda: _another_python("raise AssertionError('Torch not compiled with CUDA enabled')"),
        NotRun.NEEDS_CARD,
    ),
    "another Python that may have said so": (lambda: _another_python("import torch; 1 / 0", captured=False), NotRun.NEEDS_CARD),
    "another Python that cannot have": (lambda: _another_python("1 / 0", captured=False), NotRun.RAISED),
    "another program": (lambda: subprocess.run(["false"], check=True), NotRun.RAISED),
    "no number": (lambda: torch.empty(1, device="meta").item(), NotRun.DATA),
    "no copy": (lambda: torch.empty(1, device="meta").cpu(), NotRun.DATA),
    "no array": (lambda: torch.empty(1, device="meta").numpy(), NotRun.DATA),
    "no size": (lambda: torch.empty(1, device="meta").nonzero(), NotRun.DATA),
    "no plain number": (_from_c_code, NotRun.DATA),
    "gap": (lambda: (_ for _ in ()).throw(NotPretended("torch.cuda.graph")), NotRun.NOT_PRETENDED),
    "a handle for another process": (torch_device.no_handle, NotRun.NEEDS_CARD),
    "no such attribute of torch's own": (lambda: torch.cuda.no_such_thing, NotRun.RAISED),
    "a misspelt one of a stand-in": (lambda: streams.Stream().sychronize, NotRun.RAISED),
    "nor of a stand-in": (lambda: streams.Stream().no_such_thing, NotRun.NOT_PRETENDED),
    "no such parameter": (lambda: torch_device.torch_device("cuda", 1, 2), NotRun.NOT_PRETENDED),
    "an interpreted kernel's compiler": (lambda: _interpreted_kernel().cache_key, NotRun.NOT_PRETENDED),
    "nothing that a kernel has": (lambda: _interpreted_kernel().no_such_thing, NotRun.RAISED),
    "no card": (lambda: torch.empty(1, device="cuda"), NotRun.NOT_PRETENDED),
    "no library of several cards": (lambda: (_ for _ in ()).throw(RuntimeError("it doesn't have NCCL built in")), NotRun.NOT_PRETENDED),
    "no driver": (lambda: ctypes.CDLL("libcuda.so"), NotRun.NEEDS_CARD),
    "no library of a vendor": (
        lambda: (_ for _ in ()).throw(RuntimeError("Could not find `libhipblaslt.so`. Make sure it is in your LD_LIBRARY_PATH.")),
        NotRun.NOT_PRETENDED,
    ),
    "no dtype of the CPU": (lambda: torch.trace(torch.ones(2, 2, dtype=torch.bool)), NotRun.NOT_PRETENDED),
    "what only a build for cards has": (lambda: torch.cuda.nccl.version(), NotRun.NOT_PRETENDED),
    "a class of such a build": (lambda: torch.cuda.MemPool(), NotRun.NOT_PRETENDED),
    "memory of the host": (lambda: torch.empty(1 << 50, dtype=torch.uint8), NotRun.NOT_PRETENDED),
    "no division by zero": (lambda: torch.ones(1, dtype=torch.int32) // torch.zeros(1, dtype=torch.int32), NotRun.NOT_PRETENDED),
    "its own division by zero": (lambda: 1 // 0, NotRun.RAISED),
    "a pool of processes": (lambda: (_ for _ in ()).throw(BrokenProcessPool("terminated abruptly")), NotRun.NEEDS_CARD),
    "no profiler": (lambda: (_ for _ in ()).throw(RuntimeError("[PROTON] Could not load `libcuda.so.1`")), NotRun.NOT_PRETENDED),
    "a module that is built for a card": (
        lambda: (_ for _ in ()).throw(ImportError("libcuda.so.1: cannot open shared object file")),
        NotRun.NEEDS_CARD,
    ),
    "a file of a package in a container": (lambda: (_ for _ in ()).throw(OSError(errno.EROFS, "Read-only", "x")), NotRun.NOT_PRETENDED),
    "no library of its own": (lambda: ctypes.CDLL("libours.so"), NotRun.RAISED),
    "no tool": (lambda: subprocess.run(["some-smi"], check=True), NotRun.NOT_PRETENDED),
    "no program": (lambda: subprocess.run(["nobodys-compiler"], check=True), NotRun.REQUIREMENT),
    "a misspelt program": (lambda: subprocess.run(["bassh"], check=True), NotRun.RAISED),
    "no plugin for a fixture": (lambda: _without_fixture("benchmark"), NotRun.REQUIREMENT),
    "a misspelt fixture": (lambda: _without_fixture("benhcmark"), NotRun.RAISED),
    "no plugin for async": (lambda: pytest.fail("async def functions are not natively supported.\nYou need"), NotRun.REQUIREMENT),
    "a pointer of Git LFS": (_reads_a_pointer, NotRun.REQUIREMENT),
    "a finding after a question about memory": (_finds_after_memory, NotRun.RAISED),
    "a port that another process has": (lambda: (_ for _ in ()).throw(OSError(98, "Address already in use")), NotRun.NOT_PRETENDED),
    "no file of its own": (lambda: Path("nobodys-file").read_text(), NotRun.RAISED),
    "no import": (lambda: __import__("no_such_module"), NotRun.REQUIREMENT),
    "no import, and no other way": (_no_other_way, NotRun.REQUIREMENT),
    "no import, by an error's words": (lambda: _after_an_import(words=True), NotRun.REQUIREMENT),
    "an error beside an import": (lambda: _after_an_import(words=False), NotRun.RAISED),
    "a misspelt import": (lambda: __import__("trition"), NotRun.IMPORT),
    "no part of a package": (lambda: __import__("torch.no_such_part"), NotRun.IMPORT),
    "no operator": (lambda: torch.ops.nobodys_library.gather, NotRun.NEEDS_BUILD),
    "no operator to describe": (lambda: torch.library.register_fake("nobodys_library::gather")(len), NotRun.NEEDS_BUILD),
    "a library that is not built": (lambda: torch.ops.load_library("/nowhere/libgather.so"), NotRun.NEEDS_BUILD),
    "a misspelt operator of torch": (lambda: torch.ops.aten.ad, NotRun.RAISED),
    "a misspelt namespace": (lambda: torch.ops.atne.add, NotRun.RAISED),
    "memory that nobody counts": (_compared_memory, NotRun.NEEDS_CARD),
    "a number of a helper": (_compared_by_a_helper, NotRun.NEEDS_CARD),
    "a call that fails it": (_gives_up, NotRun.NEEDS_CARD),
    "a list of elements, after it asked for memory": (_equal_after_memory, NotRun.RAISED),
    "what it should refuse, after it asked for time": (_refuses_nothing, NotRun.RAISED),
    "a time that a helper compares": (_compared_elsewhere, NotRun.NEEDS_CARD),
    "elements that a helper compares": (_elements_compared_elsewhere, NotRun.RAISED),
    "a list of numbers": (_compared_a_list, NotRun.NEEDS_CARD),
    "the host's clock": (_compared_the_hosts_clock, NotRun.NEEDS_CARD),
    "a division by memory": (_divided_by_memory, NotRun.NEEDS_CARD),
    "elements, after it asked for memory": (_elements_after_memory, NotRun.RAISED),
    "an error, after it asked for time": (_an_error_after_timing, NotRun.RAISED),
    "a shape, after it asked for time": (_a_shape_after_timing, NotRun.RAISED),
    "elements beside the code that torch made": (_elements_of_what_was_read, NotRun.RAISED),
    "code that nobody makes": (_counted_what_was_read, NotRun.NOT_PRETENDED),
    "graphs that nobody makes": (_counted_graphs, NotRun.NOT_PRETENDED),
    "its own, after torch.compile": (_compared_after_compiling, NotRun.RAISED),
    "tensors of one that asked for memory": (_compared_tensors, NotRun.RAISED),
    "its own": (lambda: [].pop(), NotRun.RAISED),
    "its own attribute": (lambda: torch.nn.no_such_thing, NotRun.RAISED),
    "its own argument": (lambda: sorted(1, 2, 3), NotRun.RAISED),
    "its own function of a name that the pretended card has too": (lambda: call_once(1, size=2), NotRun.RAISED),
    "a cause that nobody raised": (_from_one_that_nobody_raised, NotRun.RAISED),
    "its own function of a name that torch has too": (lambda: Event(1, enable_timing=True), NotRun.RAISED),
    "one that it imports": (lambda: _of_another_module.call_once(1, size=2), NotRun.RAISED),
}


if sys.version_info >= (3, 11):
    CASES["gaps"] = (_in_several_ways(NotPretended("one"), NotPretended("two")), NotRun.NOT_PRETENDED)
    CASES["a gap and its own"] = (_in_several_ways(NotPretended("one"), ValueError("two")), NotRun.RAISED)


def test_a_kernels_error_is_shown_without_the_interpreters_wrapping():
    """Triton wraps the error again at each call, and repeats its text each time."""

    def kernel():
        try:
            raise ValueError("no such shape\nsecond line")
        except ValueError as error:
            raise InterpreterError(repr(error)) from error

    def launch():
        try:
            kernel()
        except InterpreterError as error:
            raise InterpreterError(repr(error)) from error

    assert (
        describe(_raised(launch))
        == describe(_raised(kernel))
        == f"ValueError: no such shape (test_selection.py:{kernel.__code__.co_firstlineno + 2})"
    )
    assert describe(InterpreterError("alone")) == "InterpreterError: alone"


@pytest.mark.parametrize("name", CASES)
def test_an_exception_says_why(name):
    function, why = CASES[name]
    Pretended.asked.clear()
    Pretended.compiled = False
    try:
        assert why_not_run(_raised(function)) is why
    finally:
        Pretended.asked.clear()
        Pretended.compiled = False


@pytest.mark.parametrize(
    ("submodule", "why"),
    [
        ("import no_such_requirement_of_it", NotRun.REQUIREMENT),
        ("raise ImportError('libcuda.so.1: cannot open shared object file')", NotRun.NEEDS_CARD),
        ("raise ValueError('its own')", NotRun.RAISED),
        ("", NotRun.RAISED),
        (None, NotRun.RAISED),
    ],
)
def test_a_submodule_that_does_not_import_says_why_again(submodule, why, tmp_path, monkeypatch):
    """`mock.patch` and a package's own `__getattr__` hide it behind an AttributeError."""
    name = f"lacking_{abs(hash(submodule))}"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("")
    if submodule is not None:
        (tmp_path / name / "within.py").write_text(submodule)
    monkeypatch.syspath_prepend(tmp_path)
    package = __import__(name)

    assert why_not_run(_raised(lambda: package.within)) is NotRun.RAISED  # a module of torch, say, is not imported again
    monkeypatch.setattr(Package, "root", tmp_path)
    assert why_not_run(_raised(lambda: package.within)) is why


def test_a_stage_counts_what_did_not_run():
    """What could not be checked is no failure of the stage; the comparison counts it."""
    reasons = {NotRun.NOT_PRETENDED: 2, NotRun.SKIPPED: 1}

    found = with_reasons(StageReport(Stage.COMPILE, Verdict.PASSED), reasons)
    assert (found.verdict, found.not_run) == (Verdict.PASSED, {"skipped": 1, "not-pretended": 2})
