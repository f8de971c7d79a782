"""Files that are small on disk and large in memory, or large and meant to be slow.

`python heavy.py NAME FOLDER` reads one; its caller sets limits on memory and CPU time.
"""

# ruff: noqa: T201 - a program of its own
import json
import re
import sys
import time
from itertools import repeat
from pathlib import Path

from synthetic import sample

from warpwave.collect.cases import read_cases
from warpwave.collect.untrusted import guarded, read_lines, read_record
from warpwave.records import CompiledKernel, RunRecord, Sample, to_json

MIB = 1 << 20
TEXT = "😀" + "x" * 90_000  # one wide character makes all of them wide


def _cases(inner):
    yield "<testsuites><testsuite>"
    yield from inner
    yield "</testsuite></testsuites>"


def _line(**more):
    return json.dumps({**json.loads(to_json(sample(1024))), **more}) + "\n"


def _short_kernels():
    """As few bytes a record as there can be."""
    line = json.dumps({"kernel": "", "function": "", "architecture": "", "verdict": "passed"}) + "\n"
    return repeat(line, 200_000)


XML = {
    "a million attributes": lambda: _cases(["<testcase ", *(f'a{n}="" ' for n in range(5_000_000)), "/>"]),
    "a million names": lambda: _cases("<a " + " ".join(f'b{n * 100 + m}=""' for m in range(100)) + "/>" for n in range(50_000)),
    "a long attribute": lambda: _cases(['<testcase name="', *repeat("😀" * 10_000, 1500), '"/>']),
    "a long text": lambda: _cases(['<testcase name="a"><failure>', *repeat("😀" + "x" * 9_996, 6000), "</failure></testcase>"]),
    "a long comment": lambda: _cases(["<!--", *repeat("x" * 10_000, 6000), "-->"]),
    "many properties": lambda: _cases(
        ['<testcase name="a"><properties>', *(f'<property name="{n}" value="{n}"/>' for n in range(900_000)), "</properties></testcase>"]
    ),
    "many details": lambda: _cases(repeat(f'<testcase name="a"><failure>😀{"x" * 19_000}</failure></testcase>', 3300)),
    "many cases": lambda: _cases(f'<testcase name="{n}"/>' for n in range(200_000)),
}
LINES = {
    "many timings": (Sample, lambda: repeat(_line(times_ms=[1.5] * 90_000), 90)),
    "small timings": (Sample, lambda: repeat(_line(times_ms=[1.0] * 90_000).replace("1.0,", "1,").replace(" ", ""), 250)),
    "wide texts": (Sample, lambda: repeat(_line(reason=TEXT), 2000)),
    "many records": (CompiledKernel, _short_kernels),
    "many wrong lines": (Sample, lambda: repeat('{"case": 1}\n', 190_000)),
    "many wrong values": (Sample, lambda: repeat(_line(times_ms=["a"] * 90_000), 30)),
    "no line end": (Sample, lambda: repeat("1" * 10_000, 2000)),
}
RECORDS = {
    "many empty lists": lambda: ["[", *repeat("[],", 2_700_000), "[]]"],
    "many wrong values": lambda: ['{"command": [', *repeat("1,", 4_000_000), "1]}"],
    "wide": lambda: ["{", *(f'"{n}":0,' for n in range(700_000)), '"a":0}'],
    "deep": lambda: [*repeat("[", 8_000_000)],
}
NAMES = [f"{kind}: {name}" for kind, names in (("xml", XML), ("lines", LINES), ("record", RECORDS)) for name in names]


def write(name: str, folder: Path) -> None:
    kind, _, which = name.partition(": ")
    pieces = {"xml": lambda: XML[which](), "lines": lambda: LINES[which][1](), "record": lambda: RECORDS[which]()}[kind]()
    with (folder / "file").open("w", encoding="utf-8") as file:
        file.writelines(pieces)


def read(name: str, folder: Path) -> str:
    """Read it; the sentence about it, or how much was in it."""
    kind, _, which = name.partition(": ")
    if kind == "xml":
        found, fault = guarded("file", lambda: read_cases(folder, "file"))
    elif kind == "lines":
        found, fault = read_lines(folder, "file", LINES[which][0])
    else:
        found, fault = read_record(folder, "file", RunRecord)
    return f"{fault or len(found)}"


if __name__ == "__main__":
    said = read(sys.argv[1], Path(sys.argv[2]))
    # Not `ru_maxrss`, in which a process starts with what its parent had.
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    print(f"{int(peak[1]) // 1024 if peak else '?'} MiB, {time.process_time():.1f} s: {said}")
