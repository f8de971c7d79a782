"""Turn the way a run ended into one verdict, with the evidence and a next step. Pure: the tests hold the whole table.

An exit code alone is never a pass. The inside exits with 0 whenever it reaches its end, even if tests failed, and some engines report 0 for
containers that were killed. Only a finished `stages.json` counts.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass

from harness.records import UNWRITABLE, Exit, Stage, StageReport, Stages, Verdict, worst

_WORDS = {
    signal.SIGSEGV: "a segmentation fault",
    signal.SIGABRT: "an abort; GPU runtimes abort the process on a memory fault or a hang of the device",
    signal.SIGTERM: "a request to stop",
    signal.SIGINT: "an interrupt",
    signal.SIGBUS: "a bus error; often /dev/shm or a file system is full",
    signal.SIGILL: "an illegal instruction; the build does not fit this CPU",
    signal.SIGFPE: "an arithmetic fault",
}
_LOGS = "See the last lines of log.txt in the stage's result folder."


@dataclass(frozen=True)
class Diagnosis:
    """The verdict on a run. `reason` is the evidence; `hint` says what to do."""

    verdict: Verdict
    reason: str = ""
    hint: str = ""


def diagnose(ended: Exit, stages: Stages | None, limit_s: float, memory_limit: str) -> Diagnosis:
    """Return the verdict on a target. The engine's evidence comes before the stages' reports: a dead run cannot report how it died."""
    if ended.interrupted:
        return Diagnosis(Verdict.INCOMPLETE, f"stopped by the user or the CI system{_during(stages)}", "What was finished has been kept.")
    if ended.error or ended.code is None:
        reason = ended.error or "the engine does not know how the run ended"
        hint = ended.hint or "This is not a verdict on the kernels: fix the machine (`warpwave doctor`), then run again."
        return Diagnosis(Verdict.INFRA, reason, hint)
    if ended.exceeded:
        hint = "Write large files to /tmp, which is removed after the run, or raise the limit (--results-limit, --results-files)."
        return Diagnosis(Verdict.CRASHED, f"ended because {ended.exceeded}{_during(stages)}", hint)
    if ended.timed_out:
        hint = "A kernel never ends, or the limit is too short: look at the test that was running, or give a longer limit."
        return Diagnosis(Verdict.TIMEOUT, f"stopped after its limit of {limit_s:g} s{_during(stages)}", hint)
    if ended.code == UNWRITABLE:
        hint = "Make room on the disk of the results; --resume then continues the run."
        return Diagnosis(Verdict.INFRA, f"the results could not be written: the disk is full or broken{_during(stages)}", hint)
    number = _signal(ended.code)
    if ended.oom_killed and (number == signal.SIGKILL or _stage_killed(stages)):
        limit = memory_limit or "what this machine has"
        hint = "Use smaller sizes or fewer workers, or a machine with more memory. This is host memory, not the GPU's."
        return Diagnosis(Verdict.OOM, f"ended by the out-of-memory killer: its memory grew past {limit}{_during(stages)}", hint)
    if ended.code in (126, 127):
        reason = f"exit code {ended.code}: the program to run was not {'found' if ended.code == 127 else 'executable'}"
        return Diagnosis(Verdict.INFRA, reason, "Set `python` in the targets file to a Python in the image.")
    if number == signal.SIGKILL:
        # No process in a container can kill the container's first process, and the out-of-memory killer would have set its flag.
        reason = f"ended by SIGKILL (exit code {ended.code}), a kill from outside{_during(stages)}"
        return Diagnosis(Verdict.INCOMPLETE, reason, "Continue it with --resume, or run it again; what was finished has been kept.")
    if number is not None:
        words = _WORDS.get(number, "a signal")
        return Diagnosis(Verdict.CRASHED, f"ended by {number.name} (exit code {ended.code}), {words}{_during(stages)}", _LOGS)
    if ended.code != 0:
        return Diagnosis(Verdict.CRASHED, f"the harness inside failed with exit code {ended.code}{_during(stages)}", _LOGS)
    return _from_stages(stages)


def _from_stages(stages: Stages | None) -> Diagnosis:
    if stages is None:
        hint = "A test may have ended the whole process, or the results folder is not writable. " + _LOGS
        return Diagnosis(Verdict.INCOMPLETE, "exit code 0, but there is no readable stages.json, so the results are unknown", hint)
    if not stages.finished:
        return Diagnosis(Verdict.INCOMPLETE, f"exit code 0, but the run did not reach its end{_during(stages)}", _LOGS)
    # A package without benchmarks may pass. A package without tests may not: a green result must mean that something was checked.
    decisive = [report for report in stages.reports if report.verdict is not Verdict.NOT_RUN or report.stage is Stage.TEST]
    verdict = worst([report.verdict for report in decisive if report.stage is not Stage.FACTS or report.verdict is not Verdict.PASSED])
    if verdict is Verdict.PASSED:
        return Diagnosis(verdict)
    report = next((report for report in stages.reports if report.verdict is verdict), None)
    if report is None:
        return Diagnosis(verdict, "no stage was selected", "Name stages with --stage, or leave it out to run the target's own.")
    return Diagnosis(verdict, f"{report.stage.value}: {report.reason or report.verdict.value}", report.hint)


def _signal(code: int) -> signal.Signals | None:
    """Return the signal behind an exit code: 128 + n from a container, -n from a child process."""
    try:
        return signal.Signals(-code if code < 0 else code - 128)
    except ValueError:
        return None


def _stage_killed(stages: Stages | None) -> bool:
    return any(_killed(report) for report in stages.reports) if stages else False


def _killed(report: StageReport) -> bool:
    return report.exit_code is not None and _signal(report.exit_code) == signal.SIGKILL


def _during(stages: Stages | None) -> str:
    """Return a phrase that names the stage that was running: the first one without a result."""
    if stages is None or stages.finished:
        return ""
    waiting = (report for report in stages.reports if report.verdict is Verdict.NOT_RUN and report.exit_code is None and not report.seconds)
    running = next((report.stage.value for report in waiting), None)
    return f", in stage {running}" if running else ""
