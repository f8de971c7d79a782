"""What changed in generated code between two runs: the rules, the order, the pages and the command. All rows but the last are made up."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console
from synthetic import compiled, facts, record, run, write_raw
from test_render_terminal import HOSTILE

from harness.commands.codegen import exit_code, parse_concerns
from harness.compare import compare
from harness.compare.bundles import bundle, check_comparable, notes
from harness.compare.codegen import Kind, diff, merge
from harness.compare.deltas import Concern, Trend, deltas
from harness.compare.vendors import one_vendor
from harness.errors import ExitCode, UsageError
from harness.records import Stage, StageReport, Verdict
from harness.render.codegen import diff_sections, sentence
from harness.render.markdown import render_markdown, render_page
from harness.render.terminal import draw_page, render_terminal

DEFAULT = (Concern.VERDICT, Concern.MATRIX, Concern.SPILLS, Concern.OCCUPANCY)


def row(architecture="sy_90", **more):
    """A kernel that was compiled and read in full."""
    told = {
        "binary_hash": "a",
        "binary_bytes": 10_000,
        "stack_bytes": 0,
        "load_widths": (64, 128),
        "store_widths": (128,),
        "instructions": {},
        "programs": 8,
        "resident_warps": 32,
        "occupancy": 0.5,
        "limited_by": ("registers",),
    }
    return compiled(architecture, **{**told, "binary_hash": "b" if more else "a", **more})


def products(**counts):
    """Matrix instructions by name, with `__` for a dot."""
    named = {name.replace("__", "."): count for name, count in counts.items()}
    return {"instructions": named, "matrix": tuple(sorted(named))}


FAILED = {
    "verdict": Verdict.FAILED,
    "reason": "out of LDS",
    "registers": None,
    "binary_bytes": None,
    "instructions": None,
    "occupancy": None,
    "shared_bytes": None,
}
WGMMA, MMA, FLOAT = {"wgmma__m64n64k16__bf16": 4}, {"mma__sync__m16n8k16__bf16": 16}, {"v_mfma_f32_32x32x8_f16": 4}


def side(*rows, folder="runs/x", **more):
    return bundle(folder, [run(compiled=tuple(rows), **more)])


def page(before, after, failing=DEFAULT, full=False):
    """The terminal's and the Markdown page of a diff."""
    base, head = side(*before, folder="runs/base"), side(*after, folder="runs/head")
    found = diff(before, after)
    sections = diff_sections(base, head, found, failing, full)
    text = io.StringIO()
    said = sentence(found, failing)
    Console(file=text, width=80, force_terminal=False, highlight=False).print(draw_page(said, sections, good=True))
    return text.getvalue(), render_page(said, sections, good=True)


def only(found):
    (change,) = found.changes
    return change


# --- one configuration, before and after -----------------------------------------------------------------------------------------------

MOVES = {
    "it does not compile any more": (Concern.VERDICT, {}, FAILED),
    "its matrix instructions are gone": (Concern.MATRIX, products(**WGMMA), products()),
    "they are of an earlier generation": (Concern.MATRIX, products(**WGMMA), products(**MMA)),
    "one of two kinds of them is gone": (Concern.MATRIX, products(**FLOAT, v_mfma_f32_32x32x8_bf16=2), products(**FLOAT)),
    "registers are spilled": (Concern.SPILLS, {}, {"spills": 3, "stack_bytes": 16}),
    "private memory is used": (Concern.SPILLS, {}, {"stack_bytes": 64}),
    "fewer programs fit": (Concern.OCCUPANCY, {}, {"programs": 4, "resident_warps": 16, "occupancy": 0.25}),
    "loads are narrower": (Concern.ACCESS, {}, {"load_widths": (32,)}),
    "stores are narrower": (Concern.ACCESS, {}, {"store_widths": (16, 32)}),
    "it does not copy asynchronously any more": (Concern.ACCESS, {"instructions": {"cp.async.cg": 4}}, {}),
    "it needs more registers": (Concern.REGISTERS, {}, {"registers": 35}),
    "it needs more shared memory": (Concern.SHARED, {}, {"shared_bytes": 16385}),
    "its binary is larger": (Concern.SIZE, {}, {"binary_bytes": 10_501}),
}


