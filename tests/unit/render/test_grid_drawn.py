"""The grid as a terminal, Markdown and a page draw it. All data is synthetic."""

import dataclasses
import io
import re
from pathlib import PurePath

import pytest
from rich.cells import cell_len
from rich.console import Console
from synthetic import ARCHITECTURES, case, compiled, finding, record, run, two_targets

from warpwave.compare import compare
from warpwave.compare.model import Right
from warpwave.records import Defect, GateLimits, Gates, Hardware, NotRun, Verdict
from warpwave.render.commands import next_commands
from warpwave.render.html import render_html
from warpwave.render.markdown import render_markdown
from warpwave.render.sections.grid import right
from warpwave.render.terminal import render_terminal

CARDS = tuple(Hardware(name, "Sy" if "_" in name else "Syn", f"C{name[-3:]}") for name in ARCHITECTURES)
NOT_PRETENDED = case("test_b.py::b", Verdict.NOT_RUN, not_run=NotRun.NOT_PRETENDED)
TEST = "softmax/test_softmax.py::test_softmax[1]"


def package(functions=3, **more):
    """A run without a card: each function fits each card, but the first needs too much of one."""
    code = [
        compiled(card.architecture, function=f"_softmax_{n}", origin=TEST, occupancy=0.5, binary_hash="a")
        for n in range(functions)
        for card in CARDS
    ]
    code[3] = dataclasses.replace(code[3], verdict=Verdict.FAILED, reason="16 warps of 128 are 2048 threads, 1024 can be launched")
    base = {"cases": (case(TEST),), "samples": (), "ceilings": (), "compiled": tuple(code), "hardware": CARDS, "sanitized": True}
    return run("cpu", None, **{**base, **more})


def terminal(*runs, width=80, full=False):
    text = io.StringIO()
    Console(file=text, width=width, force_terminal=False, highlight=False).print(render_terminal(compare(runs), full), crop=False)
    return text.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_has_every_card_beside_every_function(width):
    """Vendors stand side by side where there is room, otherwise one below the other; nothing is cut."""
    text = terminal(package(), width=width)
    heads = [line for line in text.splitlines() if line.startswith("kernel")]

    assert max(map(cell_len, text.splitlines())) <= width
    assert all(card.name in text for card in CARDS)
    assert len(heads) == (1 if width == 120 else 2)
    assert any(line.startswith("_softmax_0") and " threads " in line for line in text.splitlines())
    assert text.count("✓ 34 50%") >= 3 * len(CARDS) - 1


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("softmax_of_fp32_forward_kernel", ["softmax_of_fp32_forward_", "  kernel"]),
        ("softmax_" + "b" * 40, ["softmax_", "  " + "b" * 26, "b" * 14]),
    ],
)
def test_a_long_name_breaks_between_words(name, lines):
    code = tuple(compiled(card.architecture, function=name, origin=TEST, occupancy=0.5, binary_hash="a") for card in CARDS)
    text = terminal(package(compiled=(*package().compiled, *code)), width=120).splitlines()
    first = next(position for position, line in enumerate(text) if line.startswith(lines[0]))
    assert [line.partition("✓")[0].rstrip() for line in text[first : first + len(lines)]] == lines


def test_the_legend_explains_only_what_is_there():
    """A dash stands for a function that was not launched for a card."""
    assert "-: not" not in terminal(package())
    code = package().compiled
    assert "-: not" in terminal(package(compiled=(*code, compiled(CARDS[0].architecture, function="alone", origin=TEST))))


def test_a_long_grid_shows_the_worst_and_counts_the_rest():
    """--full shows all of it."""
    text, full = terminal(package(40)), terminal(package(40), full=True)

    assert "_softmax_0 " in text
    assert "and 32 more, no worse than these" in text
    assert all(f"_softmax_{n}" in full for n in range(40))


@pytest.mark.parametrize("draw", [render_markdown, render_html, lambda comparison: terminal(package())])
def test_every_renderer_has_the_grid_and_what_was_checked(draw):
    text = str(draw(compare([package()])))

    assert "What was checked" in text
    assert "nothing out of bounds" in text
    assert "threads" in text
    assert all(card.name in text for card in CARDS)


