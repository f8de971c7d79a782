"""The page as text: its content, its size, and names that stay names. All data is synthetic."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import random
import re
import subprocess
import zlib
from collections import Counter
from html.parser import HTMLParser
from importlib.resources import as_file, files

import pytest
from hostile import PAGE_NAMES, hostile, large
from synthetic import case, compared, compiled, no_gpu, record, recorded_runs, run, sample, two_targets

from warpwave.compare import compare
from warpwave.records import NotRun, Verdict
from warpwave.render.charts.svg import DARK, LIGHT, rules
from warpwave.render.commands import source_link
from warpwave.render.html import render_html, shell
from warpwave.render.html.kernels import anchors
from warpwave.starter import public_address, repository_of


class Page(HTMLParser):
    """Every element with its attributes, and the text of elements that hold none but text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.raw: dict[str, list[str]] = {"script": [], "style": []}
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag in self.raw:
            self.raw[tag].append("")

    def handle_data(self, data):
        if self.cdata_elem in self.raw:
            self.raw[self.cdata_elem][-1] += data
        else:
            self.words.append(data)

    @property
    def text(self) -> str:
        """The readable text, in one line."""
        return " ".join(" ".join(self.words).split())


def embedded(text: str):
    """What the script of the page reads: JSON, or its compressed form in a large page."""
    page = Page(text)
    found = page.raw["script"][0]
    (kind,) = [attributes["type"] for tag, attributes in page.elements if tag == "script" and attributes.get("id") == "data"]
    return json.loads(found if kind == "application/json" else zlib.decompress(base64.b64decode(found), -zlib.MAX_WBITS))


def test_the_verdict_is_the_first_thing_to_be_read():
    """The heading says what is wrong; the account of every target comes below the table of kernels."""
    page = Page(render_html(compare(two_targets(), ["alpha", "beta", "gamma"])))

    assert next(attributes["id"] for tag, attributes in page.elements if tag == "section") == "verdict"
    assert "Needs a look · exit code 1 gamma is absent (no raw folder was given). 1 test fails on beta. alpha" in page.text
    assert "alpha Synthetic GPU A 12 passed passed beta Synthetic GPU B 1 of 11 failed failed gamma - - absent" in page.text
    assert "3 targets are complete, with 1 failed test: alpha passed 12 tests" in page.text
    assert "gamma absent gamma no raw folder was given What to do. Run it" in page.text


def test_what_a_reader_needs_is_there_without_the_script():
    """Environment, matrix, drawings with descriptions, gaps with reasons, code, failures with their commands, and refusals."""
    text = Page(render_html(compare([*two_targets(), no_gpu()], ["alpha", "beta", "cpu"]))).text

    for expected in (
        "triton differs 3.9.0 3.9.1 3.9.0",
        "4000 GB/s measured, 4400 by its driver's figures",
        "softmax 26% 78% of copy 3 passed 3100 GB/s 74% of copy 1 of 3 failed 3720 GB/s ?",
        "1.20 n = 7",
        "layer_norm on beta: 74% of the copy #",
        "copy, measured 4000",
        "failed AssertionError: max_abs_err 0.3 > 1e-5",
        "warpwave run beta --stage test --test 'softmax/test_softmax.py::test_softmax[fp32-1823x781]'",
        "different flush sizes: alpha 268435456, beta 134217728",
        "12 spilled",
        "1 of 2 failed",
        "out of resource: shared memory, 98304 > 65536",
    ):
        assert expected in text, expected


def test_what_broke_is_reported_before_what_was_measured():
    """A broken gate, or a kernel that did not compile, is listed once, with the failed tests, and a link leads there."""
    spilling = compiled(
        verdict=Verdict.FAILED, spills=2, broken={"spills": "2 registers, 0 allowed"}, reason="spills: 2 registers, 0 allowed"
    )
    refused = compiled("sy_80", verdict=Verdict.FAILED, registers=None, reason="out of resource")
    text = render_html(compare([run(compiled=(spilling, refused))]))

    for title in ("Gates broken", "Does not compile, or cannot launch"):
        assert text.count(f"<h3>{title}</h3>") == 1
        assert text.index('<section id="failures">') < text.index(f"<h3>{title}</h3>") < text.index('<section id="environment">')
    assert '<a href="#failures">' in text


