"""The page of a CI job's summary. All data is synthetic."""

from __future__ import annotations

import csv
import dataclasses
import functools
import html
import io
import json
import os
import re
from pathlib import PurePath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from pydantic import TypeAdapter
from rich.console import Console
from slow_cases import slow_but
from synthetic import GPU_A, case, compiled, emulated, facts, no_gpu, record, run, sample, two_targets, write_raw

from warpwave import report
from warpwave.compare import compare
from warpwave.compare.model import Comparison, KnownFailures, KnownUse, Standing
from warpwave.errors import InvalidInputError
from warpwave.records import Attempt, DeviceFacts, NotRun, Verdict
from warpwave.render.commands import next_commands
from warpwave.render.exports import FORMATS
from warpwave.render.files import COLUMNS, json_pieces, render_csv
from warpwave.render.html import render_html
from warpwave.render.junit import render_junit
from warpwave.render.markdown import LIMIT_BYTES, code, plain, render_markdown
from warpwave.render.sections.outline import parity
from warpwave.render.terminal import render_terminal
from warpwave.render.text import first_line
from warpwave.report import write_report

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    "</details></summary>",
    "a|b|c",
    "a\\|b",
    "`tick` ``two``",
    "```",
    "@somebody please",
    "[link](http://evil.example)",
    "http://evil.example www.evil.example",
    "::error::owned",
    "\x1b[31mred\x9b",
    "line\nbreak\r\n# heading\n- item",
    "* _ ~ # + - > ! & &lt; <!-- -->",
    " ",
    "",
)


def draw(text: str) -> str:
    """The HTML that GitHub shows, with tables and raw HTML."""
    return MarkdownIt("commonmark", {"html": True}).enable("table").render(text)


def test_the_table_comes_first_then_failures_and_gaps_and_the_rest_is_folded():
    """A reader sees every kernel on every target, what failed and where the gap is. The long tables are inside the folds."""
    text = render_markdown(compare(two_targets(), ["alpha", "beta"]))
    opened, _, folded = text.partition("<details>")

    assert re.findall("^#### (.*)$", text, re.MULTILINE) == [
        *("On each card", "Kernels", "Tests that did not pass", "Where is the gap, what next", "What each target did")
    ]
    assert "| `softmax` | 78% 3100 `GB/s` ✓ 3 | 74% 3720 `GB/s`? ❌ 1 fails | - | 0% | 1 test fails |" in opened
    assert "| `layer_norm` | 78% 3100 `GB/s` ✓ 3 | 74% 3720 `GB/s` ✓ 3 | 1.20 | 75% | no code to look at |" in opened
    assert "  - `beta` ❌ failed: `AssertionError: max_abs_err 0.3 > 1e-5`" in opened
    assert "- `softmax` on `beta`: 74% of the copy" in opened
    assert "  - \\$ `warpwave run beta --stage bench,compile --bench 'softmax/bench_*.py' --full`" in opened
    assert "`softmax/N=2048`" in folded
    assert text.count("<details>") == text.count("</details>") > 3
    titles = re.findall("^(?:#### |<details><summary>)(.*?)(?:</summary>)?$", text, re.MULTILINE)
    assert len(titles) == len(set(titles)), "what is open is not folded as well"
    assert {"Targets", "Every case, GB/s", "Every test"} <= set(titles)


def test_what_belongs_to_a_target_is_listed_below_it():
    """Its attempts are bullets of its own bullet, without blanks in their code."""
    attempts = (Attempt("2026-01-02T03:04:05+00:00", 1.0, Verdict.CRASHED, "the card is gone"),)
    text = render_markdown(compare([run(record=record(attempts=attempts))]))

    assert "\n  - `attempt 1: crashed: the card is gone`\n" in text


def test_what_did_not_pass_everywhere_is_grouped_by_its_reason():
    """Missing, or not run with its reason; what failed is listed elsewhere."""
    one, two, three, four = (case(f"softmax/test_softmax.py::test_{name}") for name in ("one", "two", "three", "four"))
    idle = {"verdict": Verdict.NOT_RUN, "not_run": NotRun.NEEDS_CARD, "message": "needs 2 cards"}
    there = (one, dataclasses.replace(two, **idle), dataclasses.replace(three, **idle), dataclasses.replace(four, verdict=Verdict.FAILED))
    (section,) = parity(compare([run("a", cases=(one, two, three, four, case("x.py::x"))), run("b", cases=there)]), None)
    lines = ["".join(bit.text for bit in line) for line in section.lines]

    assert lines == [
        "1 of 5 tests passed on every target that ran tests",
        "softmax/test_softmax.py::test_two and 1 more of softmax on b: needing a card: needs 2 cards",
        "x.py::x of softmax on b: missing",
    ]


