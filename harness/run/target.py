"""One target: its folder, its attempts, its record.

Whatever happens, `raw/<target>/run.json` says so: a target that could not run is a row of the comparison, not a gap in it.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from harness.engines import signals
from harness.engines.seam import Layout, Request, Say
from harness.errors import ExitCode, UsageError, WarpwaveError, explain
from harness.options import RunOptions
from harness.records import RunRecord, Stage, Verdict
from harness.run import lease
from harness.run.attempt import Ending, OnEvent, attempt, job_of, record_of, worth_another
from harness.run.inputs import gather, still_there
from harness.run.resume import check_inputs, check_run, check_same, earlier_attempts, finished, run_id_of
from harness.targets import Target

_FOLDER_WAIT_S = 60.0  # what a killed run leaves behind ends within its grace


def run_target(target: Target, options: RunOptions, say: Say, on_event: OnEvent) -> RunRecord:
    """Run one target and leave `raw/<target>/`; never raises for what went wrong with that target.

    What broke around the kernels is tried once more, in a fresh container, for what is not finished; a failed test never is.

    Raises:
        UsageError: the request itself makes no sense, or the run to resume is another one; nothing was started and nothing changed.
    """
    stages, raw = check_target(target, options), options.out / "raw" / target.name
    if options.resume:
        check_run(options)
        options = replace(options, run_id=run_id_of(raw) or options.run_id)
    options = replace(options, commit=options.commit or commit_of(options.kernels))
    request = Request(target, options, raw)
    try:
        resumed = _make(raw, options)
        if resumed and (record := finished(raw)):
            _check_finished(request, stages, record)
            say(f"{target.name}: there is nothing left to do")
            return record
        with signals.held(), ExitStack() as stack:
            with signals.interruptible():
                lock = stack.enter_context(lease.folder(raw, _FOLDER_WAIT_S, say))
            request = replace(request, lock=lock)
            record = attempt(request, stages, earlier_attempts(raw), resumed, say, on_event)
            again = worth_another(record, raw) and not signals.asked()
            return _once_more(request, stages, record, say, on_event) if again else record
    except (WarpwaveError, OSError) as error:
        if isinstance(error, UsageError):
            raise
        told = explain(error)
        ended = Ending(Verdict.INFRA, f"{told.happened} {told.meaning}", told.remedy)
        # Somebody else's folder, or none: nothing is written to it.
        return record_of(request, datetime.now(timezone.utc), 0.0, (), ended)


def check_target(target: Target, options: RunOptions) -> tuple[Stage, ...]:
    """The stages of a target that were asked for.

    Raises:
        UsageError: the request makes no sense for this target, or its folder is there already. Nothing is started.
    """
    stages = _stages(target, options)
    _check_shareable(target, options)
    raw = options.out / "raw" / target.name
    if os.path.lexists(raw) and not (options.resume and raw.is_dir() and not raw.is_symlink()):
        raise _taken(raw)
    return stages


def _once_more(request: Request, stages: tuple[Stage, ...], record: RunRecord, say: Say, on_event: OnEvent) -> RunRecord:
    """The second attempt, or the first one's record where what it was made of has changed under it."""
    name, raw = request.target.name, request.raw
    say(f"{name}: {record.reason}; once more, in a fresh container, for what is not finished")
    build = replace(request.options.build, rebuild=False)  # the image was built a moment ago
    request = replace(request, options=replace(request.options, build=build))
    try:
        return attempt(request, stages, earlier_attempts(raw), True, say, on_event, retry=True)
    except UsageError as error:
        say(f"{name}: not tried once more: {error.happened}")
        return record


def _check_finished(request: Request, stages: tuple[Stage, ...], record: RunRecord) -> None:
    """Results that are finished count only for what they were made of.

    Raises:
        UsageError: that, or what is asked for, is something else today.
    """
    if record.environment is not None:
        check_inputs(request.raw, gather(request, still_there(request, record.environment)))
    layout = Layout("", str(request.options.kernels), str(request.raw))
    check_same(request.raw, job_of(layout, request, stages))


def exit_code_of(verdict: Verdict) -> ExitCode:
    """The exit code that a verdict stands for."""
    codes = {
        Verdict.PASSED: ExitCode.GOOD,
        Verdict.FAILED: ExitCode.FAILED,
        Verdict.ERROR: ExitCode.FAILED,
        Verdict.INFRA: ExitCode.INFRASTRUCTURE,
        Verdict.NOT_RUN: ExitCode.NOTHING_RAN,
    }
    return codes.get(verdict, ExitCode.INCOMPLETE)


def new_run_id() -> str:
    """Sortable, readable, and different for two runs started in the same second."""
    import secrets

    return f"{datetime.now(timezone.utc):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def commit_of(folder: Path) -> str:
    """The commit that `folder` is at, with `+` where the work tree differs; empty outside of git."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=20)
        return done.stdout.strip() if done.returncode == 0 else ""

    try:
        commit = git("rev-parse", "--short=12", "HEAD")
        return commit + ("+" if commit and git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _stages(target: Target, options: RunOptions) -> tuple[Stage, ...]:
    """The target's stages, or those of them that were asked for."""
    if options.stages is None:
        return target.stages
    chosen = tuple(stage for stage in target.stages if stage in options.stages)
    if not chosen:
        raise UsageError(
            f"The target {target.name!r} has no stage {' or '.join(stage.value for stage in options.stages)}.",
            "A target without a GPU has nothing to time; stages are a target's own, in targets.yml.",
            f"Choose from {', '.join(stage.value for stage in target.stages)}, or leave --stage out.",
        )
    return chosen


def _check_shareable(target: Target, options: RunOptions) -> None:
    """A target without a GPU has nothing to share, and runs as ever; one with GPUs must say how a process is shown one of them."""
    if options.share and target.probe.require and not target.visible_devices:
        raise UsageError(
            f"The target {target.name!r} cannot share its work between GPUs.",
            "Its entry in the targets file does not name the variable that shows a process some of the cards.",
            f"Add it as targets.{target.name}.visible_devices, or leave --gpus out.",
        )


def _make(raw: Path, options: RunOptions) -> bool:
    """A new, empty folder, so that results of another run can never be taken for this one's; or, and then True, that of a run to resume.

    Raises:
        UsageError: it has come into being since `check_target`.
        OSError: it cannot be made; where its path is wrong, that was said before.
    """
    try:
        raw.mkdir(parents=True)
    except FileExistsError:
        if options.resume and raw.is_dir() and not raw.is_symlink():
            return True
        raise _taken(raw) from None
    return False


def _taken(raw: Path) -> UsageError:
    return UsageError(
        f"{raw} exists already.",
        "A target's results are written to a new folder, so that stale ones are never read as fresh.",
        "Give another --out, or remove that folder; --resume RUN finishes a run that was ended before its time.",
    )
