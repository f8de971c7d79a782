"""The frame of every page: a head with the verdict, inline styles, and a policy that blocks all other content. Pure."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from warpwave.records.words import plural
from warpwave.render.charts.svg import DARK, LIGHT, rules, variables
from warpwave.render.sections.model import Section, blocks
from warpwave.render.text import counts, first_line, number, trend
from warpwave.safe_text import visible


def draw(
    template: str,
    *,
    sentence: str,
    exit_code: int,
    kind: str,
    script: str = "",
    rest: str | None = None,
    more: str = "",
    faulty: bool = False,
    small: bool = False,
    **values: Any,
) -> str:
    """Render a template that extends `shell.html.jinja`. `script` runs after the script of the theme; without it, neither is there.

    The headline is the sentence and `rest` comes below it; without `rest`, the sentence is split at its first colon. `more` stands right
    below it. `faulty`: it names something to look at, whatever the exit code. `small`: it needs a smaller font.
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
            more=more,
            faulty=faulty,
            small=small,
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


def load() -> None:
    """Compile all templates, which takes a quarter of a second."""
    for name in _environment().list_templates(["jinja"]):
        _environment().get_template(name)


@cache
def _environment() -> Environment:
    """Return the environment. It escapes everything, after `visible` made texts harmless as in every renderer."""
    found = Environment(loader=PackageLoader("warpwave.render.html"), autoescape=True, undefined=StrictUndefined, finalize=_shown)
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
    return files("warpwave.render.html").joinpath("templates", name).read_text(encoding="utf-8")


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


# The parts of a page that only its script reads: as JSON in a small page, compressed in a large one. Pure.

# Above these, a browser would take longer than a second to open the page, or a reader to load it.
MOST_MARKUP = 150_000  # characters of the sections of all kernels
MOST_JSON = 100_000


@dataclass(frozen=True)
class Data:
    """The content of the script element `#data`, and its type: JSON as it is, or in base64 after raw deflate."""

    type: str
    text: Markup


def split(bodies: Mapping[str, Markup], gravest: Iterable[str]) -> tuple[dict[str, Markup | None], dict[str, str]]:
    """Return the sections that are markup of the page, with None for the others, and the others by their anchor.

    `gravest` orders the anchors: the sections that a reader opens first are in the page, also for a browser without scripts.
    """
    room = MOST_MARKUP
    shown: dict[str, Markup | None] = dict.fromkeys(bodies)
    for ident in gravest:
        room -= len(bodies[ident])
        if room < 0:
            break
        shown[ident] = bodies[ident]
    return shown, {ident: str(body) for ident, body in bodies.items() if shown[ident] is None}


def pack(value: Mapping[str, Any]) -> Data:
    """Return strict JSON, without NaN, that cannot close or open an HTML element; if it is long, its compressed form."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    if len(text) > MOST_JSON:
        deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
        packed = base64.b64encode(deflate.compress(text.encode()) + deflate.flush()).decode()
        return Data("application/octet-stream", Markup(packed))  # noqa: S704 - base64
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Data("application/json", Markup(text))  # noqa: S704 - every character special to HTML is escaped


# Sections, as the terminal and Markdown draw them → an HTML page without a script; the browser opens folded parts. Pure.

_HEADING = 200  # characters of a sentence that is the heading as a whole


def render_sections(sentence: str, sections: Sequence[Section], *, exit_code: int, kind: str, source: str) -> str:
    """Return one HTML document. `kind` is shown beside the product name; `source` says where a reader finds everything."""
    whole = "" if len(sentence) <= _HEADING else None
    return draw("sections.html.jinja", sentence=sentence, rest=whole, exit_code=exit_code, kind=kind, source=source, sections=sections)
