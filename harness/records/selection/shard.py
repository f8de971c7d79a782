"""A part of a package's kernels, `2/4`. Command lines and artifacts are both parsed here."""

from __future__ import annotations

import re
from dataclasses import dataclass

MOST_SHARDS = 64
# ASCII digits only: `int` accepts the digits of every script.
_SPELLING = re.compile(r"([1-9][0-9]?)/([1-9][0-9]?)")


@dataclass(frozen=True)
class Shard:
    """Part `number` of `of`, counted from 1."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Parse `2/4`, the second of four.

        Raises:
            ValueError: the text is no shard; the message says what one looks like.
        """
        match = _SPELLING.fullmatch(text)
        shard = cls(int(match[1]), int(match[2])) if match else cls(0, 0)
        if not 1 <= shard.number <= shard.of <= MOST_SHARDS:
            raise ValueError(f"it is not I/N with I from 1 to N, and N up to {MOST_SHARDS}")
        return shard
