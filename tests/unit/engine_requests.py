"""What engines and stages are asked, made for tests from fields by name, whatever group they are in."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from warpwave.config.targets import Target
from warpwave.engines.protocol import Request
from warpwave.options import Package, RunOptions, Where
from warpwave.records import Job, Stage


def make_options(run_id: str, out: Path, kernels: Path, **fields) -> RunOptions:
    return having(RunOptions(Where(run_id, out), Package(kernels)), **fields)


def make_job(run_id: str, target: str, stages: tuple[Stage, ...], kernels: str, output: str, **fields) -> Job:
    return having(Job(run_id, target, kernels, output), stages=stages, **fields)


def ask(target: Target, kernels: Path, raw: Path, run_id: str = "r1", **fields) -> Request:
    return Request(target, make_options(run_id, raw, kernels, **fields), raw)


def change(request: Request, target: Target | None = None, raw: Path | None = None, **fields) -> Request:
    return replace(request, target=target or request.target, raw=raw or request.raw, options=having(request.options, **fields))


def having(whole: Any, /, **fields) -> Any:
    own = {name: fields[name] for name in fields if name in whole.__dataclass_fields__}
    rest = {name: fields[name] for name in fields if name not in own}
    whole = replace(whole, **own)
    for group in ("where", "package", "what", "build", "limits", "declared"):
        part = getattr(whole, group, None)
        if part is not None and (fit := {name for name in rest if name in part.__dataclass_fields__}):
            whole = replace(whole, **{group: replace(part, **{name: rest.pop(name) for name in fit})})
    if rest:
        raise TypeError(f"no group has the fields {', '.join(rest)}")
    return whole
