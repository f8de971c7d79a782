"""Which part of two stacks makes the difference: each part swapped alone, in both directions. Pure.

The method is that of vllm-project/vllm#43153: the old stack with the new Triton, and the new stack with the old one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from harness.compare.toolchains.question import Answer, Reply


class Role(str, Enum):
    """What a part does to the difference, gravest first."""

    CAUSE = "does it"
    ENOUGH = "is enough, and something else is too"
    NEEDED = "is needed, and not enough alone"
    NONE = "plays no part"
    OPEN = "is not decided"


@dataclass(frozen=True)
class Swap:
    """One part, or several together, as `good` and `bad` have it; what each stack says with the other's part; and its role."""

    parts: tuple[str, ...]
    good: str
    bad: str
    good_with_bad: Reply
    bad_with_good: Reply

    @property
    def role(self) -> Role:
        """What the two answers mean together."""
        answers = self.good_with_bad.answer, self.bad_with_good.answer
        if any(answer in (Answer.SKIPPED, Answer.AMBIGUOUS) for answer in answers):
            return Role.OPEN
        breaks, heals = answers[0] is Answer.BAD, answers[1] is Answer.GOOD
        return Role.CAUSE if breaks and heals else Role.ENOUGH if breaks else Role.NEEDED if heals else Role.NONE


@dataclass(frozen=True)
class Isolation:
    """The swaps between two stacks. `fixed` differ and could not be swapped, with the reason. `fault`: an end is not what it should be."""

    question: str
    good: str
    bad: str
    ends: tuple[Reply, Reply]
    swaps: tuple[Swap, ...] = ()
    fixed: Mapping[str, str] | None = None
    fault: str = ""

    @property
    def causes(self) -> tuple[Swap, ...]:
        """The swaps that decide."""
        return tuple(swap for swap in self.swaps if swap.role is Role.CAUSE)


Ask = Callable[[bool, frozenset[str]], Reply]
"""Takes whether to start from the good stack, and the parts to take from the other one."""


def isolate(question: str, names: tuple[str, str], parts: Mapping[str, tuple[str, str]], ask: Ask) -> Isolation:
    """Swap each part alone, in both directions; if none decides, swap together all that are needed.

    `names` are those of the good and the bad stack; `parts` maps each part to its value in both.
    """
    ends = ask(True, frozenset()), ask(False, frozenset())
    for end, wanted, name in zip(ends, (Answer.GOOD, Answer.BAD), names, strict=True):
        if end.answer is not wanted:
            fault = f"{name} is {end.answer.value}, and should be {wanted.value}: {end.reason}"
            return Isolation(question, *names, ends, fault=fault)
    if len(parts) == 1:  # swapping the only part makes the other stack, which was just asked
        (part, values), *_ = parts.items()
        return Isolation(question, *names, ends, (Swap((part,), *values, ends[1], ends[0]),))
    swaps = [_swap((part,), parts, ask) for part in parts]
    needed = tuple(swap.parts[0] for swap in swaps if swap.role in (Role.NEEDED, Role.NONE))
    together = tuple(part for part in needed if any(swap.parts == (part,) and swap.role is Role.NEEDED for swap in swaps)) or needed
    if not any(swap.role is Role.CAUSE for swap in swaps) and 1 < len(together) < len(parts):
        swaps.append(_swap(together, parts, ask))
    order = list(Role)
    return Isolation(question, *names, ends, tuple(sorted(swaps, key=lambda swap: order.index(swap.role))))


def _swap(chosen: Sequence[str], parts: Mapping[str, tuple[str, str]], ask: Ask) -> Swap:
    good, bad = (", ".join(parts[part][side] or "as it is" for part in chosen) for side in (0, 1))
    return Swap(tuple(chosen), good, bad, ask(True, frozenset(chosen)), ask(False, frozenset(chosen)))
