"""Comparison → the whole report, part by part. Pure."""

from __future__ import annotations

import re

from markupsafe import Markup

from warpwave.compare.answer import headline, overview, own_providers, shortfalls
from warpwave.compare.model import Comparison
from warpwave.compare.profile import NO_SPEED, POOR_ORDER
from warpwave.render.charts.roofline import roofline
from warpwave.render.charts.svg import mark
from warpwave.render.charts.sweeps import sweeps
from warpwave.render.excerpt import shown
from warpwave.render.html import kernels, tests
from warpwave.render.html.profile import costs
from warpwave.render.html.shell import draw, pack, packaged_script, part, split
from warpwave.render.sections import outline, testing
from warpwave.render.text import UNTESTED

# One subject a file, in this order: each uses what those before it define.
_SCRIPTS = ("data", "switches", "read_out", "long_tables", "kernels", "overview", "copy", "links")


# Characters that two lines of a phone hold, in the usual size and in the smaller one.
_HEADING, _SMALL_HEADING = 70, 88


def _heading(text: str, more: str) -> tuple[str, str]:
    """Return the heading, and what stands below it.

    A long sentence ends at a colon, a semicolon or a bracket. Its names are cut if it would end before the second kind of fault.
    """
    if len(text) <= _HEADING:
        return text, more
    shorter, end = text, 0
    for longest in (len(text), 24, 14):
        shorter = re.sub(rf"`(\w{{{longest}}})\w+`", r"`\1…`", text)
        joints = [found.start() for found in re.finditer(r"; |: | \(|\.$", shorter)]
        end = max((at for at in joints if len(shorter[:at].replace("`", "")) <= _SMALL_HEADING), default=0)
        if "; " in shorter[:end] or "; " not in text:
            break
    if end < _HEADING // 3:
        return f"{text[:_HEADING].rpartition(' ')[0]} …", f"{text} {more}".strip()
    rest = text[end:].strip(":;. ") if text.startswith(shorter[:end]) else text.removesuffix(".")
    return f"{shorter[:end]}.", f"{rest[0].upper()}{rest[1:]}. {more}".strip() if rest else more


def render_html(comparison: Comparison) -> str:
    """Return the whole report as one HTML document."""
    found = shown(comparison)
    lead = headline(comparison, overview(comparison))
    heading, below = _heading(lead.text, lead.more)
    comparison, drawn = found.comparison, sweeps(found.comparison)
    figures, numerics = kernels.figures(drawn), tests.numerics(comparison)
    more = (
        (len(comparison.tests) - kernels.most_tests(comparison), "tests are not in the list of tests"),
        (len(drawn) - len(figures), "drawings are left out"),
        (len(numerics) - tests.MOST_NUMERICS + 1, "or more rows of numbers that tests recorded are left out"),
    )
    lines, generated = overview(comparison), kernels.generated(comparison)
    named = kernels.named(lines, generated)
    idents = kernels.anchors(named)
    short = shortfalls(comparison, lines)
    open_gaps, more_gaps = kernels.gaps(comparison, short, idents)
    roof = roofline(comparison)
    pages = kernels.pages(comparison, lines, idents, own_providers(comparison), figures, generated, numerics)
    bodies = {page["ident"]: part("comparison/kernel.html.jinja", "body", page, comparison, generated) for page in pages}
    bodies_shown, bodies_packed = split(bodies, [idents[name] for name in named])
    left_out = [*found.left_out, *(f"{count} {what}. Everything is in comparison.json." for count, what in more if count > 0)]
    without_card = not comparison.has_card and bool(comparison.grid.rows)
    return draw(
        "comparison/page.html.jinja",
        sentence=heading,
        faulty=lead.faulty,
        small=len(heading) > _HEADING,
        more=below,
        rest=comparison.sentence if comparison.sentence != lead.text else "",
        exit_code=comparison.exit_code,
        kind="comparison",
        script=packaged_script(*(f"comparison/script/{name}.js" for name in _SCRIPTS)),
        comparison=comparison,
        untested=UNTESTED,
        environment=outline.environment(comparison),
        grid=kernels.grid(comparison, idents) if without_card else None,
        rows=kernels.rows(lines, idents, [target.target for target in comparison.beside or comparison.targets], short),
        pills=outline.pills(comparison)[0] if comparison.beside else None,
        gaps=open_gaps,
        more_gaps=more_gaps,
        roof=roof,
        roof_marks=[Markup(mark(5, 5, 7, shape, 3.4, sound=True)) for shape in range(4)],  # noqa: S704 - numbers only
        pages=pages,
        bodies=bodies_shown,
        failures=tests.failures(comparison),
        findings=[*testing.finding_sections(comparison, tests.MOST_FINDINGS), *testing.known_sections(comparison, tests.MOST_FINDINGS)],
        unchecked=outline.not_checked(comparison, tests.MOST_FINDINGS),
        costs=costs(comparison),
        no_speed=NO_SPEED,
        poor_order=POOR_ORDER,
        parity=outline.parity(comparison, tests.MOST_FINDINGS),
        refused=outline.refused(comparison, tests.MOST_FINDINGS),
        left_out=left_out,
        generated=generated,
        data=pack(kernels.embedded(comparison, figures) | {"bodies": bodies_packed}),
    )
