"""Comparison → the whole report, part by part. Pure."""

from __future__ import annotations

from harness.compare.comparison import Comparison
from harness.render.charts.sweeps import sweeps
from harness.render.excerpt import shown
from harness.render.html import environment, generated_code, matrix, speeds, tests
from harness.render.html.data import embedded, most_tests
from harness.render.html.shell import draw
from harness.render.sections import findings
from harness.render.text import UNTESTED


def render_html(comparison: Comparison) -> str:
    """Return the whole report as one HTML document."""
    found = shown(comparison)
    comparison, drawn = found.comparison, sweeps(found.comparison)
    figures = speeds.figures(drawn)
    numerics = tests.numerics(comparison)
    more = (
        (len(comparison.tests) - most_tests(comparison), "tests are not in the list of tests"),
        (len(drawn) - len(figures), "drawings are left out"),
        (len(numerics) - tests.MOST_NUMERICS + 1, "or more rows of numbers that tests recorded are left out"),
    )
    left_out = [*found.left_out, *(f"{count} {what}. Everything is in comparison.json." for count, what in more if count > 0)]
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
        findings=findings.sections(comparison, tests.MOST_FINDINGS),
        parity=tests.parity(comparison),
        numerics=numerics,
        left_out=left_out,
        generated=generated_code.generated(comparison),
        data=embedded(comparison, figures),
    )