@pytest.mark.parametrize(("concern", "before", "after"), MOVES.values(), ids=MOVES)
def test_each_figure_has_its_concern_and_its_direction(concern, before, after):
    """What is worse one way is better the other way."""
    worse, better = (diff([row(**one)], [row(**other)]) for one, other in ((before, after), (after, before)))

    assert {delta.concern for delta in only(worse).deltas if delta.trend is Trend.WORSE} == {concern}
    assert {delta.concern for delta in only(better).deltas if delta.trend is Trend.BETTER} == {concern}
    assert (only(worse).kind, only(better).kind) == (Kind.WORSE, Kind.BETTER)
    assert (worse.compared, worse.unchanged) == (1, 0)


def test_a_spilled_register_and_its_room_are_told_once():
    """Private memory is handed out in 16 bytes; only what is beyond the spilled registers is said again."""
    assert [delta.what for delta in deltas(row(), row(spills=3, stack_bytes=16))] == ["spilled registers"]
    assert [delta.what for delta in deltas(row(), row(spills=3, stack_bytes=32))] == ["spilled registers", "private memory"]
    # Four registers, and the slot that they are moved through, do not fit into one frame of 16 bytes.
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
    """A retuned tile uses other instructions, and has lost nothing by it."""
    change = only(diff([row(**before)], [row(**after)]))

    assert (change.kind, change.worse_in(Concern)) == (Kind.CHANGED, ())
    assert {delta.trend for delta in change.deltas} == {Trend.NEITHER}


UNKNOWN = ("spills", "stack_bytes", "shared_bytes", "load_widths", "store_widths", "instructions", "occupancy", "binary_bytes", "registers")


@pytest.mark.parametrize("field", UNKNOWN)
def test_what_one_side_does_not_tell_is_not_compared(field):
    """A figure that an older reader could not read did not get worse."""
    known, unknown = row(load_bits=128), dataclasses.replace(row(load_bits=128), **{field: None})

    assert diff([known], [unknown]).changes == diff([unknown], [known]).changes == ()


def test_names_without_counts_are_compared_as_names():
    """A run that only kept the names of matrix instructions can still lose them."""
    old = row(instructions=None, matrix=("mma.sync",))

    assert deltas(old, row(**products(mma__sync=8))) == ()
    assert [(delta.concern, delta.before, delta.after) for delta in deltas(old, row())] == [(Concern.MATRIX, "some", "0")]


def test_kinds_of_registers_explain_their_number():
    """VGPRs and AGPRs are told where there are both."""
    before, after = row(registers=128, vgprs=128, agprs=0), row(registers=160, vgprs=96, agprs=64)

    assert [(delta.what, delta.trend) for delta in deltas(before, after)] == [
        ("registers", Trend.WORSE),
        ("VGPR", Trend.NEITHER),
        ("AGPR", Trend.NEITHER),
    ]


def test_a_little_more_or_less_binary_is_noise():
    """Debug information moves with every line: 5 % are no change, and the figures say the same in another binary."""
    found = diff([row()], [row(binary_bytes=10_500)])

    assert (found.changes, found.compared, found.unchanged, found.same_figures) == ((), 1, 0, 1)


def test_a_kernel_that_breaks_a_gate_still_has_figures():
    """The verdict comes first, what broke it after."""
    broken = row(verdict=Verdict.FAILED, broken={"spills": "12 registers"}, spills=12, stack_bytes=48)

    assert [delta.concern for delta in deltas(row(), broken)] == [Concern.VERDICT, Concern.SPILLS]
    assert [delta.concern for delta in deltas(broken, dataclasses.replace(broken, spills=20))] == [Concern.SPILLS]


# --- which belongs to which -------------------------------------------------------------------------------------------------------------


def test_the_order_of_arguments_and_rows_does_not_matter():
    """A configuration is what it says, in whatever order."""
    one, two = row(constants={"A": 1, "B": 2}), row(constants={"A": 2, "B": 2}, registers=50)
    swapped = dataclasses.replace(two, constants={"B": 2, "A": 2}, signature=dict(reversed(two.signature.items())))

    assert diff([one, two], [swapped, one]).unchanged == 2


