"""Make one attempt at a target: prepare the environment, write the job, run it, and record how it ended."""

from __future__ import annotations

import errno
import json
import shlex
import time
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Union

from harness.collect.seals import was_changed
from harness.collect.untrusted_files import clip
from harness.collect.untrusted_records import read_record
from harness.config.target import Target
from harness.engines import signals
from harness.engines.choose import choose_engine, close
from harness.engines.protocol import Engine, Request, Say
from harness.engines.results_folder import tidy
from harness.errors import InfrastructureError, UnreachableError, UsageError, WarpwaveError, explain
from harness.options import RunOptions
from harness.records import (
    NO_STAGE,
    UNWRITABLE,
    Attempt,
    Environment,
    Exit,
    RunRecord,
    Stage,
    StageReport,
    Stages,
    Verdict,
    dump,
    write_text,
)
from harness.run import handover
from harness.run.diagnose import diagnose
from harness.run.disk_reserve import Reserve
from harness.run.inputs import gather
from harness.run.job import job_of
from harness.run.lease import Lease, lock_of
from harness.run.resume import check_inputs, check_same

OnEvent = Callable[[dict[str, Any]], None]

_NOISE_LINES = 1000
_ENGINE_WAIT_S = 60.0  # how long to wait for an engine that restarts
_STOPPED = "stopped by the user or the CI system"
# Errors of a full or broken disk, or of a limit of this process.
_MACHINES = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE}
_FORGED = "Code in the package rewrites results. Read its source; SECURITY.md says which results you can rely on."


@dataclass(frozen=True)
class Ending:
    """How an attempt ended; these fields go into its record."""

    verdict: Verdict
    reason: str
    hint: str
    environment: Union[Environment, None] = None
    exit: Union[Exit, None] = None
    stages_hash: str = ""
    held: dict[str, float] = field(default_factory=dict)


def attempt(
    request: Request,
    stages: tuple[Stage, ...],
    attempts: tuple[Attempt, ...],
    resumed: bool,
    say: Say,
    on_event: OnEvent,
    retry: bool = False,
) -> RunRecord:
    """Run the target once and return its record. The record is written at the start too, so that a killed run has one.

    `retry` marks the second attempt of one command: the tests of the first one may have left new files in their package.

    Raises:
        UsageError: the run was started with other inputs, so results would be mixed. Nothing was written.
    """
    target, options, raw = request.target, request.options, request.raw
    started, clock = datetime.now(timezone.utc), time.monotonic()
    engine: Engine | None = None
    environment: Environment | None = None
    ended: Exit | None = None
    reserve = Reserve()
    # Written after the run: during it, the code under test can write to `raw` and could plant a link for us to follow.
    noise: deque[str] = deque(maxlen=_NOISE_LINES)
    command = shlex.join(options.command) + ("" if options.resume else f" --resume {shlex.quote(str(options.folder))}")
    again = f"Continue it with `{command}`; what is finished is not run again."
    hashes: deque[str] = deque([""], maxlen=1)
    lease = Lease(None, raw)

    def open_record() -> None:
        running = Ending(Verdict.INCOMPLETE, "the run has not ended: warpwave is still running, or was killed", again, environment)
        dump(record_of(request, started, 0.0, attempts, running), raw / "run.json")

    def record_stop() -> None:
        """Record the stop before it begins: it takes seconds, and a CI system may kill this process before the kernels have ended."""
        seconds, how = round(time.monotonic() - clock, 3), Exit(None, 0.0, interrupted=True)
        cut_short = Ending(
            Verdict.INCOMPLETE, f"{_STOPPED} {phase}; warpwave was killed before everything had ended", again, environment, how
        )
        with suppress(OSError):  # the record from the start stays
            dump(record_of(request, started, seconds, attempts, cut_short), raw / "run.json")

    phase = "while the environment was prepared"
    with signals.held(record_stop):
        try:
            reserve.take(raw)
            if not resumed:
                open_record()
            with signals.interruptible():
                engine = _engine(options, target, say, patient=resumed)
                begun = time.monotonic()
                found = engine.prepare(request, say)
                lacking = [stage.value for stage in options.stages or () if stage not in target.stages]
                notes = (*found.notes, *(f"{NO_STAGE} {stage}, so that was left out" for stage in lacking))
                environment = replace(found, prepare_s=round(time.monotonic() - begun, 3), notes=notes)
            lease = Lease(lock_of(engine, request, environment, say, raw), raw)
            job = job_of(engine.layout(request), request, stages, lease.is_needed)
            inputs = gather(request, environment)
            if resumed:
                tidy(raw)  # the first attempt may have left links, and we must not write through them
                check_inputs(raw, inputs, may_grow=retry)
                check_same(raw, job)
            open_record()
            dump(inputs, raw / "inputs.json")
            dump(job, raw / "job.json")
            if request.options.compiled_folder and job.needs_card:
                handover.copy(request.options.compiled_folder, raw, job.compiled)
            with ExitStack() as stack:
                phase = "while it waited for its GPU"
                stack.callback(lease.end)
                with signals.interruptible():
                    lease.take()  # or fail early
                    lease.give_back()
                phase = "while the kernels ran"
                environment, ended = engine.execute(request, environment, lambda line: _dispatch(line, noise, on_event, hashes, lease))
            memory = environment.options.get("limits", {}).get("memory", "")
            outcome = diagnose(ended, _read_stages(raw), options.limit_s, memory)
            ending = Ending(outcome.verdict, outcome.reason, outcome.hint or (target.probe.fix if unusable(raw) else ""))
            if ended.code == 0 and (wrong := was_changed(raw, "stages.json", hashes[-1])):
                ending = Ending(Verdict.INVALID, f"stages.json: {wrong}", _FORGED)
        except KeyboardInterrupt:
            ending = Ending(Verdict.INCOMPLETE, f"{_STOPPED} {phase}", again)
            ended = Exit(None, 0.0, interrupted=True)
        except UsageError:
            close(engine)
            reserve.free()
            raise
        except WarpwaveError as error:
            # If nothing ran yet, a machine that does not answer leaves no results at all.
            verdict = Verdict.ABSENT if isinstance(error, UnreachableError) and not (raw / "stages.json").exists() else Verdict.INFRA
            ending = Ending(verdict, f"{error.happened} {error.meaning}", error.remedy)
        except Exception as error:  # a bug in warpwave must not cost the other targets their results
            ending = _our_fault(error, raw, noise)
        close(engine)
        seconds = round(time.monotonic() - clock, 3)
        ending = replace(ending, environment=environment, exit=ended, stages_hash=hashes[-1], held=lease.held)
        record = record_of(request, started, seconds, attempts, ending)
        reserve.free()
        try:
            dump(record, raw / "run.json")
            if noise:
                write_text(raw / "engine.log", "\n".join(noise) + "\n")
        except OSError as error:  # run.json may still say that the run has not ended; the report uses the record returned here
            known = explain(error)
            say(f"{target.name}: the final record of the run could not be written: {known.happened}")
            if record.verdict in (Verdict.PASSED, Verdict.FAILED, Verdict.ERROR):
                reason = f"the results could not be written: {known.happened}"
                return replace(record, verdict=Verdict.INFRA, reason=reason, hint=_hint(known))
        return record


