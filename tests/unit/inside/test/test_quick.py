"""`--quick` runs a few tests of each function: which ones, the same in both stages, and counted."""

from __future__ import annotations

import json
import random

import pytest

from warpwave.config.targets import load_targets
from warpwave.records import Stage

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
    "test_many[1-fp16-(1, 2)]",
    "test_many[3-bf16-(1, 2)]",
    "test_many[5-fp32-(2, 3)]",
    "TestIn::test_three[0]",
    "TestIn::test_three[1]",
    "TestIn::test_three[2]",
    "TestIn::test_one",
    "test_a_line[0]",
    "test_a_line[4]",
    "test_a_line[8]",
]
LEFT_OUT = 30 - 3 + 9 - 3


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A package of 43 tests in four functions."""
    folder = tmp_path_factory.mktemp("package")
    (folder / "test_many.py").write_text(PACKAGE)
    return folder


def _started(journal):
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    return [event["id"].partition("::")[2] for event in events if event["event"] == "start"]


def test_the_test_stage_runs_a_few_of_each_function(run_inside, package):
    """Each value that three tests can cover is covered; the first and the last are among them; the rest is counted."""
    output = run_inside(package, Stage.TEST, light=True, benches=(), quick=True)
    report = json.loads((output / "stages.json").read_text())["reports"][1]

    assert _started(output / "test" / "journal.jsonl") == KEPT
    assert (report["verdict"], report["counts"], report["left_out"]) == ("passed", {"passed": 10}, LEFT_OUT)
    ended = [json.loads(line) for line in (output / "stdout.txt").read_text().splitlines() if "stage-end" in line]
    assert ended[-1]["left_out"] == LEFT_OUT


def test_the_compile_stage_runs_the_same_tests(run_inside, package):
    """What is compiled for a card is what the test stage tested."""
    pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")
    cards = tuple(card for card in load_targets()["cpu"].architectures if card.name in ("sm_90", "gfx942"))
    output = run_inside(package, Stage.COMPILE, architectures=cards, benches=(), quick=True)

    assert [_started(output / "compile" / f"journal-{card.name}.jsonl") for card in cards] == [KEPT, KEPT]
    assert json.loads((output / "compile" / "report.json").read_text())["left_out"] == LEFT_OUT


def test_every_test_runs_otherwise(run_inside, package):
    """Without the option nothing is left out."""
    output = run_inside(package, Stage.TEST, light=True, benches=())
    report = json.loads((output / "stages.json").read_text())["reports"][1]

    assert (report["counts"], report["left_out"]) == ({"passed": 43}, 0)


class Item:
    """What the choice looks at in a test."""

    parent, originalname, name = None, "test_it", "test_it[…]"

    def __init__(self, **places: int) -> None:
        self.callspec = type("CallSpec", (), {"indices": places, "params": {}})


def test_large_sizes_are_left_out_and_ordinary_ones_beside_the_smallest_are_not():
    """An interpreter takes longer for one of them than for all others. Seeds, types and switches are no sizes."""
    from warpwave.inside.test.collection import few_of_each

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
    large = [Item(shape=place) for place in range(3)]
    for item, shape in zip(large, [(512, 612, 1024), (2048, 2048, 80), (612, 512, 1024)], strict=True):
        item.callspec.params = {"shape": shape}
    assert [item.callspec.indices["shape"] for item in few_of_each(large)] == [0, 2]


def test_numbered_copies_are_one_function():
    """absl and parameterized make methods of their own for each case."""
    from types import SimpleNamespace

    from warpwave.inside.test.collection import few_of_each

    items = [SimpleNamespace(parent=None, name=f"testSparse{n}", originalname=f"testSparse{n}") for n in range(48)]
    other = SimpleNamespace(parent=None, name="testDense", originalname="testDense")

    assert [item.name for item in few_of_each([*items, other])] == ["testSparse0", "testSparse1", "testSparse47", "testDense"]


def test_the_choice_does_not_depend_on_the_order_of_collection():
    """Plugins shuffle tests; the same ones are chosen."""
    from warpwave.inside.test.collection import few_of_each

    items = [Item(a=a, b=b, c=c) for a in range(4) for b in range(3) for c in range(2)]
    chosen = few_of_each(items)

    for seed in range(10):
        shuffled = random.Random(seed).sample(items, len(items))
        assert set(map(id, few_of_each(shuffled))) == set(map(id, chosen))
    assert {item.callspec.indices["b"] for item in chosen} == {0, 1, 2}


@pytest.mark.parametrize(("functions", "each"), [(50, 3), (51, 2), (75, 2), (76, 1), (200, 1)])
def test_of_many_functions_each_gets_fewer_tests(functions, each):
    """A quick look stays one. A single test is the one in the middle."""
    from warpwave.inside.test.collection import few_of_each

    items = [Item(a=a) for _ in range(functions) for a in range(5)]
    for position, item in enumerate(items):
        item.originalname = f"test_{position // 5}"
    chosen = few_of_each(items)

    assert len(chosen) == functions * each
    assert each > 1 or {item.callspec.indices["a"] for item in chosen} == {2}
