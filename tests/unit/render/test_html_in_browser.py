"""The page in a real browser: it renders, its switches work by mouse and keyboard, and it neither logs nor requests anything."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil

import pytest
from hostile import large
from synthetic import case, compiled, finding, run

from warpwave.records import Defect, Verdict

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed, so no browser can be driven")

from hostile import PAGE_NAMES, hostile
from slow_cases import slow_but
from synthetic import MADE_UP, MOVES, compared, no_gpu, row, side, two_targets

from warpwave.compare import compare
from warpwave.compare.changed_codegen import Concern, diff
from warpwave.render.html import render_html, render_sections, shell
from warpwave.render.sections.changes import code_sentence, diff_sections

CHROMIUM = os.environ.get("WARPWAVE_CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "google-chrome", "chromium-browser"))), None
)


@pytest.fixture(scope="module")
def browser():
    """One Chromium for all tests: the machine's own, or playwright's."""
    with sync_api.sync_playwright() as driver:
        try:
            found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        except sync_api.Error as error:
            pytest.skip(f"no Chromium starts here: {str(error).splitlines()[0]}")
        yield found
        found.close()


@pytest.fixture
def show(browser, tmp_path):
    """Open a comparison or a page from a file, as a reader would, and check that nothing was logged or requested."""
    said, asked, pages = [], [], []

    def opened(comparison, **options):
        path = tmp_path / f"{len(pages)}.html"
        path.write_text(comparison if isinstance(comparison, str) else render_html(comparison), encoding="utf-8")
        page = browser.new_page(viewport={"width": 1280, "height": 900}, **options)
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.on("dialog", lambda dialog: said.append(f"dialog {dialog.message}"))
        page.goto(path.as_uri())
        pages.append(page)
        return page

    yield opened
    assert said == []
    assert [url for url in asked if not url.startswith("file:")] == []
    assert len(asked) == len(pages)
    for page in pages:
        page.close()


def unfold(page):
    """Open the section of every kernel, and wait until it is filled."""
    page.locator("details.page").evaluate_all("found => found.forEach(one => { one.open = true })")
    page.wait_for_function("[...document.querySelectorAll('[data-packed]')].every(one => one.children.length > 1)")
    return page


@pytest.fixture(params=slow_but(["plain", "packed"], ["plain"]))
def form(request, monkeypatch):
    """A page as it is, and one whose kernels and numbers are compressed, as in a page of hundreds of kernels."""
    if request.param == "packed":
        monkeypatch.setattr(shell, "MOST_MARKUP", 0)
        monkeypatch.setattr(shell, "MOST_JSON", 0)
    return request.param


def test_it_renders_and_reads_out_and_a_switch_takes_lines_away(show, form):
    """What is wrong is the heading; a pointer over a drawing shows its numbers."""
    page = unfold(show(compare(two_targets(), ["alpha", "beta"])))
    page.locator(".plot").first.hover()

    assert page.get_by_role("heading", level=1).inner_text() == "1 test fails on beta."
    assert page.locator("#readout").is_visible()
    assert "triton, alpha\t" in page.locator("#readout").inner_text()

    # A switch takes its lines away and brings them back: in this kernel only, and in its read-out too.
    kernel = page.locator("[data-kernel]").first
    kernel.get_by_role("button", name="torch").click()

    assert kernel.locator("[data-series]:visible").count() == 2
    assert page.locator("[data-series].off").count() == 2
    kernel.get_by_role("button", name="beta").click()
    assert kernel.locator("[data-series]:visible").count() == 1
    kernel.locator(".plot").first.hover()
    assert page.locator("#readout tr").count() == 1
    kernel.get_by_role("button", name="torch").click()
    kernel.get_by_role("button", name="beta").click()
    assert page.locator("[data-series].off").count() == 0


def test_the_keyboard_reaches_switches_and_drawings(show, form):
    """Tab moves to them, space switches, and arrow keys move between cases."""
    page = unfold(show(compare(two_targets(), ["alpha", "beta"])))
    page.locator("details.page .scroll").first.focus()
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.dataset.provider") == "triton":
            break
    page.keyboard.press("Space")

    assert page.evaluate("document.activeElement.ariaPressed") == "false"
    for _ in range(10):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.className") == "plot":
            break
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.locator("#readout p").inner_text() == "N=512, GB/s"
    page.keyboard.press("End")
    assert page.locator("#readout p").inner_text() == "N=32768, GB/s"
    page.keyboard.press("Escape")
    assert page.locator("#readout").is_hidden()


def test_long_tables_are_made_when_they_are_opened(show, form):
    """Every number, test and configuration; the filter keeps rows that contain all of its words."""
    page = unfold(show(compare([*two_targets(), no_gpu()], ["alpha", "beta", "cpu"])))
    softmax = "[data-code=softmax]"
    for selector, rows in (("[data-numbers]", 32), ("[data-tests]", 39), ("#code [data-code]", 16), (softmax, 5)):
        details = page.locator(selector).first
        assert details.locator("table").count() == 0
        details.locator("summary").click()
        details.locator("tbody tr").first.wait_for()
        assert details.locator("tbody tr").count() == rows

    page.locator("[data-numbers] .filter").first.fill("triton beta 512")
    assert page.locator("[data-numbers]").first.locator("tbody tr:visible").count() == 1


def heading_lines(page) -> float:
    lines = "found => found.getBoundingClientRect().height / parseFloat(getComputedStyle(found).lineHeight)"
    return page.locator("h1").evaluate(lines)


def kernels(page):
    """The kernels of the overview that are visible, in their order."""
    return page.locator(".overview tbody tr:visible th").all_inner_texts()


def test_the_overview_sorts_by_mouse_and_keyboard_and_is_filtered_by_words(show):
    """Failed tests come first, then the largest gap; a column's head sorts by it, and the other way the next time."""
    page = show(compared())
    assert kernels(page)[:4] == ["attention", "softmax", "cross_entropy", "layer_norm"]

    page.get_by_role("button", name="kernel", exact=True).click()
    assert kernels(page) == sorted(kernels(page))
    page.keyboard.press("Enter")
    assert kernels(page) == sorted(kernels(page), reverse=True)
    assert page.locator("th[aria-sort]").all_inner_texts() == ["kernel"]
    page.get_by_role("button", name="cuda", exact=True).focus()
    page.keyboard.press("Space")
    assert kernels(page)[0] == "matmul_fp8"

    # A row stays if it has all words of the filter.
    page.get_by_role("searchbox", name="Filter the kernels").fill("165 failed")

    assert kernels(page) == ["softmax"]


