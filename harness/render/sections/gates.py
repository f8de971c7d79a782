"""Comparison → sections, third part: which gates generated code broke, which could not be judged, which were waived or stand open, and
which kernels were not asked at all."""

from __future__ import annotations

import json
from collections.abc import Iterable

from harness.compare.comparison import CodegenCell, Comparison, WaiverUse
from harness.records import CompiledKernel, Limits, Verdict, Which
from harness.render.sections.model import Bit, Line, Section, name, say, shorten
from harness.render.text import plural

BROKEN = "Gates broken"


def sections(comparison: Comparison, few: int | None) -> list[Section]:
    """Nothing where every kernel met the defaults; else what a reader has to know of before trusting the green."""
    cells = [cell for row in comparison.codegen for cell in row.cells if cell.compiled.only_gates]
    told: list[Section] = []
    if lines := _broken(cells):
        legend = ("What to do: fix the kernel or its launch, or waive the gate by name in pyproject.toml; docs/gates.md says how.",)
        told.append(Section(BROKEN, lines=shorten(lines, few), legend=legend))
    if lines := _unjudged(cell for row in comparison.codegen for cell in row.cells):
        told.append(Section("Gates not judged", lines=shorten(lines, few)))
    if lines := [*map(_waiver, comparison.waivers), *_open(comparison)]:
        told.append(Section("Gates waived or open", lines=shorten(lines, few)))
    if lines := _left_out(comparison):
        told.append(Section("Not compiled: peers, which launch no kernel of the package", lines=tuple(lines)))
    return told


def how_to_waive(row: CompiledKernel) -> str:
    """What to do about the gates that a row breaks, with the waivers to paste; spelt as TOML, whose strings are JSON's."""
    blocks = ["Fix the kernel or its launch configuration; docs/gates.md says what each gate means."]
    blocks.append("If it has to be so, say why in the pyproject.toml of the kernel package:")
    for gate in row.broken:
        if gate not in row.waived:
            entries = {"gate": gate, "kernel": row.kernel, "function": row.function, "architecture": row.architecture, "reason": "…"}
            lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in entries.items()]
            blocks.append("\n".join(["[[tool.warpwave.waivers]]", *lines]))
    return "\n\n".join(blocks)


def _broken(cells: Iterable[CodegenCell]) -> list[Line]:
    """A line per function, target, gate and finding; the same finding of many launches is told once. Sorted, for workers are not."""
    groups: dict[tuple[str, str, str], list[CompiledKernel]] = {}
    for cell in cells:
        made = cell.compiled
        for gate, found in made.broken.items():
            if gate not in made.waived:
                groups.setdefault((f"{made.kernel} {made.function}", cell.target, f"{gate}: {found}"), []).append(made)
    lines = []
    for (function, target, found), rows in sorted(groups.items(), key=lambda entry: entry[0]):
        where = ", ".join(sorted({row.architecture for row in rows}))
        many = f", {len(rows)} times" if len(rows) > 1 else ""
        lines.append(
            say(name(function), " on ", name(target), " for ", name(where), many, ": ", Bit("failed", Verdict.FAILED), ": ", name(found))
        )
    return lines


def _unjudged(cells: Iterable[CodegenCell]) -> list[Line]:
    """Return a line for each target and reason, with the gates, the architectures and the number of kernels that it is about."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for cell in cells:
        reasons: dict[str, list[str]] = {}
        for gate, why in cell.compiled.unjudged.items():
            reasons.setdefault(why, []).append(gate)
        for why, gates in reasons.items():
            groups.setdefault((cell.target, ", ".join(gates), why), []).append(cell.compiled.architecture)
    return [
        say(name(gates), " on ", name(target), " for ", name(", ".join(sorted(set(where)))), f", {plural(len(where), 'kernel')}: ")
        + say(Bit("not judged", Verdict.NOT_RUN), ": ", name(why))
        for (target, gates, why), where in sorted(groups.items())
    ]


def _waiver(use: WaiverUse) -> Line:
    waiver = use.waiver
    lead = say(name(waiver.gate), " of ", name(_spelt(waiver.which)), ": ")
    if use.used:
        return lead + say(Bit("waived", Verdict.ABSENT), f" for {use.used} of {plural(use.covered, 'kernel')}: ", name(waiver.reason))
    why = "all that it names meet the gate" if use.covered else "nothing that it names was compiled here"
    return lead + say(Bit("unused", Verdict.NOT_RUN), f", {why}: ", name(waiver.reason))


def _spelt(which: Which) -> str:
    """`matmul, sum_* copy_*, gfx1*`: the patterns, without those that say nothing."""
    named = (which.function, which.architecture, which.types, which.launched_by)
    return ", ".join([" ".join(which.kernel), *(" ".join(patterns) for patterns in named if patterns != ("*",))])


def _open(comparison: Comparison) -> list[Line]:
    """The defaults that a package does without, so that a green report does not claim what nobody asked for."""
    told: dict[str, list[str]] = {}
    for target in comparison.targets:
        if target.compiled and target.gates:
            for text in _looser(target.gates.limits):
                told.setdefault(text, []).append(target.target)
    return [say(name(text), " for every kernel on ", name(", ".join(targets))) for text, targets in told.items()]


def _left_out(comparison: Comparison) -> list[Line]:
    """Providers of benchmarks that the package's author had left out: should one launch a kernel after all, nobody has seen it."""
    told: dict[tuple[str, ...], list[str]] = {}
    for target in comparison.targets:
        if target.peers:
            told.setdefault(target.peers, []).append(target.target)
    return [say(name(", ".join(peers)), " on ", name(", ".join(targets)), ", by pyproject.toml") for peers, targets in told.items()]


def _looser(limits: Limits) -> list[str]:
    usual = Limits()
    found = []
    for gate in ("spills", "private_bytes"):
        value, default = getattr(limits, gate), getattr(usual, gate)
        if value is None or value > default:
            found.append(f"{gate} switched off" if value is None else f"{gate} up to {value}")
    return found if limits.explicit_precision else [*found, "explicit_precision switched off"]
