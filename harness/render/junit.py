"""Comparison → one JUnit file for all targets, in pieces, for it may be of a million cases.

A suite per target and GPU holds its tests; `<target>/run` says whether the target and its stages ran to their end, so that an absent or
crashed target is an error to whoever reads JUnit and not a gap; `<target>/compile/<architecture>` holds a case per compiled kernel.
Nothing is merged: a case that is there twice is there twice, with its number behind its name.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath
from xml.sax.saxutils import escape

from harness.comparison import COMPLETE, Comparison, TargetSummary
from harness.parity import configuration
from harness.records import CaseResult, CompiledKernel, Stage, StageReport, Verdict
from harness.render.gates import how_to_waive
from harness.render.text import first_line, visible

_MARKUP = re.compile('[&<>"]')
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[\d.:+Z-]*")


def render_junit(comparison: Comparison) -> str:
    """The file's text."""
    return "".join(junit_pieces(comparison))


def junit_pieces(comparison: Comparison) -> Iterator[str]:
    """The file's text, a suite at a time; what all suites together count stands before them, so they are gone through twice."""
    total = _Totals()
    for _, _, cases in _suites(comparison):
        total.add(cases)
    yield f'<?xml version="1.0" encoding="utf-8"?>\n<testsuites name="warpwave"{total}>\n'
    for name, target, cases in _suites(comparison):
        own = _Totals()
        own.add(cases)
        stamp = _attribute("timestamp", target.started) if _TIMESTAMP.fullmatch(target.started) else ""
        yield f"<testsuite{_attribute('name', name)}{own}{stamp}>{_properties(_facts(target))}\n"
        yield from map(_text, cases)
        yield "</testsuite>\n"
    yield "</testsuites>\n"


@dataclass(frozen=True, slots=True)
class _Case:
    """A test case before it is written; texts are as they came."""

    classname: str
    name: str
    seconds: float
    verdict: Verdict = Verdict.PASSED
    message: str = ""
    detail: str = ""
    never_skipped: bool = False
    properties: Mapping[str, str] | None = None
    id: str = ""
    kernel: str = ""

    @property
    def kind(self) -> str:
        """The element that says what became of it."""
        if self.verdict is Verdict.FAILED:
            return "failure"
        return "skipped" if self.verdict is Verdict.NOT_RUN and not self.never_skipped else "error"

    @property
    def time(self) -> float:
        """Seconds that any parser takes."""
        return round(self.seconds, 6) if math.isfinite(self.seconds) and self.seconds > 0 else 0.0


class _Totals:
    def __init__(self) -> None:
        self._kinds: Counter[str] = Counter()
        self._time = 0.0

    def add(self, cases: Iterable[_Case]) -> None:
        for case in cases:
            self._kinds["tests"] += 1
            self._time += case.time
            if case.verdict is not Verdict.PASSED:
                self._kinds[case.kind] += 1

    def __str__(self) -> str:
        found = self._kinds
        counts = f'tests="{found["tests"]}" failures="{found["failure"]}" errors="{found["error"]}" skipped="{found["skipped"]}"'
        return f' {counts} time="{round(self._time, 6)}"'


def _suites(comparison: Comparison) -> Iterator[tuple[str, TargetSummary, list[_Case]]]:
    tests: dict[str, list[tuple[CaseResult, int]]] = {}
    for row in comparison.tests:
        for cell in row.cells:
            tests.setdefault(cell.target, []).append((cell.result, row.occurrence))
    compiled: dict[str, dict[str, list[CompiledKernel]]] = {}
    for entry in comparison.codegen:
        for made in entry.cells:
            compiled.setdefault(made.target, {}).setdefault(made.compiled.architecture, []).append(made.compiled)
    for target in comparison.targets:
        gpu = f"/{target.gpus}" if target.gpus else ""
        if found := tests.get(target.target):
            yield target.target + gpu, target, [_test(result, occurrence) for result, occurrence in found]
        yield f"{target.target}/run", target, _run(target)
        for architecture, kernels in compiled.get(target.target, {}).items():
            yield f"{target.target}/compile/{architecture}", target, list(map(_compiled, kernels))


