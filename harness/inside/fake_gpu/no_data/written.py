"""Find which arguments a kernel may write to, in Triton's own IR.

A store's pointer is followed back through arithmetic, loops and branches to the arguments that it comes from. What was loaded is data, and
no way back: an index that a kernel reads from a table does not make the table one that it writes.
"""

from __future__ import annotations

import functools
import re

_WRITES = ("tt.store", "tt.atomic", "tt.descriptor_store", "tt.descriptor_scatter", "tt.descriptor_reduce", "tt.call")
_READS = ("tt.load", "tt.descriptor_load", "tt.descriptor_gather")
_FUNCTION = re.compile(r"tt\.func public @[^(]+\((.*?)\) attributes|tt\.func public @[^(]+\((.*)\) ", re.DOTALL)
_VALUE = re.compile(r"%[\w$.-]+")
_MADE = re.compile(r"^\s*(%[\w$.-]+)(?::\d+)? = (.*)$")
_CARRIED = re.compile(r"(%[\w$.-]+) = (%[\w$.#-]+)")


@functools.lru_cache(maxsize=1024)
def written(ttir: str) -> frozenset[str]:
    """Return the names of the arguments that a kernel may write to, as its IR has them: those of its source, since Triton 3.4."""
    lines = ttir.splitlines()
    first = next((number for number, line in enumerate(lines) if "tt.func public" in line), None)
    if first is None:
        return frozenset()
    arguments = [name for name in _VALUE.findall(lines[first]) if f"{name}:" in lines[first]]
    sources: dict[str, set[str]] = {}
    reached: list[str] = []
    yielding: list[str] = []  # the results of the loops and branches around a line
    for line in lines[first + 1 :]:
        text = line.partition(" loc(")[0].strip()
        made = _MADE.match(text)
        operation = made[2] if made else text
        used = _VALUE.findall(operation)
        if operation.startswith(_WRITES):
            reached += used if operation.startswith("tt.call") else used[:1]
        if made and not operation.startswith((*_READS, "tt.atomic")):
            sources.setdefault(made[1], set()).update(used)
        for inside, outside in _CARRIED.findall(operation):
            sources.setdefault(inside, set()).add(outside.partition("#")[0])
        if text.endswith("{"):
            yielding.append(made[1] if made else "")
        if text.startswith(("scf.yield", "scf.condition")) and yielding and yielding[-1]:
            sources.setdefault(yielding[-1], set()).update(used)
        if text.startswith("}") and yielding and not text.endswith("{"):
            yielding.pop()
    return frozenset(name[1:] for name in _closure(reached, sources) if name in arguments)


def _closure(reached: list[str], sources: dict[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    while reached:
        name = reached.pop()
        if name not in seen:
            seen.add(name)
            reached += sources.get(name, ())
    return seen
