"""A comparison.html → pictures for README and the docs, as a browser draws them; needs playwright and a Chromium.

Its verdict, its table and two of one kernel's sweeps: python tools/picture.py reports/h100/comparison.html docs/pictures/report.png softmax
Its verdict, its table and its first gap: python tools/picture.py FOLDER/comparison.html docs/pictures/two-vendors.png, where FOLDER is from
`python tests/unit/synthetic.py FOLDER`. That picture says across its top that one of the vendors is made up.
Its upper part, down to the end of a section: python tools/picture.py RUN/comparison.html docs/pictures/tutorial-report.png '#failures'
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

_LEFT_OUT = ".cards, .rest, .legend, .tools, #gaps, #roofline, #failures, #environment, #tests, #code, #kernels > h2, #kernels > p, .anchor"
# A large page unpacks a kernel's section when it is opened, into an element of its own.
_LEFT_OUT += ", :is(.page, [data-packed]) > :is(.scroll, .fold, .note), .functions"
_LEFT_OUT += ", .summary, .wide, .numbers, .back, .page h4, figure:nth-of-type(n + 3)"
_STYLE = f"{_LEFT_OUT} {{ display: none !important }} header {{ position: static !important }}"


def draw(report: Path, picture: Path, kernel: str) -> None:
    """Take the page as it is, without the sections that do not fit, and of the kernels the one that is named."""
    found = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chromium-browser"))), None)
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=found, args=["--no-sandbox"])
        page = browser.new_context(bypass_csp=True, viewport={"width": 1120, "height": 900}, device_scale_factor=1.5).new_page()
        page.goto(report.resolve().as_uri())
        page.add_style_tag(content=_STYLE)
        page.evaluate(
            "name => document.querySelectorAll('section.kernel').forEach(one => {"
            " if (one.querySelector('h3').textContent.trim() !== name) one.remove(); else one.querySelector('details').open = true })",
            kernel,
        )
        page.locator("section.kernel .plot").first.wait_for()
        bottom = page.evaluate("document.querySelector('section.kernel').getBoundingClientRect().bottom")
        page.screenshot(path=str(picture), full_page=True, clip={"x": 0, "y": 0, "width": 1120, "height": min(bottom + 12, 1700)})
        browser.close()


_WARNING = "An example: the figures of “rocm (made up)” are invented. No AMD card has run this."
_FIRST = ".cards, .rest, .legend, .tools, .note, #failures, #environment, #tests, #code, #kernels, #roofline, #refused, .anchor, footer"
_FIRST += ", #gaps > :not(h2, article:first-of-type), #gaps details, #gaps .scroll, #gaps article ~ *, .overview tbody tr:nth-child(n + 8)"


def draw_answer(report: Path, picture: Path) -> None:
    """Take the first screen, without what folds, and the first gap below it; a band says that one vendor is made up."""
    found = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chromium-browser"))), None)
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=found, args=["--no-sandbox"])
        page = browser.new_context(bypass_csp=True, viewport={"width": 1120, "height": 900}, device_scale_factor=1).new_page()
        page.goto(report.resolve().as_uri())
        band = "#band { background: #7a3fa8; color: #fff; padding: .5rem 1.5rem; font-weight: 600; text-align: center }"
        page.add_style_tag(content=f"{_FIRST} {{ display: none !important }} header {{ position: static !important }} {band}")
        page.evaluate(
            "text => { const band = document.createElement('p'); band.id = 'band'; band.textContent = text; document.body.prepend(band) }",
            _WARNING,
        )
        bottom = page.evaluate("document.querySelector('#gaps article').getBoundingClientRect().bottom")
        page.screenshot(path=str(picture), full_page=True, clip={"x": 0, "y": 0, "width": 1120, "height": min(bottom + 16, 1400)})
        browser.close()


def draw_top(report: Path, picture: Path, section: str) -> None:
    """Take the page as it is, down to the end of a section, such as `#failures`."""
    found = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chromium-browser"))), None)
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=found, args=["--no-sandbox"])
        page = browser.new_context(bypass_csp=True, viewport={"width": 1120, "height": 900}, device_scale_factor=1).new_page()
        page.goto(report.resolve().as_uri())
        bottom = page.evaluate("section => document.querySelector(section).getBoundingClientRect().bottom", section)
        page.screenshot(path=str(picture), full_page=True, clip={"x": 0, "y": 0, "width": 1120, "height": bottom + 12})
        browser.close()


if __name__ == "__main__":
    if sys.argv[3:] and sys.argv[3].startswith("#"):
        draw_top(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
    elif len(sys.argv) > 3:
        draw(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
    else:
        draw_answer(Path(sys.argv[1]), Path(sys.argv[2]))
