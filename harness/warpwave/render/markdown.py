"""Comparison → Markdown for a CI job's summary: the headline, the table of kernels, what needs attention, and the rest folded.

Text from outside is always in a code span, so that no name can become a link, a mention, a tag or a table.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from warpwave.compare.model import Comparison
from warpwave.records import Verdict
from warpwave.render.excerpt import rest, shown
from warpwave.render.sections.model import BREAK, Bit, Line, Section
from warpwave.render.sections.outline import brief, everything, outline
from warpwave.safe_text import visible

# GitHub rejects a step summary above 1 MiB, and the job stays green. The rest of that is left for other steps.
LIMIT_BYTES = 900 * 1024
_MARKS = {Verdict.PASSED: "", Verdict.XFAILED: "", Verdict.KNOWN: "", Verdict.ABSENT: "⚠️ ", Verdict.NOT_RUN: "⚠️ "}
_FAILURES = 30  # lines
_SPECIAL = re.compile(r"([\\`*_\[\]<>#|~$])")


def render_markdown(comparison: Comparison, limit: int = LIMIT_BYTES) -> str:
    """Return the report in GitHub's Markdown, at most `limit` bytes of UTF-8. Sections that do not fit are left out and listed."""
    excerpt = shown(comparison)
    answer = brief(comparison, excerpt.comparison, failures=_FAILURES)
    opened = [section for section, _ in answer.sections]
    known = {section.title for section in opened}
    details = [*outline(excerpt.comparison, full=False), *everything(excerpt.comparison)]
    folded = [replace(section, folded=True) for section in details if section.title not in known]
    sections = [*rest(excerpt), *opened, *folded]
    found = answer.headline
    sign = "❌" if comparison.exit_code else "⚠️" if found.faulty else "✅"
    more = f"\n{_ticked(found.more)}\n" if found.more else ""
    return _page(f"### {sign} {_ticked(found.text)}\n{more}", sections, "comparison.json", limit)


def render_page(
    sentence: str, sections: Sequence[Section], *, good: bool, all_in: str = "comparison.json", limit: int = LIMIT_BYTES
) -> str:
    """Return a page of sections below its verdict, with the same limit. `all_in` says where a reader finds what was left out."""
    return _page(f"### {'✅' if good else '❌'} {_ticked(sentence)}\n", sections, all_in, limit)


def _page(text: str, sections: Sequence[Section], all_in: str, limit: int) -> str:
    left_out = []
    room = limit - _size(text) - _size(_left_out([section.title for section in sections], all_in))
    for section in sorted(sections, key=lambda section: section.folded):  # the sort is stable: open sections first, otherwise in order
        drawn = _section(section)
        if _size(drawn) > room:
            left_out.append(section.title)
            continue
        text += drawn
        room -= _size(drawn)
    return text + _left_out(left_out, all_in) if left_out else text


def code(text: str, table: bool = False) -> str:
    """Return `text` as a code span that its content cannot close."""
    shown = visible(text)
    if table:  # Even inside code, a bare pipe ends a cell. A backslash before one would cancel its escape.
        shown = shown.replace("\\|", "\\ |").replace("|", "\\|")
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    pad = " " if shown.startswith("`") or shown.endswith("`") or not shown.strip() else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def plain(text: str) -> str:
    """Return `text` as plain words that Markdown, HTML and GitHub do not act on."""
    return _unlinked(_SPECIAL.sub(r"\\\1", visible(text).replace("&", "&amp;")))


def _ticked(text: str) -> str:
    """Return a sentence with what is between backticks as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return plain(text)
    return "".join(code(part) if position % 2 else plain(part) for position, part in enumerate(parts))


def _unlinked(text: str) -> str:
    """Break up mentions, links and issues with zero-width characters: GitHub finds them after unescaping."""
    text = re.sub(r"(#|GH-)(?=\d)", r"\1&#8203;", text, flags=re.IGNORECASE)
    return text.replace("@", "@&#8203;").replace("://", ":&#8203;//").replace("www.", "www&#8203;.")


def _section(section: Section) -> str:
    body = _table(section) + _lines(section.lines)
    body += "".join(f"\n<sub>{plain(line)}</sub><br>" for line in section.legend).removesuffix("<br>") + ("\n" if section.legend else "")
    body += _fenced(section.paste) if section.paste else ""
    if section.folded:
        return f"\n<details><summary>{_unlinked(html.escape(visible(section.title)))}</summary>\n{body}\n</details>\n"
    return f"\n#### {plain(section.title)}\n{body}"


def _fenced(text: str) -> str:
    """Return a block of code, with a fence that the text does not end."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    language = "sh" if text.startswith("warpwave ") else "toml"
    return f"\n{fence}{language}\n" + "".join(f"{visible(line)}\n" for line in text.splitlines()) + f"{fence}\n"


def _table(section: Section) -> str:
    if not section.heads:
        return ""
    titles = {column: f"{title} " for title, columns in section.groups for column in columns}
    heads = tuple((Bit(titles[position]), *head) if position in titles else head for position, head in enumerate(section.heads))
    rule = ["---:" if position in section.right else "---" for position in range(len(section.heads))]
    rows = [[_text(cell, table=True) for cell in row] for row in (heads, *section.rows)]
    return "\n" + "".join(f"| {' | '.join(row)} |\n" for row in (rows[0], rule, *rows[1:]))


def _lines(lines: tuple[Line, ...]) -> str:
    if not lines:
        return ""
    return "\n" + "".join(
        f"{'  ' if line[0].text.startswith('  ') and not line[0].name else ''}- {_text(line).strip()}\n" for line in lines if line
    )


def _text(line: Line, table: bool = False) -> str:
    # Join adjacent names into one span: Markdown would read two adjacent spans as one with a longer fence.
    parts = []
    for is_name, bits in groupby(line, key=lambda bit: bit.name):
        if is_name:
            parts.append(code("".join(bit.text for bit in bits), table))
        else:
            parts.append("".join(_own(bit) for bit in bits))
    return "".join(parts)


def _own(bit: Bit) -> str:
    if bit is BREAK:
        return " "
    return (_MARKS.get(bit.verdict, "❌ ") if bit.verdict else "") + plain(bit.text)


def _left_out(titles: list[str], all_in: str) -> str:
    named = ", ".join(plain(title) for title in titles)
    return f"\n_Left out to stay below the size limit of a summary: {named}. Everything is in {plain(all_in)}._\n"


def _size(text: str) -> int:
    return len(text.encode("utf-8"))
