"""The grid: whether each kernel function is right, and on which cards it can run. All data is synthetic."""

import dataclasses

import pytest
from synthetic import case, compiled, emulated, finding, record, run

from warpwave.compare import compare
from warpwave.compare.answer import headline, overview
from warpwave.compare.grid import cause
from warpwave.compare.model import Fit
from warpwave.records import HOST_CODE, LAUNCHED_PROPERTY, Defect, Hardware, NotRun, Verdict
from warpwave.render.sections.codegen import gate_sections

CARDS = (Hardware("sy_90", "Sy", "S90"), Hardware("syn942", "Syn", "N300"), Hardware("syn950", "Syn", "N350"))
RAISED = "it runs on sy_90 and raises KeyError on syn950: 'x'"
TESTS = tuple(case(f"softmax/test_softmax.py::test_softmax[{n}]") for n in range(3))
MEMORY = {"verdict": Verdict.FAILED, "reason": "needs 65792 bytes of shared memory, syn942 has 65536", "binary_hash": "a"}


def without_card(*code, tests=TESTS, **more):
    """A run of a target without a card that compiled for three."""
    return run("cpu", None, **{"cases": tests, "samples": (), "ceilings": (), "compiled": code, "hardware": CARDS, **more})


def everywhere(**more):
    """A launch that compiles for each card."""
    return [compiled(card.architecture, occupancy=0.5, origin=TESTS[0].id, **more) for card in CARDS]


def said(*runs):
    found = compare(runs)
    return headline(found, overview(found)).text


def test_a_kernel_that_fits_has_its_figures_on_each_card():
    """The most registers and the least occupancy of its configurations."""
    grid = compare([without_card(*everywhere(), compiled("sy_90", registers=60, occupancy=0.25))]).grid

    assert [card.name for card in grid.cards] == ["S90", "N300", "N350"]
    assert [(cell.fit, cell.registers, cell.occupancy) for cell in grid.rows[0].cells] == [
        (Fit.RUNS, 60, 0.25),
        (Fit.RUNS, 34, 0.5),
        (Fit.RUNS, 34, 0.5),
    ]


def test_what_cannot_launch_is_the_first_sentence():
    """With the cards by name, what it needs, and what is there."""
    code = everywhere()
    code[1] = dataclasses.replace(code[1], **MEMORY)

    assert said(without_card(*code)) == (
        "Not portable: `_softmax_fwd` cannot launch on N300: 65,792 bytes of shared memory (LDS), 65,536 there."
    )


def test_a_file_keeps_its_name_at_the_begin_of_a_sentence():
    code = [dataclasses.replace(one, verdict=Verdict.FAILED, reason="test_a.py:7: tl.static_assert(B % 48 == 0)") for one in everywhere()]
    found = compare([without_card(*code, tests=(BAD, *TESTS[1:]))])

    assert headline(found, overview(found)).more == "test_a.py:7: tl.static_assert(B % 48 == 0)."


BAD = case(TESTS[0].id, Verdict.FAILED)


@pytest.mark.parametrize(
    ("more", "clause"),
    [
        ({"findings": (finding(case=TESTS[0].id, defect=Defect.RACE),)}, "1 memory finding (race in `_softmax_fwd`)"),
        ({}, "1 test fails on cpu"),
    ],
)
def test_a_second_kind_of_fault_is_in_the_first_sentence_too(more, clause):
    """Each clause has at most twelve words; why the kernel cannot launch stands behind."""
    code = [dataclasses.replace(one, **MEMORY) for one in everywhere()]
    found = compare([without_card(*code, tests=(BAD, *TESTS[1:]), **more)])
    lead = headline(found, overview(found))
    first, second, *_ = lead.text.removesuffix(".").split("; ")

    assert (first, second) == ("Not portable: `_softmax_fwd` cannot launch on S90, N300, N350", clause)
    assert lead.more == "65,792 bytes of shared memory (LDS), 65,536 there."


def test_what_is_known_in_a_test_that_passes_is_no_fault():
    """A finding counts with the test that it fails."""
    assert "memory" not in said(without_card(*everywhere(), findings=(finding(case=TESTS[0].id, defect=Defect.RACE),)))


