"""Comparison → one JUnit file for all targets, in pieces, because it may hold a million cases.

The suite of each target and GPU holds its tests. `<target>/run` says whether the target and its stages completed, so that JUnit readers see
an absent or crashed target as an error. `<target>/compile/<architecture>` holds a case per compiled kernel. Nothing is merged: a test that
occurs twice is two cases, numbered in their names.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import PurePosixPath
from xml.sax.saxutils import escape

import junitparser

from warpwave.compare.codegen import configuration
from warpwave.compare.model import COMPLETE, Comparison, TargetSummary
from warpwave.records import JUNIT_XFAIL, MOST_SECONDS, CaseResult, CompiledKernel, NotRun, Stage, StageReport, Verdict, grouped
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
    counted = list(map(_count, suites))
    yield f'<?xml version="1.0" encoding="utf-8"?>\n<testsuites name="warpwave"{_totals(counted)}>\n'
    for suite, count in zip(suites, counted, strict=True):
        stamp = _attribute("timestamp", suite.target.started) if _TIMESTAMP.fullmatch(suite.target.started) else ""
        yield f"<testsuite{_attribute('name', suite.name)}{_totals([count])}{stamp}>{_xml(_listed(_facts(suite.target)))}\n"
        yield from (_test(result, occurrence) for result, occurrence in suite.tests)
        yield from map(_text, suite.others)
        yield from (_text(_compiled(kernel)) for kernel in suite.compiled)
        yield "</testsuite>\n"
    yield "</testsuites>\n"


@dataclass(frozen=True)
class _Case:
    """A case that is no test, with its texts not yet escaped."""

    classname: str
    name: str
    seconds: float
    verdict: Verdict = Verdict.PASSED
    message: str = ""
    detail: str = ""
    never_skipped: bool = False
    properties: Mapping[str, str] | None = None


@dataclass(frozen=True)
class _Suite:
    """Tests (with their occurrence), other cases, and compiled kernels.

    Cases of tests and kernels are made when written: there may be many.
    """

    name: str
    target: TargetSummary
    tests: list[tuple[CaseResult, int]] = field(default_factory=list)
    others: list[_Case] = field(default_factory=list)
    compiled: list[CompiledKernel] = field(default_factory=list)


def _count(suite: _Suite) -> tuple[Counter[str], float]:
    """Return how often each kind of outcome occurs, and the sum of the times in s."""
    kinds = Counter(_kind(result.verdict, False) for result, _ in suite.tests)
    kinds.update(_kind(case.verdict, case.never_skipped) for case in suite.others)
    kinds.update(_kind(kernel.verdict, False) for kernel in suite.compiled)
    times = (*(result.seconds for result, _ in suite.tests), *(case.seconds for case in suite.others))
    return kinds, math.fsum(map(_time, (*times, *(kernel.seconds for kernel in suite.compiled))))


def _totals(counted: Sequence[tuple[Counter[str], float]]) -> str:
    """Return the counts of suites as XML attributes."""
    kinds = sum((found for found, _ in counted), Counter[str]())
    counts = f'failures="{kinds["failure"]}" errors="{kinds["error"]}" skipped="{kinds["skipped"]}"'
    return f' tests="{kinds.total()}" {counts} time="{round(math.fsum(seconds for _, seconds in counted), 6)}"'


def _kind(verdict: Verdict, never_skipped: bool) -> str:
    """Return the element for a verdict; empty if the case passed."""
    if verdict is Verdict.PASSED or verdict is Verdict.FAILED:
        return "failure" if verdict is Verdict.FAILED else ""
    return "skipped" if verdict in (Verdict.NOT_RUN, Verdict.XFAILED, Verdict.KNOWN) and not never_skipped else "error"


def _time(seconds: float) -> float:
    """Return seconds that every parser accepts."""
    return round(seconds, 6) if 0 < seconds < MOST_SECONDS else 0.0


def _suites(comparison: Comparison) -> Iterator[_Suite]:
    tests: dict[str, list[tuple[CaseResult, int]]] = {}
    for row in comparison.tests:
        for cell in row.cells:
            doubt = suspicion(row, cell.target, comparison.targets)
            result = dataclasses.replace(cell.result, message=f"{doubt}: {cell.result.message}") if doubt else cell.result
            tests.setdefault(cell.target, []).append((result, row.occurrence))
    compiled = grouped((cell.target, cell.compiled) for cell in comparison.compiled_cells)
    for target in comparison.targets:
        gpu = f"/{target.gpus}" if target.gpus else ""
        if found := tests.get(target.target):
            yield _Suite(target.target + gpu, target, tests=found)
        yield _Suite(f"{target.target}/run", target, others=_run(target))
        for architecture, kernels in grouped((made.architecture, made) for made in compiled.get(target.target, ())).items():
            yield _Suite(f"{target.target}/compile/{architecture}", target, compiled=kernels)


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


def _test(result: CaseResult, occurrence: int) -> str:
    """Return the case as pytest names it: `folder.file` and `test[parameters]`; the node id is a property.

    Formatted by hand, because there may be a million: junitparser, which writes the rest, takes 26 microseconds for each.
    """
    head, named = _named(result.id, result.kernel, occurrence)
    listed = "".join([f"<property{_attribute('name', name)}{_attribute('value', value)}/>" for name, value in result.properties.items()])
    body = f"<properties>{named}{listed}</properties>"
    if result.verdict is not Verdict.PASSED:
        body += _xml(_outcome(result.verdict, result.message, result.detail, not_run=result.not_run))
    return f'{head} time="{_time(result.seconds)}">{body}</testcase>\n'


@lru_cache(maxsize=1 << 14)  # every target has the same tests
def _named(test: str, kernel: str, occurrence: int) -> tuple[str, str]:
    path, _, name = test.partition("::")
    classname = ".".join(PurePosixPath(path.removesuffix(".py")).parts) if name else kernel
    full = (name or path) + (f" ({occurrence})" if occurrence > 1 else "")
    head = f"<testcase{_attribute('name', full)}{_attribute('classname', classname)}"
    return head, "".join(f'<property name="{key}"{_attribute("value", value)}/>' for key, value in (("id", test), ("kernel", kernel)))


def _compiled(kernel: CompiledKernel) -> _Case:
    found = {**kernel.advice, **kernel.broken}
    waived = {f"waived.{gate}": f"{found.get(gate, '')}: {reason}" for gate, reason in kernel.waived.items()}
    told = waived | {f"advice.{gate}": text for gate, text in kernel.advice.items() if gate not in kernel.waived}
    if kernel.not_run:
        told["not_run"] = kernel.not_run.value
    detail = how_to_waive(kernel) if kernel.only_gates else ""
    name = configuration(kernel) or kernel.function
    return _Case(f"{kernel.kernel}.{kernel.function}", name, kernel.seconds, kernel.verdict, kernel.reason, detail, properties=told)


def _run(target: TargetSummary) -> list[_Case]:
    # A target that ran nothing is an error here. A skipped case would look green.
    verdict = Verdict.PASSED if target.complete else target.verdict
    reason = target.reason or target.verdict.value
    case = _Case(f"{target.target}.run", "complete", 0.0, verdict, reason, target.hint, never_skipped=True)
    return [case, *(_stage(target, report) for report in target.stages)]


def _stage(target: TargetSummary, report: StageReport) -> _Case:
    """Return whether a stage ran. Tests and kernels are counted in their own suites; measured points appear only here."""
    shown_elsewhere = (target.complete or report.verdict in COMPLETE) and report.stage in (Stage.TEST, Stage.COMPILE)
    verdict = Verdict.PASSED if shown_elsewhere else report.verdict
    return _Case(f"{target.target}.run", report.stage.value, report.seconds, verdict, report.reason, report.hint)


def _text(case: _Case) -> str:
    written = junitparser.TestCase(visible(case.name), visible(case.classname), _time(case.seconds))
    if case.properties:
        written.append(_listed(case.properties))
    if case.verdict is not Verdict.PASSED:
        written.append(_outcome(case.verdict, case.message, case.detail, case.never_skipped))
    return f"{_xml(written)}\n"


_OUTCOMES = {"failure": junitparser.Failure, "error": junitparser.Error, "skipped": junitparser.Skipped}


def _outcome(
    verdict: Verdict, message: str, detail: str, never_skipped: bool = False, not_run: NotRun | None = None
) -> junitparser.Element:
    kind = JUNIT_XFAIL if verdict is Verdict.XFAILED else not_run.value if not_run and verdict is Verdict.NOT_RUN else verdict.value
    outcome = _OUTCOMES[_kind(verdict, never_skipped)](visible(first_line(message, 2000)), kind)
    outcome.text = "\n".join(map(visible, (detail or (message if "\n" in message.strip() else "")).splitlines()))
    return outcome


def _listed(found: Mapping[str, str]) -> junitparser.Properties:
    properties = junitparser.Properties()
    for name, value in found.items():
        properties.add_property(junitparser.Property(visible(name), visible(value)))
    return properties


def _xml(element: junitparser.Element) -> str:
    return str(element.tostring(), "utf-8")


@lru_cache(maxsize=1 << 14)
def _attribute(name: str, text: str) -> str:
    shown = visible(text)
    if _MARKUP.search(shown):
        shown = escape(shown, {'"': "&quot;"})
    return f' {name}="{shown}"'
