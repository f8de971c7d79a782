"""Make one attempt at a target: prepare the environment, write the job, run it, and record how it ended."""

import errno
import json
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Union

from warpwave.collect.raw_folder import was_changed
from warpwave.collect.untrusted import clip, read_record
from warpwave.config.targets import Target
from warpwave.engines import waiting
from warpwave.engines.choose import choose_engine, close
from warpwave.engines.protocol import Engine, Layout, Request, Say
from warpwave.engines.results import put, tidy
from warpwave.errors import InfrastructureError, UnreachableError, UsageError, WarpwaveError, explain
from warpwave.options import RunOptions
from warpwave.records import (
    NO_STAGE,
    UNWRITABLE,
    Attempt,
    Environment,
    Exit,
    Job,
    RunRecord,
    Stage,
    Stages,
    Verdict,
    resume_command,
    to_text,
    worst,
    write_text,
)
from warpwave.records.words import host_copy
from warpwave.run import inputs as handover
from warpwave.run.cards import Lease, lock_of
from warpwave.run.folders import Reserve
from warpwave.run.inputs import gather
from warpwave.run.resume import check_inputs, check_same
from warpwave.run.shards import part_of, share_scripts

# An exit code alone is never a pass. The inside exits with 0 whenever it reaches its end, even if tests failed, and some engines report 0
# for containers that were killed. Only a finished `stages.json` counts.

_WORDS = {
    signal.SIGSEGV: "a segmentation fault",
    signal.SIGABRT: "an abort; GPU runtimes abort the process on a memory fault or a hang of the device",
    signal.SIGTERM: "a request to stop",
    signal.SIGINT: "an interrupt",
    signal.SIGBUS: "a bus error; often /dev/shm or a file system is full",
    signal.SIGILL: "an illegal instruction; the build does not fit this CPU",
    signal.SIGFPE: "an arithmetic fault",
}


@dataclass(frozen=True)
class Ending:
    """How an attempt ended; these fields go into its record. `reason` is the evidence; `hint` says what to do."""

    verdict: Verdict
    reason: str = ""
    hint: str = ""
    environment: Union[Environment, None] = None
    exit: Union[Exit, None] = None
    stages_hash: str = ""
    held: dict[str, float] = field(default_factory=dict)


def diagnose(ended: Exit, stages: Stages | None, limit_s: float, memory_limit: str) -> Ending:
    """Return the verdict on a target. The engine's evidence comes before the stages' reports: a dead run cannot report how it died."""
    if ended.interrupted:
        return Ending(
            Verdict.INCOMPLETE,
            f"stopped by the user or the CI system{_during(stages)}",
            "What was finished has been kept; --resume continues the run.",
        )
    if ended.error or ended.code is None:
        reason = ended.error or "the engine does not know how the run ended"
        hint = ended.hint or "This is not a verdict on the kernels: fix the machine (`warpwave doctor`), then run again."
        return Ending(Verdict.INFRA, reason, hint)
    if ended.exceeded:
        hint = "Write large files to /tmp, which is removed after the run, or raise the limit: `limits` in a targets file."
        return Ending(Verdict.CRASHED, f"ended because {ended.exceeded}{_during(stages)}", hint)
    if ended.timed_out:
        hint = "A kernel never ends, or the limit is too short: look at the test that was running, or give a longer limit."
        return Ending(Verdict.TIMEOUT, f"stopped after its limit of {limit_s:g} s{_during(stages)}", hint)
    if ended.code == UNWRITABLE:
        hint = "Make room on the disk of the results; --resume then continues the run."
        return Ending(Verdict.INFRA, f"the results could not be written: the disk is full or broken{_during(stages)}", hint)
    number = _signal(ended.code)
    if ended.oom_killed and (number == signal.SIGKILL or _stage_killed(stages)):
        limit = memory_limit or "what this machine has"
        hint = "Use smaller sizes or fewer workers, or a machine with more memory. This is host memory, not the GPU's."
        return Ending(Verdict.OOM, f"ended by the out-of-memory killer: its memory grew past {limit}{_during(stages)}", hint)
    if ended.code in (126, 127):
        reason = f"exit code {ended.code}: the program to run was not {'found' if ended.code == 127 else 'executable'}"
        return Ending(Verdict.INFRA, reason, "Set `python` in the targets file to a Python in the image.")
    if number == signal.SIGKILL:
        # No process in a container can kill the container's first process, and the out-of-memory killer would have set its flag.
        reason = f"ended by SIGKILL (exit code {ended.code}), a kill from outside{_during(stages)}"
        return Ending(Verdict.INCOMPLETE, reason, "Continue it with --resume, or run it again; what was finished has been kept.")
    if number is not None:
        words = _WORDS.get(number, "a signal")
        return Ending(Verdict.CRASHED, f"ended by {number.name} (exit code {ended.code}), {words}{_during(stages)}", _log_of(stages))
    if ended.code != 0:
        return Ending(Verdict.CRASHED, f"the harness inside failed with exit code {ended.code}{_during(stages)}", _log_of(stages))
    return _from_stages(stages)


