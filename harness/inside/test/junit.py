"""Case results → JUnit XML in pytest's shape (classname, name, properties per case), with verdicts that pytest does not have."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from datetime import datetime, timezone

from harness.records import JUNIT_XFAIL, CaseResult, Job, Verdict

# Characters that XML 1.0 cannot hold are escaped, not dropped.
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(job: Job, cases: list[CaseResult]) -> str:
    """Return one `testsuites` element with one `testsuite`, named after the target."""
    failures = sum(case.verdict is Verdict.FAILED for case in cases)
    skipped = sum(case.verdict in (Verdict.NOT_RUN, Verdict.XFAILED) for case in cases)
    passed = sum(case.verdict is Verdict.PASSED for case in cases)
    counts = {"tests": len(cases), "failures": failures, "errors": len(cases) - failures - skipped - passed, "skipped": skipped}
    root = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(root, "testsuite", {"name": job.target, **{key: str(value) for key, value in counts.items()}})
    suite.set("time", f"{sum(case.seconds for case in cases):.3f}")
    suite.set("timestamp", datetime.now(timezone.utc).isoformat(timespec="seconds"))
    _properties(suite, {"run_id": job.run_id, "target": job.target})
    for case in cases:
        _case(suite, case)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _case(suite: ElementTree.Element, case: CaseResult) -> None:
    file, _, name = case.id.partition("::")
    classname = file.removesuffix(".py").replace("/", ".")
    element = ElementTree.SubElement(suite, "testcase", {"classname": _clean(classname), "name": _clean(name or file)})
    element.set("time", f"{case.seconds:.3f}")
    _properties(element, {"id": case.id, "kernel": case.kernel, **case.properties})
    if case.verdict in (Verdict.NOT_RUN, Verdict.XFAILED):
        kind = JUNIT_XFAIL if case.verdict is Verdict.XFAILED else (case.not_run or case.verdict).value
        ElementTree.SubElement(element, "skipped", {"type": kind, "message": _clean(case.message)})
    elif case.verdict is not Verdict.PASSED:
        tag = "failure" if case.verdict is Verdict.FAILED else "error"
        ElementTree.SubElement(element, tag, {"type": case.verdict.value, "message": _clean(case.message)}).text = _clean(case.detail)


def _properties(parent: ElementTree.Element, values: dict[str, str]) -> None:
    properties = ElementTree.SubElement(parent, "properties")
    for key, value in values.items():
        ElementTree.SubElement(properties, "property", {"name": _clean(key), "value": _clean(value)})


def _clean(text: str) -> str:
    return _ILLEGAL.sub(lambda match: f"\\x{ord(match.group()):02x}", text)