def _facts(target: TargetSummary) -> dict[str, str]:
    facts, environment = target.facts, target.environment
    properties = {
        "label": target.label,
        "device": target.gpus,
        "driver": facts.driver if facts else None,
        "runtime": facts.runtime if facts else None,
        "torch": facts.torch if facts else None,
        "triton": facts.triton if facts else None,
        "image": environment.image if environment else None,
        "image_digest": environment.image_id if environment else None,
        "commit": target.commit,
        "run_id": target.run_id,
        "verdict": target.verdict.value,
    }
    return {name: value for name, value in properties.items() if value}


def _test(result: CaseResult, occurrence: int) -> _Case:
    """As pytest names it: `folder.file` and `test[parameters]`; the node id itself is a property."""
    path, _, name = result.id.partition("::")
    classname = _classname(path) if name else result.kernel
    full = (name or path) + (f" ({occurrence})" if occurrence > 1 else "")
    found = (result.seconds, result.verdict, result.message, result.detail)
    return _Case(classname, full, *found, properties=result.properties, id=result.id, kernel=result.kernel)


@lru_cache(maxsize=1024)
def _classname(path: str) -> str:
    return ".".join(PurePosixPath(path).with_suffix("").parts)


def _compiled(kernel: CompiledKernel) -> _Case:
    waived = {f"waived.{gate}": f"{kernel.broken.get(gate, '')}: {reason}" for gate, reason in kernel.waived.items()}
    detail = how_to_waive(kernel) if kernel.only_gates else ""
    name = configuration(kernel) or kernel.function
    return _Case(f"{kernel.kernel}.{kernel.function}", name, kernel.seconds, kernel.verdict, kernel.reason, detail, properties=waived)


def _run(target: TargetSummary) -> list[_Case]:
    # A target that ran nothing is an error here: as a skipped case it would be green.
    verdict = Verdict.PASSED if target.complete else target.verdict
    reason = target.reason or target.verdict.value
    case = _Case(f"{target.target}.run", "complete", 0.0, verdict, reason, target.hint, never_skipped=True)
    return [case, *(_stage(target, report) for report in target.stages)]


def _stage(target: TargetSummary, report: StageReport) -> _Case:
    """Whether a stage ran. What its tests and kernels did is counted in their own suites; measured points have none but this."""
    shown_elsewhere = (target.complete or report.verdict in COMPLETE) and report.stage in (Stage.TEST, Stage.COMPILE)
    verdict = Verdict.PASSED if shown_elsewhere else report.verdict
    return _Case(f"{target.target}.run", report.stage.value, report.seconds, verdict, report.reason, report.hint)


def _text(case: _Case) -> str:
    head = f'<testcase{_attribute("name", case.name)}{_attribute("classname", case.classname)} time="{case.time}"'
    named = {"id": case.id, "kernel": case.kernel} if case.id else {}
    body = _properties({**named, **(case.properties or {})})
    if case.verdict is not Verdict.PASSED:
        detail = case.detail or (case.message if "\n" in case.message.strip() else "")
        said = _attribute("message", first_line(case.message, 2000)) + _attribute("type", case.verdict.value)
        body += f"<{case.kind}{said}>{escape(chr(10).join(map(visible, detail.splitlines())))}</{case.kind}>"
    return f"{head}>{body}</testcase>\n" if body else f"{head}/>\n"


def _properties(found: Mapping[str, str]) -> str:
    if not found:
        return ""
    listed = "".join(f"<property{_attribute('name', name)}{_attribute('value', value)}/>" for name, value in found.items())
    return f"<properties>{listed}</properties>"


def _attribute(name: str, text: str) -> str:
    shown = visible(text)
    if _MARKUP.search(shown):
        shown = escape(shown, {'"': "&quot;"})
    return f' {name}="{shown}"'
