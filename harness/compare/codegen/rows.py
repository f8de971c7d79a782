"""Compiled kernels of all targets, side by side, and what each waiver let through. Pure."""

from __future__ import annotations

import dataclasses
import operator
import re
from collections import Counter
from collections.abc import Callable, Mapping
from fnmatch import translate
from functools import cache

from harness.compare.codegen.alignment import align
from harness.compare.comparison import CodegenCell, CodegenRow, WaiverUse
from harness.records import CompiledKernel, TargetRun, Verdict, Waiver, Which


def compare_codegen(runs: Mapping[str, TargetRun]) -> tuple[CodegenRow, ...]:
    """A row per launch and configuration, with all architectures in it."""
    return align(CodegenCell(name, kernel) for name, run in runs.items() for kernel in run.compiled)


def use_of_waivers(runs: Mapping[str, TargetRun]) -> tuple[WaiverUse, ...]:
    """Every waiver of every target that compiled kernels, once, with what it was good for on all of them."""
    covered: Counter[Waiver] = Counter()
    used: Counter[Waiver] = Counter()
    for run in runs.values():
        waivers = run.gates.waivers if run.gates and run.compiled else ()
        told = [row for row in run.compiled if row.verdict is not Verdict.NOT_RUN] if waivers else []
        for waiver in waivers:
            covers = _cover(waiver.which)
            rows = [row for row in told if covers(row)]
            covered[waiver] += len(rows)
            # Where two name the same gate of a kernel, the first one is the reason given.
            used[waiver] += sum(row.waived.get(waiver.gate) == waiver.reason for row in rows)
    return tuple(WaiverUse(waiver, covered[waiver], used[waiver]) for waiver in covered)


def _cover(which: Which) -> Callable[[CompiledKernel], bool]:
    """`which.covers`, with its patterns read once and each name looked at once: a run may have 50,000 kernels, and 200 waivers."""

    def fits(some: tuple[str, ...]) -> Callable[[str], bool]:
        pattern = re.compile("|".join(map(translate, some)) if some else r"(?!)")
        return cache(lambda name: pattern.match(name) is not None)

    told = {field.name: getattr(which, field.name) for field in dataclasses.fields(which)}
    looks = [(operator.attrgetter(name), fits(some)) for name, some in told.items() if some != ("*",)]
    return lambda row: all(fit(get(row)) for get, fit in looks)