def worth_another(record: RunRecord, raw: Path) -> bool:
    """Return whether a second attempt may help: the machine failed during the run, and neither the user nor a limit ended it."""
    ended = record.exit
    if record.verdict is not Verdict.INFRA or ended is None or ended.timed_out or ended.interrupted or ended.exceeded:
        return False
    return ended.code is None or (ended.code == 0 and not unusable(raw) and _lost_device(raw))


def _lost_device(raw: Path) -> bool:
    """Return whether a stage failed because of the machine, but not because its results could not be written."""
    stages = _read_stages(raw)
    return stages is not None and any(report.verdict is Verdict.INFRA and report.exit_code != UNWRITABLE for report in stages.reports)


def _our_fault(error: Exception, raw: Path, noise: deque[str]) -> Ending:
    if isinstance(error, OSError) and error.errno in _MACHINES:
        known = explain(error)
        return Ending(Verdict.INFRA, f"the results could not be written: {known.happened} {known.meaning}", _hint(known))
    noise.extend(traceback.format_exc().splitlines())
    hint = f"This is a bug in warpwave; please report it with {raw / 'engine.log'}."
    return Ending(Verdict.INFRA, f"warpwave itself failed: {type(error).__name__}: {error}", hint)


def _hint(error: WarpwaveError) -> str:
    return f"{error.remedy} --resume then continues the run."


def _engine(options: RunOptions, target: Target, say: Say, patient: bool) -> Engine:
    """Connect to the target's engine. If `patient`, wait for an engine that restarts."""
    until = time.monotonic() + (_ENGINE_WAIT_S if patient else 0.0)
    while True:
        try:
            return choose_engine(options.engine, target, say, options.host)
        except UnreachableError:
            raise
        except InfrastructureError:
            if time.monotonic() >= until:
                raise
            time.sleep(1.0)


def record_of(request: Request, started: datetime, seconds: float, attempts: tuple[Attempt, ...], ending: Ending) -> RunRecord:
    """Return the host's record of an attempt that ended this way."""
    options = request.options
    return RunRecord(
        run_id=options.run_id,
        target=request.target.name,
        label=request.target.label,
        verdict=ending.verdict,
        reason=ending.reason,
        hint=ending.hint,
        started=started.isoformat(timespec="seconds"),
        seconds=seconds,
        commit=request.options.commit,
        repository=options.repository,
        kernels=options.kernels.name,
        command=options.command,
        environment=ending.environment,
        exit=ending.exit,
        attempts=attempts,
        shard=str(options.shard or ""),
        host=options.host.where if options.host else "",
        snapshot=options.snapshot,
        stages_hash=ending.stages_hash,
        toolchain=request.target.toolchain.name if request.target.toolchain else "",
        emulated=request.target.emulate.name if request.target.emulate else "",
        held=ending.held,
    )


def _dispatch(
    line: str, noise: deque[str], on_event: OnEvent, hashes: Union[deque[str], None] = None, lease: Union[Lease, None] = None
) -> None:
    """Handle one line of output. The inside prints only events; other lines are from Python or the engine, and go to `noise`.

    The last of the `hashes` of stages.json counts: the inside sends it after all processes of the package have ended.
    """
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        event = None
    if isinstance(event, dict) and event.get("event") == "stages":
        if hashes is not None:
            hashes.append(clip(str(event.get("sha256")), 64))
    elif isinstance(event, dict) and event.get("event") == "lease":
        if lease is not None:
            lease.on_event(event)
    elif isinstance(event, dict) and "event" in event:
        on_event(event)
    else:
        noise.append(line)


def _read_stages(raw: Path) -> Stages | None:
    """Return the inside's stages.json, or None if it is missing or unreadable."""
    return read_record(raw, "stages.json", Stages)[0]


def unusable(raw: Path) -> bool:
    """Return whether the facts stage found that the environment cannot run kernels."""
    stages = _read_stages(raw)
    first: StageReport | None = stages.reports[0] if stages and stages.reports else None
    return first is not None and first.stage is Stage.FACTS and first.verdict is not Verdict.PASSED
