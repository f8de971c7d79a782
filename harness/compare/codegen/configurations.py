"""Compiled kernels of all targets side by side, and what each waiver let through. Pure."""

from __future__ import annotations

import dataclasses
import operator
import re
from collections import Counter
from collections.abc import Callable, Mapping
from fnmatch import translate
from functools import cache

from harness.compare.codegen.alignment import align
from harness.compare.model import CodegenCell, CodegenRow, WaiverUse
from harness.records import CompiledKernel, TargetRun, Waiver, Which


def compare_codegen(runs: Mapping[str, TargetRun]) -> tuple[CodegenRow, ...]:
    """Return a row per launch and configuration, with all architectures in it."""
    return align(CodegenCell(name, kernel) for name, run in runs.items() for kernel in run.compiled)


def use_of_waivers(runs: Mapping[str, TargetRun]) -> tuple[WaiverUse, ...]:
    """Return every waiver of the targets that compiled kernels, once, with how many kernels it names and how many it let through."""
    covered: Counter[Waiver] = Counter()
    used: Counter[Waiver] = Counter()
    for run in runs.values():
        waivers = run.gates.waivers if run.gates and run.compiled else ()
        compiled = [row for row in run.compiled if row.was_compiled] if waivers else []
        for waiver in waivers:
            covers = _cover(waiver.which)
            rows = [row for row in compiled if covers(row)]
            covered[waiver] += len(rows)
            # If two waivers name the same gate of a kernel, the row holds the reason of the first.
            used[waiver] += sum(row.waived.get(waiver.gate) == waiver.reason for row in rows)
    return tuple(WaiverUse(waiver, covered[waiver], used[waiver]) for waiver in covered)


def _cover(which: Which) -> Callable[[CompiledKernel], bool]:
    """Return `which.covers` with compiled patterns and cached names: a run may have 50,000 kernels and 200 waivers."""

    def fits(patterns: tuple[str, ...]) -> Callable[[str], bool]:
        pattern = re.compile("|".join(map(translate, patterns)) if patterns else r"(?!)")
        return cache(lambda name: pattern.match(name) is not None)

    fields = {field.name: getattr(which, field.name) for field in dataclasses.fields(which)}
    looks = [(operator.attrgetter(name), fits(patterns)) for name, patterns in fields.items() if patterns != ("*",)]
    return lambda row: all(fit(get(row)) for get, fit in looks)
