"""Changes in generated code between two runs: the rules and their order. All rows are synthetic."""

from __future__ import annotations

import dataclasses
import io

import pytest
from hostile import TERMINAL_NAMES
from rich.cells import cell_len
from rich.console import Console
from synthetic import FAILED, FLOAT, MOVES, compiled, facts, products, record, row, side

from warpwave.cli.compare import outcome, parse_concerns
from warpwave.compare.changed_codegen import Concern, Kind, Trend, check_comparable, deltas, diff, merge, notes
from warpwave.errors import ExitCode, UsageError
from warpwave.records import Stage, StageReport, Verdict
from warpwave.render.markdown import render_page
from warpwave.render.sections.changes import code_sentence, diff_sections
from warpwave.render.terminal import draw_page


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


# Changes in generated code between two runs: the pages and the exit codes. All rows are synthetic.

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
    """The verdict comes first, then what was compared, then the worst."""
    base = [row(origin="softmax/N=1 [triton]"), *(row("syn942", origin="softmax/N=1 [triton]", constants={"BLOCK": b}) for b in (1, 2048))]
    spilled = dataclasses.replace(base[0], num_warps=8, spills=12, stack_bytes=48, registers=255)
    text, _ = page(base, [spilled, base[1], dataclasses.replace(base[2], **FAILED)])

    assert "\n".join(line.rstrip() for line in text.splitlines()) + "\n" == GOLDEN


@pytest.mark.parametrize("full", [False, True])
def test_only_the_ten_worst_are_shown_unless_all_are_asked_for(full):
    """The rest is counted, and the page says how to see it."""
    before = [row(origin=f"case {i:02}") for i in range(14)]
    text, markdown = page(before, [dataclasses.replace(old, spills=1 + i) for i, old in enumerate(before)], full=full)

    assert [shown.count("case 0") + shown.count("case 1") for shown in (text, markdown)] == [14 if full else 10] * 2
    assert ("… and 4 more; --full shows them" in text) is not full
    assert text.index("case 13") < text.index("case 04")


def test_what_happened_on_many_architectures_is_said_once():
    """Eight equal lines become one."""
    names = ("sy_80", "sy_90", "syn942")
    text, _ = page([row(name) for name in names], [row(name, spills=1) for name in names])

    assert "  sy_80, sy_90, syn942: spilled registers 0 → 1" in text


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


def test_other_tritons_are_said_before_any_figure():
    """Every binary may differ for that reason alone. This is no error, but the page says it first."""
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


def test_runs_without_an_architecture_in_common_are_refused():
    """Binaries for different GPUs cannot be compared."""
    with pytest.raises(UsageError, match="no architecture in common"):
        check_comparable(side(row()), side(row("syn942")))


def test_an_unknown_concern_is_refused():
    with pytest.raises(UsageError, match="'speed'"):
        parse_concerns("spills,speed")
