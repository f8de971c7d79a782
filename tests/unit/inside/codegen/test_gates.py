"""How a compiled kernel is judged by gates."""

from __future__ import annotations

import dataclasses

import pytest
from synthetic import compiled

from warpwave.inside.codegen.gates import judge, strictest
from warpwave.records import OPEN, Gates, Limits, Rule, Verdict, Waiver, Which


def row(**more):
    return compiled(**{"stack_bytes": 0, "load_widths": (32, 64), "store_widths": (32,), "instructions": {}, "occupancy": 0.25, **more})


def only(**limits):
    return Gates(dataclasses.replace(OPEN, **limits))


FOUND = [
    (row(spills=6, stack_bytes=24), only(spills=0, private_bytes=0), {"spills": "6 registers, 0 allowed"}),
    (row(spills=6, stack_bytes=24), only(spills=6, private_bytes=0), {}),
    (row(spills=1), only(spills=0), {"spills": "1 register, 0 allowed"}),
    (row(spills=28, stack_bytes=116), only(private_bytes=0), {}),
    (row(spills=None), only(spills=0), {}),
    (row(stack_bytes=24), only(private_bytes=16), {"private_bytes": "24 bytes, 16 allowed"}),
    (row(spills=2, stack_bytes=80), only(private_bytes=0), {"private_bytes": "64 bytes beside spilled registers, 0 allowed"}),
    (row(spills=None, stack_bytes=None), only(private_bytes=0), {}),
    (row(limited_by=("registers",)), only(occupancy=0.5), {"occupancy": "0.25 of the warps, 0.5 wanted; limited by registers"}),
    (row(), only(occupancy=0.25), {}),
    (row(limited_by=None), only(occupancy=0.5), {"occupancy": "0.25 of the warps, 0.5 wanted"}),
    (
        row(limited_by=("registers", "shared")),
        only(occupancy=1),
        {"occupancy": "0.25 of the warps, 1 wanted; limited by registers, shared"},
    ),
    (row(occupancy=None), only(occupancy=1), {}),
    (row(), only(load_bits=128), {"load_bits": "64 bits at most, 128 wanted"}),
    (row(), only(load_bits=64, store_bits=32), {}),
    (row(), only(store_bits=64), {"store_bits": "32 bits at most, 64 wanted"}),
    (row(store_widths=(), load_widths=None), only(load_bits=128, store_bits=128), {}),
    (row(), only(matrix=True), {"matrix": "no matrix instruction"}),
    (row(matrix=("wgmma",)), only(matrix=True), {}),
    (row(instructions=None), only(matrix=True), {}),
    (
        row(unnamed_precision=("a.py:3",)),
        only(explicit_precision=True),
        {"explicit_precision": "left to the compiler for fp32 operands at a.py:3"},
    ),
    (
        row(unnamed_precision=("a.py:3", "b.py:4")),
        only(explicit_precision=True),
        {"explicit_precision": "left to the compiler for fp32 operands at a.py:3, b.py:4"},
    ),
    (row(in_flight=("1 LDS read", "2 LDS writes")), only(lds_waits=True), {"lds_waits": "1 LDS read; 2 LDS writes"}),
    (row(), only(lds_waits=True), {}),
    (row(published_early=("an atomic",)), only(release_waits=True), {"release_waits": "an atomic"}),
    (row(), only(release_waits=True), {}),
    (
        row(spills=6, stack_bytes=99, unnamed_precision=("a.py:3",), in_flight=("1 LDS read",), published_early=("an atomic",)),
        Gates(OPEN),
        {},
    ),
]


def test_a_gate_without_a_figure_is_not_judged_and_says_why():
    """Only a gate that was asked for; what broke another one is told as ever."""
    bare = row(spills=None, stack_bytes=None, load_widths=None, store_widths=None, instructions=None, occupancy=None, registers=None)
    judged = judge(bare, Gates(Limits(occupancy=0.5, matrix=True)), {"occupancy": "no limits"})
    untold = "its binary does not tell"

    assert judged.unjudged == {"spills": untold, "private_bytes": untold, "occupancy": "no limits", "matrix": untold}
    assert (judged.verdict, judged.broken) == (Verdict.PASSED, {})
    assert judge(bare, Gates(OPEN)).unjudged == {}
    assert judge(row(spills=3), Gates(Limits())).unjudged == {}