def test_a_retuned_kernel_is_one_change():
    """A table's entry moved: what launches it stayed."""
    change = only(diff([row()], [row(num_warps=8, constants={"BLOCK": 2048}, registers=50)]))

    assert (change.kind, change.moved, change.variant) == (Kind.WORSE, ("BLOCK 1024 → 2048", "4 → 8 warps"), "")
    assert only(diff([row()], [row(num_stages=3)])).kind is Kind.CHANGED


def test_another_case_is_not_the_same_launch_retuned():
    """Where both differ, configuration and case, one was removed and one was added."""
    found = diff([row()], [row(num_warps=8, origin="another case")])

    assert [(change.kind, change.deltas) for change in found.changes] == [(Kind.REMOVED, ()), (Kind.ADDED, ())]
    assert found.compared == 0


def test_the_nearest_configurations_of_an_autotuned_launch_belong_together():
    """Two of three moved, and each is held against the one that it was."""
    before = [row(constants={"BLOCK": block}, num_warps=warps) for block, warps in ((512, 2), (1024, 4), (2048, 8))]
    after = [before[1], row(constants={"BLOCK": 2048}, num_warps=16), row(constants={"BLOCK": 512}, num_warps=1)]
    found = diff(before, after)

    assert {change.variant: change.moved for change in found.changes} == {"BLOCK=2048": ("8 → 16 warps",), "BLOCK=512": ("2 → 1 warps",)}
    assert found.unchanged == 1


def test_one_configuration_of_two_divisibilities_is_told_apart_by_its_case():
    """A row does not say what was divisible; the case that launched it does."""
    narrow, wide = row(origin="N=1000", load_widths=(32,)), row(origin="N=1024")

    assert diff([narrow, wide], [wide, narrow]).unchanged == 2


def test_numbers_and_truth_are_different_constants():
    """1, 1.0, True and the text 1 make different kernels."""
    values = [row(constants={"A": value}, registers=30 + i) for i, value in enumerate((1, 1.0, True, "1"))]

    assert diff(values, values[::-1]).unchanged == 4


def test_a_compile_that_failed_early_may_leave_its_options_open():
    """It is the same launch, and nothing was retuned."""
    change = only(diff([row()], [row(**FAILED, num_warps=None, num_stages=None)]))

    assert (change.moved, change.worse_in(Concern)) == ((), (Concern.VERDICT,))


def test_an_architecture_of_one_run_only_is_not_removed():
    """CI may compile for fewer than a laptop does."""
    found = diff([row(), row("syn942")], [row(), row("sy_100")])

    assert (found.changes, found.compared) == ((), 1)
    assert (found.only_before, found.only_after) == (("syn942",), ("sy_100",))


def test_what_two_targets_compiled_is_told_once_by_the_worse():
    """A failure on one of them is not hidden by the other."""
    merged = merge([[row(), row()], [row(**FAILED), row()]])

    assert [kernel.verdict for kernel in merged] == [Verdict.FAILED, Verdict.PASSED]


def test_a_new_configuration_that_fails_is_worse_than_none():
    """And so is host code that cannot run any more, where the case had compiled; a new case is only new."""
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
    """An autotuner still finds one; an author wants to know."""
    before = [row(constants={"BLOCK": block}) for block in (512, 1024, 2048)]
    change = only(diff(before, [*before[:2], row(**FAILED, constants={"BLOCK": 2048})]))

    assert (change.survivors, change.variant) == (2, "BLOCK=2048")


# --- the order --------------------------------------------------------------------------------------------------------------------------


def test_the_worst_comes_first_and_improvements_last():
    """By the gravest concern, in it by how far it moved; then what is gone, what is new, what says neither, and what is better."""
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


def test_of_equal_concerns_the_next_one_decides():
    """Two kernels that spill alike are told apart by what else got worse."""
    spill = {"spills": 4, "stack_bytes": 16}
    before = [row(function=name) for name in "ab"]
    found = diff(before, [row(function="a", **spill), row(function="b", **spill, registers=99)])

    assert [change.function for change in found.changes] == ["b", "a"]


