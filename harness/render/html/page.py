"""Comparison → the whole report: its parts in their order. Pure."""

from __future__ import annotations

from harness.compare.comparison import Comparison
from harness.render.html import environment, generated, matrix, speeds, tests
from harness.render.html.data import embedded
from harness.render.html.shell import draw
from harness.render.text import UNTESTED


def render_html(comparison: Comparison) -> str:
    """The whole report as one HTML document of UTF-8 text."""
    figures = speeds.figures(comparison)
    return draw(
        "page.html.jinja",
        sentence=comparison.sentence,
        exit_code=comparison.exit_code,
        kind="comparison",
        script="page.js",
        comparison=comparison,
        untested=UNTESTED,
        facts=environment.facts(comparison),
        cards=environment.cards(comparison),
        matrix=matrix.matrix(comparison),
        kernels=speeds.by_kernel(comparison, figures),
        measured=list(dict.fromkeys(cell.target for row in comparison.rows for cell in row.cells)),
        failures=tests.failures(comparison),
        parity=tests.parity(comparison),
        numerics=tests.numerics(comparison),
        generated=generated.generated(comparison),
        data=embedded(comparison, figures),
    )