@pytest.mark.parametrize(("made", "gates", "broken"), FOUND)
def test_each_gate(made, gates, broken):
    """The figure and the limit, where the binary tells a figure; what lies on the limit is within it."""
    judged = judge(made, gates)

    assert judged.broken == broken
    assert judged.verdict is (Verdict.FAILED if broken else Verdict.PASSED)
    assert judged.reason == "; ".join(f"{gate}: {found}" for gate, found in broken.items())


def test_the_strictest_of_all_limits_holds():
    """Whatever their order, and 0 is a limit; a rule for other kernels is none."""
    rules = [
        Rule(Which(("soft*",)), dataclasses.replace(OPEN, spills=4, load_bits=32)),
        Rule(Which(("softmax",), ("_softmax_fwd",)), dataclasses.replace(OPEN, spills=0, load_bits=64)),
        Rule(Which(("softmax",), launched_by=("test",)), dataclasses.replace(OPEN, load_bits=128)),
        Rule(Which(("matmul", "rms_norm")), dataclasses.replace(OPEN, matrix=True)),
    ]
    made = row(spills=2, stack_bytes=8, load_widths=(32,))
    for some in (rules, rules[::-1]):
        judged = judge(made, Gates(Limits(spills=8), tuple(some)))
        assert judged.broken == {"spills": "2 registers, 0 allowed", "load_bits": "32 bits at most, 64 wanted"}


@pytest.mark.parametrize(
    ("gate", "loose", "strict"),
    [
        *(("spills", 4, 2), ("private_bytes", 64, 0), ("occupancy", 0.25, 0.5), ("load_bits", 32, 128), ("store_bits", 64, 128)),
        *(
            ("matrix", False, True),
            ("explicit_precision", False, True),
            ("lds_waits", False, True),
            ("release_waits", False, True),
            ("occupancy", None, 0.5),
            ("spills", None, 0),
        ),
    ],
)
def test_of_two_limits_the_one_that_is_harder_to_meet_holds(gate, loose, strict):
    """At most the smaller number, at least the larger one, and an open gate gives way."""
    some = [dataclasses.replace(OPEN, **{gate: value}) for value in (loose, strict)]

    assert strictest(some) == strictest(some[::-1]) == some[1]


def test_a_waiver_takes_its_gate_and_its_kernels_only():
    """The row passes where nothing is left, keeps the figure, and says why; the first waiver that fits gives the reason."""
    waivers = (
        Waiver("spills", "elsewhere", Which(architecture=("gfx*",))),
        Waiver("spills", "on purpose", Which(("softmax",), types=("*fp32*",))),
        Waiver("spills", "too late", Which()),
    )
    gates = Gates(Limits(load_bits=128), waivers=waivers)
    spilling = row(spills=6, stack_bytes=24, load_widths=(128,))
    passed, failed = judge(spilling, gates), judge(dataclasses.replace(spilling, load_widths=(64,)), gates)

    assert (passed.verdict, passed.reason, passed.waived) == (Verdict.PASSED, "", {"spills": "on purpose"})
    assert passed.broken == {"spills": "6 registers, 0 allowed"}
    assert (failed.verdict, failed.reason) == (Verdict.FAILED, "load_bits: 64 bits at most, 128 wanted")


def test_what_no_card_can_launch_is_beyond_gates():
    """Its verdict and its reason stay, and no waiver touches it."""
    dead = row(verdict=Verdict.FAILED, reason="needs 99999 bytes of shared memory", spills=6)

    assert judge(dead, Gates(waivers=(Waiver("spills", "why", Which()),))) == dead