@pytest.mark.parametrize("width", slow_but([1440, 800, 390], [390]))
def test_every_target_is_visible_at_every_width(show, width):
    """Nothing of the overview is clipped, and the first screen has the first kernel on each target."""
    page = show(compared())
    page.set_viewport_size({"width": width, "height": 900})
    frame = page.locator(".scroll:has(> .overview)")
    row = page.locator("#row-softmax")

    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert frame.evaluate("found => found.scrollWidth - found.clientWidth") == 0
    for target in ("cuda", MADE_UP):
        box = page.locator("[id^=row-]").first.locator(f'[data-head="{target}"]').bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        assert box["y"] + box["height"] <= 900
    assert "56%" in row.inner_text()


@pytest.mark.parametrize("width", slow_but([390, 640, 1024, 1440], [390, 640]))
def test_a_table_stays_a_table_down_to_640_pixels_and_the_heading_has_two_lines(show, width):
    page = show(compared())
    page.set_viewport_size({"width": width, "height": 900})

    assert page.locator(".overview").evaluate("found => getComputedStyle(found).display") == ("block" if width < 640 else "table")
    assert heading_lines(page) < 2.1
    assert page.evaluate("document.documentElement.scrollWidth") <= width


CARDS = {"gfx90a": "MI250X", "gfx942": "MI300X", "gfx950": "MI350X"}