def test_tables_have_as_many_cells_as_columns():
    """This holds for an absent target and without a GPU too."""
    for runs in (two_targets(), two_targets()[:1], [no_gpu()]):
        widths = set()
        for line in render_markdown(compare(runs, ["alpha", "beta"])).splitlines():
            if line.startswith("|"):
                widths.add(len(re.findall(r"(?<!\\)\|", line)))
            elif widths:
                assert len(widths) == 1
                widths = set()


@pytest.mark.parametrize("name", [name for name in HOSTILE if name.isprintable() and name.strip() and "::" not in name])
def test_a_code_span_gives_back_what_it_was_given(name):
    """The drawn span shows the name itself. In a table, a space separates a backslash from the pipe after it."""
    html = draw(code(name))
    cell = draw(f"| a |\n| --- |\n| {code(name, table=True)} |\n")
    escaped = name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")

    assert f"<p><code>{escaped}</code></p>" == html.strip()
    assert f"<td><code>{escaped.replace(chr(92) + '|', chr(92) + ' |')}</code></td>" in cell


def test_running_words_are_inert():
    """The sentence contains names and reasons too."""
    assert draw(plain("a *b* <i> [c](d) `e` @f http://g &amp; h_i_")).strip() == (
        "<p>a *b* &lt;i&gt; [c](d) `e` @\u200bf http:\u200b//g &amp;amp; h_i_</p>"
    )


FRAGMENTS = st.sampled_from(
    [
        *HOSTILE,
        "::set-output name=x::",
        "##[group]",
        "\x1b]0;x\x07",
        "|",
        "\\",
        "\\|",
        "`",
        "``",
        "$`x`$",
        "#1",
        "GH-1",
        "~~",
        "[^1]",
        "</",
        "<!--",
        "&#x3c;",
    ]
)
NAME = st.lists(st.one_of(FRAGMENTS, st.text(max_size=6)), max_size=5).map("".join)


def everywhere(name: str):
    """Two targets; on the first, every text from outside is `name`."""
    failed = case(f"softmax/{name}", Verdict.FAILED, kernel=name, message=name, detail=name)
    first = run(
        name or "-",
        record=record(name or "-", verdict=Verdict.FAILED, reason=name, hint=name),
        cases=(failed, case()),
        samples=(sample(kernel=name, provider=name, unit=name), sample(kernel=name, unit=name, params={"N": name}, case=name)),
        compiled=(compiled(kernel=name, function=name, verdict=Verdict.FAILED, reason=name),),
        launched=(compiled(kernel=name, function=name, origin=name),),
        problems=(name,),
    )
    return compare([first, run()], [name or "-"])


@settings(max_examples=60 if "WARPWAVE_SEARCH" in os.environ else 12, deadline=None)  # more with nox -s fuzz
@given(NAME.filter(first_line))  # an empty reason has no line
def test_no_name_changes_the_shape_of_the_page(name):
    """The tags are the same, in the same order, as with a harmless name of the same length, and there is no CI command."""
    shapes = []
    harmless = re.sub("[^:]", "n", name) if "::" in name else "n" * len(name)  # an id with `::` is a test that can be run alone
    for text in (render_markdown(everywhere(harmless)), render_markdown(everywhere(name))):
        assert all(character.isprintable() for line in text.splitlines() for character in line.replace("\ufe0f", ""))
        assert not any(line.lstrip("> -#\t").startswith("::") or "##[" in line for line in text.splitlines())
        outside = re.sub(r"<code\b[^>]*>.*?</code>", "", draw(text), flags=re.DOTALL)
        assert not re.search(r"@\w|https?://|www\.|#\d", html.unescape(outside))
        shapes.append(
            re.findall(r"<(/?(?:h\d|ul|li|table|tr|td|th|details|summary|sub|em|strong|a|img|script|blockquote|pre|hr))\b", outside)
        )
    assert shapes[0] == shapes[1]


@settings(max_examples=300, deadline=None)
@given(NAME)
def test_a_cell_holds_any_name(name):
    """One row with two cells, whatever they contain."""
    html = draw(f"| a | b |\n| --- | --- |\n| {code(name, table=True)} | {plain(name)} |\n")

    assert (html.count("<td>"), html.count("<tr>")) == (2, 2)


