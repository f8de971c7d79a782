"""The bounds of record fields. On the host, pydantic checks every record against them; the inside never loads pydantic.

Names (target, kernel, case) that are too long are refused: if they were cut, two could become equal. Prose (reason, version) is cut.
Reports repeat both beside every number they belong to, so their length affects what a report costs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Union

from harness.records.enums import MOST_SECONDS
from harness.records.selection.shard import Shard

MOST_DEVICES = 4096
_MOST_INDEX = (1 << 16) - 1
_MOST_COUNT = 10**12
_MOST_FIGURE = 1e12


@dataclass(frozen=True)
class Bound:
    """Limits of a number (`least`, `most`), or of the length of a text, list or mapping (`longest`)."""

    least: Union[float, None] = None
    most: Union[float, None] = None
    longest: Union[int, None] = None

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        """Return pydantic's own constraints. Its core schemas are dicts, so nothing has to be imported."""
        limits = {"ge": self.least, "le": self.most, "max_length": self.longest}
        return {**handler(source), **{name: value for name, value in limits.items() if value is not None}}


@dataclass(frozen=True)
class Checked:
    """A field that a function checks after pydantic. The function returns the value to keep, or raises ValueError."""

    look: Callable[[Any], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        """Return a validator that runs after the type's own."""
        return {"type": "function-after", "function": {"type": "no-info", "function": self.look}, "schema": handler(source)}


def _cut(longest: int) -> Checked:
    return Checked(lambda text: text if len(text) <= longest else f"{text[: longest - 1]}…")


def _cut_text(value: Any) -> Any:
    return f"{value[:499]}…" if isinstance(value, str) and len(value) > 500 else value


def _check_shard(text: str) -> str:
    if text:
        Shard.parse(text)
    return text


Name = Annotated[str, Bound(longest=200)]  # of a target, run, kernel, provider or architecture
LongName = Annotated[str, Bound(longest=2000)]  # of a case or test, including its parameters
Word = Annotated[str, _cut(200)]  # a unit, a version or a model
Prose = Annotated[str, _cut(2000)]  # a reason
Page = Annotated[str, _cut(10_000)]  # advice, a path, an argument of a command
# A parameter or a constant: the name of every row of its launch contains it.
Parameter = Annotated[Union[int, float, str, bool, None], Checked(_cut_text)]
ShardText = Annotated[str, Checked(_check_shard)]
Seconds = Annotated[float, Bound(0.0, MOST_SECONDS)]
Share = Annotated[float, Bound(0.0, 1.0)]
Figure = Annotated[float, Bound(0.0, _MOST_FIGURE)]  # a clock in MHz, a bandwidth in GB/s
Index = Annotated[int, Bound(0, _MOST_INDEX)]  # of a device
Count = Annotated[int, Bound(0, _MOST_COUNT)]
Bytes = Annotated[int, Bound(0)]
Few = Bound(longest=100)  # entries of a list or mapping
Many = Bound(longest=1000)
