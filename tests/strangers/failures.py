"""The classes that the failures of a run fall into: one a message, with its numbers taken out."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# A frame of pytest's traceback: "file.py:12: in function" or "file.py:12: Error".
_FRAME = re.compile(r"^(\S+\.py):\d+: ", re.MULTILINE)
# Where a gate found something: "at file.py:12, file.py:14".
_PLACES = re.compile(r" at \S+\.py:\d+(, \S+\.py:\d+)*")
# What plain pytest says on a machine without a card.
NO_CARD = re.compile(
    r"CUDA|NVIDIA driver|0 active drivers|cuda device|backend.*compiled|Event\(\) takes|HIP|_cuda_|no NVIDIA|accelerator|"
    "Triton only support|no GPU available"
)


HOST_CODE = "(host code)"  # the function of a row that has no kernel


@dataclass(frozen=True)
class Failure:
    """One test or kernel that failed: what to repeat it by, its message, the innermost file of its traceback, and of the package's own."""

    stage: str
    id: str
    message: str
    where: str = ""
    own: str = ""
    row: dict[str, Any] | None = None


@dataclass(frozen=True)
class Class:
    """Failures with the same message but for numbers; the first one is an example."""

    message: str
    count: int
    example: Failure


def shape(message: str) -> str:
    """Return a message without what differs from case to case."""
    first = next((line for line in message.splitlines() if line.strip()), "")
    return re.sub(r"0x[0-9a-f]+|\d+(\.\d+)?(e[-+]?\d+)?", "N", _PLACES.sub("", without_folder(first)))[:140]


def without_folder(text: str) -> str:
    """Return a text without the folder where this session keeps the sources."""
    return re.sub(r"/\S*/sources/[^/\s]+/", "", text)


def same(one: str, other: str) -> bool:
    """Return whether two messages say the same: one may wrap the other's exception, or add where it happened."""
    words = [set(re.findall(r"[A-Za-z_]{2,}", shape(text))) for text in (one, other)]
    fewer, more = sorted(words, key=len)
    return shape(one) == shape(other) or (len(fewer) > 2 and len(fewer & more) >= 0.8 * len(fewer))


def failed_tests(raw: Path) -> list[Failure]:
    """Return the tests of `raw/<target>/` that neither passed nor were skipped."""
    try:
        root = ElementTree.parse(raw / "test" / "junit.xml").getroot()
    except (OSError, ElementTree.ParseError):
        return []
    found = []
    for case in root.iter("testcase"):
        bad = next((child for child in case if child.tag in ("failure", "error")), None)
        if bad is not None:
            name = next((entry.get("value") for entry in case.iter("property") if entry.get("name") == "id"), case.get("name"))
            frames = _FRAME.findall(bad.text or "")
            own = [frame for frame in frames if "/sources/" in frame]
            found.append(Failure("test", str(name), bad.get("message") or "", (frames or [""])[-1], (own or [""])[-1]))
    return found


def failed_kernels(raw: Path) -> list[Failure]:
    """Return the rows of the compile stage that failed."""
    try:
        lines = (raw / "compile" / "kernels.jsonl").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    rows = [json.loads(line) for line in lines if line.strip()]
    bad = [row for row in rows if row["verdict"] not in ("passed", "not-run")]
    return [Failure("compile", f"{row['function']} for {row['architecture']}", row["reason"], row=row) for row in bad]


def classes(failures: list[Failure]) -> list[Class]:
    """Return the classes of one stage, the largest first."""
    groups: dict[str, list[Failure]] = {}
    for failure in failures:
        groups.setdefault(shape(failure.message), []).append(failure)
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    return [Class(message, len(members), members[0]) for message, members in ordered]
