"""Turn a request into the job that the inside receives. Pure."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from harness.engines.protocol import Layout, Request
from harness.records import Job, JobOptions, Stage, Verdict
from harness.run.sharding import part_of, share_scripts


def job_of(layout: Layout, request: Request, stages: tuple[Stage, ...], lease: bool = False) -> Job:
    """Return the job for the inside."""
    target, options = request.target, request.options
    asked: dict[str, Any] = {field.name: getattr(options, field.name) for field in fields(JobOptions)}
    # What the user gives comes before what a file of the package says.
    asked["package_variables"] = {name: value for name, value in options.package_variables.items() if name not in options.variables}
    if options.shard:
        part = part_of(options, options.shard)
        asked |= {"files": part.files, "benches": part.benches, "division": part.division}
        asked["bench_scripts"] = share_scripts(options)
    few = tuple(card for card in target.architectures if options.quick and card.name in target.quick)
    compiled_for = few or target.architectures
    return Job(
        run_id=options.run_id,
        target=target.name,
        stages=stages,
        kernels=layout.kernels,
        output=layout.output,
        package_root=layout.package,
        interpret=target.interpret,
        interpret_as=target.interpret_as if target.interpret else None,
        emulate=target.emulate,
        require=target.probe.require,
        probe=target.probe.command,
        driver_file=target.probe.driver_file,
        architectures=compiled_for,
        not_compiled_for=tuple(card.name for card in target.architectures if card not in compiled_for),
        torch_devices=target.torch_devices,
        device_faults={pattern: Verdict(verdict) for pattern, verdict in target.probe.faults.items()},
        lease=lease,
        visible_devices=target.visible_devices if options.share else None,
        gpus=len(options.gpu.split(",")) if options.share and options.gpu and target.visible_devices else 0,
        card_query=target.probe.cards.run if options.share else (),
        card_rows=target.probe.cards.rows if options.share else "",
        **asked,
    )