def test_why_a_test_was_not_checked_is_named():
    """In a section of its own, in the tests of its kernel, and in the list of every test."""
    idle = {"verdict": Verdict.NOT_RUN, "message": "cluster_dims is not pretended"}
    cases = (case(), case("softmax/test_softmax.py::test_cluster", not_run=NotRun.NOT_PRETENDED, **idle))
    text = render_html(compare([run(cases=cases)]))
    tests = embedded(text)["tests"]

    assert '<section id="unchecked">' in text
    assert '<a href="#unchecked">' in text
    assert "cluster_dims is not pretended" in Page(text).text
    assert "1 not pretended" in Page(text).text
    assert "1 skipped" not in Page(text).text
    assert [tests["states"][state] for _, state in tests["rows"]] == [["passed", "passed"], ["not pretended", "not-run"]]


def test_the_numbers_are_embedded_once():
    """Value, band, share and state of every point, in the order of the sweep; a missing point is a zero."""
    first = embedded(render_html(compare(two_targets(), ["alpha", "beta"])))["figures"][0]
    triton = {entry["target"]: entry["points"] for entry in first["series"] if entry["provider"] == "triton"}

    assert first["labels"][0] == "N=256"
    assert triton["alpha"][0] == [2400, 2376, 2424, 0.6, 0]
    assert triton["beta"][3] == 0


@pytest.mark.parametrize("name", PAGE_NAMES)
def test_names_stay_names(name):
    """A name never creates an element, attribute or script, wherever it is. It is shown, and the data contains it."""
    inert, page = (Page(render_html(hostile(text))) for text in ("name", name))

    def shape(found):
        return Counter((tag, *sorted(attributes)) for tag, attributes in found.elements)  # columns are sorted by their names

    assert shape(inert) == shape(page)
    assert not any(attribute.startswith("on") or attribute == "style" for _, attributes in page.elements for attribute in attributes)
    assert json.loads(page.raw["script"][0])["tests"]["rows"]
    assert not re.search("[<>&\u2028\u2029]", page.raw["script"][0])


def test_the_policy_lets_in_what_is_in_the_page_and_nothing_else():
    """The hashes are those of the only style and the only script; no address, no image, no form."""
    text = render_html(hostile("name"))
    page = Page(text)
    policy = next(attributes["content"] for tag, attributes in page.elements if attributes.get("http-equiv") == "Content-Security-Policy")
    digests = [
        "sha256-" + base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()
        for part in (page.raw["style"][0], page.raw["script"][1])
    ]

    assert policy == f"default-src 'none'; style-src '{digests[0]}'; script-src '{digests[1]}'; base-uri 'none'; form-action 'none'"
    assert not re.search(r"(src|href)=\"(?!#)", text)
    assert not re.search(r"url\(|@import|https?:", text)


def test_two_thousand_cases_are_less_than_a_megabyte():
    """With as many tests, a thousand compiled kernels and twenty tracebacks."""
    text = render_html(large(2000))

    assert len(text.encode()) < 1_000_000
    assert sum(len(entry["points"]) for figure in embedded(text)["figures"] for entry in figure["series"]) == 4000
    assert len(embedded(text)["tests"]["rows"]) == 2000


def test_a_thousand_failures_do_not_fill_the_page():
    """Long tracebacks are cut, and many failures are counted."""
    tests = tuple(case(f"softmax/t.py::t[{n}]", Verdict.FAILED, message="x", detail="trace\n" * 3000) for n in range(1000))
    text = render_html(compare([run(cases=tests)], ["alpha"]))

    assert len(text.encode()) < 1_000_000
    assert "… and 800 more in comparison.json" in text


@pytest.mark.parametrize("runs", [[], two_targets()[:1], [no_gpu()], [run(samples=(), cases=(), compiled=(), facts=None)]], ids=len)
def test_a_page_is_made_of_whatever_there_is(runs):
    """Nothing at all, one target, no GPU, no results."""
    text = Page(render_html(compare(runs, ["alpha", "beta"] if runs else []))).text

    assert "warpwave comparison" in text


def many_kernels(count: int):
    """As many kernels on four targets, each with tests, two providers, eight sizes and code of two architectures; the first one fails."""
    names = [f"kernel_{number}" for number in range(count)]
    scatter = random.Random(1)
    return [
        run(
            target,
            cases=tuple(
                case(f"{name}/test_{name}.py::t[{n}]", Verdict.FAILED if not at else Verdict.PASSED, kernel=name)
                for at, name in enumerate(names)
                for n in range(3)
            ),
            samples=tuple(
                sample(1 << n, 3000.0 * scatter.random() + 1000, kernel=name, case=f"{name}/N={1 << n}", provider=by)
                for name in names
                for by in ("triton", "torch")
                for n in range(8)
            ),
            compiled=tuple(compiled(card, kernel=name, function=f"{name}_fwd") for name in names for card in ("sy_90", "syn942")),
        )
        for target in "abcd"
    ]


