"""Draw every state of the report in a browser, check it, and lay the pictures side by side; needs playwright and a Chromium.

`nox -s screens` draws all of them in three widths and both themes. `-- recorded trend` draws those states, `-- --site build/site` also the
documentation, and `-- --axe axe.min.js` asks axe-core (a file of it) about each page. OUT gets `sheets/WIDTH-THEME-N.png` and
`terminal/STATE-COLUMNS.txt`. A fault is printed, and the exit code is then 1.
"""

import argparse
import functools
import http.server
import io
import itertools
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright
from rich.console import Console

sys.path.insert(0, str(Path(__file__).parent))
from states import STATES

from warpwave.render.html import render_html
from warpwave.render.terminal import render_terminal

WIDTHS = {1440: (2, 1700), 800: (3, 1500), 390: (4, 1700)}  # pictures in a row of a sheet, and their largest height
LINES = 60
HOST = "http://127.0.0.1"
OPEN = "document.querySelectorAll('details').forEach((one, at) => { if (at < 40) one.open = true })"
# Text that a box cuts off, tables that scroll sideways, and labels of a drawing that overlap or leave it.
FAULTS = """() => {
  const shown = one => one.getClientRects().length > 0 && getComputedStyle(one).visibility !== 'hidden';
  const name = one => `${one.tagName.toLowerCase()}.${one.getAttribute('class') || ''} "${one.textContent.trim().slice(0, 50)}"`;
  const found = [];
  const over = document.documentElement.scrollWidth - innerWidth;
  if (over > 0) found.push(`the page is ${over} px too wide`);
  for (const one of document.querySelectorAll('body *')) {
    if (!shown(one) || one.closest('svg, .skip, .md-search, .md-header, .md-sidebar')) continue;
    const style = getComputedStyle(one);
    const cut = one.scrollWidth - one.clientWidth;
    if (cut > 1 && ['hidden', 'clip'].includes(style.overflowX)) found.push(`cut by ${cut} px: ${name(one)}`);
    const box = one.getBoundingClientRect();
    const inside = one.closest('.scroll, .plot, pre, nav, .md-typeset__scrollwrap, .highlight');
    if (box.right > innerWidth + 1 && !inside && box.width) found.push(`beyond the edge: ${name(one)}`);
  }
  for (const one of document.querySelectorAll('.scroll:has(> .overview), .beside'))
    if (shown(one) && one.scrollWidth - one.clientWidth > 1) found.push(`scrolls sideways: ${name(one)}`);
  for (const picture of document.querySelectorAll('.plot svg')) {
    if (!shown(picture)) continue;
    const frame = picture.getBoundingClientRect();
    const labels = [...picture.querySelectorAll('text')].filter(shown).map(one => [one, one.getBoundingClientRect()]);
    labels.forEach(([one, box], at) => {
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
        found.push(`leaves its drawing: ${name(one)}`);
      for (const [other, its] of labels.slice(at + 1)) {
        const wide = Math.min(box.right, its.right) - Math.max(box.left, its.left);
        const high = Math.min(box.bottom, its.bottom) - Math.max(box.top, its.top);
        if (wide > 1 && high > 3) found.push(`overlap: ${name(one)} and ${name(other)}`);
      }
    });
  }
  return [...new Set(found)];
}"""
AXE = """async () => (await axe.run(document, {preload: false, resultTypes: ['violations'],
  runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']})).violations.map(
  found => `axe ${found.id} (${found.nodes.length}): ${found.nodes[0].html.slice(0, 120)}`)"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("states", nargs="*", help=f"some of: {', '.join(STATES)}")
    parser.add_argument("--out", type=Path, default=Path("build/screens"))
    parser.add_argument("--site", type=Path, help="the documentation, as `nox -s docs` builds it")
    parser.add_argument("--axe", type=Path, help="axe.min.js of axe-core")
    given = parser.parse_args()
    names = given.states or list(STATES)
    for folder in ("pages", "pictures", "sheets", "terminal"):
        (given.out / folder).mkdir(parents=True, exist_ok=True)
    faults = [fault for name in names for fault in write(name, given.out)]
    print(*faults, sep="\n", end="\n" if faults else "")
    pages = {name: (given.out / "pages" / f"{name}.html").resolve().as_uri() for name in names}
    pages |= served(given.site) if given.site else {}
    with sync_playwright() as driver:
        found = os.environ.get("WARPWAVE_CHROMIUM") or next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        for width, theme in itertools.product(WIDTHS, ("light", "dark")):
            pictures = {}
            for name, url in pages.items():
                picture = given.out / "pictures" / f"{name.replace('/', '.')}-{width}-{theme}.png"
                for fault in look(browser, url, width, theme, picture, given.axe):
                    faults.append(f"{name} {width} {theme}: {fault}")
                    print(faults[-1], flush=True)
                pictures[name] = picture
            lay_out(browser, pictures, width, given.out / "sheets" / f"{width}-{theme}")
        browser.close()
    print(f"{len(faults)} faults. Sheets: {given.out / 'sheets'}")
    return 1 if faults else 0


def write(name: str, out: Path) -> Iterator[str]:
    """Write a state's page and what a terminal shows of it; yield what is wrong with the latter."""
    comparison = STATES[name]()
    (out / "pages" / f"{name}.html").write_text(render_html(comparison))
    for columns in (80, 120):
        text = io.StringIO()
        Console(file=text, width=columns, highlight=False).print(render_terminal(comparison), crop=False)
        (out / "terminal" / f"{name}-{columns}.txt").write_text(text.getvalue())
        if (lines := text.getvalue().count("\n")) > LINES:
            yield f"{name}: {lines} lines in a terminal of {columns} columns"


