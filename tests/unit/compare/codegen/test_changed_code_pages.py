"""Changes in generated code between two runs: the pages and the exit codes. All rows are synthetic."""

from __future__ import annotations

import dataclasses
import io

import pytest
from codegen_rows import FAILED, MOVES, products, row, side
from hostile import TERMINAL_NAMES
from rich.cells import cell_len
from rich.console import Console
from synthetic import facts, record

from warpwave.cli.compare import outcome, parse_concerns
from warpwave.compare.changed_codegen import Concern, check_comparable, diff, notes
from warpwave.errors import ExitCode, UsageError
from warpwave.records import Stage, StageReport, Verdict
from warpwave.render.markdown import render_page
from warpwave.render.sections.changes import code_sentence, diff_sections
from warpwave.render.terminal import draw_page

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
