"""Run one target: make its folder, run it (twice if the machine failed), and return its record. Whatever happens, `raw/<target>/run.json`
records it, so that the comparison lists a target even if it could not run."""

import os
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from warpwave.config.targets import Target
from warpwave.engines import waiting
from warpwave.engines.protocol import Layout, Request, Say
from warpwave.errors import ExitCode, UsageError, WarpwaveError, explain
from warpwave.git import ask_git
from warpwave.options import RunOptions
from warpwave.records import FALLBACK, RunRecord, Stage, Verdict
from warpwave.run import cards
from warpwave.run.attempt import Ending, OnEvent, attempt, job_of, record_of, worth_another
from warpwave.run.inputs import gather, still_there
from warpwave.run.resume import check_inputs, check_run, check_same, earlier_attempts, finished, run_id_of, with_last

_FOLDER_WAIT_S = 60.0  # the processes of a killed run end within their grace


def run_target(target: Target, options: RunOptions, say: Say, on_event: OnEvent) -> RunRecord:
    """Run one target and leave its results in `raw/<target>/`. A failure of the target is recorded, not raised. If the machine or the
    engine failed, run the unfinished part once more in a fresh container. A failed test is never run again. Raises UsageError if the
    request makes no sense, or differs from the run to resume. Nothing was started and nothing changed."""
    stages, raw = check_target(target, options), options.where.out / "raw" / target.name
    if options.where.resume:
        check_run(options)
        options = options.placed(run_id=run_id_of(raw) or options.where.run_id)
    package = options.package
    options = replace(options, package=replace(package, commit=package.commit or commit_of(package.kernels)))
    request = Request(target, options, raw)
    try:
        resumed = _make(raw, options)
        if resumed and (record := finished(raw)):
            if record.environment is not None:
                check_inputs(raw, gather(request, still_there(request, record.environment)))
            layout = Layout("", str(options.package.kernels), str(raw), str(options.package.folder))
            check_same(raw, job_of(layout, request, stages))
            say(f"{target.name}: there is nothing left to do")
            return record
        with waiting.held(), ExitStack() as stack:
            with waiting.interruptible():
                lock = stack.enter_context(cards.folder(raw, _FOLDER_WAIT_S, say))
            request = replace(request, lock=lock)
            record = attempt(request, stages, earlier_attempts(raw), resumed, say, on_event)
            again = worth_another(record, raw) and not waiting.asked()
            return _once_more(request, stages, record, say, on_event) if again else record
    except (WarpwaveError, OSError) as error:
        if isinstance(error, UsageError):
            raise
        known = explain(error)
        ended = Ending(Verdict.INFRA, f"{known.happened} {known.meaning}", known.remedy)
        # Another run may own the folder, or there is none: write nothing to it.
        return record_of(request, datetime.now(timezone.utc), 0.0, (), ended)


def check_target(target: Target, options: RunOptions) -> tuple[Stage, ...]:
    """Return the stages of a target that the user asked for. Raises UsageError if the request makes no sense for this target, or its folder
    exists already. Nothing is started."""
    stages = _stages(target, options)
    if options.where.share and target.probe.require and not target.visible_devices:  # one without a GPU has nothing to share
        happened = f"The target {target.name!r} cannot share its work between GPUs."
        meaning = "Its entry in the targets file does not name the variable that selects which cards a process sees."
        raise UsageError(happened, meaning, f"Add it as targets.{target.name}.visible_devices, or give one card with --gpu.")
    if target.rocjitsu and (options.where.host or options.where.engine not in (None, FALLBACK)):
        meaning = "rocJITsu is a program of this machine, and runs beside warpwave."
        raise UsageError(f"The target {target.name!r} runs with the {FALLBACK} engine.", meaning, "Leave --engine and the host out.")
    if options.what.profile and not target.emulate:
        happened = f"--profile was given, and the target {target.name!r} does not emulate its kernels."
        meaning = "What a kernel asks of a card is counted where its machine code is executed on the CPU."
        raise UsageError(happened, meaning, "Run an emulated target, such as gfx942-emulated, or leave --profile out.")
    if target.visible_devices in options.package.variables:
        meaning = "It selects the GPUs of a run."
        raise UsageError(f"--env {target.visible_devices}: warpwave sets {target.visible_devices} itself.", meaning, "Use --gpu.")
    raw = options.where.out / "raw" / target.name
    if os.path.lexists(raw) and not (options.where.resume and raw.is_dir() and not raw.is_symlink()):
        raise _taken(raw)
    return stages


def _once_more(request: Request, stages: tuple[Stage, ...], record: RunRecord, say: Say, on_event: OnEvent) -> RunRecord:
    """Make the second attempt. If the inputs have changed since the first one, return the first one's record instead."""
    name = request.target.name
    say(f"{name}: {record.reason}; running the unfinished part once more in a fresh container")
    build = replace(request.options.build, rebuild=False)  # the image was built a moment ago
    request = replace(request, options=replace(request.options, build=build))
    try:
        return attempt(request, stages, with_last(record), True, say, on_event, retry=True)
    except UsageError as error:
        say(f"{name}: no second attempt: {error.happened}")
        return record


_CODES = {
    Verdict.PASSED: ExitCode.GOOD,
    Verdict.NOT_RUN: ExitCode.NOTHING_RAN,
    **dict.fromkeys((Verdict.FAILED, Verdict.ERROR), ExitCode.FAILED),
    **dict.fromkeys((Verdict.ABSENT, Verdict.INFRA), ExitCode.INFRASTRUCTURE),
}


def exit_code_of(verdict: Verdict) -> ExitCode:
    """Return the exit code for a verdict."""
    return _CODES.get(verdict, ExitCode.INCOMPLETE)


def commit_of(folder: Path) -> str:
    """Return the commit that `folder` is at, with `+` if the work tree differs and `?` if git does not say; empty outside git."""
    commit = (ask_git(folder, "rev-parse", "--short=12", "HEAD") or "").strip()
    differs = ask_git(folder, "status", "--porcelain", "--", ".") if commit else ""
    return commit + ("?" if differs is None else "+" if differs else "")


def _stages(target: Target, options: RunOptions) -> tuple[Stage, ...]:
    if not options.what.stages:
        return target.stages
    chosen = tuple(stage for stage in target.stages if stage in options.what.stages)
    if not chosen:
        meaning = "Each target lists its stages in targets.yml. A target without a GPU has no stage that measures time."
        if target.emulated:
            meaning = "Emulated targets measure nothing: a CPU executes the machine code, and its time says nothing about a card."
        happened = f"The target {target.name!r} has no stage {' or '.join(stage.value for stage in options.what.stages)}."
        remedy = f"Choose from {', '.join(stage.value for stage in target.stages)}. Targets with a card can measure: `warpwave list`."
        raise UsageError(happened, meaning, remedy)
    return chosen


def _make(raw: Path, options: RunOptions) -> bool:
    """Make a new, empty folder, so that old results never count as new. Return True if the folder exists and the run is to be resumed.
    Raises UsageError if the folder was created after `check_target` looked, and OSError if the folder cannot be made. (An earlier check has
    reported a wrong path.)"""
    try:
        raw.mkdir(parents=True)
    except FileExistsError:
        if options.where.resume and raw.is_dir() and not raw.is_symlink():
            return True
        raise _taken(raw) from None
    return False


def _taken(raw: Path) -> UsageError:
    happened = f"{raw} exists already."
    meaning = "A target's results are written to a new folder, so that old results never count as new."
    return UsageError(happened, meaning, "Give another --out, or remove that folder. To continue a run that was stopped, use --resume RUN.")
