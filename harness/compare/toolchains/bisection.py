"""Find the first bad step of a list. The caller passes the function that runs a step; this module does no I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Union

from harness.compare.toolchains.question import Answer, Reply


@dataclass(frozen=True)
class Tried:
    """A step and its answer."""

    name: str
    reply: Reply


@dataclass(frozen=True)
class Bisection:
    """What a search found. `first_bad` is None if an end is not what it should be; `fault` then says so.

    `suspects` are skipped steps between the last good and the first bad one: any of them may be the first bad one.
    """

    question: str
    tried: tuple[Tried, ...]
    last_good: Union[str, None] = None
    first_bad: Union[str, None] = None
    suspects: tuple[str, ...] = ()
    fault: str = ""


def bisect(question: str, names: Sequence[str], ask: Callable[[str], Reply]) -> Bisection:
    """Search `names`, in order: the first one is good, the last one is bad; both are checked. About log2(n) + 2 steps are asked."""
    tried: list[Tried] = []

    def answer(position: int) -> Answer:
        tried.append(Tried(names[position], ask(names[position])))
        return tried[-1].reply.answer

    for position, wanted in ((0, Answer.GOOD), (len(names) - 1, Answer.BAD)):
        if answer(position) is not wanted:
            found = tried[-1]
            fault = f"{found.name} is {found.reply.answer.value}, and should be {wanted.value}: {found.reply.reason}"
            return Bisection(question, tuple(tried), fault=fault)
    good, bad, skipped = 0, len(names) - 1, set[int]()
    while left := [position for position in range(good + 1, bad) if position not in skipped]:
        middle = min(left, key=lambda position: (abs(2 * position - good - bad), position))
        found_here = answer(middle)
        if found_here is Answer.GOOD:
            good = middle
        elif found_here is Answer.BAD:
            bad = middle
        else:
            skipped.add(middle)
    between = tuple(names[position] for position in range(good + 1, bad))
    return Bisection(question, tuple(tried), names[good], names[bad], between)