@settings(max_examples=50, deadline=None)
@given(st.lists(NAME, max_size=30), st.integers(1_500, 30_000))
def test_no_names_make_it_larger_than_it_may_be(names, limit):
    """For names of any length and any characters."""
    tests = tuple(case(f"softmax/t.py::{name}{number}", Verdict.FAILED, message=name) for number, name in enumerate(names))
    text = render_markdown(compare([run(cases=tests)], ["alpha"]), limit)

    lines = text.splitlines()
    assert len(text.encode()) <= limit
    assert sum(line.startswith("<details>") for line in lines) == lines.count("</details>")


@functools.cache
def thousands():
    """More points and tests than a page has room for."""
    points = tuple(sample(n, 1000.0 + n) for n in range(1, 9000))
    tests = tuple(case(f"softmax/test.py::é[{n}]") for n in range(9000))
    return compare([run(cases=tests, samples=points)], ["alpha", "beta"])


@pytest.mark.parametrize("limit", slow_but([LIMIT_BYTES, 60_000, 3_000, 1_200], [1_200]))
def test_it_stays_below_its_limit_by_leaving_out_whole_sections(limit):
    """GitHub drops a summary that is too large without failing the job. The page lists what is left out."""
    text = render_markdown(thousands(), limit)

    assert len(text.encode()) <= limit
    assert text.startswith("### ")
    assert text.count("<details>") == text.count("</details>")
    assert text.splitlines()[-1].startswith("_Left out")
    assert "Every case, GB/s" in text.splitlines()[-1]


# From raw folders to the files of a report. All data is synthetic.

FILES = {"junit.xml", "bandwidth.csv", "comparison.html", "comparison.md", "comparison.json"}


@pytest.fixture
def runs(tmp_path):
    """The run of two synthetic targets on disk."""
    for source in two_targets():
        write_raw(tmp_path / "raw" / source.record.target, source)
    return tmp_path


def test_all_files_are_written_and_tell_the_same(tmp_path):
    """The artifacts of two machines are one report, in the order of the expected targets. The returned comparison equals comparison.json,
    and no temporary file is left."""
    out, (first, second) = tmp_path / "out", two_targets()
    write_raw(tmp_path / "from-one" / "raw" / "beta", second)
    write_raw(tmp_path / "from-another", first)
    comparison = write_report([tmp_path / "from-one", tmp_path / "from-another"], out, ["alpha", "beta"])

    assert {path.name for path in out.iterdir()} == FILES
    assert TypeAdapter(Comparison).validate_json((out / "comparison.json").read_bytes()) == comparison
    assert (comparison.exit_code, comparison.problems) == (1, ())
    assert [target.target for target in comparison.targets] == ["alpha", "beta"]


def test_what_is_no_number_does_not_make_the_document_unreadable(runs, tmp_path, monkeypatch):
    """Collecting refuses NaN, so there should be none. If there is one, every parser must still accept the file."""
    comparison = dataclasses.replace(write_report([runs], tmp_path / "out"), exit_code=float("nan"))
    document = json.loads("".join(json_pieces(comparison)), parse_constant=pytest.fail)
    monkeypatch.setattr("warpwave.render.files._MANY", 0)

    assert json.loads("".join(json_pieces(comparison))) == document  # as with ten thousand entries

    assert (document["exit_code"], document["rows"] == []) == (None, False)


def test_reporting_twice_into_the_folder_of_the_run_changes_nothing(runs):
    """The report is written beside `raw/` and is not taken for a target."""
    assert write_report([runs], runs) == write_report([runs], runs)


@pytest.mark.parametrize("name", sorted(FILES))
def test_one_writer_that_fails_costs_its_own_file_only(runs, tmp_path, monkeypatch, name):
    """The other files are written, the failure is reported, in those after it too, and the exit code is not 0."""

    def broken(*_):
        raise OSError(28, "No space left on device")

    out = tmp_path / "out"
    out.mkdir()
    (out / name).write_text("of an earlier report")
    monkeypatch.setitem(report.WRITERS, name, broken)

    comparison = write_report([runs / "raw" / "alpha"], out, ["alpha"])

    assert {path.name for path in out.iterdir()} == FILES - {name}
    assert comparison.problems == (f"{name} was not written: OSError: [Errno 28] No space left on device",)
    assert comparison.exit_code == 3
    for page in {"comparison.md", "comparison.json"} - {name}:
        assert f"{name} was not written" in (out / page).read_text() or name not in ("junit.xml", "bandwidth.csv", "comparison.html")