def test_what_runs_everywhere_is_said_of_cards_by_name():
    assert said(without_card(*everywhere())).startswith("`_softmax_fwd` can launch on S90, N300, N350; all tests that ran pass on cpu")


def test_it_is_not_said_of_what_is_not_known():
    """On one card the case did not run to its end."""
    code = [*everywhere()[:2], stopped("syn950", NotRun.TIME_UP)]

    assert "can launch" not in said(without_card(*code, hardware=CARDS))


def test_a_kernel_that_one_card_does_not_launch_is_no_gap():
    """A package may have a kernel for each vendor. The sentence claims no more than was compiled."""
    text = said(without_card(*everywhere(), compiled("syn950", function="other"), hardware=CARDS))

    assert text.startswith("All 2 kernels can launch on each card that they were compiled for;")
    unread = dataclasses.replace(stopped("syn950", NotRun.REQUIREMENT), origin="rotary [loading bench_rotary.py]", kernel="rotary")
    alone = said(without_card(*everywhere()[:2], unread, hardware=CARDS))
    assert alone.startswith("`_softmax_fwd` can launch on each card that it was compiled for;")


def stopped(architecture, why):
    return compiled(architecture, function=HOST_CODE, origin=TESTS[0].id, verdict=Verdict.NOT_RUN, not_run=why)


def test_a_case_that_ended_before_its_launch_is_in_the_row_of_what_it_launches_elsewhere():
    """Host code raised there: the kernel does not run on that card, and nobody compiled it."""
    raised = compiled(
        "syn950",
        function=HOST_CODE,
        origin=TESTS[0].id,
        verdict=Verdict.FAILED,
        reason=RAISED,
    )
    row = compare([without_card(*everywhere()[:2], raised)]).grid.rows[0]

    assert (row.cells[2].fit, row.cells[2].cause) == (Fit.RAISES, "KeyError")
    lead = said(without_card(*everywhere()[:2], raised, hardware=CARDS))
    assert lead.startswith("Not portable: host code of `_softmax_fwd` raises on N350: ")


def test_a_test_counts_for_what_it_launched():
    """Both launch the same binary, which names only the first. One that failed before its launch has a row of its own."""
    ids = [f"softmax/test_softmax.py::test_{name}" for name in ("right", "wrong", "early", "other")]
    launched = ("_softmax_fwd", "_softmax_fwd", "", "other")
    verdicts = (Verdict.PASSED, Verdict.FAILED, Verdict.FAILED, Verdict.PASSED)
    tests = tuple(case(one, how, properties={LAUNCHED_PROPERTY: what}) for one, how, what in zip(ids, verdicts, launched, strict=True))
    code = [compiled("sy_90", origin=ids[0]), compiled("sy_90", function="other", origin=ids[3])]
    rows = {row.name: row.right[0] for row in compare([without_card(*code, tests=tests)]).grid.rows}

    assert {name: (right.passed, right.failed) for name, right in rows.items()} == {
        "_softmax_fwd": (1, 1),
        "softmax other": (1, 0),
        "softmax": (0, 1),
    }


def test_what_could_not_be_compiled_for_one_card_is_counted():
    """A module that only one vendor's machine has: the kernel was compiled for the other. What no card compiled is counted as a test."""
    lacking = compiled("syn942", function=HOST_CODE, origin="softmax/test_softmax.py", verdict=Verdict.NOT_RUN, not_run=NotRun.REQUIREMENT)
    everywhere_lacking = [dataclasses.replace(lacking, architecture=name) for name in ("sy_90", "syn942")]
    clause = "1 case could not be compiled for all cards (1 with a missing requirement)"
    some = compiled("sy_90", origin=TESTS[0].id)

    assert clause in said(without_card(some, lacking))
    assert "could not be compiled" not in said(without_card(some, *everywhere_lacking))


def test_a_function_that_was_not_compiled_has_its_own_row():
    """Its test counts for no other function of the folder."""
    ran = case("softmax/test_softmax.py::test_other", properties={LAUNCHED_PROPERTY: "uncompiled"})
    rows = compare([without_card(*everywhere(), tests=(*TESTS, ran))]).grid.rows

    assert {row.name: (row.right[0].passed, row.cells[0] is None) for row in rows} == {
        "_softmax_fwd": (3, False),
        "softmax uncompiled": (1, True),
    }


