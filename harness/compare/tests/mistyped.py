"""Tests that were asked for in vain: the options are wrong, not the package. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harness.compare.model import FAILING, ParityRow, TargetSummary
from harness.records import CaseResult, Stage, Verdict
from harness.records.selection.chosen import NO_SUCH_TEST, RAN_NO_TEST

_FEW = 3


def is_mistyped(result: CaseResult) -> bool:
    """Whether this is no test, but an id that was asked for and that no test has."""
    return result.verdict is Verdict.ERROR and result.message.endswith(NO_SUCH_TEST)


def mistyped(targets: Sequence[TargetSummary], tests: Iterable[ParityRow]) -> str:
    """Return what is wrong with the options that chose the tests, if nothing else is wrong: an id of no test, or what pytest refuses.

    pytest alone knows a test's parameters and its expressions, so such options are found out only when it runs.
    """
    refused = {target.target: words for target in targets if target.narrowed and (words := _refused(target))}
    failing = [(row.id, cell) for row in tests for cell in row.cells if cell.result.verdict in FAILING]
    unknown = list(dict.fromkeys(name for name, cell in failing if is_mistyped(cell.result)))
    explained = {*refused, *(cell.target for _, cell in failing)}
    others = (target for target in targets if target.target not in explained)
    if any(not is_mistyped(cell.result) for _, cell in failing) or any(target.verdict is not Verdict.PASSED for target in others):
        return ""
    bad = {verdict.value for verdict in FAILING}
    if any(target.verdict is not Verdict.ERROR or bad & target.compiled.keys() for target in targets if target.target in explained):
        return ""
    found = [*dict.fromkeys(refused.values())]
    if unknown:
        more = f" and {len(unknown) - _FEW} more" if len(unknown) > _FEW else ""
        found.append(f"{NO_SUCH_TEST}: {', '.join(unknown[:_FEW])}{more}")
    return "; ".join(found)


def _refused(target: TargetSummary) -> str:
    """Return pytest's words on an option that it refused before it ran a test."""
    reasons = (report.reason for report in target.stages if report.stage is Stage.TEST and report.verdict is Verdict.ERROR)
    return next((reason.removeprefix(RAN_NO_TEST) for reason in reasons if reason.startswith(RAN_NO_TEST)), "")
