"""Generated code of several vendors and cards, field by field. All rows are made up."""

from __future__ import annotations

import dataclasses

import pytest
from codegen_rows import BASE, FAILED, other, row
from synthetic import facts, record, run

from warpwave.compare.changed_codegen import Split, Trend, one_vendor
from warpwave.compare.codegen import align, by_generation, compare_codegen, compare_launches, configuration, held_against, use_of_waivers
from warpwave.compare.model import CodegenCell, Deviation, Fidelity, Likeness, WaiverUse
from warpwave.records import OPEN, Gates, Verdict, Waiver, Which

WORSE, BETTER, NEITHER = Trend.WORSE, Trend.BETTER, Trend.NEITHER
PASSED = Verdict.PASSED


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

    assert by_generation("sm_90\nx") == ("sm_", 90, "\nx")
    assert sorted(names, key=by_generation) == ["7", "gfx90a", "gfx942", "gfx1100", "none", "sm_90", "sm_90a", "sm_100"]


def test_a_configuration_in_one_line():
    """Values that differ side by side; `-` where one has none; open options are left out."""
    assert configuration(BASE) == "*fp32 i32, B=1024 E=True, 4 warps, 2 stages"
    assert configuration(BASE, other(num_warps=8, constants={"B": 512})) == "*fp32 i32, B=1024/512 E=True/-, 4/8 warps, 2 stages"
    assert configuration(BASE, other(constants={"B": 1024, "E": True, "F": 1})) == "*fp32 i32, B=1024 E=True F=-/1, 4 warps, 2 stages"
    assert configuration(BASE, other(options={"waves_per_eu": 2})) == "*fp32 i32, B=1024 E=True, 4 warps, 2 stages, waves_per_eu=-/2"
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
    # What has come into a row is in it, as is what it began with: the last one shares neither of its columns.
    again = row("syn942", constants={"BLOCK": 7})
    first = align([CodegenCell("a", row()), CodegenCell("a", row("syn942", constants={"BLOCK": 9})), CodegenCell("b", again)])
    assert [len(line.cells) for line in first] == [3]
    tiles = [CodegenCell(target, row(constants={"BLOCK": at})) for at, target in enumerate("abcd")]
    assert [len(line.cells) for line in align(tiles)] == [4]


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
    assert "34 registers instead of 99" in found[0].reason
    assert "A is 1 instead of 2" in found[1].reason


@pytest.mark.parametrize(
    ("part", "told"),
    [
        ({"num_warps": 8}, "num_warps is 8 instead of 4"),
        ({"num_stages": 9}, "num_stages is 9 instead of 2"),
        ({"signature": {"x": "*i8"}}, "x is *i8 instead of None, x_ptr is None instead of *fp32, n is None instead of i32"),
        ({"attributes": {"x": "aligned"}}, "x is aligned instead of None"),
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
    assert [entry.target for entry in compare_launches({"lane": lane, "card": card, "more": card})] == ["card", "more"]
    both = dataclasses.replace(card, compiled=(row(),))
    assert [entry.against for entry in compare_launches({"card": both, "lane": lane})] == ["card", "lane"]