@pytest.mark.parametrize(
    "reason",
    ["it needs 65792 bytes of shared memory, gfx942 has 65536", "16 warps of 128 are 2048 threads, 1024 can be launched"],
)
def test_a_long_sentence_is_a_heading_of_two_lines_on_a_phone(show, reason):
    """What has no room in it stands below it."""
    bad = {"verdict": Verdict.FAILED, "binary_hash": "ab" * 32, "reason": reason}
    code = tuple(compiled(name, function="copy_kernel", card=card, **bad) for name, card in CARDS.items())
    page = show(compare([run("cpu", None, samples=(), ceilings=(), compiled=code)]))
    page.set_viewport_size({"width": 390, "height": 844})

    assert heading_lines(page) < 2.1
    assert "cannot launch on MI250X, MI300X, MI350X" in page.locator("h1").inner_text()
    assert re.search(r"65,536|1024", page.locator(".more-said").inner_text())


LONG = "_fused_attention_backward_dkdv_kernel"


@pytest.mark.parametrize("width", [390, 1120])
@pytest.mark.parametrize("name", ["copy_kernel", LONG, f"{LONG}_with_paged_cache"])
def test_a_heading_of_two_kinds_of_faults_has_two_lines(show, width, name):
    """It names both; what has no room in it stands below it."""
    bad = {"verdict": Verdict.FAILED, "binary_hash": "ab" * 32, "reason": "it needs 65792 bytes of shared memory, gfx942 has 65536"}
    code = tuple(compiled(architecture, function=name, card=card, **bad) for architecture, card in CARDS.items())
    failed, race = case(verdict=Verdict.FAILED), finding(function=name, defect=Defect.RACE)
    page = show(compare([run("cpu", None, cases=(failed,), samples=(), ceilings=(), compiled=code, findings=(race,))]))
    page.set_viewport_size({"width": width, "height": 844})
    heading = page.locator("h1")

    assert heading_lines(page) < 2.1
    assert "Not portable" in heading.inner_text()
    assert "memory finding" in heading.inner_text()
    assert float(heading.evaluate("found => parseFloat(getComputedStyle(found).fontSize)")) >= 13
    assert name in page.locator("#verdict").inner_text()
    assert "65,536" in page.locator(".more-said").inner_text()


@pytest.mark.parametrize("width", [390, 1120])
def test_a_sentence_without_a_joint_is_cut_and_stands_below_in_full(show, width):
    sentence = f"An unexpected sentence that has {' '.join(f'word{n}' for n in range(40))} and no joint at all"
    page = show(dataclasses.replace(compare([]), sentence=sentence))
    page.set_viewport_size({"width": width, "height": 844})

    assert heading_lines(page) < 2.1
    assert sentence in page.locator("#verdict").inner_text()


@pytest.mark.parametrize("width", [390, 1280])
def test_drawings_are_whole_and_the_read_out_stands_beside_its_point(show, width):
    """By pointer and by keyboard; it never hides the point."""
    page = unfold(show(compare(two_targets(), ["alpha", "beta"])))
    page.set_viewport_size({"width": width, "height": 900})
    plot = page.locator("figure:not(.wide) .plot").first
    plot.scroll_into_view_if_needed()
    assert plot.evaluate("found => found.scrollWidth - found.clientWidth") == 0
    for key in (None, "Home", "End"):
        if key:
            plot.focus()
            page.keyboard.press(key)
        else:
            plot.hover()
        # The line of the case, and the read-out: what of it is nearest to any point on that line.
        apart = page.evaluate(
            """() => {
              const svg = document.querySelector(".guide[style*=visible]").ownerSVGElement;
              const box = document.getElementById("readout").getBoundingClientRect();
              const frame = svg.getBoundingClientRect(), scale = frame.width / svg.viewBox.baseVal.width;
              const at = Number(svg.querySelector(".guide").getAttribute("x1"));
              const points = [];
              for (const line of svg.querySelectorAll("[data-series]:not(.off) .line"))
                for (const [, x, y] of line.getAttribute("d").matchAll(/[ML](-?[\\d.]+) (-?[\\d.]+)/g))
                  if (Math.abs(x - at) < 1) points.push([frame.left + x * scale, frame.top + y * scale]);
              const far = ([x, y]) => Math.hypot(Math.max(box.left - x, 0, x - box.right), Math.max(box.top - y, 0, y - box.bottom));
              return points.map(far);
            }"""
        )
        assert apart, key
        assert 0 < min(apart) < 40, (key, apart)