def test_a_function_that_a_bench_of_another_folder_launched_on_some_cards_has_one_row():
    """Host code of the bench raised on the others, where only a test launched the kernel."""
    code = [
        compiled("sy_90", kernel="gemm", origin="gemm/N=1", source="softmax.py:7"),
        compiled("syn942", origin=TESTS[0].id, source="softmax.py:7"),
        compiled("syn942", kernel="gemm", function=HOST_CODE, origin="gemm/N=1", verdict=Verdict.FAILED, reason=RAISED),
    ]
    ran = case(TESTS[0].id, properties={LAUNCHED_PROPERTY: "_softmax_fwd"})
    rows = compare([without_card(*code, tests=(ran,))]).grid.rows

    assert [(row.kernel, row.function, [cell is None for cell in row.cells]) for row in rows] == [("gemm", "_softmax_fwd", [False, False])]


def test_one_line_of_host_code_is_one_gap():
    """However many kernels it keeps from being launched."""
    reason = "it runs on sy_90 and raises NVMLError_LibraryNotFound on syn942: not found"
    raised = [compiled("syn942", function=HOST_CODE, origin="bench/N=1", verdict=Verdict.FAILED, reason=reason)]
    code = [compiled("sy_90", function=name, origin="bench/N=1") for name in ("first", "second")]

    assert said(without_card(*code, *raised)).startswith("Not portable: host code of `first` raises on N300: NVMLError_LibraryNotFound on")
    assert "and 1 more" not in said(without_card(*code, *raised))
    assert compare([without_card(*code, *raised)]).grid.rows[0].cells[1].cause == "NVMLError_LibraryNotFound"


def test_spills_are_shown_in_bytes_and_stop_nothing():
    """As advice without a gate, as a broken gate with one; not at all where the author allows it, or a tuner takes another one."""
    allowed, advice, broken = everywhere(spills=103), everywhere(spills=103, advice={"spills": "103 registers"}), everywhere(spills=103)
    broken[0] = dataclasses.replace(broken[0], verdict=Verdict.FAILED, broken={"spills": "103 registers, 0 allowed"}, binary_hash="a")
    cells = [compare([without_card(*code)]).grid.rows[0].cells[0] for code in (allowed, advice, broken)]
    shown = [(Fit.RUNS, ""), (Fit.ADVICE, "spills 412 B"), (Fit.BREAKS, "spills 412 B")]

    assert [(cell.fit, cell.cause) for cell in cells] == shown
    assert "1 kernel breaks a gate (`_softmax_fwd`: spills) for sy_90" in said(without_card(*broken))


def test_a_candidate_that_an_autotuner_leaves_out_is_no_fault():
    discarded = compiled("syn942", verdict=Verdict.NOT_RUN, not_run=NotRun.DISCARDED, spills=9, origin=TESTS[0].id)
    row = compare([without_card(*everywhere(), discarded)]).grid.rows[0]

    assert row.gravest is Fit.RUNS


def test_each_card_has_its_own_reason_to_leave_out_a_candidate():
    """Cards with the same one share a line."""
    left_out = {"verdict": Verdict.NOT_RUN, "not_run": NotRun.DISCARDED}
    large = [
        compiled(each, reason="needs 98304 bytes of shared memory", constants={"BLOCK": 2048}, **left_out) for each in ("syn942", "syn950")
    ]
    spilled = compiled("sy_90", reason="spills 9 registers", constants={"BLOCK": 4096}, **left_out)
    sections = gate_sections(compare([without_card(*everywhere(), *large, spilled)]), None)
    (lines,) = (section.lines for section in sections if section.title == "Candidates that an autotuner discards")

    assert ["".join(bit.text for bit in line) for line in lines] == [
        "softmax _softmax_fwd on cpu for syn942, syn950, 2 candidates: discarded: needs 98304 bytes of shared memory",
        "softmax _softmax_fwd on cpu for sy_90, 1 candidate: discarded: spills 9 registers",
    ]


