"""The race detector of the simulator rocJITsu, which prints what it finds.

Read are the lines that its plugin `race` writes to standard error, which is the stage's log (`vm/plugins/race_detector/plugin.cpp` in
https://github.com/ROCm/rocm-systems, emulation/rocjitsu):

    [rocjitsu] Kernel dispatch: "add" symbol="add"
    RACE kernel=add symbol=add dispatch=3 type=LDS access=read reg=508 wave=0 lane=0 wg=0,0,0 conflict=unknown
    Race on LDS byte 508 [workgroup (0, 0, 0), wave 0, lane 0]
      ==>  0x100  ds_write_b32 v0, v1  ; <-- wave 1
      ==>  0x108  ds_read_b32 v1, v1  ; <-- wave 0 lane 0
    END_RACE

An older one leaves out kernel, symbol, dispatch and access.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from warpwave.inside.fake_gpu.emulated_findings import finding
from warpwave.inside.fake_gpu.launches import Launched
from warpwave.inside.process.journal import Journal
from warpwave.inside.sanitize.on_card import Asserted
from warpwave.inside.sanitize.pytest_plugin import Sanitized
from warpwave.records import Defect, Finding

_DISPATCH = re.compile(r'^\[rocjitsu\] Kernel dispatch: "(?P<kernel>.*?)"', re.MULTILINE)
_RACE = re.compile(
    r"^RACE (?:kernel=(?P<kernel>.*?) symbol=.*?)?\btype=(?P<space>\w+) .*? lane=(?P<lane>-?\d+) wg=(?P<program>\d+,\d+,\d+) .*\n"
    r"(?P<said>.*)\n(?P<trace>(?:.*\n)*?)END_RACE$",
    re.MULTILINE,
)
_MARKED = re.compile(r"^ *==> +(?:0x[0-9a-f]+ +)?(.*)", re.MULTILINE)
_NO_LAUNCH = "rocJITsu's race detector did not see the launches of this test"


def of_kernels_in_rocjitsu(plugins: pytest.PytestPluginManager, journal: Journal) -> None:
    """Fail a test in whose launches the detector found something."""
    plugins.register(Sanitized(journal, Printed(Path("/proc/self/fd/2").readlink())), "warpwave-sanitized")


class Printed(Asserted):
    """What the detector printed since the last time."""

    def rows(self, printed: str) -> list[Finding]:
        """Return a row for each pair of instructions. A test that launched kernels, none of which the detector saw, was not checked."""
        if Launched.functions and not _DISPATCH.search(printed):
            self.not_checked[_NO_LAUNCH] = None
        return findings(printed)


def findings(printed: str) -> list[Finding]:
    """Return the rows of a log. A register is used before its wave has waited for it; a byte of LDS is what waves race for."""
    rows: dict[tuple[str, str], Finding] = {}
    for found in _RACE.finditer(printed):
        before = [dispatch["kernel"] for dispatch in _DISPATCH.finditer(printed, 0, found.start())]
        kernel = found["kernel"] or (before[-1] if before else "unknown")
        marked = " and ".join(re.sub(r"\s*; <-- (.*)", r" (\1)", one) for one in _MARKED.findall(found["trace"]))
        row = finding(
            function=kernel,
            defect=Defect.RACE if found["space"] == "LDS" else Defect.EARLY,
            access="shared",
            tensor=found["space"],
            lane=max(0, int(found["lane"])),
            program=tuple(map(int, found["program"].split(","))),
            file="",
            line=0,
            other=f"rocJITsu: {found['said']}: {marked}",
        )
        rows.setdefault((kernel, marked), row)
    return [*rows.values()]
