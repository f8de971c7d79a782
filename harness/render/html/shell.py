"""The frame of every page: a head with the verdict, inline styles, and a policy that blocks all other content. Pure."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from harness.render.charts.palette import DARK, LIGHT, rules, variables
from harness.render.sections.model import blocks
from harness.render.text import counts, first_line, number, plural, trend, visible


def draw(template: str, *, sentence: str, exit_code: int, kind: str, script: str = "", rest: str | None = None, **values: Any) -> str:
    """Render a template that extends `shell.html.jinja`. `script` runs after the script of the theme; without it, neither is there.

    The headline is the sentence and `rest` comes below it; without `rest`, the sentence is split at its first colon.
    """
    style, code = _style(), packaged_script("theme.js") + script if script else ""
    allowed = f"style-src '{_digest(style)}'; " + (f"script-src '{_digest(code)}'; " if code else "")
    if rest is None:
        head, _, rest = sentence.partition(": ")
        sentence = head if rest else sentence
    return (
        _environment()
        .get_template(template)
        .render(
            headline=sentence,
            rest=rest,
            good=exit_code == 0,
            exit_code=exit_code,
            kind=kind,
            policy=f"default-src 'none'; {allowed}base-uri 'none'; form-action 'none'",
            style=style,
            script=Markup(code),  # noqa: S704 - our own files, not data
            **values,
        )
    )


def packaged_script(*names: str) -> str:
    """Return these files as one strict function: they share the names that they define, and give none to the page."""
    body = "\n".join(_package_data(name) for name in names)
    return f'"use strict";\n(() => {{\n{body}}})();\n'


def part(template: str, macro: str, *values: Any) -> Markup:
    """Return what a macro of a template makes of the values."""
    found: Markup = getattr(_environment().get_template(template).module, macro)(*values)
    return found


@cache
def _environment() -> Environment:
    """Return the environment. It escapes everything, after `visible` made texts harmless as in every renderer."""
    found = Environment(loader=FunctionLoader(_package_data), autoescape=True, undefined=StrictUndefined, finalize=_shown)
    found.trim_blocks = found.lstrip_blocks = True
    found.filters.update(number=number, counts=counts, plural=plural, first_line=first_line, ticked=_ticked, trend=trend, blocks=blocks)
    return found


def _ticked(text: str) -> Markup:
    """Return text between backticks as code. With an odd number of backticks, return the text unchanged."""
    parts = visible(text).split("`")
    if len(parts) % 2 == 0:
        return escape(visible(text))
    return Markup().join(Markup("<code>{}</code>").format(part) if position % 2 else escape(part) for position, part in enumerate(parts))


def _shown(value: Any) -> Any:
    return visible(value) if type(value) is str else value  # Markup is a str too, but comes from this package


@cache
def _package_data(name: str) -> str:
    return files("harness.render.html").joinpath("templates", name).read_text(encoding="utf-8")


@cache
def _style() -> Markup:
    light, dark = variables(LIGHT), variables(DARK)
    colours = (
        f":root{{color-scheme:light dark;{light}}}\n@media (prefers-color-scheme:dark){{:root{{{dark}}}}}\n"
        f":root[data-theme=light]{{color-scheme:light;{light}}}:root[data-theme=dark]{{color-scheme:dark;{dark}}}\n"
        f"@media print{{:root,:root[data-theme=dark]{{color-scheme:light;{light}}}}}\n"
    )
    return Markup(colours + rules() + "\n" + _package_data("page.css") + _package_data("comparison/comparison.css"))  # noqa: S704 - our own files, not data


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
