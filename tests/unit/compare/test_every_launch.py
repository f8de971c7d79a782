"""Each record of generated code, field by field, and every figure that may differ. All rows are made up."""

from __future__ import annotations

import dataclasses

import pytest
from codegen_rows import FAILED, MMA, WGMMA, products, row, side
from synthetic import facts, record, run

from harness.compare.codegen.alignment import align, by_generation, configuration
from harness.compare.codegen.bundles import Bundle, bundle, check_comparable, notes
from harness.compare.codegen.changed_code import Change, Diff, Kind, diff, merge
from harness.compare.codegen.deltas import Concern, Delta, Trend, deltas
from harness.compare.codegen.fidelity import compare_launches, held_against
from harness.compare.codegen.pairing import Room, differing, distance, identity, moved, pair, parts, telling, variant
from harness.compare.codegen.rows import compare_codegen, use_of_waivers
from harness.compare.codegen.vendors import Split, one_vendor
from harness.compare.comparison import CodegenCell, Deviation, Fidelity, Likeness, WaiverUse
from harness.errors import UsageError
from harness.records import OPEN, Gates, Stage, StageReport, Verdict, Waiver, Which

WORSE, BETTER, NEITHER = Trend.WORSE, Trend.BETTER, Trend.NEITHER
PASSED = Verdict.PASSED


# --- figures ----------------------------------------------------------------------------------------------------------------------------

