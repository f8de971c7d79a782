"""The page: its parts in their order, its style and script inside it, and a policy that lets nothing else in. Pure."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from harness.compare.comparison import Comparison
from harness.render.html import environment, generated, matrix, speeds, tests
from harness.render.html.data import embedded
from harness.render.palette import DARK, LIGHT, rules, variables
from harness.render.text import counts, first_line, number, plural, visible


def render_html(comparison: Comparison) -> str:
    """The whole report as one HTML document of UTF-8 text."""
    figures = speeds.figures(comparison)
    style, script = _style(), Markup(_package_data("page.js"))  # noqa: S704 - our own files, not data
    head, _, rest = comparison.sentence.partition(": ")
    return (
        _environment()
        .get_template("page.html.jinja")
        .render(
            headline=head if rest else comparison.sentence,
            rest=rest,
            good=comparison.exit_code == 0,
            comparison=comparison,
            policy=f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; base-uri 'none'; form-action 'none'",
            style=style,
            script=script,
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
    )


@cache
def _environment() -> Environment:
    """Escapes everything; texts are first made harmless to look at, as in every renderer."""
    found = Environment(loader=FunctionLoader(_package_data), autoescape=True, undefined=StrictUndefined, finalize=_shown)
    found.trim_blocks = found.lstrip_blocks = True
    found.filters.update(number=number, counts=counts, plural=plural, first_line=first_line)
    return found


def _shown(value: Any) -> Any:
    return visible(value) if type(value) is str else value  # Markup, which is a str too, is ours


@cache
def _package_data(name: str) -> str:
    return files("harness.render.html").joinpath(name).read_text(encoding="utf-8")


@cache
def _style() -> Markup:
    light, dark = variables(LIGHT), variables(DARK)
    colours = (
        f":root{{color-scheme:light dark;{light}}}\n@media (prefers-color-scheme:dark){{:root{{{dark}}}}}\n"
        f":root[data-theme=light]{{color-scheme:light;{light}}}:root[data-theme=dark]{{color-scheme:dark;{dark}}}\n"
        f"@media print{{:root,:root[data-theme=dark]{{color-scheme:light;{light}}}}}\n"
    )
    return Markup(colours + rules() + "\n" + _package_data("page.css"))  # noqa: S704 - our own files, not data


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
