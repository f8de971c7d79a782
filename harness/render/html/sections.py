"""Sections, as the terminal and Markdown draw them → an HTML page without a script; the browser opens folded parts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.render.html.shell import draw
from harness.render.sections.model import Section, split

_HEADING = 200  # characters of a sentence that is the heading as a whole


@dataclass(frozen=True)
class Part:
    """A section; `ident` is its anchor."""

    ident: str
    section: Section


def render_sections(sentence: str, sections: Sequence[Section], *, exit_code: int, kind: str, source: str) -> str:
    """Return one HTML document. `kind` is shown beside the product name; `source` says where a reader finds everything."""
    found = [part for section in sections for part in split(section)]
    parts = [Part(f"s{position}", section) for position, section in enumerate(found)]
    whole = "" if len(sentence) <= _HEADING else None
    return draw("sections.html.jinja", sentence=sentence, rest=whole, exit_code=exit_code, kind=kind, source=source, parts=parts)
