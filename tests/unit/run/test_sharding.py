"""`--shard I/N`: every job puts each file into the same one shard, and no shard gets much more than another."""

from __future__ import annotations

import dataclasses

import pytest

from warpwave.options import RunOptions
from warpwave.records import Chosen, Shard, Stage
from warpwave.run.shards import NOTHING, divide, files_of, part_of


@pytest.fixture
def package(tmp_path):
    """Eight test files in tests/, one of them large, a bench beside them, and a helper."""
    for number in range(8):
        path = tmp_path / "p" / "tests" / f"test_{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#" * (900 if number == 5 else 100))
    (tmp_path / "p" / "bench_[x].py").write_text("#" * 100)
    (tmp_path / "p" / "tests" / "helper.py").write_text("#")
    return RunOptions("run", tmp_path / "out", tmp_path / "p")


def _parts(options, of):
    return [part_of(options, Shard(number, of)) for number in range(1, of + 1)]


@pytest.mark.parametrize("of", [1, 2, 3, 8, 20])
def test_each_file_is_in_one_shard(package, of):
    """Also if there are more shards than files; a bench is a pattern in its own shard only."""
    parts = _parts(package, of)
    found = [path for part in parts for path in part.files]

    assert sorted(found) == files_of(package)
    assert len(found) == 9
    assert sum(bool(part.files) for part in parts) == min(of, 9)
    assert [part.benches for part in parts].count((NOTHING,)) == of - 1
    assert ("bench_[[]x].py",) in [part.benches for part in parts]
    assert len({part.division for part in parts}) == 1


def test_shards_are_balanced_by_size(package):
    """The large file is alone with one; the other eight have as many bytes."""
    large, small = sorted(_parts(package, 2), key=lambda part: len(part.files))

    assert large.files == ("tests/test_5.py",)
    assert len(small.files) == 8


def test_shards_are_balanced_by_time(package):
    """What an earlier run measured counts; a file that it did not have is estimated by its size."""
    timed = {f"tests/test_{number}.py": 1.0 for number in range(7)} | {"tests/test_0.py": 60.0, "[x]": 30.0}
    parts = _parts(dataclasses.replace(package, shard_times=timed), 3)

    assert sorted(part.files for part in parts)[:2] == [("bench_[x].py",), ("tests/test_0.py",)]
    assert {part.division for part in parts} != {part.division for part in _parts(package, 3)}


@pytest.mark.parametrize(("stage", "ran"), [(Stage.BENCH, "bench_"), (Stage.TEST, "tests/")])
def test_what_no_chosen_stage_runs_takes_no_share(package, stage, ran):
    """Large test files took a whole shard of a run that measures only, and the benches shared the other one."""
    for number in range(3):
        (package.kernels / f"bench_{number}.py").write_text("#" * 50)
    parts = _parts(dataclasses.replace(package, stages=(stage,)), 4)
    counts = [sum(path.startswith(ran) for path in part.files) for part in parts]

    assert sum(counts) == {"bench_": 4, "tests/": 8}[ran]
    assert max(counts) - min(counts) <= (0 if stage is Stage.BENCH else 2)


def test_only_files_with_a_chosen_test_are_shared(package):
    """Otherwise one shard would have all of the twelve tests that were asked for."""
    chosen = Chosen(tests=("tests/test_1.py::test_a", "tests/test_2.py", "tests/test_3.py::test_b[x/y]"), how=("--test",))
    parts = _parts(dataclasses.replace(package, chosen=chosen, benches=()), 3)

    assert sorted(part.files for part in parts) == [("tests/test_1.py",), ("tests/test_2.py",), ("tests/test_3.py",)]


def test_the_division_is_the_same_in_any_order():
    """Machines list folders in their own order."""
    weights = {f"test_{number}.py": float(number % 4) for number in range(40)}
    backwards = dict(reversed(weights.items()))
    loads = [sum(weights[path] for path in share) for share in divide(weights, 6)]

    assert divide(weights, 6) == divide(backwards, 6)
    assert max(loads) - min(loads) <= 3
    assert sorted(len(share) for share in divide(dict.fromkeys(weights, 0.0), 6)) == [6, 6, 7, 7, 7, 7]
