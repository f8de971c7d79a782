"""The report in a terminal of 80 columns. All data is synthetic."""

import dataclasses
import io
import re

import pytest
from hostile import TERMINAL_NAMES, large
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from synthetic import ARCHITECTURES, MADE_UP, case, compared, compiled, no_gpu, record, run, sample, two_targets

from warpwave.compare import compare
from warpwave.records import Narrowed, Stage, StageReport, Verdict
from warpwave.render.html.page import render_html
from warpwave.render.markdown import render_markdown
from warpwave.render.sections.outline import brief
from warpwave.render.terminal import render_terminal
from warpwave.safe_text import visible


def show(runs, expected=(), full=True) -> str:
    """The report as a terminal without colours shows it, by default all of it."""
    text = io.StringIO()
    Console(file=text, width=80, force_terminal=False, highlight=False).print(render_terminal(compare(runs, expected), full), crop=False)
    return text.getvalue()


def many():
    """Sixty targets that fail, with long reasons and hints."""
    names = [f"target-{number}" for number in range(60)]
    return compare([run(name, cases=(case(verdict=Verdict.FAILED, message="x" * 300),)) for name in names[:30]], names)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("runs", [two_targets(), two_targets()[:1], [no_gpu()], [no_gpu(), *two_targets()], []], ids=len)
def test_it_fits_eighty_columns(runs, full):
    """No line is wider, whatever is shown, but a command."""
    assert widest(show(runs, ["alpha", "beta"], full).splitlines()) <= 80


def widest(lines):
    """The columns of the widest line that is no command: a terminal wraps a command, and copies it as one line."""
    return max(cell_len(line) for line in lines if not line.removeprefix("  $ ").startswith("warpwave run "))


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=60), st.booleans())
@example("00::\x1f\U0002ebe1", False)  # the command that runs its test alone has 82 columns
def test_no_name_breaks_the_eighty_columns(name, full):
    """Wide letters and control characters included; every line can be printed."""
    failed = case(f"softmax/{name}", Verdict.FAILED, kernel=name, message=name)
    points = (sample(kernel=name, provider=name, unit=name), sample(case=name, kernel=name))
    code = (compiled(kernel=name, function=name), compiled(name or "sy_1", verdict=Verdict.FAILED, reason=name))
    first = run(name or "-", cases=(failed, case()), samples=points, compiled=code, launched=code[:1], problems=(name,))
    lines = show([first, run()], [name or "-"], full).splitlines()

    assert widest(lines) <= 80
    assert all(character.isprintable() for line in lines for character in line)


GOLDEN = """\
beta is absent (no raw folder was given).

Kernels
kernel   alpha              beta
────────────────────────────────
softmax  81% 3256 GB/s ✓ 3  -
%: of the copy measured on that GPU in the same run, median over the cases.

What each target did
beta is absent (no raw folder was given)
  what to do: Run it, or give its raw folder or artifact beside the others:
  raw/beta.
alpha passed 3 tests, measured 3 points and compiled 1 binary
  took 61.0 s: facts 1 s, test 1 s, bench 1 s, compile 1 s, around them 57.0 s

Where is the gap, what next
softmax on alpha: 81% of the copy
  look at softmax/N=1024: 78%
  $ warpwave run alpha --stage bench,compile --bench 'softmax/bench_*.py' --full
  This report has no code of these cases for the card of alpha: run the compile
  stage.
"""


def test_one_complete_and_one_absent_target():
    """What is wrong comes first, and the absent target is a column."""
    assert "\n".join(line.rstrip() for line in show([run()], ["alpha", "beta"], full=False).splitlines()) + "\n" == GOLDEN


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("made", [lambda: compared(), lambda: large(2000), many], ids=["two vendors", "large", "many targets"])
def test_by_default_it_is_one_screen(made, width):
    """What is cut is counted, and the option that shows it is named."""
    text = io.StringIO()
    Console(file=text, width=width, force_terminal=False, highlight=False).print(render_terminal(made(), again="warpwave report x --full"))
    lines = text.getvalue().splitlines()

    assert len(lines) <= 55  # the command prints five more
    assert max(map(cell_len, lines)) <= width
    assert lines[-1] == "Every test, case and configuration: warpwave report x --full"


def test_a_section_without_room_is_named_with_its_lines():
    """Nothing goes missing in silence: each section is on the screen, or in the last lines."""
    comparison = many()
    sections = [section.title for section, _ in brief(comparison, comparison).sections]
    text = show_screen(comparison)
    missing = [title for title in sections if not re.search(rf"^{re.escape(title)}$", text, re.MULTILINE)]

    assert missing
    assert all(re.search(rf"Not on this screen:.*{re.escape(title)} \(\d+ lines?\)", " ".join(text.split())) for title in missing)