def test_one_broken_target_does_not_hide_the_other(runs, tmp_path):
    """The report contains everything that can be read."""
    (runs / "raw/beta/test/junit.xml").write_text("<oops")
    comparison = write_report([runs], tmp_path / "out", ["alpha", "beta"])

    assert [target.verdict for target in comparison.targets] == [Verdict.PASSED, Verdict.INVALID]
    assert comparison.problems == ("beta: test/junit.xml: invalid: not well-formed XML, line 1: unclosed token",)
    assert "beta has results that cannot be used" in comparison.sentence


def test_nothing_to_report_is_an_error(tmp_path):
    """Without a raw folder, nothing is written."""
    with pytest.raises(InvalidInputError):
        write_report([tmp_path], tmp_path / "out")

    assert not (tmp_path / "out").exists()


def test_a_record_of_infrastructure_needs_no_other_file(tmp_path):
    """A GPU that could not be used is a row with its reason and what to do."""
    folder = tmp_path / "raw" / "alpha"
    for path in [write_raw(folder, two_targets()[0])]:
        for name in ("job.json", "facts.json", "stages.json", "test/junit.xml"):
            (path / name).unlink()
    from warpwave.records import dump

    dump(record(verdict=Verdict.INFRA, reason="no driver.", hint="Install it."), folder / "run.json")
    comparison = write_report([folder], tmp_path, ["alpha"])

    assert comparison.exit_code == 3
    assert "alpha could not run (no driver)." in comparison.sentence


def test_a_run_ends_with_the_next_commands():
    """What failed again, with the options that decide a test's environment; or all of it. The page; and the list of known failures."""
    good = dataclasses.replace(compare([dataclasses.replace(no_gpu(), compiled=())]), exit_code=0)
    bad = dataclasses.replace(good, targets=(dataclasses.replace(good.targets[0], tests={"failed": 1}),))
    bad = dataclasses.replace(bad, targets=(dataclasses.replace(bad.targets[0], command=("warpwave", "run", "cpu", "--kernels", "a b")),))
    bad = dataclasses.replace(bad, exit_code=1)
    unable = dataclasses.replace(bad, targets=(dataclasses.replace(bad.targets[0], compiled={"failed": 1}),))
    fixed = dataclasses.replace(good, known=KnownFailures("f", (KnownUse("test alpha failed x", Standing.FIXED),)))

    assert next_commands(good, PurePath("out"))[0] == "warpwave open out"
    assert next_commands(bad, PurePath("out"))[0] == "warpwave run cpu --kernels 'a b' --stage test --last-failed out"
    assert next_commands(unable, PurePath("out"))[0].endswith(" --stage test,compile --last-failed out")
    assert next_commands(bad, PurePath("out"))[1] == "warpwave known update out"
    assert next_commands(fixed, PurePath("out"))[1] == "warpwave known update out --prune"


# bandwidth.csv. All data is synthetic.


def read(runs) -> list[dict[str, str]]:
    """The lines by column, as read by any CSV parser."""
    return list(csv.DictReader(render_csv(compare(runs)).splitlines()))


def test_a_line_per_number_with_all_that_a_plot_needs():
    """Tidy: one number, its band, its share and its origin."""
    (line,) = read([run(samples=(sample(1024, 2000.0),))])

    assert line == {
        "kernel": "softmax",
        "case": "softmax/N=1024",
        "provider": "triton",
        "dtype": "fp32",
        "x": "1024",
        "x_label": "N=1024",
        "metric": "bandwidth",
        "unit": "GB/s",
        "value": "2000.0",
        "median_ms": "0.5",
        "p20_ms": "0.495",
        "p80_ms": "0.505",
        "ceiling_share": "0.5",
        "target": "alpha",
        "device": "Synthetic GPU A",
        "verdict": "passed",
        "gpu": "0",
        "commit": "0123abc",
        "run": "run-1",
    }
    assert tuple(line) == COLUMNS


