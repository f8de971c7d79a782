"""One target, straight: prepare the environment → tell it the job → run it → put on record how it ended.

Whatever happens, `raw/<target>/run.json` says so: a target that could not run is a row of the comparison, not a gap in it.
"""

from __future__ import annotations

import json
import subprocess
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Union

from harness.diagnose import diagnose
from harness.engines import Build, Engine, Request, Say, choose_engine
from harness.errors import ExitCode, UsageError, WarpwaveError
from harness.guard import read_record
from harness.records import Environment, Exit, Gates, Job, RunRecord, Stage, StageReport, Stages, Verdict, dump, write_text
from harness.sharding import Shard, restrict
from harness.targets import Target

OnEvent = Callable[[dict[str, Any]], None]

_NOISE_LINES = 1000


@dataclass(frozen=True)
class Settings:
    """What the user asked for, the same for every target of a run."""

    run_id: str
    out: Path
    kernels: Path
    engine: Union[str, None] = None
    stages: Union[tuple[Stage, ...], None] = None
    gpu: Union[str, None] = None
    commit: Union[str, None] = None
    quick: bool = False
    again: bool = False
    precision: float = Job.precision
    benches: tuple[str, ...] = ("bench_*.py",)
    launches: tuple[str, ...] = ("bench", "test")
    gates: Gates = field(default_factory=Gates)
    pytest_args: tuple[str, ...] = ()
    test_limit_s: float = 300.0
    stage_limit_s: float = 3600.0
    limit_s: float = 3 * 3600.0
    python: Union[str, None] = None
    build: Build = field(default_factory=Build)
    weaken: tuple[str, ...] = ()
    keep: bool = False
    command: tuple[str, ...] = ()
    shard: Union[Shard, None] = None


def run_target(target: Target, settings: Settings, say: Say, on_event: OnEvent) -> RunRecord:
    """Run one target and leave `raw/<target>/`; never raises for what went wrong with that target.

    Raises:
        UsageError: the request itself makes no sense; nothing was started.
    """
    stages = _stages(target, settings)
    raw = _fresh_folder(settings.out / "raw" / target.name)
    request = Request(
        run_id=settings.run_id,
        target=target,
        kernels=settings.kernels,
        raw=raw,
        gpu=settings.gpu,
        limit_s=settings.limit_s,
        commit=settings.commit or commit_of(settings.kernels),
        build=settings.build,
        python=settings.python,
        weaken=settings.weaken,
        keep=settings.keep,
    )
    started, clock = datetime.now(timezone.utc), time.monotonic()
    environment: Environment | None = None
    ended: Exit | None = None
    # Written when the run is over: while it lasts, `raw` is open to the code under test, which could plant a link for us to follow.
    noise: deque[str] = deque(maxlen=_NOISE_LINES)
    try:
        engine = choose_engine(settings.engine, target, say)
        begun = time.monotonic()
        environment = replace(engine.prepare(request, say), prepare_s=round(time.monotonic() - begun, 3))
        dump(_job(engine, request, settings, stages), raw / "job.json")
        environment, ended = engine.execute(request, environment, lambda line: _dispatch(line, noise, on_event))
        memory = environment.options.get("limits", {}).get("memory", "")
        outcome = diagnose(ended, _read_stages(raw), settings.limit_s, memory)
        verdict, reason, hint = outcome.verdict, outcome.reason, outcome.hint or (target.probe.fix if _unusable(raw) else "")
    except KeyboardInterrupt:
        verdict, reason, hint = Verdict.INCOMPLETE, "it was stopped by the user before it started", ""
        ended = Exit(None, 0.0, interrupted=True)
    except UsageError:
        raise
    except WarpwaveError as error:
        verdict, reason, hint = Verdict.INFRA, f"{error.happened} {error.meaning}", error.remedy
    except Exception as error:  # a fault of ours must not cost the other targets their results
        noise.extend(traceback.format_exc().splitlines())
        verdict, reason = Verdict.INFRA, f"warpwave itself failed: {type(error).__name__}: {error}"
        hint = f"This is a fault of warpwave's; please report it with {raw / 'engine.log'}."
    record = RunRecord(
        run_id=settings.run_id,
        target=target.name,
        label=target.label,
        verdict=verdict,
        reason=reason,
        hint=hint,
        started=started.isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - clock, 3),
        commit=request.commit,
        kernels=settings.kernels.name,
        command=settings.command,
        environment=environment,
        exit=ended,
        shard=str(settings.shard or ""),
    )
    if noise:
        write_text(raw / "engine.log", "\n".join(noise) + "\n")
    dump(record, raw / "run.json")
    return record


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


def _stages(target: Target, settings: Settings) -> tuple[Stage, ...]:
    """The target's stages, or those of them that were asked for."""
    if settings.stages is None:
        return target.stages
    chosen = tuple(stage for stage in target.stages if stage in settings.stages)
    if not chosen:
        raise UsageError(
            f"The target {target.name!r} has no stage {' or '.join(stage.value for stage in settings.stages)}.",
            "A target without a GPU has nothing to time; stages are a target's own, in targets.yml.",
            f"Choose from {', '.join(stage.value for stage in target.stages)}, or leave --stage out.",
        )
    return chosen


def _fresh_folder(raw: Path) -> Path:
    """A new, empty folder: results of another run can never be taken for this one's."""
    try:
        raw.mkdir(parents=True)
    except FileExistsError:
        raise UsageError(
            f"{raw} exists already.",
            "A target's results are written to a new folder, so that stale ones are never read as fresh.",
            "Give another --out, or remove that folder.",
        ) from None
    return raw


def _job(engine: Engine, request: Request, settings: Settings, stages: tuple[Stage, ...]) -> Job:
    layout, target = engine.layout(request), request.target
    benches, left_out = settings.benches, tuple[str, ...]()
    if settings.shard:
        benches, left_out = restrict(settings.kernels, layout.kernels, benches, settings.shard)
    return Job(
        run_id=request.run_id,
        target=target.name,
        stages=stages,
        kernels=layout.kernels,
        output=layout.output,
        interpret=target.interpret,
        require=target.probe.require,
        probe=target.probe.command,
        driver_file=target.probe.driver_file,
        benches=benches,
        launches=settings.launches,
        pytest_args=(*settings.pytest_args, *left_out),
        quick=settings.quick,
        again=settings.again,
        precision=settings.precision,
        test_limit_s=settings.test_limit_s,
        stage_limit_s=settings.stage_limit_s,
        architectures=target.architectures,
        gates=settings.gates,
    )


def _dispatch(line: str, noise: deque[str], on_event: OnEvent) -> None:
    """The inside prints events only; anything else is a cry of Python's or of the engine's, and is kept."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        event = None
    if isinstance(event, dict) and "event" in event:
        on_event(event)
    else:
        noise.append(line)


def _read_stages(raw: Path) -> Stages | None:
    """What the inside says about itself; None where it says nothing that can be read."""
    return read_record(raw, "stages.json", Stages)[0]


def _unusable(raw: Path) -> bool:
    """Whether the facts stage found that the environment cannot run kernels."""
    stages = _read_stages(raw)
    first: StageReport | None = stages.reports[0] if stages and stages.reports else None
    return first is not None and first.stage is Stage.FACTS and first.verdict is not Verdict.PASSED
