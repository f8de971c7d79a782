"""A comparison.html → pictures for README and the docs, as a browser draws them; needs playwright and a Chromium.

Its verdict, its table and two of one kernel's sweeps: python tools/picture.py reports/h100/comparison.html docs/pictures/report.png softmax
Its verdict, its table and its first gap: python tools/picture.py FOLDER/comparison.html docs/pictures/two-vendors.png, where FOLDER is from
`python tests/unit/synthetic.py FOLDER`. That picture says across its top that one of the vendors is made up.
Its upper part, down to the end of a section: python tools/picture.py RUN/comparison.html docs/pictures/tutorial-report.png '#failures'
"""

import math
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

_LEFT_OUT = ".cards, .rest, .legend, .tools, #gaps, #roofline, #failures, #environment, #tests, #code, #kernels > h2, #kernels > p, .anchor"
# A large page unpacks a kernel's section when it is opened, into an element of its own.
_LEFT_OUT += ", :is(.page, [data-packed]) > :is(.scroll, .fold, .note), .functions"
_LEFT_OUT += ", .summary, .wide, .numbers, .back, .page h4, figure:nth-of-type(n + 3)"
_STYLE = f"{_LEFT_OUT} {{ display: none !important }} header {{ position: static !important }}"


@contextmanager
def page_of(report: Path, scale: float = 1) -> Iterator[Page]:
    """Open a report in a browser, without the hash that keeps other styles out."""
    found = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chromium-browser"))), None)
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=found, args=["--no-sandbox"])
        page = browser.new_context(bypass_csp=True, viewport={"width": 1120, "height": 900}, device_scale_factor=scale).new_page()
        page.goto(report.resolve().as_uri())
        yield page
        browser.close()


def shoot(page: Page, picture: Path, last: str, most: float = math.inf) -> None:
    """Take the page from its top to the end of the element `last`, in pixels at `most`."""
    bottom = page.evaluate("last => document.querySelector(last).getBoundingClientRect().bottom", last)
    page.screenshot(path=str(picture), full_page=True, clip={"x": 0, "y": 0, "width": 1120, "height": min(bottom + 12, most)})


def draw(report: Path, picture: Path, kernel: str) -> None:
    """Take the page as it is, without the sections that do not fit, and of the kernels the one that is named."""
    with page_of(report, 1.5) as page:
        page.add_style_tag(content=_STYLE)
        page.evaluate(
            "name => document.querySelectorAll('section.kernel').forEach(one => {"
            " if (one.querySelector('h3').textContent.trim() !== name) one.remove(); else one.querySelector('details').open = true })",
            kernel,
        )
        page.locator("section.kernel .plot").first.wait_for()
        shoot(page, picture, "section.kernel", 1700)


_WARNING = "An example: the figures of “rocm (made up)” are invented. No AMD card has run this."
_FIRST = ".cards, .rest, .legend, .tools, .note, #failures, #environment, #tests, #code, #kernels, #roofline, #refused, .anchor, footer"
_FIRST += ", #gaps > :not(h2, article:first-of-type), #gaps details, #gaps .scroll, #gaps article ~ *, .overview tbody tr:nth-child(n + 8)"


def draw_answer(report: Path, picture: Path) -> None:
    """Take the first screen, without what folds, and the first gap below it; a band says that one vendor is made up."""
    with page_of(report) as page:
        band = "#band { background: #7a3fa8; color: #fff; padding: .5rem 1.5rem; font-weight: 600; text-align: center }"
        page.add_style_tag(content=f"{_FIRST} {{ display: none !important }} header {{ position: static !important }} {band}")
        page.evaluate(
            "text => { const band = document.createElement('p'); band.id = 'band'; band.textContent = text; document.body.prepend(band) }",
            _WARNING,
        )
        shoot(page, picture, "#gaps article", 1400)


if __name__ == "__main__":
    if sys.argv[3:] and sys.argv[3].startswith("#"):
        with page_of(Path(sys.argv[1])) as top:
            shoot(top, Path(sys.argv[2]), sys.argv[3])
    elif len(sys.argv) > 3:
        draw(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
    else:
        draw_answer(Path(sys.argv[1]), Path(sys.argv[2]))
