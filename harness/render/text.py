"""The words and numbers that all renderers share, and the one place where names from outside are made harmless to look at."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from harness.records import Verdict

if TYPE_CHECKING:
    from harness.compare.comparison import Cell

NOTHING = "-"
UNTESTED = "Unverified: no target was asked for tests, and no ratio is made of a speed that was not tested."
UNVERIFIED_MARK, SUSPECT_MARK = "?", "!"

# What CI runners take for orders in a job's log. GitHub: a line that begins with `::name`, and folding may put one at the start of a line.
# GitHub's older form, Azure and TeamCity: `##[…]`, `##vso[…]`, `##teamcity[…]`, anywhere. GitLab: `section_start:`.
_COMMANDS = (
    "add-mask|add-matcher|add-path|debug|echo|endgroup|error|group|internal-set-repo-path|notice|remove-matcher|save-state|set-env|"
    "set-output|stop-commands|warning"
)
_COMMAND = re.compile(rf"::(?=(?:{_COMMANDS})(?![\w-]))", re.IGNORECASE)
_BRACKET = re.compile(r"##(?=\w*\[)")
_SECTION = re.compile(r"(section_(?:start|end)):(?=\d)", re.IGNORECASE)
_ANSI = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])"
_BEGINNING = re.compile(rf"((?:^|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029])(?:{_ANSI}|[^\S\n\r]|\ufeff)*)::")
# Characters that are printable to Python and seen by nobody: joiners, fillers and variation selectors. (Format characters, such as those
# that turn the reading direction, are not printable.)
_UNSEEN = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")


class Annotation(str):
    """A line that is an order to a CI runner on purpose; made by `harness.ci.workflow_commands` alone."""

    __slots__ = ()


def visible(text: str) -> str:
    """`text` on one line, with everything that steers a terminal, a reader's eye or a CI runner spelt out instead of obeyed."""
    shown = text if text.isprintable() else "".join(c if c.isprintable() else _spelt(c) for c in text)
    if not shown.isascii():
        shown = _UNSEEN.sub(lambda found: _spelt(found[0]), shown)
    if "::" in shown:
        shown = _COMMAND.sub(r":\\x3a", shown)
    return inert_inside(shown)


def inert(text: str) -> str:
    """Lines on their way out, with no order to a CI runner in them: the last look, at what folding has made of texts."""
    return inert_inside(_BEGINNING.sub(r"\1:\\x3a", text) if "::" in text else text)


def inert_inside(text: str) -> str:
    """`text` without the orders that runners find anywhere in a line."""
    if "##" in text:
        text = _BRACKET.sub(r"#\\x23", text)
    return _SECTION.sub(r"\1\\x3a", text) if "section_" in text.lower() else text


def _spelt(character: str) -> str:
    return character.encode("unicode_escape").decode()


def json_text(value: Any, **options: Any) -> str:
    """Strict JSON without NaN and infinity that a terminal, and a CI runner that reads along, take for text; the value is the same."""
    return plain_json(json.dumps(value, allow_nan=False, ensure_ascii=False, **options))


def plain_json(text: str) -> str:
    """JSON, of the same value, that a terminal and a CI runner take for text: what steers them is escaped."""
    if not text.replace("\n", "").isprintable():
        text = "".join(c if c == "\n" or c.isprintable() else json.dumps(c)[1:-1] for c in text)
    if not text.isascii():
        text = _UNSEEN.sub(lambda found: json.dumps(found[0])[1:-1], text)
    if "##" in text:
        text = _BRACKET.sub(r"#\\u0023", text)
    return _SECTION.sub(r"\1\\u003a", text) if "section_" in text.lower() else text


def first_line(text: str, limit: int = 200) -> str:
    """The first line with something in it, cut to `limit` characters."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= limit else f"{line[:limit]} …"


def plural(number: int, noun: str, many: str = "") -> str:
    """`1 case`, `2 cases`."""
    return f"{number} {noun if number == 1 else many or noun + 's'}"


def number(value: float | None) -> str:
    """About three figures: 0.0123, 1.23, 98.1, 4321."""
    if value is None:
        return NOTHING
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def with_share(value: float | None, share: float | None) -> str:
    """`4321 95%`: a value and its share of the ceiling, where it has one."""
    return number(value) if share is None else f"{number(value)} {share:.0%}"


def marked(cell: Cell, *, untested: bool = False) -> str:
    """A cell in a table: the number with its share and marks, or the verdict that stands in its place. `untested`: nothing was verified."""
    if cell.value is None:
        return cell.verdict.value
    marks = (SUSPECT_MARK if cell.suspect else "") + ("" if cell.verified or untested else UNVERIFIED_MARK)
    return with_share(cell.value, cell.share) + marks


def counts(found: dict[str, int]) -> str:
    """`40 passed, 2 failed, 1 skipped`, mildest first; a dash where there is nothing to count."""
    words = {Verdict.NOT_RUN: "skipped"}
    said = [f"{found[verdict.value]} {words.get(verdict, verdict.value)}" for verdict in Verdict if found.get(verdict.value)]
    return ", ".join(said) or NOTHING


def gravest(found: dict[str, int]) -> Verdict:
    """The worst verdict in a count; `not-run` where it is empty."""
    return next((verdict for verdict in reversed(Verdict) if found.get(verdict.value)), Verdict.NOT_RUN)


def halves(architecture: str) -> tuple[str, str]:
    """An architecture's family and generation: `gfx` and `1201`, `sm_` and `90`."""
    family = re.match(r"\D*", architecture)
    cut = family.end() if family else 0
    return architecture[:cut], architecture[cut:]