def test_a_button_copies_a_command_without_its_prompt(show):
    page = show(compared())
    page.evaluate("navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); }")
    command = page.locator("pre.again").first
    button = page.locator(".copyable .copy").first
    button.focus()
    page.keyboard.press("Enter")

    page.wait_for_function("window.copied !== undefined")
    assert "$ warpwave run" in command.inner_text()
    assert page.evaluate("window.copied") == command.inner_text().removeprefix("$ ")
    assert page.evaluate("window.copied").startswith("warpwave run")


def test_a_link_opens_the_section_of_its_kernel_with_its_own_lines_on(show, form):
    """From the overview, and as a fragment that somebody shared."""
    page = show(compared())
    assert not page.locator("#softmax table").first.is_visible()
    page.locator("#row-softmax a").click()

    page.wait_for_function("document.querySelector('#softmax details.page').open")
    page.goto(page.url.partition("#")[0] + "#gelu")
    page.wait_for_function("document.querySelector('#gelu details.page').open")
    page.locator("#gelu .plot").first.wait_for()

    # At first, only its own line and the fastest peer are drawn; the others are one press away.
    page = unfold(page)
    pressed = page.locator("#softmax [data-provider]").evaluate_all("all => all.map(one => [one.dataset.provider, one.ariaPressed])")

    assert [name for name, state in pressed if state == "true"] == ["triton", "quack"]
    assert len(pressed) > 2


def test_a_print_of_a_large_page_has_every_section(show, monkeypatch):
    """Also those that nobody opened."""
    monkeypatch.setattr(shell, "MOST_MARKUP", 0)
    page = show(compared())
    page.wait_for_function("document.querySelector('#softmax') !== null")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")

    assert page.locator("details.page:not([open])").count() == 0
    assert page.locator("[data-packed]").count() == page.locator("[data-packed]:has(h4)").count() > 0


def test_without_a_script_a_large_page_says_where_its_sections_are(show, monkeypatch):
    """The table of kernels is there, and each section names the files that hold it."""
    monkeypatch.setattr(shell, "MOST_MARKUP", 0)
    page = show(compared(), java_script_enabled=False)
    page.locator("#softmax summary").first.click()

    assert "56%" in page.locator("#row-softmax").inner_text()
    assert "bandwidth.csv" in page.locator("#softmax noscript").inner_text()


def test_wide_tables_break_no_names(show):
    """Functions of eleven architectures and properties with long names stay on one line beside their figures."""
    code = tuple(compiled(f"sy_{n}", function="attention_backward_kernel", shared_bytes=57344, occupancy=0.125) for n in range(11))
    long = case("softmax/t.py::test_against_a_reference_of_another[bf16-contiguous-128x1024x64]", properties={"grad0.max_abs_err": "1"})
    page = show(compare([run("alpha", cases=(long,), compiled=code), run("beta", cases=(long,))]))
    page.locator("details.page details").evaluate_all("found => found.forEach(one => { one.open = true })")

    for names in (".code tbody th code", ".numerics .property code"):
        heights = page.locator(names).evaluate_all("found => found.map(one => one.getBoundingClientRect().height)")
        assert heights, names
        assert max(heights) < 30, names
    assert page.locator(".scroll:has(> .code), .scroll:has(> .numerics)").evaluate_all(
        "found => found.map(one => one.scrollWidth - one.clientWidth)"
    ) == [0, 0]


