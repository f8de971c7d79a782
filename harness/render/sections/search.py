"""What a search found → a sentence, and sections: a bisection, or an isolation. Pure."""

from __future__ import annotations

from harness.compare.toolchains.bisection import Bisection
from harness.compare.toolchains.isolation import Isolation, Role, Swap
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


def isolation_sentence(found: Isolation) -> str:
    """Return the answer: `triton does it: 3.8.0 → 3.9.0.`"""
    if found.fault:
        return f"Nothing to isolate: {found.fault}."
    if found.causes:
        return f"{'; '.join(f'{_parts(swap.parts)} does it: {swap.good} → {swap.bad}' for swap in found.causes)}."
    enough = [swap for swap in found.swaps if swap.role is Role.ENOUGH]
    if enough:
        return f"{'; '.join(_parts(swap.parts) for swap in enough)}: each is enough alone."
    needed = [swap for swap in found.swaps if swap.role is Role.NEEDED]
    if needed:
        return f"{'; '.join(_parts(swap.parts) for swap in needed)}: {found.bad} needs each of them, and none is enough alone."
    return "No part that could be swapped decides it."


def isolation_sections(found: Isolation) -> list[Section]:
    """Return the swaps, those that decide first, and what could not be swapped."""
    ends_named = (name(found.good), name(found.bad))
    heads = (say("part"), *map(say, ends_named), *(say(end, " with the other's") for end in ends_named), say("so it"))
    ends = (say("nothing"), say(), say(), _answer(found.ends[0]), _answer(found.ends[1]), say())
    rows = tuple(
        (
            say(name(_parts(swap.parts))),
            say(name(swap.good)),
            say(name(swap.bad)),
            _answer(swap.good_with_bad),
            _answer(swap.bad_with_good),
            say(Bit(swap.role.value, Verdict.FAILED if swap.role in (Role.CAUSE, Role.ENOUGH) else None)),
        )
        for swap in found.swaps
    )
    seen = [say(name(_parts(swap.parts)), ": ", name(first_line(reply.reason))) for swap in found.swaps for reply in _reasons(swap)]
    fixed = tuple(say(Bit("! ", Verdict.ABSENT), name(part), ": ", name(why)) for part, why in (found.fixed or {}).items())
    lines = (say("Asked: ", name(found.question)), *dict.fromkeys(seen))
    sections = [Section("Swaps", heads=heads, rows=(ends, *rows), lines=lines)]
    return sections + ([Section("What differs and could not be swapped", lines=fixed)] if fixed else [])


def _reasons(swap: Swap) -> list[Reply]:
    """Return the replies worth a line: a finding, or why nothing was decided."""
    return [reply for reply in (swap.good_with_bad, swap.bad_with_good) if reply.reason and reply.answer is not Answer.GOOD]


def _parts(parts: tuple[str, ...]) -> str:
    return " + ".join(parts)


def _answer(reply: Reply, fixed: bool = False) -> Line:
    return say(Bit(reply.answer.said(fixed), None if fixed else _COLOURS[reply.answer]))


def _heads(*words: str) -> tuple[Line, ...]:
    return tuple(map(say, words))