def test_the_worst_function_comes_first():
    """What cannot run before what is wrong, and that before what only breaks a gate."""
    fine, wrong, heavy = everywhere(kernel="a", function="a"), everywhere(kernel="b", function="b"), everywhere(kernel="c", function="c")
    heavy[0] = dataclasses.replace(heavy[0], **MEMORY)
    tests = [
        case(f"{name}/test.py::test", kernel=name, verdict=verdict) for name, verdict in (("a", Verdict.PASSED), ("b", Verdict.FAILED))
    ]
    code = [dataclasses.replace(one, origin="") for one in (*fine, *wrong, *heavy)]

    assert [row.name for row in compare([without_card(*code, tests=tuple(tests))]).grid.rows] == ["c", "b", "a"]


def test_a_test_counts_for_the_functions_that_it_launches():
    """Known by what was compiled for any of its parameters; of another test, for every function of its kernel."""
    one, two = everywhere(function="one"), everywhere(function="two")
    two = [dataclasses.replace(entry, origin="softmax/test_softmax.py::test_two") for entry in two]
    tests = (*TESTS, case("softmax/test_softmax.py::test_two", Verdict.FAILED), case("softmax/test_softmax.py::test_host"))
    rows = {row.function: row.right[0] for row in compare([without_card(*one, *two, tests=tests)]).grid.rows}

    assert (rows["one"].passed, rows["one"].failed) == (4, 0)
    assert (rows["two"].passed, rows["two"].failed) == (1, 1)


def test_a_kernel_without_code_has_a_row_of_its_tests():
    grid = compare([without_card()]).grid

    assert [(row.name, row.right[0].passed, row.cells) for row in grid.rows] == [("softmax", 3, ())]


def test_an_emulated_target_is_named_by_its_card():
    """The interpreter and the machine code stand side by side."""
    code = compiled("syn942", origin=TESTS[0].id)
    machine = emulated(*TESTS, compiled=(code,), hardware=CARDS[1:2])
    grid = compare([without_card(*everywhere()), machine]).grid

    assert list(grid.where.values()) == ["interpreter", "N300, emulated"]


def test_what_a_finding_proves_is_not_suspected():
    """It passed in the interpreter. A finding names the line and the element; a wrong result alone may be the emulator's fault."""
    failing = case(TESTS[0].id, Verdict.FAILED)
    proven = emulated(failing, findings=(finding(case=failing.id),))
    rights = [compare([without_card(*everywhere()), other]).grid.rows[0].right[1] for other in (emulated(failing), proven)]

    assert [(right.failed, right.suspected) for right in rights] == [(1, 1), (1, 0)]


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("needs 98304 bytes of shared memory, syn942 has 65536", "shared memory"),
        ("32 warps of 64 are 2048 threads, 1024 can be launched", "threads"),
        ("`fill` cannot be launched on sy_90: its grid is (1, 70000, 1), the limit of y is 65535", "grid"),
        ("`copy` cannot be launched on sy_90: it needs 256 bytes of scratch memory, and no allocator was set", "no allocator"),
        ("`copy` cannot be launched on sy_90: it needs 256 bytes of scratch memory, and the allocator returned None", "bad allocator"),
        ("CompilationError: Input shapes should have M >= 16, N >= 16 and K >= 16 (at 7:4)", "no such `dot`"),
        ("CompileTimeAssertionFailure: test_words.py:9: tl.static_assert(WIDTH % 4 == 0)", "static_assert"),
        ("it runs on sy_90 and on syn942 its process exited with 3 before its end", "process died"),
        ("it runs on sy_90 and raises ValueError on syn942: no dot of this type", "ValueError"),
        ("something else", "compile error"),
    ],
)
def test_a_reason_has_two_words(reason, words):
    """As the compile stage writes them."""
    assert cause(reason) == words


def test_with_a_card_nothing_is_promised_of_others():
    """The first sentence is about what ran there."""
    assert "can launch" not in said(run(hardware=CARDS))


def test_targets_that_could_not_run_for_one_reason_share_a_clause():
    """The headline, the sentence and the exit code's reason."""
    broken = {"verdict": Verdict.INFRA, "reason": "no disk", "hint": "Mount it."}
    runs = [run(name, None, record=record(name, **broken), stages=(), cases=(), samples=(), compiled=()) for name in ("a", "b")]

    assert said(*runs).count("no disk") == 1
    assert "a and b could not run (no disk)" in compare(runs).sentence
