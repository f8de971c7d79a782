"""Raw folders of any size, written row by row. Synthetic: nothing in them was measured."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "harness"))

from warpwave.collect import untrusted
from warpwave.collect.cases import MAX_MEMORY as MAX_CASES_MEMORY
from warpwave.records import DeviceFacts, Facts, Gates, Job, Stage, StageReport, Stages, Verdict, What, to_json

Rows = Iterable[dict[str, Any]]
DISK = 250 << 20


def target(
    root: Path,
    name: str = "alpha",
    *,
    tests: Iterable[str] = (),
    samples: Rows = (),
    again: Rows = (),
    ceilings: Rows = (),
    compiled: Rows = (),
    launched: Rows = (),
    gates: Gates | None = None,
    facts: dict[str, Any] | None = None,
    **record: Any,
) -> None:
    """Lay one raw folder out; what is large comes as an iterator, and ends where its file is full."""
    folder = root / "raw" / name
    for part in ("test", "bench", "compile"):
        (folder / part).mkdir(parents=True)
    run_id = f"run-{name}"[:150]
    stages = tuple(Stage)
    base = {"run_id": run_id, "target": name, "label": name, "verdict": "passed", "reason": "", "hint": "", "seconds": 1.0, "commit": "c"}
    (folder / "run.json").write_text(
        json.dumps({**base, "started": "2026-01-01T00:00:00+00:00", "kernels": "k", "command": ["warpwave"], **record})
    )
    (folder / "job.json").write_text(to_json(Job(run_id, name, "/kernels", "/out", what=What(stages=stages, gates=gates))))
    reports = tuple(StageReport(stage, Verdict.PASSED, 1.0) for stage in stages)
    (folder / "stages.json").write_text(to_json(Stages(run_id, name, True, reports)))
    devices = (DeviceFacts(0, "GPU A", "sy_90", 1 << 36, 100),)
    known = Facts("3.12", "Linux", "2.13", "3.9", "synthetic", "1.0", "1", "5e1f" * 16, devices)
    (folder / "facts.json").write_text(json.dumps({**json.loads(to_json(known)), **(facts or {})}))
    with (folder / "test" / "junit.xml").open("w") as file:
        file.write('<testsuites><testsuite name="pytest">')
        written = 0
        for line in tests:
            written += len(line)
            # A file that is too large by a line is refused whole: then it would cost nothing.
            if written > 63 << 20 or 4 * written > 3 * MAX_CASES_MEMORY:
                break
            file.write(line)
        file.write("</testsuite></testsuites>")
    lines = {
        "bench/samples.jsonl": samples,
        "bench/again.jsonl": again,
        "bench/ceilings.jsonl": ceilings,
        "compile/kernels.jsonl": compiled,
        "bench/kernels.jsonl": launched,
    }
    for path, rows in lines.items():
        with (folder / path).open("w") as file:
            size = memory = 0
            for row in rows:
                line = json.dumps(row) + "\n"
                size += len(line)
                memory += untrusted._measure(row) if len(line) < 1 << 20 else 4 * len(line)
                if size > DISK or memory > 0.98 * untrusted.MAX_MEMORY:
                    break
                file.write(line)


def case(name: str, kernel: str = "k", inner: str = "", **properties: object) -> str:
    """A case of JUnit."""
    listed = "".join(f'<property name="{key}" value="{value}"/>' for key, value in properties.items())
    return (
        f'<testcase classname="c" name="n" time="0.1"><properties><property name="id" value="{name}"/>'
        f'<property name="kernel" value="{kernel}"/>{listed}</properties>{inner}</testcase>'
    )


def sample(case: str, kernel: str = "k", value: float = 3000.0, **more: Any) -> dict[str, Any]:
    """A point."""
    base = {"case": case, "kernel": kernel, "provider": "triton", "params": {"N": 1}, "device": 0, "verdict": "passed", "unit": "GB/s"}
    return {**base, "value": value, "median_ms": 1.0, "p20_ms": 0.99, "p80_ms": 1.01, "timer": "t", "flush_bytes": 1, **more}


def ceiling(device: int = 0) -> dict[str, Any]:
    """A copy."""
    return {"device": device, "bytes_moved": 4_000_000_000, "median_ms": 1.0, "p20_ms": 0.99, "p80_ms": 1.01, "when": "before"}


def kernel(name: str = "k", function: str = "_f", architecture: str = "sy_90", **more: Any) -> dict[str, Any]:
    """A compiled kernel."""
    base = {"kernel": name, "function": function, "architecture": architecture, "verdict": "passed", "signature": {"x": "*fp32"}}
    return {**base, "constants": {"B": 1}, "num_warps": 4, "num_stages": 2, "registers": 30, "spills": 0, "origin": "o", **more}