def _from_stages(stages: Stages | None) -> Ending:
    if stages is None:
        hint = "A test may have ended the whole process, or the results folder is not writable."
        return Ending(Verdict.INCOMPLETE, "exit code 0, but there is no readable stages.json, so the results are unknown", hint)
    if not stages.finished:
        return Ending(Verdict.INCOMPLETE, f"exit code 0, but the run did not reach its end{_during(stages)}", _log_of(stages))
    # A package without benchmarks may pass. A package without tests may not: a green result must mean that something was checked.
    decisive = [report for report in stages.reports if report.verdict is not Verdict.NOT_RUN or report.stage is Stage.TEST]
    verdict = worst([report.verdict for report in decisive if report.stage is not Stage.FACTS or report.verdict is not Verdict.PASSED])
    if verdict is Verdict.PASSED:
        return Ending(verdict)
    report = next((report for report in stages.reports if report.verdict is verdict), None)
    if report is None:
        return Ending(verdict, "no stage was selected", "Name stages with --stage, or leave it out to run the target's own.")
    return Ending(verdict, f"{report.stage.value}: {report.reason or report.verdict.value}", report.hint)


def _signal(code: int) -> signal.Signals | None:
    """Return the signal behind an exit code: 128 + n from a container, -n from a child process."""
    try:
        return signal.Signals(-code if code < 0 else code - 128)
    except ValueError:
        return None


def _stage_killed(stages: Stages | None) -> bool:
    codes = [report.exit_code for report in stages.reports] if stages else []
    return any(code is not None and _signal(code) == signal.SIGKILL for code in codes)


def _during(stages: Stages | None) -> str:
    running = _running(stages)
    return f", in stage {running}" if running else ""


def _log_of(stages: Stages | None) -> str:
    running = _running(stages)
    return f"See the last lines of {running}/log.txt." if running else "If a stage had begun, the end of its log.txt says more."


def _running(stages: Stages | None) -> str:
    """Return the stage that was running: the first one without a result."""
    if stages is None or stages.finished:
        return ""
    waiting = (report for report in stages.reports if report.verdict is Verdict.NOT_RUN and report.exit_code is None and not report.seconds)
    return next((report.stage.value for report in waiting), "")


def job_of(layout: Layout, request: Request, stages: tuple[Stage, ...], lease: bool = False) -> Job:
    """Return the job for the inside."""
    target, options = request.target, request.options
    where, package, what = options.where, options.package, replace(options.what, stages=stages)
    part = part_of(options, where.shard) if where.shard else None
    if part:
        what = replace(what, benches=part.benches, bench_scripts=share_scripts(options))
    # What the user gives comes before what a file of the package says.
    variables = {name: value for name, value in package.declared.variables.items() if name not in package.variables}
    few = tuple(card for card in target.architectures if what.quick and card.name in target.quick)
    compiled_for = few or target.architectures
    limits = options.limits
    if limits.budget:  # which may end before the others have their turn
        on_any_toolchain = limits.budget.seen.get(target.name.partition("@")[0], {})
        seen = limits.budget.seen.get(target.name, on_any_toolchain)
        limits = replace(limits, budget=replace(limits.budget, seen={target.name: seen} if seen else {}))
        compiled_for = tuple(sorted(compiled_for, key=lambda card: card.name not in target.quick))
        compiled_for = tuple(card for card in compiled_for if f"compile {card.name}" in seen) or compiled_for
    return Job(
        run_id=where.run_id,
        target=target.name,
        kernels=layout.kernels,
        output=layout.output,
        what=what,
        limits=limits,
        declared=replace(package.declared, variables=variables),
        package_root=layout.package,
        interpret=target.interpret,
        interpret_as=target.interpret_as if target.interpret else None,
        emulate=target.emulate,
        rocjitsu=target.rocjitsu,
        require=target.probe.require,
        probe=target.probe.command,
        driver_file=target.probe.driver_file,
        architectures=compiled_for,
        not_compiled_for=tuple(card.name for card in target.architectures if card not in compiled_for),
        torch_devices=target.torch_devices,
        torch_index=target.image.build_args.get("TORCH_INDEX", ""),
        device_faults={pattern: Verdict(verdict) for pattern, verdict in target.probe.faults.items()},
        lease=lease,
        visible_devices=target.visible_devices if where.share else None,
        gpus=len(where.gpu.split(",")) if where.share and where.gpu and target.visible_devices else 0,
        card_query=target.probe.cards.run if where.share else (),
        card_rows=target.probe.cards.rows if where.share else "",
        files=part.files if part else None,
        division=part.division if part else "",
    )