def show_screen(comparison):
    text = io.StringIO()
    Console(file=text, width=80, force_terminal=False, highlight=False).print(render_terminal(comparison), crop=False)
    return text.getvalue()


def test_a_command_is_one_line_in_a_narrow_terminal():
    """Who copies it gets all of it: on the screen and with --full, for a failed test and for a gap."""
    comparison = compared()
    for full in (False, True):
        text = io.StringIO()
        Console(file=text, width=80, force_terminal=False, highlight=False).print(render_terminal(comparison, full), crop=False)
        lines = text.getvalue().splitlines()

        assert f"warpwave run '{MADE_UP}' --stage test --test 'attention/test_attention.py::test_lengths[full-32-64]'" in lines
        assert not full or f"  $ warpwave run '{MADE_UP}' --stage bench,compile --bench 'attention/bench_*.py' --full" in lines


def test_of_many_targets_each_ratio_stands_at_its_target():
    """Two targets may have the same ratio, and both are there."""
    fast = tuple(sample(n, 3600.0) for n in (1024, 2048))
    slow = tuple(sample(n, 3000.0) for n in (1024, 2048))
    runs = [run(name, record=record(name), samples=slow if name == "a" else fast) for name in "abcd"]
    lines = [line.split() for line in show(runs).splitlines()]

    assert [line[-1] for line in lines if line[:1] in (["b"], ["c"], ["d"]) and "%" in line[1]] == ["1.20"] * 3


def test_what_cannot_be_relied_on_is_counted_and_an_aa_run_is_reported():
    """Weak points with the first reason, noisy points as a number; hostile text stays text."""
    samples = (sample(1, weak="the clock was at 900 MHz [bold]"), sample(2, quiet=False), sample(3, quiet=False))
    text = " ".join(show([run(samples=samples, again=samples)], ["alpha"], full=True).split())

    assert "alpha: 1 weak point: the clock was at 900 MHz [bold]" in text
    assert "alpha: 2 of 3 points noisy: the benchmark's `rep` time ran out before the median was precise enough" in text
    assert "A change below this is noise, by an A/A run: alpha 3.0% (2 points measured twice, too few to be sure)." in text
    assert text.count("% weak") == 1


def test_eight_architectures_stand_side_by_side():
    """One table with a spill and a failure, and the reason of the failure below."""
    text = show([no_gpu()], ["cpu"])
    lines = text.splitlines()
    generations = next(index for index, line in enumerate(lines) if line.startswith("function"))
    heads = zip(lines[generations - 1].split(), lines[generations].split()[1:], strict=True)

    assert sorted("".join(head) for head in heads) == sorted(ARCHITECTURES)
    assert {line.split()[0].strip(",") for line in text.splitlines() if line[:1] == "_" and "r " in line} >= {
        "_layer_norm_fwd",
        "_attention_bwd",
    }
    assert "112s" in text
    assert "_attention_bwd on cpu for syn1201: failed: out of resource" in text


def test_many_architectures_are_split_into_tables_that_fit():
    """On a page that is too narrow, there are several tables, and no column is missing."""
    names = [f"sy{number}00000" for number in range(20)]
    text = show([run(compiled=tuple(compiled(name) for name in names))])

    assert all(name.removeprefix("sy") in text for name in names)


def test_an_architecture_compiled_on_two_targets_has_two_columns():
    """Two compilers may generate different code for one kernel."""
    text = show([run("alpha"), run("beta", compiled=(compiled(registers=77),))])

    assert "34r" in text
    assert "77r" in text


def test_full_adds_every_case_and_every_test():
    """Everything that is condensed by default is listed."""
    short, full = show([run()], full=False), show([run()], full=True)

    assert "softmax/N=2048" not in short
    assert "softmax/N=2048" in full
    assert "test_softmax[2]" in full
    assert "BLOCK=1024" in full


@pytest.mark.parametrize("name", TERMINAL_NAMES)
def test_names_cannot_steer_the_terminal(name):
    """Markup, escape sequences and CI commands in names are shown, not executed, and no text is lost."""
    failed = case(f"softmax/{name}", Verdict.FAILED, kernel=name, message=name, detail=name)
    hostile = run(
        name,
        record=record(name, verdict=Verdict.FAILED, reason=name, hint=name),
        cases=(failed,),
        samples=(sample(kernel=name, provider=name, unit=name),),
        compiled=(compiled(name, kernel=name, function=name, verdict=Verdict.FAILED, reason=name),),
        problems=(name,),
    )

    text = show([hostile, run()], [name], full=True)

    assert all(character.isprintable() for line in text.splitlines() for character in line)
    assert not any(line.lstrip().startswith("::error") or "##[" in line for line in text.splitlines())
    assert visible(name)[:20] in text


