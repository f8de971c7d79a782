"""The one place that makes text from outside harmless: to a terminal, to the reading direction, and to a CI runner that reads a log."""

import json
import re
from typing import Any

# What CI runners execute as commands in a job's log. GitHub: a line that starts with `::name`; wrapping may move one to a line's start.
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
# Characters that Python calls printable but nobody sees: joiners, fillers and variation selectors. (Format characters, such as those that
# change the reading direction, are not printable.)
_UNSEEN = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")


class Annotation(str):
    """A line that is a CI command on purpose. Only `warpwave.ci.job` creates it."""

    __slots__ = ()


def visible(text: str) -> str:
    """Return `text` on one line. Everything that controls a terminal, the reading direction or a CI runner is escaped."""
    shown = text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)
    if not shown.isascii():
        shown = _UNSEEN.sub(lambda found: _escaped(found[0]), shown)
    if "::" in shown:
        shown = _COMMAND.sub(r":\\x3a", shown)
    return inert_inside(shown)


def inert(text: str) -> str:
    """Return lines without CI commands. Called last, because wrapping can create a command."""
    return inert_inside(_BEGINNING.sub(r"\1:\\x3a", text) if "::" in text else text)


def inert_inside(text: str) -> str:
    """Return `text` without the commands that runners find anywhere in a line."""
    if "##" in text:
        text = _BRACKET.sub(r"#\\x23", text)
    return _SECTION.sub(r"\1\\x3a", text) if "section_" in text.lower() else text


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def json_text(value: Any, **options: Any) -> str:
    """Return strict JSON, without NaN and infinity, that does not control a terminal or CI runner."""
    return plain_json(json.dumps(value, allow_nan=False, ensure_ascii=False, **options))


def plain_json(text: str) -> str:
    """Escape what controls a terminal or a CI runner; the JSON value stays the same."""
    if not text.replace("\n", "").isprintable():
        text = "".join(c if c == "\n" or c.isprintable() else json.dumps(c)[1:-1] for c in text)
    if not text.isascii():
        text = _UNSEEN.sub(lambda found: json.dumps(found[0])[1:-1], text)
    if "##" in text:
        text = _BRACKET.sub(r"#\\u0023", text)
    return _SECTION.sub(r"\1\\u003a", text) if "section_" in text.lower() else text
