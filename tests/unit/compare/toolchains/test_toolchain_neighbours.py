"""Tuned entries that a measured neighbour beats on the new toolchain."""

from __future__ import annotations

from dataclasses import replace

import pytest
from synthetic import GPU_A, run, sample

from harness.compare.speeds.changed_speeds import changed_speeds
from harness.compare.toolchains.neighbours import outrun
from harness.compare.toolchains.tuned import Tuned

ENTRY = Tuned("H200.json", "4096", {"BLOCK": 1024, "num_warps": 4}, "")


def swept(*blocks_and_values):
    points = [
        replace(sample(4096, value), case=f"softmax/N=4096,BLOCK={block}", params={"N": 4096, "BLOCK": block})
        for block, value in blocks_and_values
    ]
    return run("cuda", samples=tuple(points), again=())


def tuned(block):
    chosen = f"BLOCK: {block}, num_warps: 4, num_ctas: 1, num_stages: 3, maxnreg: None"
    return run("cuda", samples=(sample(4096, tuned={"kernel": chosen}),), again=())


def found(old, new, entry=ENTRY):
    return [(one.entry, one.architecture, one.why) for one in outrun([entry], [old], [new], changed_speeds([old], [new]))]


def test_a_neighbour_that_became_faster():
    why = "softmax/N=4096,BLOCK=2048 is 1.30 times as fast as softmax/N=4096,BLOCK=1024"

    assert found(swept((1024, 3000.0), (2048, 2900.0)), swept((1024, 2000.0), (2048, 2600.0))) == [("4096", GPU_A, why)]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (((1024, 2000.0), (2048, 2600.0)), ((1024, 2000.0), (2048, 2600.0))),  # it was slower before
        (((1024, 3000.0), (2048, 2900.0)), ((1024, 3000.0), (2048, 3010.0))),  # within the threshold
        (((1024, 3000.0),), ((1024, 2000.0), (2048, 2600.0))),  # nobody knows what it was
        (((512, 3000.0), (2048, 2900.0)), ((512, 2000.0), (2048, 2600.0))),  # another entry's points
    ],
)
def test_no_verdict_without_a_change(old, new):
    assert found(swept(*old), swept(*new)) == []


def test_points_that_differ_in_more_are_no_neighbours():
    old, new = swept((1024, 3000.0), (2048, 2900.0)), swept((1024, 2000.0), (2048, 2600.0))
    other = replace(new.samples[1], params={"N": 8192, "BLOCK": 2048})

    assert found(old, replace(new, samples=(new.samples[0], other))) == []


def test_what_the_autotuner_chooses_now():
    assert found(tuned(1024), tuned(512)) == [("4096", GPU_A, "the autotuner now chooses BLOCK: 512, num_warps: 4 for softmax/N=4096")]
    assert found(tuned(1024), tuned(1024)) == []
    assert found(tuned(256), tuned(512)) == []
    assert found(tuned(1024), tuned(512), replace(ENTRY, function="another")) == []