def test_the_gates_that_binaries_break_are_named():
    code = dataclasses.replace(package().compiled[0], verdict=Verdict.FAILED, reason="spills: 8", broken={"spills": "8 registers"})
    gates = Gates(GateLimits(spills=0, undefined_lanes=True))
    text = " ".join(terminal(package(compiled=(code, package().compiled[1]), gates=gates)).split())

    assert "gates: 1 of 2 binaries break spills" in text


def test_an_emulated_target_has_not_looked_for_unwritten_reads():
    emulated = package(record=dataclasses.replace(record("cpu"), emulated="syn_90"))
    text = " ".join(terminal(emulated, width=200).split())

    assert "memory: nothing out of bounds, no race in 1 test on cpu; reads of unwritten values were not looked for on cpu" in text


@pytest.mark.parametrize("broken", [Verdict.ERROR, Verdict.KNOWN])
def test_what_did_not_begin_has_no_memory_checked(broken):
    """A file that does not import launches nothing."""
    assert "memory: nothing out of bounds, no unwritten value read, no race in 1 test on cpu" in " ".join(
        terminal(package(cases=(case(TEST), case("test_b.py", broken)))).split()
    )
    assert "memory: not checked" in terminal(package(cases=(case("test_b.py", broken),)))


@pytest.mark.parametrize(
    ("tests", "text"),
    [
        (Right(known=2), "2 known"),
        (Right(passed=3, known=1, others=1), "✓ 3, 1 known"),
        (Right(failed=1, known=1), "1 fails"),
        (Right(others=1), "none ran"),
    ],
)
def test_a_known_failure_ran(tests, text):
    assert "".join(bit.text for bit in right(tests)) == text


def test_markdown_names_the_vendor_of_each_column():
    """It has no heads over several columns."""
    head = next(line for line in render_markdown(compare([package()])).splitlines() if line.startswith("| kernel"))

    assert head.split(" | ")[2:4] == ["Sy `C_80`", "Sy `C_90`"]


def test_a_page_says_why_a_cell_is_no_tick():
    """The whole reason is the title of the cell."""
    assert re.search(r'<td[^>]* title="16 warps of 128 are 2048 threads, 1024 can be launched"', render_html(compare([package()])))


def test_with_a_card_the_first_table_is_that_of_speeds():
    text = terminal(*two_targets())

    assert "does it run?" not in text


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"sanitized": False}, "memory: not checked"),
        ({"findings": (finding(),)}, "memory: 1 out-of-bounds"),
        ({"findings": (finding(), *[finding(defect=Defect.RACE)] * 9)}, "memory: 1 out-of-bounds, 9 races in"),
        ({"findings": (finding(defect=Defect.RACE),)}, "memory: 1 race in"),
        (
            {"cases": (case(TEST), NOT_PRETENDED)},
            "not checked on cpu: tests: 1 not pretended",
        ),
    ],
)
def test_what_was_not_checked_is_no_silence(more, words):
    assert words in terminal(package(**more))


def test_a_file_with_nothing_to_run_is_named_with_its_reason():
    """And with what its reason says to do."""
    empty = case(
        "tools/time.py::module", Verdict.NOT_RUN, not_run=NotRun.EMPTY, message="it is a script: --bench-script tools/time.py runs it"
    )
    text = " ".join(terminal(package(cases=(case(TEST), empty))).split())

    assert "tools/time.py: it is a script: --bench-script tools/time.py runs it" in text


@pytest.mark.parametrize("several", [False, True])
def test_what_is_a_script_is_run_as_one_by_the_next_commands(several):
    """If nothing else ran."""
    said = "it is a script: --bench-script a/time.py runs it"
    if several:
        said = "a/time.py, b.py are scripts that launch kernels: --bench-script a/time.py --bench-script b.py runs and compiles them"
    script = case("a/time.py", Verdict.NOT_RUN, not_run=NotRun.EMPTY, message=said)
    nothing = package(cases=(script,), compiled=(), record=record("cpu", command=("warpwave", "run", "cpu", "--kernels", "k")))

    assert next_commands(compare([nothing]), PurePath("out"))[0] == "warpwave run cpu --kernels k --bench-script a/time.py"
