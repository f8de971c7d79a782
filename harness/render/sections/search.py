"""What a bisection found → a sentence, and sections. Pure."""

from __future__ import annotations

from harness.compare.toolchains.bisection import Bisection
from harness.compare.toolchains.question import Answer, Reply
from harness.records import Verdict
from harness.render.sections.model import Bit, Line, Section, name, say
from harness.render.text import first_line

_COLOURS = {Answer.GOOD: Verdict.PASSED, Answer.BAD: Verdict.FAILED, Answer.SKIPPED: Verdict.ABSENT, Answer.AMBIGUOUS: Verdict.ABSENT}


def bisection_sentence(found: Bisection, fixed: bool = False) -> str:
    """Return the answer: `triton-3.9.0 is the first bad one; triton-3.8.0 is the last good one.`"""
    if found.first_bad is None:
        return f"Nothing to search: {found.fault}."
    words = ("the first without it", "the last with it") if fixed else ("the first bad one", "the last good one")
    if found.suspects:
        between = ", ".join(found.suspects)
        return f"{found.first_bad} or one that was skipped before it ({between}) is {words[0]}; {found.last_good} is {words[1]}."
    return f"{found.first_bad} is {words[0]}; {found.last_good} is {words[1]}."


def bisection_sections(found: Bisection, fixed: bool = False) -> list[Section]:
    """Return the steps in the order in which they were tried. If a repair was searched for, good steps are those that have the fault."""
    rows = tuple((say(name(one.name)), _answer(one.reply, fixed), say(name(first_line(one.reply.reason)))) for one in found.tried)
    return [Section("Steps", heads=_heads("step", "answer", "seen"), rows=rows, lines=(say("Asked: ", name(found.question)),))]


def _answer(reply: Reply, fixed: bool = False) -> Line:
    return say(Bit(reply.answer.said(fixed), None if fixed else _COLOURS[reply.answer]))


def _heads(*words: str) -> tuple[Line, ...]:
    return tuple(map(say, words))
