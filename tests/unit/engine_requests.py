"""What engines are asked, made for tests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from warpwave.config.targets import Target
from warpwave.engines.protocol import Request
from warpwave.options import RunOptions


def ask(target: Target, kernels: Path, raw: Path, run_id: str = "r1", **options) -> Request:
    """A request with these options."""
    return Request(target, RunOptions(run_id, raw, kernels, **options), raw)


def change(request: Request, target: Target | None = None, raw: Path | None = None, **options) -> Request:
    """The same request with another target, folder or options."""
    return replace(request, target=target or request.target, raw=raw or request.raw, options=replace(request.options, **options))