# --- one vendor -------------------------------------------------------------------------------------------------------------------------


def test_what_only_one_vendor_takes_is_named():
    """Stages are each backend's own default, and do not make it another configuration."""
    rows = [row(), row("sy_100"), row("syn942", **FAILED, num_stages=1), row("syn950", **FAILED, num_stages=1)]
    (split,) = one_vendor(rows)

    assert (split.lives, split.dies, split.reason) == (("sy_90", "sy_100"), ("syn942", "syn950"), "out of LDS")


TAKEN = {
    "by nobody": [row(**FAILED), row("syn942", **FAILED)],
    "by everybody": [row(), row("syn942")],
    "by some of each": [row(), row("sy_80", **FAILED), row("syn942", **FAILED), row("syn950")],
    "by one that has it alone": [row(), row("syn942", **FAILED, constants={"BLOCK": 9}), row("syn942")],
    "but for a gate": [row(), row("syn942", verdict=Verdict.FAILED, broken={"spills": "1"})],
    "in code that no GPU is there for": [row(), row("syn942", **{**FAILED, "verdict": Verdict.NOT_RUN})],
}


@pytest.mark.parametrize("rows", TAKEN.values(), ids=TAKEN)
def test_what_is_no_matter_of_vendors_is_not_told(rows):
    """Only what all of one vendor's GPUs take, and another's do not."""
    assert one_vendor(rows) == ()


def test_a_vendor_s_own_tile_is_found_by_its_case():
    """Tables differ by vendor; what launches them is the same."""
    (split,) = one_vendor([row(), row("syn942", **FAILED, constants={"BLOCK": 4096})])

    assert split.lives == ("sy_90",)


def test_a_crash_of_the_compiler_is_found_by_its_case():
    """It left no configuration, only the case that it died in."""
    crash = compiled("syn942", function="(host code)", verdict=Verdict.CRASHED, signature={}, constants={}, reason="SIGABRT")
    (split,) = one_vendor([row(), crash])

    assert (split.lives, split.dies, split.verdict) == (("sy_90",), ("syn942",), Verdict.CRASHED)


def test_the_report_has_the_section_only_where_there_is_something():
    """In the terminal and in Markdown."""
    split, whole = ([run(compiled=(row(), row("syn942", **more)))] for more in (FAILED, {}))
    drawn = [(str(render_markdown(compare(runs, ["alpha"]))), _terminal(compare(runs, ["alpha"]))) for runs in (split, whole)]

    assert [["Lives on one vendor" in text for text in texts] for texts in drawn] == [[True, True], [False, False]]
    assert "dies on syn942: failed: out of LDS" in drawn[0][1]


def _terminal(comparison, full=False):
    text = io.StringIO()
    Console(file=text, width=80, force_terminal=False, highlight=False).print(render_terminal(comparison, full))
    return text.getvalue()


# --- both vendors in one row ------------------------------------------------------------------------------------------------------------


def rows_of(*kernels):
    return [
        (line.config, [cell.compiled.architecture for cell in line.cells]) for line in compare([run(compiled=kernels)], ["alpha"]).codegen
    ]


def test_vendors_stand_side_by_side_whatever_their_default_stages():
    """The backends' defaults differ; the launch is one."""
    assert rows_of(row(num_stages=3), row("syn942", num_stages=2)) == [("*fp32 i32, BLOCK=1024, 4 warps, 3/2 stages", ["sy_90", "syn942"])]


def test_stages_that_an_author_chose_are_configurations():
    """Where an architecture has both, they are rows."""
    found = rows_of(*(row(name, num_stages=stages) for name in ("sy_90", "syn942") for stages in (2, 3)))

    assert [(config[-8:], len(where)) for config, where in found] == [("2 stages", 2), ("3 stages", 2)]


def test_vendors_with_tiles_of_their_own_stand_side_by_side():
    """One case, one configuration on either: the row tells both, and the same in whatever order they came."""
    kernels = (row("syn942", constants={"BLOCK": 4096}), row(constants={"BLOCK": 1024}))

    assert [config for config, _ in rows_of(*kernels)] == ["*fp32 i32, BLOCK=1024/4096, 4 warps, 2 stages"]
    assert [config for config, _ in rows_of(*kernels[::-1])] == [config for config, _ in rows_of(*kernels)]