OnEvent = Callable[[dict[str, Any]], None]

_NOISE_LINES = 1000
_ENGINE_WAIT_S = 60.0  # how long to wait for an engine that restarts
_STOPPED = "stopped by the user or the CI system"
_RUNNING = "the run has not ended: warpwave is still running, or was killed"
# Errors of a full or broken disk, or of a limit of this process.
_MACHINES = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE}
_FORGED = "Code in the package rewrites results. Read its source; SECURITY.md says which results you can rely on."


def attempt(
    request: Request,
    stages: tuple[Stage, ...],
    attempts: tuple[Attempt, ...],
    resumed: bool,
    say: Say,
    on_event: OnEvent,
    retry: bool = False,
) -> RunRecord:
    """Run the target once and return its record. The record is written at the start too, so that a killed run has one. `retry` marks the
    second attempt of one command: the tests of the first one may have left new files in their package. Raises UsageError if the run was
    started with other inputs, so results would be mixed. Nothing was written."""
    target, options, raw = request.target, request.options, request.raw
    started, clock = datetime.now(timezone.utc), time.monotonic()
    engine: Engine | None = None
    environment: Environment | None = None
    ended: Exit | None = None
    reserve = Reserve()
    # Written after the run: during it, the code under test can write to `raw` and could plant a link for us to follow.
    noise: deque[str] = deque(maxlen=_NOISE_LINES)
    again = f"Continue it with `{resume_command(options.where.command, options.where.folder)}`; what is finished is not run again."
    hashes: deque[str] = deque([""], maxlen=1)
    lease = Lease(None, raw)
    own: dict[str, str] = {}  # what the package could replace, and is written once more at the end

    def keep(seconds: float, reason: str, how: Exit | None = None) -> None:
        ending = Ending(Verdict.INCOMPLETE, reason, again, environment, how)
        _put(raw, "run.json", to_text(record_of(request, started, seconds, attempts, ending)))

    def record_stop() -> None:
        """Record the stop before it begins: it takes seconds, and a CI system may kill this process before the kernels have ended."""
        reason = f"{_STOPPED} {phase}; warpwave was killed before everything had ended"
        with suppress(OSError):  # the record from the start stays
            keep(round(time.monotonic() - clock, 3), reason, Exit(None, 0.0, interrupted=True))

    phase = "while the environment was prepared"
    with waiting.held(record_stop):
        try:
            reserve.take(raw)
            if not resumed:
                keep(0.0, _RUNNING)
            with waiting.interruptible():
                engine = _engine(options, target, say, patient=resumed)
                begun = time.monotonic()
                found = engine.prepare(request, say)
                lacking = [stage.value for stage in options.what.stages if stage not in target.stages]
                notes = (*found.notes, *(f"{NO_STAGE} {stage}, so that was left out" for stage in lacking))
                environment = replace(found, prepare_s=round(time.monotonic() - begun, 3), notes=notes)
            lease = Lease(lock_of(engine, request, environment, say, raw), raw)
            job = job_of(engine.layout(request), request, stages, lease.is_needed)
            inputs = gather(request, environment)
            if resumed:
                tidy(raw)  # the first attempt may have left links, and we must not write through them
                check_inputs(raw, inputs, may_grow=retry)
                check_same(raw, job)
            keep(0.0, _RUNNING)
            own |= {"inputs.json": to_text(inputs), "job.json": to_text(job)}
            for name, text in own.items():
                _put(raw, name, text)
            if request.options.where.compiled and job.needs_card:
                handover.copy(request.options.where.compiled, raw, job.what.compiled)
            with ExitStack() as stack:
                phase = "while it waited for its GPU"
                stack.callback(lease.end)
                with waiting.interruptible():
                    lease.take()  # or fail early
                    lease.give_back()
                phase = "while the kernels ran"
                environment, ended = engine.execute(request, environment, lambda line: _dispatch(line, noise, on_event, hashes, lease))
            memory = environment.options.get("limits", {}).get("memory", "")
            ending = diagnose(ended, _read_stages(raw), options.limits.target_s, memory)
            if target.rocjitsu and ended.code in (1, 2) and _read_stages(raw) is None:  # its own codes; else they are those of the inside
                reason = f"rocJITsu did not start a session: {noise[-1] if noise else f'exit code {ended.code}'}"
                ending = Ending(Verdict.INFRA, reason, "`rocjitsu profile list` shows the cards that it has; engine.log has all its words.")
            if not ending.hint and _unusable(raw):
                ending = replace(ending, hint=target.probe.fix)
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
            ending = _our_fault(error, noise)
        close(engine)
        seconds = round(time.monotonic() - clock, 3)
        ending = replace(ending, environment=environment, exit=ended, stages_hash=hashes[-1], held=lease.held)
        record = record_of(request, started, seconds, attempts, ending)
        reserve.free()
        try:
            for name, text in own.items():
                put(raw / name, text)
            _put(raw, "run.json", to_text(record))
            if noise:
                put(raw / "engine.log", "\n".join(noise) + "\n")
        except OSError as error:  # run.json may still say that the run has not ended; the report uses the record returned here
            known = explain(error)
            say(f"{target.name}: the final record of the run could not be written: {known.happened}")
            if record.verdict in (Verdict.PASSED, Verdict.FAILED, Verdict.ERROR):
                reason = f"the results could not be written: {known.happened}"
                return replace(record, verdict=Verdict.INFRA, reason=reason, hint=_hint(known))
        return record