def test_without_its_script_it_is_whole(show):
    """Verdict, tables and drawings are in the text; only tables made on demand are not. Wide ones scroll, each in its own frame."""
    page = show(compare([*two_targets(), no_gpu()], ["alpha", "beta", "gamma"]), java_script_enabled=False)
    page.set_viewport_size({"width": 380, "height": 800})

    assert page.evaluate("document.documentElement.scrollWidth") <= 380
    assert page.locator(".plot svg path.line").count() > 0
    assert page.locator("#theme").is_hidden()


@pytest.mark.parametrize("name", slow_but(PAGE_NAMES, PAGE_NAMES[:1]))
def test_hostile_names_do_nothing(show, form, name):
    """No dialog, no request, no error, wherever the name stands, the tables made by the script included."""
    page = unfold(show(hostile(name)))
    for details in page.locator("details").all():
        details.evaluate("element => { element.open = true }")
    page.wait_for_function("document.querySelectorAll('.numbers table').length === document.querySelectorAll('.numbers').length")

    assert page.locator("img, base, iframe").count() == 0
    assert page.locator("script").count() == 2


@pytest.mark.slow
def test_two_thousand_cases_open(show):
    """They are drawn, and the longest table is built."""
    page = show(large(2000))
    details = page.locator("[data-tests]")
    details.locator("summary").click()
    details.locator("tbody tr").first.wait_for()

    assert details.locator("tbody tr").count() == 2000


def drawn(function="{}_kernel"):
    """The page of a diff in which every concern moved once, each in its own kernel function, and one function was removed."""
    both = [[row(function=function.format(at), **figures[when]) for at, (_, *figures) in enumerate(MOVES.values())] for when in (0, 1)]
    both[0].append(row(function="gone_kernel"))
    found, failing = diff(*both), tuple(Concern)
    sections = diff_sections(*(side(*rows) for rows in both), found, failing, True)
    return render_sections(code_sentence(found, failing), sections, exit_code=1, kind="codegen diff", source="a file")


@pytest.mark.parametrize("width", slow_but([1280, 380], [380]))
@pytest.mark.parametrize("scheme", slow_but(["light", "dark"], ["dark"]))
def test_a_diff_of_generated_code_needs_no_script(show, scheme, width):
    """The worst first, each with its figures below; folded parts open, in the reader's colours and on a small screen."""
    page = show(drawn(), java_script_enabled=False, color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 800})
    worse = page.locator("section", has=page.get_by_role("heading", name="Regressions"))
    gone = page.locator("section", has=page.get_by_role("heading", name="Removed: only BASE has them"))

    assert page.get_by_role("heading", level=1).inner_text().startswith(f"{len(MOVES)} regressions (")
    assert worse.locator(".lines > li > code:first-child").all_inner_texts()[:2] == ["softmax 0_kernel", "softmax 1_kernel"]
    assert worse.locator(".lines > li").first.locator("li").inner_text() == "sy_90: verdict passed → failed: out of LDS"
    assert worse.locator("b.v-failed").count() >= len(MOVES)
    assert not gone.get_by_text("gone_kernel").is_visible()
    gone.locator("summary").click()
    assert gone.get_by_text("gone_kernel").is_visible()
    assert page.locator("script").count() == 0
    assert page.evaluate("getComputedStyle(document.body).backgroundColor === 'rgb(255, 255, 255)'") == (scheme == "light")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("name", slow_but(PAGE_NAMES, PAGE_NAMES[:1]))
def test_hostile_names_do_nothing_in_a_diff(show, name):
    """As in the report. This page has no element that could load anything."""
    page = show(drawn(name.replace("{", "").replace("}", "") + "{}"))

    assert page.locator("img, base, iframe, script, link").count() == 0
