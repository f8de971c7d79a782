"""A recorded comparison.html → the picture of it in README: its verdict, its table and two of one kernel's sweeps, as a browser draws them.

python tools/picture.py reports/h200/comparison.html docs/report.png softmax; needs playwright and a Chromium.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

_LEFT_OUT = ".cards, .rest, .legend, .tools, #gaps, #failures, #environment, #tests, #code, #kernels > h2, #kernels > p, .anchor"
_LEFT_OUT += ", .summary, .wide, .numbers, .back, .page > .scroll, .page > .fold, .page > .note, .page h4, figure:nth-of-type(n + 3)"
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
        bottom = page.evaluate("document.querySelector('section.kernel').getBoundingClientRect().bottom")
        page.screenshot(path=str(picture), full_page=True, clip={"x": 0, "y": 0, "width": 1120, "height": min(bottom + 12, 1400)})
        browser.close()


if __name__ == "__main__":
    draw(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
