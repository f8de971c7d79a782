"""Sections, as the terminal and Markdown draw them → an HTML page without a script; the browser opens folded parts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.render.html.shell import draw
from harness.render.sections.model import Line, Section, split


@dataclass(frozen=True)
class Block:
    """A line and the lines indented below it, without their indentation."""

    head: Line
    below: tuple[Line, ...]


@dataclass(frozen=True)
class Part:
    """A section and its lines as blocks; `ident` is its anchor."""

    ident: str
    section: Section
    blocks: tuple[Block, ...]


def render_sections(sentence: str, sections: Sequence[Section], *, exit_code: int, kind: str, source: str) -> str:
    """Return one HTML document. `kind` is shown beside the product name; `source` says where a reader finds everything."""
    found = [part for section in sections for part in split(section)]
    parts = [Part(f"s{position}", section, tuple(_blocks(section.lines))) for position, section in enumerate(found)]
    return draw("sections.html.jinja", sentence=sentence, exit_code=exit_code, kind=kind, source=source, parts=parts)


def _blocks(lines: Iterable[Line]) -> list[Block]:
    """Group lines into blocks: a line that starts with two spaces belongs to the line above."""
    blocks: list[Block] = []
    for line in filter(None, lines):
        first, rest = line[0], line[1:]
        if blocks and first.text.startswith("  ") and not first.name:
            own = first.text.strip()
            kept = ((type(first)(f"{own} ", first.verdict),) if own else ()) + rest
            blocks[-1] = Block(blocks[-1].head, (*blocks[-1].below, kept))
        else:
            blocks.append(Block(line, ()))
    return blocks