@pytest.mark.slow
def test_the_page_of_the_bundled_package_is_at_most_half_a_megabyte():
    """Of the recorded run, and of two vendors beside each other."""
    assert max(len(render_html(comparison).encode()) for comparison in (compare(recorded_runs()), compared())) <= 500_000


@pytest.mark.slow
def test_three_hundred_kernels_on_four_targets_are_less_than_three_megabytes():
    """Each has a row and a section, and nothing is left out: not a drawing, not a number."""
    large_page = render_html(compare(many_kernels(300)))
    found = embedded(large_page)

    assert len(large_page.encode()) < 3_000_000
    assert large_page.count('<tr id="row-kernel_') == 300
    assert large_page.count('<details class="page"') == 300
    assert len(found["figures"]) == 300
    assert sum(bool(point) for figure in found["figures"] for entry in figure["series"] for point in entry["points"]) == 300 * 4 * 2 * 8
    assert "left out" not in large_page
    assert "are drawn and listed" not in large_page


def test_a_large_page_compresses_what_is_opened_last(monkeypatch):
    """The gravest kernel is in the markup, for a browser without scripts; every other one is there once, in the markup or compressed."""
    monkeypatch.setattr(shell, "MOST_MARKUP", 40_000)
    large_page = render_html(compare(many_kernels(20)))
    compressed = embedded(large_page)["bodies"]
    bodies = [*compressed.values(), large_page]

    assert 'id="kernel_0" data-kernel' in large_page
    assert "kernel_0" not in compressed
    assert sum(body.count("data-figure=") for body in bodies) == 20
    assert {f'data-packed="{ident}"' in large_page for ident in compressed} == {True}
    assert large_page.count("data-packed=") == len(compressed) > 0


def test_a_name_is_never_an_id_of_the_page_itself():
    """A package may have a folder `roofline`."""
    with as_file(files("warpwave.render.html").joinpath("templates")) as templates:
        texts = [file.read_text(encoding="utf-8") for file in templates.rglob("*.*")]
    ids = {ident for text in texts for ident in re.findall(r'\bid="([^"{]+)"', text)}

    assert "roofline" in ids
    assert set(anchors(ids).values()).isdisjoint(ids)


@pytest.mark.parametrize("name", ["row-softmax", "gap-softmax", "gap-", "row-row-", "f1", "c12", "row-softmax/-", "f1.", "kernel-f1"])
def test_a_name_like_those_that_the_page_makes_gets_another(name):
    """A package may have a folder `row-softmax`: the search for a free name ended nowhere."""
    found = anchors([name, "softmax", name + "-"])

    assert not any(re.fullmatch(r"[cf]\d+|(gap|row)-.*", ident) for ident in found.values())
    assert len(set(found.values())) == len(found)


def test_a_waiver_can_be_pasted_as_it_stands():
    """Each of its lines is a line of the page."""
    broken = compiled(verdict=Verdict.FAILED, broken={"spills": "12 registers, 0 allowed"})
    text = render_html(compare([run("alpha", compiled=(broken,))]))

    assert '[[tool.warpwave.waivers]]\ngate = "spills"\n'.replace('"', "&#34;") in text


def test_the_table_of_kernels_names_code_that_fails():
    """Also of a kernel that nothing tests or measures."""
    rows = (compiled("sy_80", verdict=Verdict.FAILED, registers=None, reason="no"), compiled("sy_90"))
    broken = compiled("sy_80", kernel="gelu", verdict=Verdict.FAILED, broken={"spills": "12 registers, 0 allowed"})
    text = render_html(compare([run("cpu", cases=(), samples=(), ceilings=(), compiled=(*rows, broken, compiled(kernel="add")))]))
    cells = [re.sub("<[^>]+>", "", row).split() for row in re.findall(r'<tr id="row-.*?</tr>', text, re.DOTALL)]

    assert [" ".join(cell) for cell in cells] == ["softmax 1 of 2 did not compile", "gelu 1 configuration breaks a gate", "add 1 compiled"]


# Links from a kernel to its source, at the commit of the run. All data is synthetic.

REPOSITORY = "https://code.example/me/ops#kernels"


