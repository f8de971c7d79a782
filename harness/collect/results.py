"""How a test case ended, in JUnit's words and in those of other tools. What nobody knows is invalid: it may mean a failure."""

from __future__ import annotations

from typing import Union

from harness.collect.untrusted_files import clip
from harness.records import NotRun, Verdict

# What an `<error type="…">` may say; any other type, "passed" among them, is an error.
ERROR_TYPES = {
    verdict.value: verdict
    for verdict in (Verdict.TIMEOUT, Verdict.CRASHED, Verdict.OOM, Verdict.GPU_HANG, Verdict.INVALID, Verdict.INCOMPLETE, Verdict.INFRA)
}
RESULTS = {"failure": Verdict.FAILED, "error": Verdict.ERROR, "skipped": Verdict.NOT_RUN}
# What else a case may hold: JUnit's own, and the attempts that Maven's Surefire lists beside the result.
OTHERS = {"properties", "system-out", "system-err", "rerunFailure", "rerunError", "flakyFailure", "flakyError"}
# What other tools say in `status` or `result` of a case that has no element for it.
_STATUSES = dict.fromkeys(("failed", "failure", "fail"), Verdict.FAILED)
_STATUSES |= dict.fromkeys(("error", "errored", "broken", "crashed", "aborted"), Verdict.ERROR)
_STATUSES |= dict.fromkeys(("notrun", "skipped", "disabled", "suppressed", "pending", "ignored"), Verdict.NOT_RUN)
_STATUSES |= dict.fromkeys(("", "passed", "pass", "ok", "success", "successful", "run", "executed", "completed"), Verdict.PASSED)
Result = tuple[Verdict, str, str, Union[NotRun, None]]  # with a message, a text, and why it did not run
PASSED: Result = (Verdict.PASSED, "", "", None)
REASONS = {why.value: why for why in NotRun}  # what a `<skipped type="…">` may say


def by_status(attributes: dict[str, str]) -> Result:
    """Return how a case ended by its attributes, where no element in it says more. What no list has may mean a failure."""
    found = PASSED
    for name in ("status", "result"):
        verdict = _STATUSES.get(attributes.get(name, "").lower(), Verdict.INVALID)
        if verdict is not Verdict.PASSED:
            found = worse(found, (verdict, f'{name}="{clip(attributes[name], 40)}"', "", None))
    return found


def worse(one: Result, other: Result) -> Result:
    """Return the worse of two results; the first of two that are alike."""
    return other if other[0].severity > one[0].severity else one
