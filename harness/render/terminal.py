"""Comparison → the terminal: rich renderables that fit 80 columns.

Every text is a `Text`, never a string in which rich would look for markup: `[fp32]` in a test's id is part of the id.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from harness.compare.comparison import Comparison
from harness.records import Verdict
from harness.render.excerpt import rest, shown
from harness.render.sections.model import Line, Section
from harness.render.sections.outline import outline
from harness.render.text import halves, visible

_STYLES = {Verdict.PASSED: "green", Verdict.ABSENT: "yellow", Verdict.NOT_RUN: "yellow"}
_NARROWEST = 5


def render_terminal(comparison: Comparison, full: bool = False) -> RenderableType:
    """Return the report: the verdict first, then what a person needs to act. `full` adds every test, case, configuration and reason."""
    found = shown(comparison)
    return draw_page(comparison.sentence, [*rest(found), *outline(found.comparison, full)], good=comparison.exit_code == 0)


def draw_page(sentence: str, sections: Sequence[Section], *, good: bool) -> RenderableType:
    """Return a page of sections below its verdict."""
    verdict = Text(visible(sentence), style="bold green" if good else "bold red")
    return Group(verdict, *(part for section in sections for part in _draw(section)))


def _draw(section: Section) -> list[RenderableType]:
    parts: list[RenderableType] = [Text(), Text(visible(section.title), style="bold")]
    if section.heads:
        gap = 1 if section.narrow is None else 0
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, gap, 0, 0), show_edge=False)
        for position, head in enumerate(section.heads):
            narrow = section.narrow is not None and position >= section.narrow
            label = _text(head)
            if narrow:
                # Stack short lines, to leave room for the names on the left.
                label = Text("\n".join(word for half in halves(label.plain) for word in half.split(" ", 1)))
            limit = max(*map(len, label.plain.split("\n")), _NARROWEST) if narrow else None
            table.add_column(label, justify="right" if position in section.right else "left", overflow="fold", max_width=limit)
        for row in section.rows:
            table.add_row(*map(_text, row))
        parts.append(table)
    parts += [*map(_line, section.lines), *(Text(line, style="dim") for line in section.legend)]
    # Line by line, and without indentation: that is how it is copied.
    return [*parts, *(Text(visible(line), overflow="fold") for line in section.paste.splitlines())]


def _line(line: Line) -> RenderableType:
    """Keep the indentation of a line if it wraps."""
    text = _text(line)
    indent = len(text.plain) - len(text.plain.lstrip(" "))
    return Padding(text[indent:], (0, 0, 0, indent), expand=False) if indent and indent < len(text) else text


def _text(line: Line) -> Text:
    return Text.assemble(*((visible(bit.text), _STYLES.get(bit.verdict, "red") if bit.verdict else "") for bit in line), overflow="fold")
