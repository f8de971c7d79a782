"""Changes in generated code between two runs: figures, rules, their order, bundles, pages, exit codes. All rows are synthetic."""

from __future__ import annotations

import dataclasses
import io

import pytest
from hostile import TERMINAL_NAMES
from rich.cells import cell_len
from rich.console import Console
from synthetic import FAILED, FLOAT, MMA, MOVES, WGMMA, facts, products, record, row, run, side

from warpwave.cli.compare import outcome, parse_concerns
from warpwave.compare.changed_codegen import (
    Bundle,
    Change,
    Concern,
    Delta,
    Diff,
    Kind,
    Trend,
    bundle,
    check_comparable,
    deltas,
    diff,
    merge,
    notes,
)
from warpwave.errors import ExitCode, UsageError
from warpwave.records import Stage, StageReport, Verdict
from warpwave.render.markdown import render_page
from warpwave.render.sections.changes import code_sentence, diff_sections
from warpwave.render.terminal import draw_page

WORSE, BETTER, NEITHER = Trend.WORSE, Trend.BETTER, Trend.NEITHER


FIGURES = {
    "a verdict": ({}, {"verdict": Verdict.FAILED}, [(Concern.VERDICT, WORSE, "verdict", "passed", "failed", 5.0)]),
    "a failure that is fixed": ({"verdict": Verdict.ERROR}, {}, [(Concern.VERDICT, BETTER, "verdict", "error", "passed", 6.0)]),
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
    "a lost barrier": (
        {"order": "store@3 bar.sync@3 load@4 bar.sync@4 store@5"}, {"order": "store@7 load@8 bar.sync@8 store@9"},
        [(Concern.ORDER, WORSE, "bar.sync between the store of line 3 and the load of line 4", "1", "0", 1.0)],
    ),
    "a load that moved before the barrier": (
        {"order": "store@3 s_barrier@3 load@3 store@4 s_barrier@4 load@4"},
        {"order": "store@3 load@4 s_barrier@3 load@3 store@4 s_barrier@4 load@4"},
        [],
    ),
    "a barrier that one of two loops lost": (
        {"order": "store@3 s_barrier@3 load@4 store@5 store@3 s_barrier@3 load@4"},
        {"order": "store@3 s_barrier@3 load@4 store@5 store@3 load@4"},
        [(Concern.ORDER, WORSE, "s_barrier between the store of line 3 and the load of line 4", "1", "0", 1.0)],
    ),
    "a lost barrier between copies that nothing waited for": (
        {"order": "copy-in@3 cp.async.commit_group@3 bar.sync@3 copy-in@3 wait:1@3 bar.sync@3 load@3"},
        {"order": "copy-in@3 cp.async.commit_group@3 copy-in@3 wait:1@3 bar.sync@3 load@3"},
        [],
    ),
    "a lost barrier behind a copy that was waited for": (
        {"order": "copy-in@3 wait:0@3 bar.sync@3 copy-in@4 wait:0@4 load@4"},
        {"order": "copy-in@3 wait:0@3 copy-in@4 wait:0@4 load@4"},
        [(Concern.ORDER, WORSE, "bar.sync between the copy in of line 3 and the copy in of line 4", "1", "0", 1.0)],
    ),
    "a lost barrier between accesses that are one now": (
        {"order": "load@3 bar.sync@3 load@4 wgmma.fence.sync@4 product@5"}, {"order": "load@3 wgmma.fence.sync@4 product@5"},
        [(Concern.ORDER, WORSE, "bar.sync between the load of line 3 and the load of line 4", "1", "0", 1.0)],
    ),
    "a wait for fewer": (
        {"order": "copy-in@3 cp.async.wait_group:0@3"}, {"order": "copy-in@3 cp.async.wait_group:2@3"},
        [(Concern.ORDER, WORSE, "cp.async.wait_group:0 between the copy in of line 3 and the end", "1", "0", 1.0)],
    ),
    "a wait for more": ({"order": "copy-in@3 cp.async.wait_group:2@3"}, {"order": "copy-in@3 cp.async.wait_group:0@3"}, []),
    "a barrier of accesses that are gone": ({"order": "store@3 bar.sync@3 load@4"}, {"order": "load@4"}, []),
    "a barrier of accesses to global memory that are gone, in a kernel with shared memory": (
        {"order": "global-load@3 global-store@4 bar.sync@5 global-load@6 store@7 bar.sync@7 load@7"},
        {"order": "global-load@3 store@7 bar.sync@7 load@7"},
        [],
    ),
    "a lost barrier for global memory, in a kernel with shared memory": (
        {"order": "store@7 bar.sync@7 load@7 global-store@4 bar.sync@5 global-load@6 store@8 bar.sync@8 load@8"},
        {"order": "store@7 bar.sync@7 load@7 global-store@4 global-load@6 store@8 bar.sync@8 load@8"},
        [(Concern.ORDER, WORSE, "bar.sync between the global store of line 4 and the global load of line 6", "1", "0", 1.0)],
    ),
    "a lost barrier for shared memory, past which loads of global memory were moved": (
        {"order": "global-load@2 store@3 bar.sync@3 load@4 global-load@5 store@6"},
        {"order": "global-load@2 store@3 global-load@5 load@4 store@6"},
        [(Concern.ORDER, WORSE, "bar.sync between the store of line 3 and the load of line 4", "1", "0", 1.0)],
    ),
    "order with other stages": ({"order": "store@3 bar.sync@3 load@4"}, {"order": "store@3 load@4", "num_stages": 4}, []),
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
    "compile time": (
        {"seconds": 0.5, "peak_bytes": 6 << 20}, {"seconds": 1.6, "peak_bytes": 135 << 20},
        [(Concern.COMPILE, WORSE, "compile time", "0.50 s", "1.60 s", 3.2)],
    ),
    "compile time of a quick kernel, and of a cached one": ({"seconds": 0.1}, {"seconds": 0.9}, []),
    "compile time within the scatter": ({"seconds": 5.0}, {"seconds": 14.0}, []),
    "memory of the compiler": (
        {"peak_bytes": 900 << 20, "seconds": 0.0}, {"peak_bytes": 300 << 20, "against_base": {"compile_memory": 2.0}},
        [(Concern.COMPILE, BETTER, "memory of the compiler", "900 MiB", "300 MiB", 3.0)],
    ),
    "compile time beyond its gate": (
        {"seconds": 2.0, "registers": None}, {"seconds": 5.0, "against_base": {"compile_time": 2.0}},
        [
            (Concern.VERDICT, WORSE, "compile_time", "kept", "broken: 2.5 times as much, 2 allowed", 2.5),
            (Concern.COMPILE, WORSE, "compile time", "2.00 s", "5.00 s", 2.5),
        ],
    ),
    "compile time that its gate allows": ({"seconds": 2.0}, {"seconds": 5.0, "against_base": {"compile_time": 2.5}}, []),
    "a binary that nobody weighed": ({}, {"binary_bytes": None}, []),
    "copies": ({"instructions": {"cp.async": 4}}, {}, [(Concern.ACCESS, WORSE, "cp.async", "4", "0", 4.0)]),
    "copies that are new": ({}, {"instructions": {"cp.async": 4}}, [(Concern.ACCESS, BETTER, "cp.async", "0", "4", 4.0)]),
    "more copies": (
        {"instructions": {"cp.async": 4}}, {"instructions": {"cp.async": 6}},
        [(Concern.ACCESS, NEITHER, "cp.async", "4", "6", 2.0)],
    ),
    "copies of another kind beside those": (
        {"instructions": {"cp.async": 4}},
        {"instructions": {"cp.async": 4, "tma": 2}},
        [(Concern.ACCESS, NEITHER, "tma", "0", "2", 2.0)],
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
    assert [concern.rank for concern in Concern] == list(range(10))


def only(found):
    (change,) = found.changes
    return change


@pytest.mark.parametrize(("concern", "before", "after"), MOVES.values(), ids=MOVES)
def test_each_figure_has_its_concern_and_its_direction(concern, before, after):
    """A change that is worse in one direction is better in the other."""
    worse, better = (diff([row(**one)], [row(**other)]) for one, other in ((before, after), (after, before)))

    assert {delta.concern for delta in only(worse).deltas if delta.trend is Trend.WORSE} == {concern}
    assert {delta.concern for delta in only(better).deltas if delta.trend is Trend.BETTER} == {concern}
    assert (only(worse).kind, only(better).kind) == (Kind.WORSE, Kind.BETTER)
    assert (worse.compared, worse.unchanged) == (1, 0)


def test_a_spilled_register_and_its_room_are_reported_once():
    """Private memory comes in units of 16 bytes. Only the part beyond the spilled registers is reported as private memory."""
    assert [delta.what for delta in deltas(row(), row(spills=3, stack_bytes=16))] == ["spilled registers"]
    assert [delta.what for delta in deltas(row(), row(spills=3, stack_bytes=32))] == ["spilled registers", "private memory"]
    # Four registers and the slot that moves them do not fit into one frame of 16 bytes.
    assert [delta.what for delta in deltas(row(), row(spills=4, stack_bytes=32))] == ["spilled registers"]


UNJUDGED = {
    "another shape of tile": (products(wgmma__m64n64k16__bf16=4), products(wgmma__m64n128k16__bf16=2)),
    "one of two shapes": (products(wgmma__m64n64k16__bf16=4, wgmma__m64n128k16__bf16=4), products(wgmma__m64n64k16__bf16=8)),
    "another number of them": (products(**FLOAT), products(v_mfma_f32_32x32x8_f16=8)),
    "another number of copies": ({"instructions": {"cp.async.cg": 4}}, {"instructions": {"cp.async.cg": 8}}),
    "as many warps in other programs": ({}, {"programs": 4}),
    "scalar registers": ({"sgprs": 34}, {"sgprs": 40}),
}


@pytest.mark.parametrize(("before", "after"), UNJUDGED.values(), ids=UNJUDGED)
def test_what_says_neither_is_shown_and_is_no_regression(before, after):
    """A retuned tile uses other instructions. That is no loss."""
    change = only(diff([row(**before)], [row(**after)]))

    assert (change.kind, change.worse_in(Concern)) == (Kind.CHANGED, ())
    assert {delta.trend for delta in change.deltas} == {Trend.NEITHER}


UNKNOWN = ("spills", "stack_bytes", "shared_bytes", "load_widths", "store_widths", "instructions", "occupancy", "binary_bytes", "registers")


@pytest.mark.parametrize("field", UNKNOWN)
def test_what_one_side_does_not_tell_is_not_compared(field):
    """If an older reader did not record a figure, it did not get worse."""
    known, unknown = row(load_bits=128), dataclasses.replace(row(load_bits=128), **{field: None})

    assert diff([known], [unknown]).changes == diff([unknown], [known]).changes == ()


def test_a_kernel_that_breaks_a_gate_still_has_figures():
    """The verdict comes first, the broken gate after it."""
    broken = row(verdict=Verdict.FAILED, broken={"spills": "12 registers"}, spills=12, stack_bytes=48)

    assert [delta.concern for delta in deltas(row(), broken)] == [Concern.VERDICT, Concern.SPILLS]
    assert [delta.concern for delta in deltas(broken, dataclasses.replace(broken, spills=20))] == [Concern.SPILLS]


def test_a_retuned_kernel_is_one_change():
    """The tuning table's entry changed, but not what launches it."""
    change = only(diff([row()], [row(num_warps=8, constants={"BLOCK": 2048}, registers=50)]))

    assert (change.kind, change.moved, change.variant) == (Kind.WORSE, ("BLOCK 1024 → 2048", "4 → 8 warps"), "")
    assert only(diff([row()], [row(num_stages=3)])).kind is Kind.CHANGED


def test_another_case_is_not_the_same_launch_retuned():
    """If both configuration and case differ, one was removed and one was added."""
    found = diff([row()], [row(num_warps=8, origin="another case")])

    assert [(change.kind, change.deltas) for change in found.changes] == [(Kind.REMOVED, ()), (Kind.ADDED, ())]
    assert found.compared == 0


def test_the_nearest_configurations_of_an_autotuned_launch_belong_together():
    """Two of three changed, and each is compared with the right one."""
    before = [row(constants={"BLOCK": block}, num_warps=warps) for block, warps in ((512, 2), (1024, 4), (2048, 8))]
    after = [before[1], row(constants={"BLOCK": 2048}, num_warps=16), row(constants={"BLOCK": 512}, num_warps=1)]
    found = diff(before, after)

    assert {change.variant: change.moved for change in found.changes} == {"BLOCK=2048": ("8 → 16 warps",), "BLOCK=512": ("2 → 1 warps",)}
    assert found.unchanged == 1


def test_one_configuration_of_two_divisibilities_is_kept_apart_by_its_case():
    """A row does not record divisibility; the case that launched it tells the rows apart."""
    narrow, wide = row(origin="N=1000", load_widths=(32,)), row(origin="N=1024")

    assert diff([narrow, wide], [wide, narrow]).unchanged == 2


def test_numbers_and_truth_are_different_constants():
    """1, 1.0, True and the text "1" make different kernels."""
    values = [row(constants={"A": value}, registers=30 + i) for i, value in enumerate((1, 1.0, True, "1"))]

    assert diff(values, values[::-1]).unchanged == 4


def test_the_worst_comes_first_and_improvements_last():
    """By the gravest concern, then by how far it moved; then removed, added, neutral and better ones."""
    before, after = [], []

    def case(name, old=None, new=None):
        before.extend([row(function=name, **old)] if old is not None else [])
        after.extend([row(function=name, **new)] if new is not None else [])

    case("better", {"registers": 50}, {})
    case("neither", {"sgprs": 1}, {"sgprs": 2})
    case("added", None, {})
    case("removed", {}, None)
    for name, (_, old, new) in reversed(MOVES.items()):
        case(name, old, new)
    case("more registers", {}, {"registers": 60})
    order = [change.function for change in diff(before, after).changes]
    ranked = [MOVES[name][0].rank for name in order if name in MOVES]

    assert ranked == sorted(ranked)
    assert order.index("more registers") == order.index("it needs more registers") - 1
    assert order[-4:] == ["removed", "added", "neither", "better"]
    assert len(order) == len(MOVES) + 5


def test_improvements_are_ordered_by_what_got_better():
    """The gravest concern first, then the larger step; equal ones by name."""
    names = {"f": {"registers": 60}, "e": {"registers": 90}, "d": {"spills": 1}, "c": {"spills": 9}, "b": {"registers": 90}}
    found = diff([row(function=name, **fields) for name, fields in names.items()], [row(function=name) for name in names])

    assert [change.function for change in found.changes] == ["c", "d", "b", "e", "f"]
    assert {change.kind for change in found.changes} == {Kind.BETTER}


def test_of_equal_concerns_the_next_one_decides():
    """Two kernels with equal spills are ordered by what else got worse."""
    spill = {"spills": 4, "stack_bytes": 16}
    before = [row(function=name) for name in "ab"]
    found = diff(before, [row(function="a", **spill), row(function="b", **spill, registers=99)])

    assert [change.function for change in found.changes] == ["b", "a"]


def test_a_change_field_by_field():
    """Retuned, worse, and one of two configurations of which the other still compiles."""
    stays = row(constants={"BLOCK": 1})
    old, new = row(constants={"BLOCK": 2}), row(constants={"BLOCK": 2}, **FAILED)
    found = diff([stays, old], [stays, new])

    assert found == Diff(
        changes=(
            Change(
                *("softmax", "_softmax_fwd", "sy_90", Kind.WORSE, "bench", "BLOCK=2", ()),
                deltas=(Delta(Concern.VERDICT, WORSE, "verdict", "passed", "failed", 5.0),),
                before=old,
                after=new,
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
    absent = (Delta(Concern.VERDICT, WORSE, "verdict", "absent", "failed", 5.0),)
    names = ("softmax", "_softmax_fwd", "sy_90")

    assert diff([base], [base, added]).changes == (Change(*names, Kind.ADDED, "elsewhere", "", (), (), None, added),)
    assert diff([base, added], [base]).changes == (Change(*names, Kind.REMOVED, "elsewhere", "", (), (), added, None),)
    assert diff([base], [base, broken]).changes == (Change(*names, Kind.WORSE, "elsewhere", "", (), absent, None, broken),)


@pytest.mark.parametrize(
    ("known", "took", "told"),
    [
        (1.5, 45.0, [(Concern.COMPILE, WORSE, "compile time of all configurations", "1.50 s", "46.50 s", 31.0)]),
        (1.5, 1.4, []),
        (0.0, 45.0, []),  # it came from a cache
    ],
)
def test_a_new_configuration_that_takes_long_to_compile_is_worse(known, took, told):
    base = row(constants={"B": 128}, seconds=known)
    added = row(constants={"B": 8192}, seconds=took)
    (change,) = diff([base], [base, added]).changes

    assert (change.kind is Kind.WORSE) == bool(told)
    assert change.deltas == tuple(Delta(*each) for each in told)


def test_host_code_that_cannot_run_any_more_is_worse():
    """Where the same case ran before; where it did not, nothing is lost."""
    before = row()
    after = row(function="(host code)", signature={}, constants={}, verdict=Verdict.NOT_RUN, registers=None)
    worse, _ = diff([before], [after]).changes
    new, _ = diff([dataclasses.replace(before, origin="elsewhere")], [after]).changes

    assert (worse.kind, worse.deltas) == (Kind.WORSE, (Delta(Concern.VERDICT, WORSE, "verdict", "passed", "not-run", 4.0),))
    assert {new.kind, _.kind} == {Kind.ADDED, Kind.REMOVED}


def test_changes_are_counted_on_the_architectures_that_both_have():
    """Another binary with the same figures is counted by itself; architectures of one side are named, sorted."""
    old = [row(), row("sy_80"), row("b_1"), row("a_1")]
    new = [dataclasses.replace(old[0], binary_hash="z"), old[1], row("c_1")]
    found = diff(old, new)

    assert found == Diff((), 2, 1, 1, ("a_1", "b_1"), ("c_1",))


def test_two_targets_of_one_architecture_tell_the_graver_of_each():
    """One that is compiled twice on each stays twice."""
    passed, failed = row(), row(**FAILED)

    assert merge([[passed, passed], [failed, passed]]) == [failed, passed]
    assert merge([[failed], [passed]]) == [failed]
    assert len(merge([[passed], [row("sy_80")], [row(origin="x")], [row(function="f")], [row(kernel="k")]])) == 5


# Bundles.


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


# Pages and exit codes.


DEFAULT = (Concern.VERDICT, Concern.MATRIX, Concern.SPILLS, Concern.OCCUPANCY)


def page(before, after, failing=DEFAULT, full=False):
    """The terminal page and the Markdown page of a diff."""
    base, head = side(*before, folder="runs/base"), side(*after, folder="runs/head")
    found = diff(before, after)
    sections = diff_sections(base, head, found, failing, full)
    text = io.StringIO()
    said = code_sentence(found, failing)
    Console(file=text, width=80, force_terminal=False, highlight=False).print(draw_page(said, sections, good=True))
    return text.getvalue(), render_page(said, sections, good=True)


@pytest.mark.parametrize("full", [False, True])
def test_only_the_ten_worst_are_shown_unless_all_are_asked_for(full):
    """The rest is counted, and the page says how to see it."""
    before = [row(origin=f"case {i:02}") for i in range(14)]
    text, markdown = page(before, [dataclasses.replace(old, spills=1 + i) for i, old in enumerate(before)], full=full)

    assert [shown.count("case 0") + shown.count("case 1") for shown in (text, markdown)] == [14 if full else 10] * 2
    assert ("… and 4 more; --full shows them" in text) is not full
    assert text.index("case 13") < text.index("case 04")


@pytest.mark.parametrize("hostile", TERMINAL_NAMES)
def test_names_from_outside_are_shown_and_never_obeyed(hostile):
    """No control character, no CI command, no line that is too wide; no pipe or tag that Markdown would act on."""
    named = {"function": hostile, "kernel": hostile, "origin": hostile, "constants": {hostile: hostile}}
    worse = {"limited_by": (hostile,), "occupancy": 0.1, **products(**{hostile: 1})}
    before = [row(**named), row("syn942", **named), row(), row(**named, num_warps=2)]
    dead = row("syn942", **named, **{**FAILED, "reason": hostile})
    after = [row(**named, **worse), dead, row(num_warps=16), row(**{**named, "function": "x"})]
    for text in page(before, after, full=True):
        assert all(c.isprintable() or c == "\n" for c in text)
        assert "::error" not in text
        assert "##[" not in text
    assert max(cell_len(line) for line in page(before, after, full=True)[0].splitlines()) <= 80


def test_markdown_keeps_names_out_of_its_own_syntax():
    """A pipe, a tag, a mention and a fence stay in a code span, and a folder's name in its cell."""
    name = "a|b</details>@all``c"
    base, head = (side(kernel, folder=name) for kernel in (row(function=name), row(function=name, spills=1)))
    found = diff(base.kernels, head.kernels)
    text = render_page(code_sentence(found, DEFAULT), diff_sections(base, head, found, DEFAULT, full=False), good=False)

    assert "- ```softmax a|b</details>@all``c``` in `bench`" in text
    assert "| folder | ```a\\|b</details>@all``c``` | ```a\\|b</details>@all``c``` |" in text


@pytest.mark.parametrize(("concern", "before", "after"), MOVES.values(), ids=MOVES)
def test_the_exit_code_follows_what_may_not_get_worse(concern, before, after):
    """By default verdicts, matrix instructions, spills and occupancy; or any of them, or none, on request."""
    found, sides = diff([row(**before)], [row(**after)]), (side(row()), side(row()))
    codes = [outcome(sides, found, parse_concerns(text)).code for text in ("any", "nothing", concern.value)]

    assert codes == [ExitCode.FAILED, ExitCode.GOOD, ExitCode.FAILED]
    assert outcome(sides, found, DEFAULT).code == (ExitCode.FAILED if concern in DEFAULT else ExitCode.GOOD)
    assert outcome(sides, diff([row(**after)], [row(**before)]), tuple(Concern)).code == ExitCode.GOOD


def test_a_run_that_ended_early_cannot_be_judged():
    """Missing kernels may never have been compiled. A kernel that crashed has a row, and its stage continued."""
    ended, crashed = (StageReport(Stage.COMPILE, Verdict.CRASHED, counts=counts) for counts in ({}, {"crashed": 1}))

    assert [outcome((side(row()), side(row(), stages=(stage,))), diff([row()], [row()]), DEFAULT).code for stage in (ended, crashed)] == [
        4,
        0,
    ]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"stages": ()}, "alpha: no compile stage"),
        ({"stages": (StageReport(Stage.COMPILE, Verdict.NOT_RUN, reason="no bench was found"),)}, "alpha: not-run, no bench was found"),
        ({"record": record(verdict=Verdict.STALE)}, "alpha: its files are of two runs"),
    ],
)
def test_a_run_without_generated_code_is_refused_by_name(more, why):
    """The exit code is that of a usage error."""
    with pytest.raises(UsageError, match="There is no generated code in runs/x") as raised:
        side(**more)

    assert why in raised.value.meaning
    assert raised.value.exit_code == 2


def test_an_unknown_concern_is_refused():
    with pytest.raises(UsageError, match="'speed'"):
        parse_concerns("spills,speed")
