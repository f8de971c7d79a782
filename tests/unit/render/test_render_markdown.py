"""The page of a CI job's summary. All data is synthetic."""

import functools
import html
import os
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from large import large
from markdown_it import MarkdownIt
from slow_cases import slow_but
from synthetic import case, compiled, no_gpu, record, run, sample, two_targets

from warpwave.compare import compare
from warpwave.records import Verdict
from warpwave.render.markdown import LIMIT_BYTES, code, plain, render_markdown
from warpwave.render.text import first_line

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


def test_the_verdict_is_the_first_line():
    """Readers of the first line know the result."""
    first = render_markdown(compare([run(samples=(), compiled=())], ["alpha", "beta"])).splitlines()[0]

    assert first == "### ❌ beta is absent (no raw folder was given)."


def test_what_is_good_is_marked_so():
    """A glance is enough."""
    assert render_markdown(compare([run()], ["alpha"])).startswith(
        "### ✅ All tests that ran pass on alpha; every kernel reaches at least 81% of the copy"
    )


def test_the_table_comes_first_then_failures_and_gaps_and_the_rest_is_folded():
    """A reader sees every kernel on every target, what failed and where the gap is. The long tables are inside the folds."""
    text = render_markdown(compare(two_targets(), ["alpha", "beta"]))
    opened, _, folded = text.partition("<details>")

    assert re.findall("^#### (.*)$", text, re.MULTILINE) == [
        *("Kernels", "What each target did", "Tests that did not pass", "Where is the gap, what next")
    ]
    assert "| `softmax` | ███▏ 78% | ███· 74%? ❌ 1 failed | - | 0% |" in opened
    assert "| `layer_norm` | ███▏ 78% | ███· 74% | 1.20 | 75% |" in opened
    assert "  - `beta` ❌ failed: `AssertionError: max_abs_err 0.3 > 1e-5`" in opened
    assert "- `softmax` on `beta`: 74% of the copy" in opened
    assert "  - \\$ `warpwave run beta --stage bench,compile --bench 'softmax/bench_*.py' --full`" in opened
    assert "| 1.20 (8) |" in folded
    assert "`softmax/N=2048`" in folded
    assert text.count("<details>") == text.count("</details>") > 3


def test_each_section_is_there_once():
    """What is open is not folded as well."""
    text = render_markdown(compare(two_targets(), ["alpha", "beta"]))
    titles = re.findall("^(?:#### |<details><summary>)(.*?)(?:</summary>)?$", text, re.MULTILINE)

    assert len(titles) == len(set(titles))
    assert {"Targets", "Tests", "Speed, GB/s", "Every test"} <= set(titles)


def test_a_point_that_was_left_out_is_counted():
    """It is verified, but incomplete."""
    broken = sample(4, None, verdict=Verdict.INVALID, reason="not a number")
    text = render_markdown(compare([run(samples=(*run().samples, broken))], ["alpha"]))

    assert "| `softmax` | `triton` | `alpha` | 3 |" in text
    assert "1 point left out: invalid or suspect." in text


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


@pytest.mark.parametrize("name", HOSTILE)
def test_names_stay_names(name):
    """A name never creates a tag, link, mention, table cell or heading, and none of its text is lost."""
    failed = case(f"softmax/{name}", Verdict.FAILED, kernel=name, message=name)
    hostile = run(
        name or "-",
        record=record(name or "-", verdict=Verdict.FAILED, reason=name, hint=name),
        cases=(failed, case()),
        samples=(sample(kernel=name, provider=name, unit=name), sample(kernel=name, unit=name, params={"N": name}, case=name)),
        compiled=(compiled(name, kernel=name, function=name, verdict=Verdict.FAILED, reason=name),),
        problems=(name,),
    )

    text = render_markdown(compare([hostile, run()], [name or "-"]))
    html = draw(text)

    own = {"details", "summary", "sub", "br"}
    drawn = {"h3", "h4", "p", "ul", "li", "table", "thead", "tbody", "tr", "th", "td", "pre", "code", "strong", "em"}
    assert set(re.findall(r"<\s*/?\s*([a-z0-9]+)", html)) <= own | drawn
    assert html.count("<details>") == html.count("</details>")
    outside_code = re.sub(r"<code[^>]*>.*?</code>", "", html, flags=re.DOTALL)
    assert "@somebody" not in outside_code
    assert "http://" not in outside_code
    assert "www.evil" not in outside_code
    assert all(character.isprintable() for line in text.splitlines() for character in line.replace("\ufe0f", ""))
    # Every row of a drawn table has as many cells as its head.
    for table in re.findall(r"<table>.*?</table>", html, flags=re.DOTALL):
        assert len({len(re.findall(r"<t[hd]", row)) for row in re.findall(r"<tr>.*?</tr>", table, flags=re.DOTALL)}) == 1


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


def test_the_largest_page_stays_below_900_kib():
    """2,000 cases and as many tests on two targets, and a thousand compiled kernels."""
    assert len(render_markdown(large(2000)).encode()) < 900 * 1024


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


def test_the_limit_is_one_of_bytes():
    """Names with two-byte letters do not exceed it at any page size."""
    tests = tuple(case(f"softmax/t.py::{'é' * 50}[{n}]", Verdict.FAILED) for n in range(20))
    comparison = compare([run(cases=tests)], ["alpha"])
    size = len(render_markdown(comparison).encode())

    for limit in range(1200, size, 97):
        assert len(render_markdown(comparison, limit).encode()) <= limit


def test_a_thousand_failures_do_not_crowd_out_the_rest():
    """The list of failures is cut, and the page says how many more there are."""
    tests = tuple(case(f"softmax/t.py::t[{n}]", Verdict.FAILED, message="x") for n in range(1000))
    text = render_markdown(compare([run(cases=tests)], ["alpha"]))

    assert "… and 1970 more lines in comparison.json" in text