def test_autotuned_configurations_are_not_mixed_up():
    """Where a launch has several, only the same ones share a row."""
    found = rows_of(row(constants={"BLOCK": 1}), row(constants={"BLOCK": 2}), row("syn942", constants={"BLOCK": 2}))

    apart = rows_of(row(constants={"BLOCK": 1}), row(constants={"BLOCK": 2}), row("syn942", constants={"BLOCK": 3}))
    defaults = rows_of(*(row(name, constants={"BLOCK": b}, num_stages=n) for name, n in (("sy_90", 3), ("syn942", 2)) for b in (1, 2)))

    assert [where for _, where in found] == [["sy_90"], ["sy_90", "syn942"]]
    assert [where for _, where in apart] == [["sy_90"], ["sy_90"], ["syn942"]]
    assert [where for _, where in defaults] == [["sy_90", "syn942"]] * 2


# --- what a person sees -----------------------------------------------------------------------------------------------------------------

GOLDEN = """\
2 regressions (1 verdict, 1 spills) in 3 compared configurations: 1 unchanged.

What was compared
fact            BASE           HEAD
────────────────────────────────────────────
folder          runs/base      runs/head
commit          0123abc        0123abc
Triton          3.9.0          3.9.0
targets         alpha          alpha
architectures   sy_90, syn942  sy_90, syn942
configurations  3              3

Regressions
_softmax_fwd in softmax/N=1 [triton]
  syn942 [BLOCK=2048]: verdict passed → failed: out of LDS (1 other
  configuration of this launch still compiles)
  sy_90: retuned 4 → 8 warps; spilled registers 0 → 12, registers 34 → 255
A block is a launch of a kernel function, named by the first case that makes it.
75% (6x8w, registers): 6 programs of 8 warps fit into a multiprocessor (SM, CU,
WGP), 75% of its warps; registers leave no room for more.
"""


def test_the_page_reads_like_this():
    """Verdict first, then what was compared, then the worst."""
    base = [row(origin="softmax/N=1 [triton]"), *(row("syn942", origin="softmax/N=1 [triton]", constants={"BLOCK": b}) for b in (1, 2048))]
    spilled = dataclasses.replace(base[0], num_warps=8, spills=12, stack_bytes=48, registers=255)
    text, _ = page(base, [spilled, base[1], dataclasses.replace(base[2], **FAILED)])

    assert "\n".join(line.rstrip() for line in text.splitlines()) + "\n" == GOLDEN


@pytest.mark.parametrize("full", [False, True])
def test_only_the_ten_worst_are_shown_unless_all_are_asked_for(full):
    """The rest is counted, and how to see it is said."""
    before = [row(origin=f"case {i:02}") for i in range(14)]
    text, markdown = page(before, [dataclasses.replace(old, spills=1 + i) for i, old in enumerate(before)], full=full)

    assert [shown.count("case 0") + shown.count("case 1") for shown in (text, markdown)] == [14 if full else 10] * 2
    assert ("… and 4 more; --full shows them" in text) is not full
    assert text.index("case 13") < text.index("case 04")


def test_what_happened_on_many_architectures_is_said_once():
    """Eight lines that say the same are one."""
    names = ("sy_80", "sy_90", "syn942")
    text, _ = page([row(name) for name in names], [row(name, spills=1) for name in names])

    assert "  sy_80, sy_90, syn942: spilled registers 0 → 1" in text


@pytest.mark.parametrize("hostile", HOSTILE)
def test_names_from_outside_are_shown_and_never_obeyed(hostile):
    """No control character, no command of a runner, no line that is too wide; no pipe or tag that Markdown would act on."""
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
    text = render_page(sentence(found, DEFAULT), diff_sections(base, head, found, DEFAULT, full=False), good=False)

    assert "- ```softmax a|b</details>@all``c``` in `bench`" in text
    assert "| folder | ```a\\|b</details>@all``c``` | ```a\\|b</details>@all``c``` |" in text


