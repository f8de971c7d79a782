"""Comparison → one JUnit file for all targets. Apart from `collect`, the only file that imports junitparser.

A suite per target and GPU holds its tests; `<target>/run` says whether the target and its stages ran to their end, so that an absent or
crashed target is an error to whoever reads JUnit and not a gap; `<target>/compile/<architecture>` holds a case per compiled kernel.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from junitparser import Error, Failure, JUnitXml, Properties, Property, Skipped, TestCase, TestSuite

from harness.comparison import COMPLETE, Comparison, TargetSummary
from harness.parity import configuration
from harness.records import CaseResult, CompiledKernel, Stage, StageReport, Verdict
from harness.render.gates import how_to_waive
from harness.render.text import first_line, visible

_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[\d.:+Z-]*")


def render_junit(comparison: Comparison) -> str:
    """The file's text. Nothing is merged: a case that is there twice is there twice, with its number behind its name."""
    suites = []
    for target in comparison.targets:
        tests = [_test(cell.result, row.occurrence) for row in comparison.tests for cell in row.cells if cell.target == target.target]
        compiled: dict[str, list[TestCase]] = {}
        for entry in comparison.codegen:
            for made in entry.cells:
                if made.target == target.target:
                    compiled.setdefault(made.compiled.architecture, []).append(_compiled(made.compiled))
        gpu = f"/{target.gpus}" if target.gpus else ""
        suites += [_suite(target, gpu, tests)] if tests else []
        suites.append(_suite(target, "/run", _run(target)))
        suites += [_suite(target, f"/compile/{architecture}", cases) for architecture, cases in compiled.items()]
    return _write(suites)


def _write(suites: Iterable[TestSuite]) -> str:
    xml = JUnitXml("warpwave")
    xml.extend(suites)  # type: ignore[no-untyped-call]  # not add_testsuite, which merges suites that look alike
    xml.update_statistics()  # type: ignore[no-untyped-call]  # of the suites, too
    text: str = xml.tostring().decode("utf-8")  # type: ignore[no-untyped-call]
    # A line per case; in names and messages `<` and `>` are escaped, so this finds elements only.
    return '<?xml version="1.0" encoding="utf-8"?>\n' + re.sub(r"><(testsuite|testcase|/testsuite)", r">\n<\1", text) + "\n"


def _suite(target: TargetSummary, suffix: str, cases: list[TestCase]) -> TestSuite:
    suite = TestSuite(visible(target.target + suffix))
    if _TIMESTAMP.fullmatch(target.started):
        suite.timestamp = target.started
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
    for name, value in properties.items():
        if value:
            suite.add_property(name, visible(value))
    suite.extend(cases)  # type: ignore[no-untyped-call]
    return suite


def _test(result: CaseResult, occurrence: int) -> TestCase:
    """As pytest names it: `folder.file` and `test[parameters]`; the node id itself is a property."""
    path, _, name = result.id.partition("::")
    classname = ".".join(PurePosixPath(path).with_suffix("").parts) if name else result.kernel
    case = _case(classname, (name or path) + (f" ({occurrence})" if occurrence > 1 else ""), result.seconds)
    listed = Properties()  # type: ignore[no-untyped-call]
    for key, value in {"id": result.id, "kernel": result.kernel, **result.properties}.items():
        listed.add_property(Property(visible(key), visible(value)))
    case.append(listed)  # type: ignore[no-untyped-call]
    return _with_result(case, result.verdict, result.message, result.detail)


def _compiled(kernel: CompiledKernel) -> TestCase:
    case = _case(f"{kernel.kernel}.{kernel.function}", configuration(kernel) or kernel.function, kernel.seconds)
    if kernel.waived:
        listed = Properties()  # type: ignore[no-untyped-call]
        for gate, reason in kernel.waived.items():
            listed.add_property(Property(visible(f"waived.{gate}"), visible(f"{kernel.broken.get(gate, '')}: {reason}")))
        case.append(listed)  # type: ignore[no-untyped-call]
    return _with_result(case, kernel.verdict, kernel.reason, how_to_waive(kernel) if kernel.only_gates else "")


def _run(target: TargetSummary) -> list[TestCase]:
    cases = [_stage(target, report) for report in target.stages]
    verdict = Verdict.PASSED if target.complete else target.verdict
    # A target that ran nothing is an error here: as a skipped case it would be green.
    case = _with_result(_case(f"{target.target}.run", "complete", 0.0), verdict, target.reason or target.verdict.value, target.hint, True)
    return [case, *cases]


def _stage(target: TargetSummary, report: StageReport) -> TestCase:
    """Whether a stage ran. What its tests and kernels did is counted in their own suites; measured points have none but this."""
    shown_elsewhere = (target.complete or report.verdict in COMPLETE) and report.stage in (Stage.TEST, Stage.COMPILE)
    verdict = Verdict.PASSED if shown_elsewhere else report.verdict
    return _with_result(_case(f"{target.target}.run", report.stage.value, report.seconds), verdict, report.reason, report.hint)


def _case(classname: str, name: str, seconds: float) -> TestCase:
    return TestCase(visible(name), visible(classname), round(seconds, 6) if math.isfinite(seconds) and seconds > 0 else 0.0)


def _with_result(case: TestCase, verdict: Verdict, message: str, detail: str, never_skipped: bool = False) -> TestCase:
    if verdict is Verdict.PASSED:
        return case
    kind = Failure if verdict is Verdict.FAILED else Skipped if verdict is Verdict.NOT_RUN and not never_skipped else Error
    result = kind(visible(first_line(message, 2000)), verdict.value)
    if text := detail or (message if "\n" in message.strip() else ""):
        result.text = "\n".join(map(visible, text.splitlines()))
    case.append(result)  # type: ignore[no-untyped-call]
    return case
