"""Sections, as the terminal and Markdown draw them → a page of their own. It has no script: what is folded, the browser opens. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.render.html.shell import draw
from harness.render.sections.model import Line, Section, split


@dataclass(frozen=True)
class Block:
    """A line and the lines that are set below it, without the spaces that set them there."""

    head: Line
    below: tuple[Line, ...]


@dataclass(frozen=True)
class Part:
    """A section and its lines as blocks; `ident` is where a link to it leads."""

    ident: str
    section: Section
    blocks: tuple[Block, ...]


def render_sections(sentence: str, sections: Sequence[Section], *, exit_code: int, kind: str, source: str) -> str:
    """One HTML document of UTF-8 text. `kind` stands beside our name; `source` is where a reader finds all of it."""
    found = [part for section in sections for part in split(section)]
    parts = [Part(f"s{position}", section, tuple(_blocks(section.lines))) for position, section in enumerate(found)]
    return draw("sections.html.jinja", sentence=sentence, exit_code=exit_code, kind=kind, source=source, parts=parts)


def _blocks(lines: Iterable[Line]) -> list[Block]:
    """Two spaces at a line's beginning say that it belongs to the one above."""
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