def test_other_tritons_are_said_before_any_figure():
    """Every binary may differ for that reason alone: no refusal, but nobody can miss it."""
    base, head = side(row()), side(row("sy_90"), row("sy_100"), facts=facts(triton="3.10.0"))

    assert notes(base, head) == (
        "Triton differs (3.9.0 in BASE, 3.10.0 in HEAD): every binary may differ for that reason alone.",
        "Only HEAD compiled for sy_100: not compared.",
    )
    assert "! Triton differs" in _draw(diff_sections(base, head, diff(base.kernels, head.kernels), DEFAULT, full=False))


def _draw(sections):
    text = io.StringIO()
    Console(file=text, width=80, force_terminal=False, highlight=False).print(draw_page("", sections, good=True))
    return text.getvalue()


# --- the exit code ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("concern", "before", "after"), MOVES.values(), ids=MOVES)
def test_the_exit_code_follows_what_may_not_get_worse(concern, before, after):
    """By default a verdict, a matrix instruction, a spill and occupancy; any of them, or none, where that is asked for."""
    found, sides = diff([row(**before)], [row(**after)]), (side(row()), side(row()))
    codes = [exit_code(sides, found, parse_concerns(text)) for text in ("any", "nothing", concern.value)]

    assert codes == [ExitCode.FAILED, ExitCode.GOOD, ExitCode.FAILED]
    assert exit_code(sides, found, DEFAULT) == (ExitCode.FAILED if concern in DEFAULT else ExitCode.GOOD)
    assert exit_code(sides, diff([row(**after)], [row(**before)]), tuple(Concern)) == ExitCode.GOOD


def test_a_run_that_ended_early_cannot_be_judged():
    """What is missing was perhaps never compiled; a row that crashed is a row, and the stage went on."""
    ended, crashed = (StageReport(Stage.COMPILE, Verdict.CRASHED, counts=counts) for counts in ({}, {"crashed": 1}))

    assert [exit_code((side(row()), side(row(), stages=(stage,))), diff([row()], [row()]), DEFAULT) for stage in (ended, crashed)] == [4, 0]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"stages": ()}, "alpha: no compile stage"),
        ({"stages": (StageReport(Stage.COMPILE, Verdict.NOT_RUN, reason="no bench was found"),)}, "alpha: not-run, no bench was found"),
        ({"record": record(verdict=Verdict.STALE)}, "alpha: its files are of two runs"),
    ],
)
def test_a_run_without_generated_code_is_refused_by_name(more, why):
    """With the exit code of usage."""
    with pytest.raises(UsageError, match="There is no generated code in runs/x") as raised:
        side(**more)

    assert why in raised.value.meaning
    assert raised.value.exit_code == 2


def test_runs_without_an_architecture_in_common_are_refused():
    """Binaries for different GPUs cannot be compared."""
    with pytest.raises(UsageError, match="no architecture in common"):
        check_comparable(side(row()), side(row("syn942")))


def test_an_unknown_concern_is_refused():
    with pytest.raises(UsageError, match="'speed'"):
        parse_concerns("spills,speed")


# --- the command ------------------------------------------------------------------------------------------------------------------------


def warpwave(*arguments, cwd: Path, **more):
    environment = {**os.environ, "COLUMNS": "80", "PYTHONPATH": str(Path(__file__).parents[2]), **more}
    command = [sys.executable, "-m", "harness", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)


def test_the_command_writes_what_it_prints(tmp_path):
    """The terminal, Markdown and JSON say the same, and the exit code is in the JSON, too."""
    for name, kernel in (("base", row()), ("head", row(spills=4))):
        write_raw(tmp_path / name / "raw" / "alpha", run(compiled=(kernel,)))
    done = warpwave("codegen", "diff", "base", "head", "--markdown", "out.md", "--json", "out.json", cwd=tmp_path)
    told = json.loads((tmp_path / "out.json").read_text())

    assert (done.returncode, told["exit_code"], told["ok"]) == (1, 1, False), done.stderr
    assert "1 regression (1 spills)" in done.stdout
    assert "❌ spilled registers 0 → 4" in (tmp_path / "out.md").read_text()
    assert told["diff"]["changes"][0]["deltas"][0] == {
        "concern": "spills",
        "trend": "worse",
        "what": "spilled registers",
        "before": "0",
        "after": "4",
        "weight": 16.0,
    }
    assert warpwave("codegen", "diff", "base", "head", "--fail-on", "nothing", cwd=tmp_path).returncode == 0
    assert warpwave("codegen", "diff", "base", "elsewhere", cwd=tmp_path).returncode == 4
    assert warpwave("codegen", "diff", "base", "head", "--fail-on", "x", cwd=tmp_path).returncode == 2


