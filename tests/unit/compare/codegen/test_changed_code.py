"""Changes in generated code between two runs: the rules and their order. All rows are synthetic."""

from __future__ import annotations

import dataclasses

import pytest
from codegen_rows import FAILED, FLOAT, MOVES, products, row
from synthetic import compiled

from warpwave.compare.changed_codegen import Concern, Kind, Trend, deltas, diff, merge
from warpwave.records import Verdict


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


NEITHER = {
    "another shape of tile": (products(wgmma__m64n64k16__bf16=4), products(wgmma__m64n128k16__bf16=2)),
    "one of two shapes": (products(wgmma__m64n64k16__bf16=4, wgmma__m64n128k16__bf16=4), products(wgmma__m64n64k16__bf16=8)),
    "another number of them": (products(**FLOAT), products(v_mfma_f32_32x32x8_f16=8)),
    "another number of copies": ({"instructions": {"cp.async.cg": 4}}, {"instructions": {"cp.async.cg": 8}}),
    "as many warps in other programs": ({}, {"programs": 4}),
    "scalar registers": ({"sgprs": 34}, {"sgprs": 40}),
}


@pytest.mark.parametrize(("before", "after"), NEITHER.values(), ids=NEITHER)
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


def test_names_without_counts_are_compared_as_names():
    """A run that only kept the names of matrix instructions can still lose them."""
    old = row(instructions=None, matrix=("mma.sync",))

    assert deltas(old, row(**products(mma__sync=8))) == ()
    assert [(delta.concern, delta.before, delta.after) for delta in deltas(old, row())] == [(Concern.MATRIX, "some", "0")]


def test_kinds_of_registers_explain_their_number():
    """VGPRs and AGPRs are listed separately if a binary has both."""
    before, after = row(registers=128, vgprs=128, agprs=0), row(registers=160, vgprs=96, agprs=64)

    assert [(delta.what, delta.trend) for delta in deltas(before, after)] == [
        ("registers", Trend.WORSE),
        ("VGPR", Trend.NEITHER),
        ("AGPR", Trend.NEITHER),
    ]


def test_a_little_more_or_less_binary_is_noise():
    """Debug information changes with every line: a change of up to 5% is no change, and other figures are still compared."""
    found = diff([row()], [row(binary_bytes=10_500)])

    assert (found.changes, found.compared, found.unchanged, found.same_figures) == ((), 1, 0, 1)


def test_a_kernel_that_breaks_a_gate_still_has_figures():
    """The verdict comes first, the broken gate after it."""
    broken = row(verdict=Verdict.FAILED, broken={"spills": "12 registers"}, spills=12, stack_bytes=48)

    assert [delta.concern for delta in deltas(row(), broken)] == [Concern.VERDICT, Concern.SPILLS]
    assert [delta.concern for delta in deltas(broken, dataclasses.replace(broken, spills=20))] == [Concern.SPILLS]


def test_the_order_of_arguments_and_rows_does_not_matter():
    """A configuration is identified by its content, in any order."""
    one, two = row(constants={"A": 1, "B": 2}), row(constants={"A": 2, "B": 2}, registers=50)
    swapped = dataclasses.replace(two, constants={"B": 2, "A": 2}, signature=dict(reversed(two.signature.items())))

    assert diff([one, two], [swapped, one]).unchanged == 2


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


def test_a_compile_that_failed_early_may_leave_its_options_open():
    """It is the same launch, and nothing was retuned."""
    change = only(diff([row()], [row(**FAILED, num_warps=None, num_stages=None)]))

    assert (change.moved, change.worse_in(Concern)) == ((), (Concern.VERDICT,))


def test_an_architecture_of_one_run_only_is_not_removed():
    """CI may compile for fewer architectures than a laptop does."""
    found = diff([row(), row("syn942")], [row(), row("sy_100")])

    assert (found.changes, found.compared) == ((), 1)
    assert (found.only_before, found.only_after) == (("syn942",), ("sy_100",))


def test_what_two_targets_compiled_is_reported_once_by_the_worse():
    """A failure on one of them is not hidden by the other."""
    merged = merge([[row(), row()], [row(**FAILED), row()]])

    assert [kernel.verdict for kernel in merged] == [Verdict.FAILED, Verdict.PASSED]


def test_a_new_configuration_that_fails_is_worse_than_none():
    """The same is true of host code that stopped running, if its case compiled before. A new case is only new."""
    lost = compiled("sy_90", function="(host code)", verdict=Verdict.NOT_RUN, signature={}, constants={}, num_warps=None, num_stages=None)
    kinds = {
        "failing": diff([row()], [row(), row(**FAILED, origin="new", function="_g")]),
        "lost": diff([row(), row(origin="x")], [row(origin="x"), lost]),
        "new": diff([row()], [row(), dataclasses.replace(lost, origin="new")]),
    }

    assert {name: [change.kind for change in found.changes] for name, found in kinds.items()} == {
        "failing": [Kind.WORSE],
        "lost": [Kind.WORSE, Kind.REMOVED],
        "new": [Kind.ADDED],
    }


def test_a_configuration_that_died_says_how_many_of_its_launch_live():
    """The autotuner still finds another one, but an author wants to know."""
    before = [row(constants={"BLOCK": block}) for block in (512, 1024, 2048)]
    change = only(diff(before, [*before[:2], row(**FAILED, constants={"BLOCK": 2048})]))

    assert (change.survivors, change.variant) == (2, "BLOCK=2048")


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