@pytest.mark.parametrize(
    ("changes", "tests", "column", "text"),
    [
        ({"value": 9000.0}, (case(),), "verdict", "suspect"),
        ({}, (case(verdict=Verdict.FAILED),), "verdict", "unverified"),
        ({"value": float("nan")}, (case(),), "verdict", "invalid"),
        ({"value": None, "verdict": Verdict.OOM}, (case(),), "verdict", "oom"),
        *(({"unit": unit}, (case(),), "metric", metric) for unit, metric in (("ms", "time"), ("TFLOPS", "throughput"))),
    ],
)
def test_an_unsound_number_and_another_unit_say_so(changes, tests, column, text):
    """A plot can leave it out without knowing the rules; of a time, less is better."""
    assert [line[column] for line in read([run(samples=(sample(**changes),), cases=tests)])] == [text]


@pytest.mark.parametrize(
    ("params", "dtype", "x", "label"),
    [
        ({"N": 8}, "", "8", "N=8"),
        ({"M": 4, "N": 8}, "", "", "M=4 N=8"),
        ({"M": 4, "N": 8, "in_dtype": "bf16"}, "bf16", "", "M=4 N=8"),
        ({"N": 8, "dtype": "torch.float16"}, "torch.float16", "8", "N=8"),
        ({"N": 8, "mode": "fwd"}, "", "8", "N=8 mode=fwd"),
        ({}, "", "", ""),
    ],
)
def test_size_and_type_are_columns_of_their_own(params, dtype, x, label):
    """Whatever the author called them."""
    (line,) = read([run(samples=(sample(params=params),))])

    assert (line["dtype"], line["x"], line["x_label"]) == (dtype, x, label)


def test_of_several_sizes_the_swept_one_is_x():
    """It is the one on the axis of the drawing."""
    sizes = [(4096, 256), (4096, 512), (4096, 1024)]
    samples = tuple(dataclasses.replace(sample(params={"M": m, "N": n}), case=f"softmax/M={m},N={n}") for m, n in sizes)

    assert [line["x"] for line in read([run(samples=samples)])] == ["256", "512", "1024"]


@pytest.mark.parametrize("name", ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "  =1", "\t=1", "\r=1", 'a,b\n"c"', "\x1b[31m"])
def test_no_cell_is_a_formula_or_breaks_its_line(name):
    """A spreadsheet shows it as text, and every line has all columns."""
    lines = read([run(samples=(sample(kernel=name, provider=name, params={"N": name}), sample(2048)))])

    assert len(lines) == 2
    for column in ("kernel", "provider", "x_label"):
        assert lines[0][column][:1] not in ("=", "+", "-", "@")
        assert not lines[0][column].lstrip().startswith(("=", "+", "-", "@"))
        assert lines[0][column].isprintable()


# Every page says of an emulated result that it was emulated, and of a failure that only the emulator sees that it is suspected.

FAILED = case(verdict=Verdict.FAILED, message="AssertionError: 0.3 > 1e-5")
OPEN = "suspected: it passed on cpu; a run on a syn942 card settles whether the kernel or the emulator is wrong"
CLOSED = "suspected: it passed on beta, a syn942 card, so the emulator is wrong; report it"


def terminal(comparison) -> str:
    console = Console(file=io.StringIO(), width=400)
    console.print(render_terminal(comparison))
    return console.file.getvalue()


PAGES = {"terminal": terminal, "markdown": render_markdown, "html": render_html, "junit": render_junit}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_says_emulated_and_suspected(page):
    """Beside the name of the target, which says it as well, stands the architecture; and what would settle the failure."""
    text = PAGES[page](compare([run("cpu", None, cases=(case(),), samples=(), ceilings=()), emulated(FAILED)]))

    assert "syn942-emulated" in text
    assert ('name="emulated" value="syn942"' if page == "junit" else "syn942, emulated") in text
    assert OPEN in text


@pytest.mark.parametrize("page", PAGES)
def test_a_card_of_that_kind_settles_it(page):
    """Its word counts, not the emulator's."""
    card = facts(devices=(DeviceFacts(0, GPU_A, "syn942", 1 << 36, 100),))
    text = PAGES[page](compare([run("beta", facts=card, cases=(case(),)), emulated(FAILED)]))

    assert CLOSED in text


@pytest.mark.parametrize("name", FORMATS)
def test_no_export_has_a_number_of_it(name):
    """Exports hold speeds. OpenMetrics also counts tests, by the target's name."""
    write = FORMATS[name]
    lines = [line for line in write(compare([run("alpha"), emulated()])).splitlines() if "emulated" in line]

    assert all(line.startswith(("warpwave_tests{", "warpwave_target_complete{")) for line in lines)
    assert bool(lines) == (name == "openmetrics")
