"""Comparison → one JUnit file for all targets, in pieces, because it may hold a million cases.

The suite of each target and GPU holds its tests. `<target>/run` says whether the target and its stages completed, so that JUnit readers see
an absent or crashed target as an error. `<target>/compile/<architecture>` holds a case per compiled kernel. Nothing is merged: a test that
occurs twice is two cases, numbered in their names.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import PurePosixPath
from xml.sax.saxutils import escape

from warpwave.compare.codegen import configuration
from warpwave.compare.model import COMPLETE, Comparison, ParityRow, TargetSummary
from warpwave.records import JUNIT_XFAIL, MOST_SECONDS, CaseResult, CompiledKernel, Stage, Verdict, grouped
from warpwave.render.sections.codegen import how_to_waive
from warpwave.render.sections.testing import suspicion
from warpwave.render.text import first_line
from warpwave.safe_text import visible

_MARKUP = re.compile('[&<>"]')
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[\d.:+Z-]*", re.ASCII)


def render_junit(comparison: Comparison) -> str:
    """Return the text of the file."""
    return "".join(junit_pieces(comparison))


def junit_pieces(comparison: Comparison) -> Iterator[str]:
    """Yield the text suite by suite. The totals of all suites come first in the file, so count all suites before writing."""
    suites = list(_suites(comparison))
    counted = [_count(suite.cases()) for suite in suites]
    yield f'<?xml version="1.0" encoding="utf-8"?>\n<testsuites name="warpwave"{_totals(counted)}>\n'
    for suite, count in zip(suites, counted, strict=True):
        stamp = _attribute("timestamp", suite.target.started) if _TIMESTAMP.fullmatch(suite.target.started) else ""
        yield f"<testsuite{_attribute('name', suite.name)}{_totals([count])}{stamp}>{_properties(_facts(suite.target))}\n"
        yield from map(_text, suite.cases())
        yield "</testsuite>\n"
    yield "</testsuites>\n"


@dataclass(frozen=True, slots=True)
class _Case:
    """A case, with its texts not yet escaped. `kind` is its element: `failure`, `error`, `skipped`, or empty if it passed."""

    classname: str
    name: str
    seconds: float
    kind: str
    type: str
    message: str = ""
    detail: str = ""
    properties: Mapping[str, str] | None = None


@dataclass(frozen=True)
class _Suite:
    """A suite. Its cases are made when they are counted, and again when they are written: there may be a million."""

    name: str
    target: TargetSummary
    cases: Callable[[], Iterator[_Case]]


def _count(cases: Iterable[_Case]) -> tuple[Counter[str], float]:
    """Return how often each kind of outcome occurs, and the sum of the times in s."""
    kinds, seconds = Counter[str](), 0.0
    for case in cases:
        kinds[case.kind] += 1
        seconds += _time(case.seconds)
    return kinds, seconds


def _totals(counted: Sequence[tuple[Counter[str], float]]) -> str:
    """Return the counts of suites as XML attributes."""
    kinds = sum((found for found, _ in counted), Counter[str]())
    counts = f'failures="{kinds["failure"]}" errors="{kinds["error"]}" skipped="{kinds["skipped"]}"'
    return f' tests="{kinds.total()}" {counts} time="{round(math.fsum(seconds for _, seconds in counted), 6)}"'


def _kind(verdict: Verdict, never_skipped: bool = False) -> str:
    if verdict is Verdict.PASSED or verdict is Verdict.FAILED:
        return "failure" if verdict is Verdict.FAILED else ""
    return "skipped" if verdict in (Verdict.NOT_RUN, Verdict.XFAILED, Verdict.KNOWN) and not never_skipped else "error"


def _time(seconds: float) -> float:
    """Return seconds that every parser accepts."""
    return round(seconds, 6) if 0 < seconds < MOST_SECONDS else 0.0


def _suites(comparison: Comparison) -> Iterator[_Suite]:
    tests = grouped((cell.target, (row, cell.result)) for row in comparison.tests for cell in row.cells)
    compiled = grouped((cell.target, cell.compiled) for cell in comparison.compiled_cells)
    for target in comparison.targets:
        gpu = f"/{target.gpus}" if target.gpus else ""
        if found := tests.get(target.target):
            yield _Suite(target.target + gpu, target, partial(_tests, found, target.target, comparison.targets))
        yield _Suite(f"{target.target}/run", target, partial(_run, target))
        for architecture, kernels in grouped((made.architecture, made) for made in compiled.get(target.target, ())).items():
            yield _Suite(f"{target.target}/compile/{architecture}", target, partial(map, _compiled, kernels))


def _facts(target: TargetSummary) -> dict[str, str]:
    facts, environment = target.facts, target.environment
    properties = {
        "label": target.label,
        "device": target.gpus,
        "emulated": target.emulated,
        "driver": facts.driver if facts else None,
        "runtime": facts.runtime if facts else None,
        "torch": facts.torch if facts else None,
        "triton": facts.triton if facts else None,
        "image": environment.image if environment else None,
        "image_digest": environment.image_id if environment else None,
        "host": target.host,
        "commit": target.commit,
        "snapshot": target.snapshot,
        "run_id": target.run_id,
        "verdict": target.verdict.value,
    }
    return {name: value for name, value in properties.items() if value}


def _tests(found: Iterable[tuple[ParityRow, CaseResult]], target: str, targets: Sequence[TargetSummary]) -> Iterator[_Case]:
    """Yield tests as pytest names them: `folder.file` and `test[parameters]`; the node id is a property."""
    for row, result in found:
        path, _, name = result.id.partition("::")
        classname = ".".join(PurePosixPath(path.removesuffix(".py")).parts) if name else result.kernel
        full = (name or path) + (f" ({row.occurrence})" if row.occurrence > 1 else "")
        doubt = suspicion(row, target, targets) if result.verdict is not Verdict.PASSED else ""
        message = f"{doubt}: {result.message}" if doubt else result.message
        why = result.not_run.value if result.not_run and result.verdict is Verdict.NOT_RUN else result.verdict.value
        kind = JUNIT_XFAIL if result.verdict is Verdict.XFAILED else why
        properties = {"id": result.id, "kernel": result.kernel, **result.properties}
        yield _Case(classname, full, result.seconds, _kind(result.verdict), kind, message, result.detail, properties)


def _compiled(kernel: CompiledKernel) -> _Case:
    found = {**kernel.advice, **kernel.broken}
    told = {f"waived.{gate}": f"{found.get(gate, '')}: {reason}" for gate, reason in kernel.waived.items()}
    told |= {f"advice.{gate}": text for gate, text in kernel.advice.items() if gate not in kernel.waived}
    told |= {"not_run": kernel.not_run.value} if kernel.not_run else {}
    detail = how_to_waive(kernel) if kernel.only_gates else ""
    name, verdict = configuration(kernel) or kernel.function, kernel.verdict
    return _Case(f"{kernel.kernel}.{kernel.function}", name, kernel.seconds, _kind(verdict), verdict.value, kernel.reason, detail, told)


def _run(target: TargetSummary) -> Iterator[_Case]:
    """Yield whether the target and its stages ran. Tests and kernels are counted in their own suites; measured points only here."""
    # A target that ran nothing is an error here. A skipped case would look green.
    verdict = Verdict.PASSED if target.complete else target.verdict
    reason = target.reason or target.verdict.value
    yield _Case(f"{target.target}.run", "complete", 0.0, _kind(verdict, never_skipped=True), verdict.value, reason, target.hint)
    for report in target.stages:
        shown_elsewhere = (target.complete or report.verdict in COMPLETE) and report.stage in (Stage.TEST, Stage.COMPILE)
        verdict = Verdict.PASSED if shown_elsewhere else report.verdict
        words = verdict.value, report.reason, report.hint
        yield _Case(f"{target.target}.run", report.stage.value, report.seconds, _kind(verdict), *words)


def _text(case: _Case) -> str:
    """Return the element. Formatted by hand: a library's objects would take minutes for a million."""
    body = _properties(case.properties) if case.properties else ""
    if case.kind:
        message, text = first_line(case.message, 2000), case.detail or (case.message if "\n" in case.message.strip() else "")
        shown = escape("\n".join(map(visible, text.splitlines())))
        body += f"<{case.kind}{_attribute('message', message)}{_attribute('type', case.type)}>{shown}</{case.kind}>"
    head = f"{_attribute('name', case.name)}{_attribute('classname', case.classname)}"
    return f'<testcase{head} time="{_time(case.seconds)}">{body}</testcase>\n'


def _properties(found: Mapping[str, str]) -> str:
    listed = [f"<property{_attribute('name', name)}{_attribute('value', value)}/>" for name, value in found.items()]
    return f"<properties>{''.join(listed)}</properties>"


@lru_cache(maxsize=1 << 14)
def _attribute(name: str, text: str) -> str:
    shown = visible(text)
    if _MARKUP.search(shown):
        shown = escape(shown, {'"': "&quot;"})
    return f' {name}="{shown}"'