def test_colour_is_a_style_and_not_a_part_of_the_text():
    """With colours, a failed verdict and the sentence of a bad report are red."""
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system="standard", highlight=False, record=True)
    console.print(render_terminal(compare(two_targets(), ["alpha", "beta"])))

    assert "\x1b[31mfailed" in console.export_text(styles=True)


def untested(*samples, **more):
    """A run of the bench stage alone: `--stage bench`."""
    return run(stages=(StageReport(Stage.BENCH, Verdict.PASSED, 4.0),), cases=(), compiled=(), samples=samples, **more)


def test_where_one_target_was_tested_the_marks_are_at_the_other():
    """The marks tell the two targets apart."""
    text = show([run(samples=(sample(),)), untested(sample(), record=record("beta"))])

    assert "3000 GB/s?" in text
    assert "?: unverified" in text
    assert "no target was asked" not in text


def test_what_a_quick_run_left_out_is_counted():
    """Of how many, where tests ran; the stages that left out the same tests count once."""
    reports = tuple(StageReport(stage, Verdict.PASSED, 1.0, left_out=640) for stage in (Stage.TEST, Stage.COMPILE))

    quick = {"narrowed": Narrowed(("--quick",))}
    reports = (dataclasses.replace(reports[0], left_out_s=840.0), reports[1])

    shown = show([run(stages=reports, **quick)], full=False)
    assert "--quick left out 640 of 643 tests; all stages would take about 14 min for them" in shown
    assert "3 of 643 tests checked" in shown
    assert "--quick left out 640 tests" in show([run(stages=reports[1:], cases=(), **quick)])
    assert "--budget left out 640 of 643 tests" in show([run(stages=reports, narrowed=Narrowed(("--budget",)))], full=False)
    assert "left out" not in show([run()])
    late = (StageReport(Stage.TEST, Verdict.NOT_RUN, out_of_time=True), dataclasses.replace(reports[1], out_of_time=True))
    shown = show([run(stages=late, cases=(), narrowed=Narrowed(("--budget",)))])
    assert "the budget was up before the first test on alpha" in shown
    assert "--budget left out 640 tests" in shown
    assert "no test was found" not in shown


def test_where_the_time_of_a_run_went_is_one_line():
    """Its stages, and what was around them; nothing where a stage was kept from an earlier attempt, which took its own time."""
    reports = tuple(StageReport(stage, Verdict.PASSED, seconds) for stage, seconds in ((Stage.FACTS, 2.0), (Stage.TEST, 50.0)))

    assert "took 61.0 s: facts 2 s, test 50.0 s, around them 9 s" in show([run(stages=reports)], full=False)
    assert "took 61" not in show([run(stages=(*reports, StageReport(Stage.BENCH, Verdict.PASSED, 400.0)))], full=False)


def test_the_first_failed_test_comes_with_the_command_that_runs_it_alone():
    """By pytest's own id, exact, and quoted for a shell."""
    failed = case("softmax/test_softmax.py::test_shapes[(3, 4)-it's]", Verdict.FAILED, message="wrong")
    shown = " ".join(show([run(cases=(failed, case()))], [], False).split())

    assert """--stage test --test 'softmax/test_softmax.py::test_shapes[(3, 4)-it'"'"'s]'""" in shown


@pytest.mark.parametrize(("said", "joined"), [("AssertionError: K >= 16", True), ("AssertionError: 3 is not 4", False)])
def test_a_test_that_fails_with_the_words_of_the_compiler_is_named_beside_them(said, joined):
    failed = case(verdict=Verdict.FAILED, message=said)
    dead = compiled(verdict=Verdict.FAILED, registers=None, origin=failed.id, reason="CompilationError: K >= 16 (at 5:46)")
    text = " ".join(show([run("a", cases=(failed,), compiled=(dead,))], full=False).split())

    assert (f"{failed.id} fails with the same words" in text) is joined


def test_a_card_without_a_card_is_shown_beside_its_code_name_everywhere():
    """On the first screen, in lines about what is wrong, in both tables of generated code, in Markdown and on the page."""
    good, bad = compiled("syn942", card="MS300X"), compiled("sy_90", card="S100", verdict=Verdict.FAILED, reason="out of resource")
    runs = [run("cpu", None, samples=(), ceilings=(), compiled=(good, bad))]
    screen, whole = show(runs, full=False), show(runs)

    assert "compiled for sy_90 (S100), syn942 (MS300X)" in screen
    assert "Not portable: `_softmax_fwd` does not compile for S100: out of resource" in screen
    assert "for sy_90 (S100): failed: out of resource" in whole
    assert "MS300X" in next(line for line in whole.splitlines() if line.startswith("function")), "stacked, without brackets"
    assert "syn942 (MS300X)" in render_markdown(compare(runs))
    assert "syn942 (MS300X)" in render_html(compare(runs))
