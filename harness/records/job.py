"""What goes into a job: `job.json`, which the host writes and the inside reads."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Union

from harness.records.bounds import Few, Many, Name, Page
from harness.records.enums import SCHEMA_VERSION, STRICT, Stage, Verdict
from harness.records.gates import Gates


@dataclass(frozen=True)
class Architecture:
    """A GPU that kernels are compiled for. `properties` is what Triton's `get_device_properties` would answer on that card, `torch_version`
    what `torch.version` would have there. `cache_bytes` is a cache between L2 and memory, which no driver tells; 0 where there is none."""

    __pydantic_config__ = STRICT
    name: str
    backend: str
    arch: Union[int, str]
    warp_size: int
    properties: dict[str, int]
    torch_version: dict[str, str] = field(default_factory=dict)
    cache_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """What the user asks of the stages. An option here comes from the command line and goes into `job.json` under the same name.

    Without `gates` generated code is not judged. The bench stage ends a point when its median is known to within `precision` (a share of
    it; the half-width of the 95 % interval), or when its time is up. With `again` it measures everything twice: an A/A run. The compile
    stage leaves out the launches of the providers `peers`, which are not the package's own.
    """

    __pydantic_config__ = STRICT
    benches: tuple[str, ...] = ("bench_*.py",)
    launches: tuple[str, ...] = ("bench", "test")
    peers: Annotated[tuple[Name, ...], Many] = ()
    pytest_args: tuple[str, ...] = ()
    quick: bool = False
    again: bool = False
    precision: float = 0.0075
    test_limit_s: float = 300.0
    stage_limit_s: float = 3600.0
    gates: Union[Gates, None] = None


@dataclass(frozen=True)
class Job(JobOptions):
    """What the inside is told to do: `job.json`. Paths are as the inside sees them.

    `device_faults` are patterns of what a GPU's runtime prints when it aborts a process, and the verdict that each stands for.
    `visible_devices` is the variable that shows a process some of the cards: where it is named, tests and sweeps are shared between the
    cards, of which there are `gpus` (0: as many as are visible). `card_query` tells of each card what torch does not; `card_rows` reads it.
    """

    __pydantic_config__ = STRICT
    run_id: Name
    target: Name
    stages: Annotated[tuple[Stage, ...], Few]
    kernels: Page
    output: Page
    interpret: bool = False
    require: Union[str, None] = None
    probe: tuple[str, ...] = ()
    driver_file: Union[str, None] = None
    workers: int = 0
    architectures: tuple[Architecture, ...] = ()
    device_faults: dict[str, Verdict] = field(default_factory=dict)
    probe_limit_s: float = 120.0
    visible_devices: Union[str, None] = None
    gpus: int = 0
    card_query: tuple[str, ...] = ()
    card_rows: str = ""
    schema_version: int = SCHEMA_VERSION

    @classmethod
    def load(cls, path: Path) -> Job:
        """Read a job that the host wrote; it is trusted, so this is a plain conversion."""
        raw = json.loads(path.read_text())
        raw["stages"] = tuple(Stage(stage) for stage in raw["stages"])
        raw["architectures"] = tuple(Architecture(**entry) for entry in raw["architectures"])
        for key in ("probe", "benches", "launches", "peers", "pytest_args", "card_query"):
            raw[key] = tuple(raw.get(key, ()))
        raw["gates"] = Gates.restore(raw["gates"]) if raw.get("gates") else None
        raw["device_faults"] = {pattern: Verdict(verdict) for pattern, verdict in raw.get("device_faults", {}).items()}
        return cls(**raw)