def _put(raw: Path, name: str, text: str) -> None:
    """Write a record of the host for readers of the results, and a copy for the host itself, which code under test cannot replace."""
    write_text(host_copy(raw, name), text)
    put(raw / name, text)


def worth_another(record: RunRecord, raw: Path) -> bool:
    """Return whether a second attempt may help: the machine failed during the run, and neither the user nor a limit ended it."""
    ended = record.exit
    if record.verdict is not Verdict.INFRA or ended is None or ended.timed_out or ended.interrupted or ended.exceeded:
        return False
    if ended.code != 0:
        return ended.code is None
    stages = _read_stages(raw)
    lost = stages and any(report.verdict is Verdict.INFRA and report.exit_code != UNWRITABLE for report in stages.reports)
    return bool(lost) and not _unusable(raw)


def _our_fault(error: Exception, noise: deque[str]) -> Ending:
    if isinstance(error, OSError) and error.errno in _MACHINES:
        known = explain(error)
        return Ending(Verdict.INFRA, f"the results could not be written: {known.happened} {known.meaning}", _hint(known))
    noise.extend(traceback.format_exc().splitlines())
    hint = "This is a bug in warpwave; please report it. Its traceback is in engine.log."
    return Ending(Verdict.INFRA, f"warpwave itself failed: {type(error).__name__}: {error}", hint)


def _hint(error: WarpwaveError) -> str:
    return f"{error.remedy} --resume then continues the run."


def _engine(options: RunOptions, target: Target, say: Say, patient: bool) -> Engine:
    """Connect to the target's engine. If `patient`, wait for an engine that restarts."""
    until = time.monotonic() + (_ENGINE_WAIT_S if patient else 0.0)
    while True:
        try:
            return choose_engine(options.where.engine, target, say, options.where.host)
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
        run_id=options.where.run_id,
        target=request.target.name,
        label=request.target.label,
        **vars(ending),
        started=started.isoformat(timespec="seconds"),
        seconds=seconds,
        commit=request.options.package.commit,
        repository=options.package.repository,
        kernels=options.package.kernels.name,
        command=options.where.command,
        attempts=attempts,
        shard=str(options.where.shard or ""),
        host=options.where.host.where if options.where.host else "",
        snapshot=options.package.snapshot,
        toolchain=request.target.toolchain.name if request.target.toolchain else "",
        emulated=request.target.emulated.name if request.target.emulated else "",
        card=request.target.emulated.card if request.target.emulated else "",
    )


def _dispatch(line: str, noise: deque[str], on_event: OnEvent, hashes: deque[str], lease: Lease) -> None:
    """Handle one line of output. The inside prints only events; other lines are from Python or the engine, and go to `noise`. The last of
    the `hashes` of stages.json counts: the inside sends it after all processes of the package have ended."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        event = None
    kind = event.get("event") if isinstance(event, dict) else None
    if kind == "stages":
        hashes.append(clip(str(event.get("sha256")), 64))
    elif kind == "lease":
        lease.on_event(event)
    elif isinstance(event, dict) and "event" in event:
        on_event(event)
    else:
        noise.append(line)


def _read_stages(raw: Path) -> Stages | None:
    return read_record(raw, "stages.json", Stages)[0]


def _unusable(raw: Path) -> bool:
    stages = _read_stages(raw)
    first = stages.reports[0] if stages and stages.reports else None
    return first is not None and first.stage is Stage.FACTS and first.verdict is not Verdict.PASSED