@pytest.mark.parametrize(
    ("repository", "commit", "source", "link"),
    [
        (REPOSITORY, "0123abcd4567", "softmax/rows.py:30", "https://code.example/me/ops/blob/0123abcd4567/kernels/softmax/rows.py#L30"),
        ("https://code.example/me/ops#", "0123abcd4567", "a b.py:1", "https://code.example/me/ops/blob/0123abcd4567/a%20b.py#L1"),
        (REPOSITORY, "0123abcd4567+", "softmax/rows.py:30", ""),  # the lines may be others
        (REPOSITORY, "", "softmax/rows.py:30", ""),
        ("", "0123abcd4567", "softmax/rows.py:30", ""),
        ("javascript:alert(1)#x", "0123abcd4567", "softmax/rows.py:30", ""),
        ("https://me:secret@code.example/me/ops#", "0123abcd4567", "softmax/rows.py:30", ""),
        ('https://code.example/me/ops"x#', "0123abcd4567", "softmax/rows.py:30", ""),
        (REPOSITORY, "0123abcd4567", "../../x.py:30", ""),
        (REPOSITORY, "0123abcd4567", "softmax/rows.py", ""),
    ],
)
def test_only_an_exact_place_has_an_address(repository, commit, source, link):
    """And only a plain https address is a link: it comes from a raw folder."""
    target = compare([run(record=record(repository=repository, commit=commit))]).targets[0]

    assert source_link(target, source) == link


def test_the_page_links_the_kernel():
    """Beside its function."""
    given = run(record=record(repository=REPOSITORY, commit="0123abcd4567"), compiled=(compiled(source="softmax/rows.py:30"),))

    assert 'href="https://code.example/me/ops/blob/0123abcd4567/kernels/softmax/rows.py#L30"' in render_html(compare([given]))


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("https://user:secret@code.example:8443/me/ops.git?token=x#y", "https://code.example/me/ops"),
        ("git@code.example:me/ops.git", "https://code.example/me/ops"),
        ("/home/me/ops", ""),
        ("http://[", ""),
        ("file:///home/me/ops", ""),
    ],
)
def test_an_address_has_no_credentials(url, address):
    """It is in every report."""
    assert public_address(url) == address


def test_the_remote_is_recorded_with_the_path_of_the_package(tmp_path):
    """Without it, or outside of git, there is nothing to record."""
    assert repository_of(tmp_path) == ""
    (tmp_path / "ops").mkdir()
    subprocess.run(["git", "-C", str(tmp_path), "init", "-q"], check=True)
    assert repository_of(tmp_path / "ops") == ""
    subprocess.run(["git", "-C", str(tmp_path), "remote", "add", "origin", "https://me:secret@code.example/me/all.git"], check=True)
    assert repository_of(tmp_path / "ops") == "https://code.example/me/all#ops"


def test_the_page_shows_what_a_tuner_chose():
    """Once for all cases with the same configuration."""
    points = tuple(dataclasses.replace(sample(1 << n), tuned={"softmax_kernel": "BLOCK: 1024, num_warps: 8"}) for n in range(8, 13))
    page = render_html(compare([run(samples=points)]))

    assert page.count("BLOCK: 1024, num_warps: 8") == 1
    assert "and 2 more" in page


CSS = "".join(files("warpwave.render.html").joinpath("templates", name).read_text() for name in ("page.css", "comparison/comparison.css"))


TEXTS = ("soft", "ink", "ceiling", "good", "bad", "warn", "near", "short", "far")


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def mixed(ground: str, ink: str) -> str:
    """The ground of code: 94% of the ground, 6% of the ink."""
    return "#" + "".join(f"{round(0.94 * int(ground[at : at + 2], 16) + 0.06 * int(ink[at : at + 2], 16)):02x}" for at in (1, 3, 5))


@pytest.mark.parametrize(("colours", "theme"), [(LIGHT, ":root{"), (DARK, "[data-theme=dark]{")], ids=["light", "dark"])
def test_texts_can_be_read(colours, theme):
    own = dict(re.findall(r"--(\w+):(#\w{6})", "".join(part.partition("}")[0] for part in CSS.split(theme)[1:])))
    named = {**own, **colours}

    for name in TEXTS:
        for ground in (colours["ground"], mixed(colours["ground"], colours["ink"])):
            assert contrast(named[name], ground) >= 4.5, (name, ground)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_lines_and_marks_can_be_seen(colours):
    """Three is what WCAG asks of what is not a text; the colours of lines are also those of their marks."""
    assert set(re.findall(r"var\(--(s\d)\)", rules())) == {f"s{number}" for number in range(8)}
    for number in range(8):
        assert contrast(colours[f"s{number}"], colours["ground"]) >= 3, number


# Every colour of a text has the contrast that WCAG 2.2 asks for (4.5), on the page's ground and on the ground of code, in both themes.
