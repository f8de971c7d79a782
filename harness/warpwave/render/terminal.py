"""Comparison → the terminal: rich renderables that fit 80 columns.

Every text is a `Text`, never a string in which rich would look for markup: `[fp32]` in a test's id is part of the id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from warpwave.compare.answer import Distance, Headline
from warpwave.compare.model import Comparison
from warpwave.records import Verdict, plural
from warpwave.render.excerpt import rest, shown
from warpwave.render.sections.model import BREAK, Bit, Line, Section
from warpwave.render.sections.outline import brief, outline
from warpwave.render.text import stacked
from warpwave.safe_text import visible

_STYLES = {
    **dict.fromkeys((Verdict.PASSED, Verdict.XFAILED), "green"),
    **dict.fromkeys((Verdict.ABSENT, Verdict.NOT_RUN), "yellow"),
    Verdict.KNOWN: "dim",
}
_FAR = {Distance.NEAR: "blue", Distance.SHORT: "yellow", Distance.FAR: "bold red"}
_NARROWEST = 5
_NAME = 28
_WIDEST = 10_000  # no table is as wide
_GRID_HEAD = 4  # lines of a head of the grid, with the empty one above
_HEAD = 9  # characters of a head of the grid
_GRID = 24  # lines of a table that is drawn in groups, on one screen
_SCREEN = 49  # lines; what is not on it and the last lines of the command come below: all in all 60


def render_terminal(comparison: Comparison, full: bool = False, again: str = "") -> RenderableType:
    """Return the report: the answer on one screen. `full` adds every test, case, configuration and reason below it.

    `again` is the command that shows all of it; the screen ends with it.
    """
    found = shown(comparison)
    good = comparison.exit_code == 0
    answer = brief(comparison, found.comparison, figures=full)
    if full:
        sections = [section for section, _ in answer.sections]
        sections += [*rest(found), *outline(found.comparison, full)]
        return Group(_headline(answer.headline, good=good), *(part for section in sections for part in _draw(section)))
    parts = [*((section, 4) for section in rest(found)), *answer.sections]
    return Screen(_headline(answer.headline, good=good), parts, again)


@dataclass(frozen=True)
class Screen:
    """A verdict and sections, each cut to its number of lines, and all together to one screen. Wrapped lines count as they are shown.

    `again` is the command that shows everything.
    """

    verdict: Text
    sections: Sequence[tuple[Section, int]]
    again: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw whole lines only. What is cut is counted; a section without room is named, too."""
        room = _SCREEN
        lines = console.render_lines(self.verdict, options, pad=False)[: _SCREEN // 4]
        taken = len(lines)
        hidden = []
        for section, most in self.sections:
            drawn = [line for part in _draw(section, cut=True) for line in _lines(part, console, options)]
            rows = [-(-max(1, Segment.get_line_length(line)) // options.max_width) for line in drawn]
            allowed = min(most + 2, room - taken)  # its title and the empty line above it
            if allowed < 4:
                hidden.append(f"{section.title} ({plural(sum(rows[2:]), 'line')})")
                continue
            if sum(rows) > allowed:
                kept = max(at for at in range(len(rows)) if sum(rows[:at]) < allowed)
                more = Text(f"… {plural(sum(rows[kept:]), 'more line')}", style="dim")
                drawn, rows = [*drawn[:kept], *console.render_lines(more, options, pad=False)], [*rows[:kept], 1]
            lines += drawn
            taken += sum(rows)
        end = [Text(visible(f"Not on this screen: {', '.join(hidden)}"), style="dim")] if hidden else []
        end += [_command(f"Every test, case and configuration: {self.again}")] if self.again else []
        for part in [Text(), *end] if end else []:
            lines += _lines(part, console, options)
        for line in lines:
            yield from line
            yield Segment.line()


def draw_page(sentence: str, sections: Sequence[Section], *, good: bool) -> RenderableType:
    """Return a page of sections below its verdict."""
    return Group(_headline(Headline(sentence), good=good), *(part for section in sections for part in _draw(section)))


def _headline(found: Headline, *, good: bool) -> Text:
    text = Text(visible(found.text), style="bold red" if not good else "bold yellow" if found.faulty else "bold green")
    return text.append(f"\n{visible(found.more)}", "not bold default") if found.more else text


def _draw(section: Section, *, cut: bool = False) -> list[RenderableType]:
    section = _stack(section)
    parts: list[RenderableType] = [Text(), Text(visible(section.title), style="bold")]
    if section.groups:
        parts.append(_Grouped(section, cut))
    elif section.heads:
        gap = 1 if section.narrow is None else 0
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, gap, 0, 0), show_edge=False)
        for position, head in enumerate(section.heads):
            narrow = section.narrow is not None and position >= section.narrow
            label = _text(head)
            if narrow:
                # Stack short lines, to leave room for the names on the left.
                label = Text("\n".join(stacked(label.plain)))
            limit = max(*map(len, label.plain.split("\n")), _NARROWEST) if narrow else None
            # The names in the first column stay whole, if there is room beside them.
            lead = position == 0 and section.narrow is None and all(_widest(row[0]) <= _NAME for row in section.rows)
            side: Literal["right", "left"] = "right" if position in section.right else "left"
            table.add_column(label, justify=side, overflow="fold", max_width=limit, no_wrap=lead)
        for row in section.rows:
            table.add_row(*map(_text, row))
        parts.append(table)
    parts += [*map(_line, section.lines), *(Text(visible(line), style="dim") for line in section.legend)]
    return [*parts, *map(_command, section.paste.splitlines())]


def _widest(line: Line) -> int:
    return max(map(len, _text(line).plain.split("\n")))


def _stack(section: Section) -> Section:
    """Return the section with its column `under` below the names. It is the last one."""
    if section.under is None:
        return section
    heads = ((*section.heads[0], BREAK, Bit("  "), *section.heads[-1]), *section.heads[1:-1])
    rows = tuple(((*row[0], *((BREAK, Bit("  "), *row[-1]) if row[-1] else ())), *row[1:-1]) for row in section.rows)
    return replace(section, heads=heads, rows=rows)


@dataclass(frozen=True)
class _Grouped:
    """The table of a section with groups of columns: as many of them side by side as there is room for, the others below. If it is `cut`,
    only the first rows are drawn, as many as fit on a screen beside the rest of the answer."""

    section: Section
    cut: bool

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw one table or several; each begins with the names."""
        tables: list[list[tuple[str, tuple[int, ...]]]] = [[]]
        for group in self.section.groups:
            wider = [*tables[-1], group]
            width = Measurement.get(console, options.update(max_width=_WIDEST), self._table(wider, self.section.rows)).maximum
            if tables[-1] and width > options.max_width:
                tables.append([group])
            else:
                tables[-1] = wider
        room = max(1, _GRID // len(tables) - _GRID_HEAD)
        rows = self.section.rows[:room] if self.cut else self.section.rows
        for position, groups in enumerate(tables):
            if position:
                yield Text()
            yield self._table(groups, rows)
        if len(rows) < len(self.section.rows):
            yield Text(f"… and {len(self.section.rows) - len(rows)} more, no worse than these", style="dim")

    def _table(self, groups: Sequence[tuple[str, tuple[int, ...]]], rows: Sequence[tuple[Line, ...]]) -> Table:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
        heads = [_text(head).plain for head in self.section.heads]
        labels = {0: ["", *_stacked(heads[0])]}
        for title, columns in groups:
            labels |= {column: [title if column == columns[0] else "", *_stacked(heads[column])] for column in columns}
        tallest = max(map(len, labels.values()))
        for column, (title, *words) in labels.items():
            label = Text("\n").join([Text(title, "bold"), *map(Text, [*[""] * (tallest - 1 - len(words)), *words])])
            table.add_column(label, overflow="fold", max_width=_NAME if column == 0 else None)
        for row in rows:
            table.add_row(*(_text(row[column]) if column else _in_words(_text(row[0])) for column in labels))
        return table


def _in_words(names: Text) -> Text:
    """Break names that are wider than their column between words, and indent what follows."""
    lines: list[Text] = []
    for name in names.split("\n"):
        while len(name) > _NAME and (end := max(name.plain.rfind(mark, 3, _NAME) for mark in "_. /") + 1):
            head, name = name.divide([end])
            lines.append(head)
            name = Text("  ").append_text(name)
        lines.append(name)
    return Text("\n").join(lines)


def _stacked(head: str) -> list[str]:
    """Return a head on two lines, if it is longer than most cells and has two words."""
    before, space, last = head.rpartition(" ")
    return [before, last] if space and len(head) > _HEAD else [head]


def _command(text: str) -> Text:
    """Return a text as it is copied: not wrapped. A terminal wraps it and still copies one line."""
    return Text(visible(text), no_wrap=True, overflow="ignore")


def _lines(part: RenderableType, console: Console, options: ConsoleOptions) -> list[list[Segment]]:
    """Return the lines that a part is drawn as. What is copied is one line, however long."""
    if isinstance(part, Text) and part.no_wrap:
        return [[Segment(part.plain)]]
    return console.render_lines(part, options, pad=False)


def _line(line: Line) -> RenderableType:
    """Keep the indentation of a line if it wraps."""
    text = _text(line)
    if text.plain.startswith("  $ "):
        return _command(text.plain)
    indent = len(text.plain) - len(text.plain.lstrip(" "))
    return Padding(text[indent:], (0, 0, 0, indent), expand=False) if indent and indent < len(text) else text


def _text(line: Line) -> Text:
    return Text.assemble(*(("\n" if bit is BREAK else visible(bit.text), _style(bit)) for bit in line), overflow="fold")


def _style(bit: Bit) -> str:
    if bit.far is not None:
        return _FAR[bit.far]
    return _STYLES.get(bit.verdict, "red") if bit.verdict else ""