def served(site: Path) -> dict[str, str]:
    """Serve the documentation on this machine, since its search does not load from files; return the address of each page."""
    handler = functools.partial(QuietHandler, directory=site)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    parts = [path.parent.relative_to(site).as_posix() for path in sorted(site.rglob("index.html"))]
    return {f"docs {part}": f"{HOST}:{server.server_port}/{part}/" for part in parts}


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


def look(browser: Browser, url: str, width: int, theme: str, picture: Path, axe: Path | None) -> list[str]:
    """Take a picture of a page; return what is wrong with it, as it opens and with its folded parts open."""
    said: list[str] = []
    context = browser.new_context(bypass_csp=True, viewport={"width": width, "height": 900}, color_scheme=theme)
    page = context.new_page()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: None if request.url.startswith(("file:", "data:", "blob:", HOST)) else said.append(request.url))
    page.goto(url)
    page.wait_for_timeout(60)
    shoot(page, picture, width, WIDTHS[width][1])
    found = page.evaluate(FAULTS)
    for _ in range(2):  # what opens may hold more that opens
        page.evaluate(OPEN)
        page.wait_for_timeout(150)
    found += [f"(opened) {fault}" for fault in page.evaluate(FAULTS) if fault not in found]
    if theme == "light" and width != 800:
        shoot(page, picture.with_name(f"opened-{picture.name}"), width, 6000)
    if axe is not None and width != 800:
        page.evaluate(axe.read_text())
        found += page.evaluate(AXE)
    context.close()
    return [*found, *said]


def shoot(page: Page, picture: Path, width: int, height: int) -> None:
    whole = page.evaluate("document.documentElement.scrollHeight")
    page.screenshot(path=str(picture), full_page=True, clip={"x": 0, "y": 0, "width": width, "height": min(whole, height)})


def lay_out(browser: Browser, pictures: dict[str, Path], width: int, sheet: Path) -> None:
    columns = WIDTHS[width][0]
    page = browser.new_page(viewport={"width": 1560, "height": 900})
    for number, row in enumerate(batched(pictures, columns)):
        shown = "".join(f"<figure><figcaption>{name}</figcaption><img src='{path.resolve().as_uri()}'></figure>" for name, path in row)
        style = f"body{{margin:0;display:grid;grid-template-columns:repeat({columns},1fr);gap:8px;background:#888}}"
        style += "figure{margin:0}img{width:100%}figcaption{font:14px sans-serif}"
        html = sheet.parent / "sheet.html"
        html.write_text(f"<meta charset=utf-8><style>{style}</style>{shown}")
        page.goto(html.resolve().as_uri())
        page.screenshot(path=f"{sheet}-{number}.png", full_page=True)
    page.close()


def batched(pictures: dict[str, Path], size: int) -> Iterator[list[tuple[str, Path]]]:
    items = list(pictures.items())
    yield from (items[at : at + size] for at in range(0, len(items), size))


if __name__ == "__main__":
    sys.exit(main())