PACKAGE = """
import torch
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({{"BLOCK": 1024}}, num_warps=warps) for warps in {warps}], key=["n"])
@triton.jit
def normalise_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    row = tl.load(x_ptr + tl.program_id(0) * n + columns, mask=columns < n, other=0.0)
    tl.store(y_ptr + tl.program_id(0) * n + columns, row / tl.sum(row), mask=columns < n)


@triton.jit
def held_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    row = tl.load(x_ptr + columns)
    tl.store(y_ptr + columns, row / tl.sum(row))


@triton.testing.perf_report(
    triton.testing.Benchmark(["n"], [{n}], line_arg="p", line_vals=["triton"], line_names=["triton"], plot_name="rows", args={{}})
)
def bench(n, p):
    x = torch.empty((64, n), device="cuda")
    normalise_kernel[(64,)](x, torch.empty_like(x), n)
    held_kernel[(64,)](x, torch.empty_like(x), BLOCK={block}, num_warps=1)
"""


def test_two_versions_of_a_real_package_are_told_apart(tmp_path):
    """Compiled here: a row of 16384 is too much for one warp, and 32 warps of 64 lanes are more than a block may have."""
    pytest.importorskip("triton", reason="compiling needs torch and triton; `nox -s tests` installs them")
    (tmp_path / "two.yml").write_text("schema_version: 1\ntargets:\n  cpu:\n    architectures: [sm_90, gfx942]\n")
    for name, values in (("base", {"warps": "(4, 8)", "block": 256, "n": 1000}), ("head", {"warps": "(4, 32)", "block": 16384, "n": 1000})):
        (tmp_path / name / "rows").mkdir(parents=True)
        (tmp_path / name / "rows" / "bench_rows.py").write_text(PACKAGE.format(**values))
        arguments = ("run", "cpu", "--engine", "local", "--stage", "compile", "--kernels", name, "--targets", "two.yml", "--no-report")
        done = warpwave(*arguments, "--out", f"run-{name}", cwd=tmp_path, TRITON_CACHE_DIR=str(tmp_path / "cache"))
        assert (tmp_path / f"run-{name}/raw/cpu/compile/kernels.jsonl").is_file(), done.stdout + done.stderr
    done = warpwave("codegen", "diff", "run-base", "run-head", "--json", "out.json", cwd=tmp_path)
    changes = json.loads((tmp_path / "out.json").read_text())["diff"]["changes"]
    told = {(change["function"], change["architecture"]): change for change in changes}

    assert done.returncode == 1
    # The default gates ask for no spill, so that a spill is a verdict, too.
    assert {change["architecture"] for change in changes if change["deltas"][0]["concern"] == "verdict"} == {"sm_90", "gfx942"}
    died = told["normalise_kernel", "gfx942"]
    assert (died["deltas"][0]["concern"], died["moved"], died["survivors"]) == ("verdict", ["8 → 32 warps"], 1)
    assert told["normalise_kernel", "sm_90"]["moved"] == ["8 → 32 warps"]
    worse = {
        name: {delta["concern"] for delta in told["held_kernel", name]["deltas"] if delta["trend"] == "worse"}
        for name in ("sm_90", "gfx942")
    }
    assert worse == {"sm_90": {"verdict", "spills", "registers", "size"}, "gfx942": {"occupancy", "registers", "size"}}
    assert {change["moved"][0] for key, change in told.items() if key[0] == "held_kernel"} == {"BLOCK 256 → 16384"}
    assert "Lives on one vendor, dies on the other, and did not in BASE" in done.stdout
    assert "  dies on gfx942: failed: 32 warps of 64 are 2048 threads" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
