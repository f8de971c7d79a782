"""Two toolchains that measure on one card take turns."""

from __future__ import annotations

from dataclasses import replace

import pytest

from warpwave.config.targets import load_targets
from warpwave.options import RunOptions
from warpwave.records import Shard, Stage
from warpwave.search.steps import in_turns


@pytest.fixture
def options(tmp_path):
    """A package of three benchmarks with a test each."""
    for name in ("gelu", "norm", "softmax"):
        folder = tmp_path / "ops" / name
        folder.mkdir(parents=True)
        (folder / f"bench_{name}.py").write_text("#")
        (folder / f"test_{name}.py").write_text("#")
    return RunOptions("run", tmp_path / "out", tmp_path / "ops", benches=("bench_*.py",))


def _pair(name):
    target = load_targets()[name]
    return [replace(target, name=f"{name}@{toolchain}") for toolchain in ("old", "new")]


def _told(legs):
    return [leg.name for leg in legs]


def test_a_card_alternates(options):
    """Each shard runs on both, and the one that was second is first in the next shard. No two legs share a folder."""
    legs = in_turns(_pair("cuda"), options)

    assert _told(legs) == [f"cuda@{name}" for name in ("old 1/3", "new 1/3", "new 2/3", "old 2/3", "old 3/3", "new 3/3")]
    assert len({leg.raw for leg in legs}) == len({(leg.target.name, leg.options.run_id) for leg in legs}) == 6
    assert {leg.options.folder for leg in legs} == {options.out}


@pytest.mark.parametrize("change", [{"stages": (Stage.TEST, Stage.COMPILE)}, {"shard": Shard(1, 2)}, {"benches": ("bench_gelu.py",)}])
def test_one_after_the_other_where_turns_help_nothing(options, change):
    """Nothing is measured, the user divided the package, or there is one benchmark."""
    assert _told(in_turns(_pair("cuda"), replace(options, **change))) == ["cuda@old", "cuda@new"]


def test_a_target_without_a_card_is_not_divided(options):
    assert _told(in_turns(_pair("cpu"), options)) == ["cpu@old", "cpu@new"]