FIGURES = {
    "a verdict": ({}, {"verdict": Verdict.FAILED}, [(Concern.VERDICT, WORSE, "verdict", "passed", "failed", 3.0)]),
    "a verdict that is mended": ({"verdict": Verdict.ERROR}, {}, [(Concern.VERDICT, BETTER, "verdict", "error", "passed", 4.0)]),
    "spilled registers": ({"spills": 1}, {"spills": 4}, [(Concern.SPILLS, WORSE, "spilled registers", "1", "4", 12.0)]),
    "private memory": (
        {"stack_bytes": 2048}, {"stack_bytes": 1000},
        [(Concern.SPILLS, BETTER, "private memory", "2 KiB", "1000 B", 1048.0)],
    ),
    "private memory of spills": ({"spills": 3}, {"spills": 3, "stack_bytes": 16}, []),
    "occupancy": (
        {},
        {"programs": 4, "occupancy": 0.25, "limited_by": ("shared", "warps")},
        [(Concern.OCCUPANCY, WORSE, "occupancy", "50% (8x4w, registers)", "25% (4x4w, shared, warps)", 0.25)],
    ),
    "full occupancy": (
        {},
        {"programs": 16, "occupancy": 1.0},
        [(Concern.OCCUPANCY, BETTER, "occupancy", "50% (8x4w, registers)", "100% (16x4w)", 0.5)],
    ),
    "as many warps in fewer programs": (
        {},
        {"programs": 4},
        [(Concern.OCCUPANCY, NEITHER, "occupancy", "50% (8x4w, registers)", "50% (4x4w, registers)", 0.0)],
    ),
    "an occupancy that nobody tells": ({}, {"occupancy": None, "programs": 1}, []),
    "loads": ({}, {"load_widths": (32, 64)}, [(Concern.ACCESS, WORSE, "widest load", "128", "64 bits", 64.0)]),
    "loads of one reader": ({"load_widths": (), "load_bits": 64}, {}, [(Concern.ACCESS, BETTER, "widest load", "64", "128 bits", 64.0)]),
    "loads that nobody tells": (
        {"load_widths": None, "load_bits": 64}, {},
        [(Concern.ACCESS, BETTER, "widest load", "64", "128 bits", 64.0)],
    ),
    "stores": ({"store_widths": (16,)}, {}, [(Concern.ACCESS, BETTER, "widest store", "16", "128 bits", 112.0)]),
    "stores that one does not have": ({"store_widths": ()}, {}, []),
    "registers": ({"registers": 40}, {"registers": 32}, [(Concern.REGISTERS, BETTER, "registers", "40", "32", 8.0)]),
    "kinds of registers": (
        {"vgprs": 30, "agprs": 0, "sgprs": 16},
        {"vgprs": 34, "agprs": 4, "sgprs": 10},
        [
            (Concern.REGISTERS, NEITHER, "VGPR", "30", "34", 4.0),
            (Concern.REGISTERS, NEITHER, "SGPR", "16", "10", 6.0),
            (Concern.REGISTERS, NEITHER, "AGPR", "0", "4", 4.0),
        ],
    ),
    "vector registers alone": ({"vgprs": 30, "agprs": 0}, {"vgprs": 34, "agprs": 0}, []),
    "kinds that one does not tell": ({"vgprs": None, "agprs": 4, "sgprs": 3}, {"vgprs": 3, "agprs": None, "sgprs": None}, []),
    "kinds that are the same": ({"vgprs": 9, "agprs": 4, "sgprs": 3}, {"vgprs": 9, "agprs": 4, "sgprs": 3}, []),
    "shared memory": ({}, {"shared_bytes": 17000}, [(Concern.SHARED, WORSE, "shared memory", "16 KiB", "17000 B", 616.0)]),
    "shared memory that is not used any more": (
        {}, {"shared_bytes": 0},
        [(Concern.SHARED, BETTER, "shared memory", "16 KiB", "0 B", 16384.0)],
    ),
    "a binary": ({}, {"binary_bytes": 20480}, [(Concern.SIZE, WORSE, "binary", "10000 B", "20 KiB", 1.048)]),
    "a smaller binary": ({}, {"binary_bytes": 8000}, [(Concern.SIZE, BETTER, "binary", "10000 B", "8000 B", 0.25)]),
    "a binary with another comment": ({}, {"binary_bytes": 10500}, []),
    "a binary that nobody weighed": ({}, {"binary_bytes": None}, []),
    "copies": ({"instructions": {"cp.async": 4}}, {}, [(Concern.ACCESS, WORSE, "cp.async", "4", "0", 4.0)]),
    "copies that are new": ({}, {"instructions": {"cp.async": 4}}, [(Concern.ACCESS, BETTER, "cp.async", "0", "4", 4.0)]),
    "more copies": (
        {"instructions": {"cp.async": 4}}, {"instructions": {"cp.async": 6}},
        [(Concern.ACCESS, NEITHER, "cp.async", "4", "6", 2.0)],
    ),
    "copies that nobody counted": ({"instructions": None}, {"instructions": {"cp.async": 6}}, []),
    "products": (products(**MMA), {}, [(Concern.MATRIX, WORSE, "mma.sync.m16n8k16.bf16", "16", "0", 16.0)]),
    "products of a later generation": (
        products(**MMA),
        products(**WGMMA),
        [
            (Concern.MATRIX, NEITHER, "mma.sync.m16n8k16.bf16", "16", "0", 16.0),
            (Concern.MATRIX, BETTER, "wgmma.m64n64k16.bf16", "0", "4", 4.0),
        ],
    ),
    "products of another shape": (
        products(mma__m16n8k16=4),
        products(mma__m16n8k8=8),
        [(Concern.MATRIX, NEITHER, "mma.m16n8k16", "4", "0", 4.0), (Concern.MATRIX, NEITHER, "mma.m16n8k8", "0", "8", 8.0)],
    ),
    "fewer products": (products(mma__a=4), products(mma__a=2), [(Concern.MATRIX, NEITHER, "mma.a", "4", "2", 2.0)]),
    "products that were not counted": ({"matrix": ("mma",), "instructions": None}, products(mma=2), []),
    "products that were not counted and are gone": (
        {"matrix": ("mma",), "instructions": None},
        products(),
        [(Concern.MATRIX, WORSE, "mma", "some", "0", 0.0)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_that_differs(name):
    """What it is, in which direction it went, both values as they are shown, and how far apart they are."""
    before, after, expected = FIGURES[name]
    found = deltas(row(**before), row(**after))

    assert found == tuple(Delta(*delta[:5], pytest.approx(delta[5])) for delta in expected)


def test_a_figure_that_did_not_change_is_none():
    """Nor is one of a kernel without a binary, of which only the verdict is compared."""
    assert deltas(row(), row()) == ()
    assert [delta.concern for delta in deltas(row(), row(**FAILED))] == [Concern.VERDICT]
    assert [delta.concern for delta in deltas(row(**FAILED), row(spills=9))] == [Concern.VERDICT]
    assert [concern.rank for concern in Concern] == list(range(8))


# --- pairs ------------------------------------------------------------------------------------------------------------------------------

BASE = row(signature={"x": "*fp32", "n": "i32", "B": "constexpr"}, constants={"B": 1024, "E": True}, num_warps=4, num_stages=2)


def other(**more):
    return dataclasses.replace(BASE, **more)


def test_the_parts_of_a_configuration():
    """Types, constants and options, by name; what a failed compile left open is no part."""
    assert parts(BASE) == {
        "x": ("type", "*fp32"),
        "n": ("type", "i32"),
        "B": ("constant", 1024),
        "E": ("constant", True),
        "warps": ("option", 4),
        "stages": ("option", 2),
    }
    assert list(parts(other(num_warps=None, num_stages=None))) == ["x", "n", "B", "E"]


APART = {
    "nothing": ({}, 0, [], ()),
    "a constant": ({"constants": {"B": 512, "E": True}}, 1, ["B"], ("B 1024 → 512",)),
    "a constant's type": ({"constants": {"B": 1024, "E": 1}}, 1, ["E"], ("E True → 1",)),
    "a constant that is gone": ({"constants": {"B": 1024}}, 1, ["E"], ("E True → nothing",)),
    "a constant that is new": ({"constants": {"B": 1024, "E": True, "F": 1}}, 1, ["F"], ("F nothing → 1",)),
    "a type": ({"signature": {"x": "*bf16", "n": "i32", "B": "constexpr"}}, 1, ["x"], ("x *fp32 → *bf16",)),
    "warps": ({"num_warps": 8}, 1, ["warps"], ("4 → 8 warps",)),
    "stages": ({"num_stages": 3}, 1, ["stages"], ("2 → 3 stages",)),
    "an open option": ({"num_stages": None}, 0, [], ()),
    "several": ({"constants": {"B": 512}, "num_warps": 8}, 3, ["B", "E", "warps"], ("B 1024 → 512", "E True → nothing", "4 → 8 warps")),
}


@pytest.mark.parametrize("name", APART)
def test_how_far_two_configurations_are_apart(name):
    """The number of parts, their names, and what was retuned; an option that one does not tell is no difference."""
    changes, far, names, retuned = APART[name]

    assert distance(BASE, other(**changes)) == distance(other(**changes), BASE) == far
    assert differing(BASE, other(**changes)) == names
    assert moved(BASE, other(**changes)) == retuned
    assert (identity(BASE) == identity(other(**changes))) == (name == "nothing")


def test_the_order_of_arguments_is_no_part_of_a_configuration():
    """Two processes tell them in any order."""
    assert identity(BASE) == identity(other(signature={"n": "i32", "x": "*fp32"}, constants={"E": True, "B": 1024}))


def test_what_tells_the_configurations_of_a_launch_apart():
    """Parts with more than one value, or that some lack, in one line."""
    launch = [BASE, other(num_warps=8), other(constants={"B": 1024})]

    assert telling(launch) == {"warps", "E"}
    assert telling(launch[:1]) == frozenset()
    assert variant(BASE, {"warps", "E", "B"}) == "B=1024, E=True, 4 warps"
    assert variant(BASE, {"stages", "no such"}) == "2 stages"


def test_a_configuration_is_paired_with_itself_first():
    """By its case, then with the same of another case, then with the nearest of its own; the rest is gone or new."""
    a, b = other(origin="a"), other(origin="b")
    retuned, far = other(origin="c", num_warps=8), other(origin="c", num_warps=16, num_stages=5, constants={})
    before, gone = other(origin="c", num_warps=2, constants={"B": 1024, "E": True, "F": 1}), other(origin="d", num_warps=1)
    found = pair([b, a, before, gone], [a, b, far, retuned])

    assert found == [(b, b), (a, a), (before, retuned), (gone, None), (None, far)]
    assert pair([a], [b]) == [(a, b)]
    assert pair([a, dataclasses.replace(a)], [a]) == [(a, a), (a, None)]


def test_pairing_has_a_bound_over_all_launches():
    """Above it what was retuned is told as removed and added; a pair of five parts a side counts as a fortieth of twelve."""
    one, two = other(num_warps=1), other(num_warps=2)
    rooms = [Room(), Room(), Room()]
    rooms[1].left = rooms[2].left = 1
    rooms[2].left = 0

    assert [pair([one], [two], room) for room in rooms] == [[(one, two)], [(one, two)], [(one, None), (None, two)]]
    assert [room.left for room in rooms] == [1_999_999, 0, 0]


# --- changes ----------------------------------------------------------------------------------------------------------------------------


def test_a_change_field_by_field():
    """Retuned, worse, and one of two configurations of which the other still compiles."""
    stays = row(constants={"BLOCK": 1})
    old, new = row(constants={"BLOCK": 2}), row(constants={"BLOCK": 2}, **FAILED)
    found = diff([stays, old], [stays, new])

    assert found == Diff(
        changes=(
            Change(
                *("softmax", "_softmax_fwd", "sy_90", Kind.WORSE, "bench", "BLOCK=2", ()),
                deltas=(Delta(Concern.VERDICT, WORSE, "verdict", "passed", "failed", 3.0),),
                before=old,
                after=new,
                survivors=1,
            ),
        ),
        compared=2,
        unchanged=1,
        same_figures=0,
    )


def test_what_was_added_or_removed_field_by_field():
    """One that is new and fails is worse than none; its verdict before is that there was none."""
    base, added = row(), row(constants={"BLOCK": 9}, origin="elsewhere")
    broken = row(constants={"BLOCK": 9}, origin="elsewhere", **FAILED)
    absent = (Delta(Concern.VERDICT, WORSE, "verdict", "absent", "failed", 3.0),)
    names = ("softmax", "_softmax_fwd", "sy_90")

    assert diff([base], [base, added]).changes == (Change(*names, Kind.ADDED, "elsewhere", "", (), (), None, added),)
    assert diff([base, added], [base]).changes == (Change(*names, Kind.REMOVED, "elsewhere", "", (), (), added, None),)
    assert diff([base], [base, broken]).changes == (Change(*names, Kind.WORSE, "elsewhere", "", (), absent, None, broken),)


def test_host_code_that_cannot_run_any_more_is_worse():
    """Where the same case ran before; where it did not, nothing is lost."""
    before = row()
    after = row(function="(host code)", signature={}, constants={}, verdict=Verdict.NOT_RUN, registers=None)
    worse, _ = diff([before], [after]).changes
    new, _ = diff([dataclasses.replace(before, origin="elsewhere")], [after]).changes

    assert (worse.kind, worse.deltas) == (Kind.WORSE, (Delta(Concern.VERDICT, WORSE, "verdict", "passed", "not-run", 2.0),))
    assert {new.kind, _.kind} == {Kind.ADDED, Kind.REMOVED}


def test_changes_are_counted_on_the_architectures_that_both_have():
    """Another binary with the same figures is counted by itself; architectures of one side are named, sorted."""
    old = [row(), row("sy_80"), row("b_1"), row("a_1")]
    new = [dataclasses.replace(old[0], binary_hash="z"), old[1], row("c_1")]
    found = diff(old, new)

    assert found == Diff((), 2, 1, 1, ("a_1", "b_1"), ("c_1",))


def test_changes_are_in_the_order_in_which_they_are_to_be_read():
    """Worse first, by the gravest concern and then how far it moved; better ones by what became better."""
    changes = {
        "f": ({}, {"registers": 35}),
        "e": ({}, {"registers": 99}),
        "d": ({}, {"spills": 1}),
        "c": ({"sgprs": 1}, {"sgprs": 2}),
        "b": ({}, {"registers": 33}),
        "a": ({"spills": 3}, {"registers": 30}),
    }
    old = [row(function=name, **before) for name, (before, _) in changes.items()]
    new = [row(function=name, **after) for name, (_, after) in changes.items()]
    found = diff([*old, row(function="h")], [*new, row(function="g")]).changes

    assert [change.function for change in found] == ["d", "e", "f", "h", "g", "c", "a", "b"]
    assert found[0].worse_in(list(Concern)) == (Concern.SPILLS,)
    assert found[0].worse_in([Concern.REGISTERS]) == ()


def test_two_targets_of_one_architecture_tell_the_graver_of_each():
    """One that is compiled twice on each stays twice."""
    passed, failed = row(), row(**FAILED)

    assert merge([[passed, passed], [failed, passed]]) == [failed, passed]
    assert merge([[failed], [passed]]) == [failed]
    assert len(merge([[passed], [row("sy_80")], [row(origin="x")], [row(function="f")], [row(kernel="k")]])) == 5


# --- bundles ----------------------------------------------------------------------------------------------------------------------------


def test_a_bundle_field_by_field():
    """Targets that compiled something, their commits and Tritons once each, and why kernels may be missing."""
    ended = StageReport(Stage.COMPILE, Verdict.TIMEOUT, reason="slow")
    runs = [
        run(compiled=(row(),), stages=(ended,)),
        run("beta", record=record("beta", commit=""), facts=None, compiled=(row("sy_80"),), missing="of 2 shards there is no 2"),
        run("gamma", record=record("gamma"), compiled=(), stages=(dataclasses.replace(ended, reason=""),)),
        run("delta", record=record("delta", verdict=Verdict.STALE)),
        run("epsilon", record=record("epsilon"), compiled=(row("sy_100"),)),
    ]
    faults = ("alpha: timeout, slow", "beta: of 2 shards there is no 2", "gamma: timeout", "delta: its files are of two runs")

    assert bundle("runs/x", runs) == Bundle(
        folder="runs/x",
        targets=("alpha", "beta", "epsilon"),
        commits=("0123abc", "unknown"),
        triton=("3.9.0", "unknown"),
        kernels=(row(), row("sy_80"), row("sy_100")),
        faults=faults,
    )


@pytest.mark.parametrize("verdict", [Verdict.PASSED, Verdict.FAILED, Verdict.NOT_RUN])
def test_a_compile_stage_that_came_to_its_end_is_no_fault(verdict):
    """Whatever its kernels came to; nor is another stage's end."""
    stages = (StageReport(Stage.COMPILE, verdict), StageReport(Stage.BENCH, Verdict.CRASHED))

    assert bundle("x", [run(compiled=(row(),), stages=stages)]).faults == ()
    assert bundle("x", [run(compiled=(row(),), stages=(StageReport(Stage.COMPILE, Verdict.CRASHED, counts={"crashed": 1}),))]).faults == ()


def test_a_run_without_generated_code_says_why_for_each_target():
    """No stage, one that ended early, or files of two runs."""
    runs = [
        run(compiled=(), stages=()),
        run("beta", record=record("beta"), compiled=(), stages=(StageReport(Stage.COMPILE, Verdict.CRASHED, reason="it died"),)),
        run("gamma", record=record("gamma", verdict=Verdict.STALE)),
    ]
    with pytest.raises(UsageError) as caught:
        bundle("runs/x", runs)

    assert "runs/x" in caught.value.happened
    assert "alpha: no compile stage; beta: crashed, it died; gamma: its files are of two runs" in str(caught.value.meaning)


def test_what_a_reader_of_two_bundles_has_to_know():
    """Another Triton, architectures of one side, and each side's faults, named by the side."""
    base = side(row(), row("sy_80"), row("sy_75"), facts=facts(triton="3.8.0"), missing="of 2 shards there is no 2")
    head = side(row(), row("sy_100"), missing="of 2 shards there is no 1")
    told = notes(base, head)

    assert notes(head, head)[:0] == notes(side(row()), side(row())) == ()
    assert len(told) == 5
    assert ("3.8.0 in BASE" in told[0], "3.9.0 in HEAD" in told[0]) == (True, True)
    assert "BASE compiled for sy_75, sy_80" in told[1]
    assert "BASE" in told[2]
    assert "no 2" in told[2]
    assert "HEAD compiled for sy_100" in told[3]
    assert "HEAD" in told[4]
    assert "no 1" in told[4]


def test_bundles_of_other_gpus_are_not_comparable():
    """One architecture in common is enough."""
    check_comparable(side(row(), row("sy_80")), side(row()))
    with pytest.raises(UsageError) as caught:
        check_comparable(side(row("sy_80"), row("sy_75"), folder="a"), side(row(), folder="b"))

    assert "a compiled for sy_75, sy_80, b for sy_90" in caught.value.happened


# --- vendors and rows -------------------------------------------------------------------------------------------------------------------


def test_a_split_field_by_field():
    """What dies is told by its first architecture's verdict and reason; another configuration is another split."""
    alive = [row(constants={"BLOCK": n}) for n in (1, 2)]
    dying = [row(name, constants={"BLOCK": n}, **{**FAILED, "reason": f"{name} {n}"}) for name in ("syn942", "syn950") for n in (1, 2)]

    assert one_vendor([*alive, *dying]) == tuple(
        Split(
            *("softmax", "_softmax_fwd", "bench", f"BLOCK={n}", ("sy_90",), ("syn942", "syn950")),
            verdict=Verdict.FAILED,
            reason=f"syn942 {n}",
        )
        for n in (1, 2)
    )


def test_stages_tell_where_both_vendors_have_them():
    """The same number of stages died there, another lives: that is no matter of vendors."""
    rows = [row(num_stages=2), row(num_stages=3, **FAILED), row("syn942", num_stages=2), row("syn942", num_stages=3, **FAILED)]

    assert one_vendor(rows) == ()
    assert len(one_vendor([*rows[:1], row(num_stages=3), *rows[2:]])) == 1


def test_architectures_are_sorted_by_their_number():
    """In every report the same; a name of digits alone, or of none, is one, too."""
    names = ["gfx1100", "sm_100", "sm_90", "gfx942", "gfx90a", "sm_90a", "none", "7"]

    assert sorted(names, key=by_generation) == ["7", "gfx90a", "gfx942", "gfx1100", "none", "sm_90", "sm_90a", "sm_100"]


def test_a_configuration_in_one_line():
    """Values that differ side by side; `-` where one has none; open options are left out."""
    assert configuration(BASE) == "*fp32 i32, B=1024 E=True, 4 warps, 2 stages"
    assert configuration(BASE, other(num_warps=8, constants={"B": 512})) == "*fp32 i32, B=1024/512 E=True/-, 4/8 warps, 2 stages"
    assert configuration(BASE, other(constants={"B": 1024, "E": True, "F": 1})) == "*fp32 i32, B=1024 E=True F=-/1, 4 warps, 2 stages"
    assert configuration(BASE, stages=False) == "*fp32 i32, B=1024 E=True, 4 warps"
    assert configuration(other(num_warps=None, num_stages=None, constants={}, signature={})) == ""


def test_two_targets_of_one_architecture_are_two_cells_of_a_row():
    """What was compiled twice on one target is a second row."""
    cells = [CodegenCell("a", row()), CodegenCell("b", row()), CodegenCell("a", row())]
    found = align(cells)

    assert [(line.kernel, line.function, line.cells) for line in found] == [
        ("softmax", "_softmax_fwd", tuple(cells[:2])),
        ("softmax", "_softmax_fwd", (cells[2],)),
    ]
    assert compare_codegen({"a": run(compiled=(row(), row())), "b": run(compiled=(row(),))}) == tuple(
        dataclasses.replace(line) for line in align([cells[0], cells[2], cells[1]])
    )


def test_only_what_one_case_launched_once_shares_a_row_with_another_tile():
    """Of another case, or of an architecture that is in the row, it is a row of its own."""

    def rows_of(*kernels):
        return [len(line.cells) for line in align([CodegenCell("a", kernel) for kernel in kernels])]

    assert rows_of(row(), row("syn942", constants={"BLOCK": 9})) == [2]
    assert rows_of(row(), row("syn942", constants={"BLOCK": 9}, origin="elsewhere")) == [1, 1]
    assert rows_of(row(), row("syn942", constants={"BLOCK": 9}, function="f")) == [1, 1]
    assert rows_of(row(), row("syn942", constants={"BLOCK": 9}), row("syn950", constants={"BLOCK": 8})) == [3]


def test_a_waivers_use_is_counted_over_all_targets():
    """What it covers and what it let through; a kernel that did not run is neither, and the first of two waivers is the reason."""
    first, second = Waiver("spills", "first", Which(("softmax",))), Waiver("spills", "second", Which(function=("_softmax_*",)))
    gates = Gates(OPEN, waivers=(first, second))
    waived = row(waived={"spills": "first"})
    runs = {
        "a": run(compiled=(waived, row(), row(kernel="other")), gates=gates),
        "b": run(compiled=(waived, row(verdict=Verdict.NOT_RUN)), gates=gates),
        "c": run(compiled=(waived,)),
        "d": run(compiled=(), gates=gates),
    }

    assert use_of_waivers(runs) == (WaiverUse(first, 3, 2), WaiverUse(second, 4, 0))


# --- what a card launched ---------------------------------------------------------------------------------------------------------------


def test_launches_are_held_against_what_was_compiled():
    """The same binary, another one, another specialization, and one that was not seen; each with its names and why."""
    same, retuned, gone = row(), row(function="g"), row(function="h", constants={"A": 1})
    compiled = [same, dataclasses.replace(retuned, binary_hash="z", registers=99), dataclasses.replace(gone, constants={"A": 2})]
    launched = [same, retuned, gone, row(function="i")]
    equal, found = held_against(launched, compiled)

    assert equal == 1
    assert [(entry.kernel, entry.function, entry.architecture, entry.origin, entry.likeness) for entry in found] == [
        ("softmax", "g", "sy_90", "bench", Likeness.ANOTHER_BINARY),
        ("softmax", "h", "sy_90", "bench", Likeness.RESPECIALIZED),
        ("softmax", "i", "sy_90", "bench", Likeness.NOT_SEEN),
    ]
    assert all(isinstance(entry, Deviation) and entry.reason for entry in found)
    assert "34 registers for 99" in found[0].reason
    assert "A is 1 for 2" in found[1].reason


@pytest.mark.parametrize(
    ("part", "told"),
    [
        ({"num_warps": 8}, "num_warps is 8 for 4"),
        ({"num_stages": 9}, "num_stages is 9 for 2"),
        ({"signature": {"x": "*i8"}}, "x is *i8 for None, x_ptr is None for *fp32, n is None for i32"),
        ({"attributes": {"x": "aligned"}}, "x is aligned for None"),
    ],
)
def test_every_part_of_a_specialization_counts(part, told):
    """And is named with both values."""
    equal, (entry,) = held_against([row(**part)], [row(binary_hash=row(**part).binary_hash)])

    assert (equal, entry.likeness) == (0, Likeness.RESPECIALIZED)
    assert entry.reason.endswith(f": {told}")


def test_launches_of_a_target_field_by_field():
    """Against its own compile stage and another's with the same Triton; else with the reason why there is none."""
    lane = run("lane", record=record("lane"), compiled=(row(),))
    card = run("card", record=record("card"), compiled=(), launched=(row(), row(function="f")))
    old = dataclasses.replace(card, facts=facts(triton="3.8.0"))
    deviation = Deviation("softmax", "f", "sy_90", "bench", Likeness.NOT_SEEN, held_against(card.launched, lane.compiled)[1][0].reason)

    assert compare_launches({"card": card, "lane": lane}) == (Fidelity("card", "lane", "3.9.0", 2, 1, (deviation,)),)
    assert compare_launches({"lane": lane}) == ()
    for runs, words in (({"card": old, "lane": lane}, "3.9.0"), ({"card": card}, "sy_90")):
        (found,) = compare_launches(runs)
        assert dataclasses.replace(found, reason="") == Fidelity("card", "", runs["card"].facts.triton, 2)
        assert words in found.reason
    both = dataclasses.replace(card, compiled=(row(),))
    assert [entry.against for entry in compare_launches({"card": both, "lane": lane})] == ["card", "lane"]
