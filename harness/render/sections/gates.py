"""Comparison → sections, third part: gates that are broken, not judged, waived or open, and providers that were left out."""

from __future__ import annotations

import json
from collections.abc import Iterable

from harness.compare.comparison import CodegenCell, Comparison, WaiverUse
from harness.records import CompiledKernel, Limits, Verdict, Which
from harness.render.sections.model import Bit, Line, Section, name, say, shorten
from harness.render.text import plural

BROKEN = "Gates broken"


def sections(comparison: Comparison, few: int | None) -> list[Section]:
    """Return what a reader must know before trusting a green result; nothing if every kernel met the defaults."""
    cells = [cell for row in comparison.codegen for cell in row.cells if cell.compiled.only_gates]
    found: list[Section] = []
    if lines := _broken(cells):
        legend = ("What to do: fix the kernel or its launch, or waive the gate by name in pyproject.toml; docs/gates.md says how.",)
        found.append(Section(BROKEN, lines=shorten(lines, few), legend=legend))
    if lines := _unjudged(cell for row in comparison.codegen for cell in row.cells):
        found.append(Section("Gates not judged", lines=shorten(lines, few)))
    if lines := [*map(_waiver, comparison.waivers), *_open(comparison)]:
        found.append(Section("Gates waived or open", lines=shorten(lines, few)))
    if lines := _left_out(comparison):
        found.append(Section("Not compiled: peers, which launch no kernel of the package", lines=tuple(lines)))
    return found


def how_to_waive(row: CompiledKernel) -> str:
    """Return what to do about the gates that a row breaks, with waivers to paste. A JSON string is a TOML string too."""
    blocks = ["Fix the kernel or its launch configuration; docs/gates.md says what each gate means."]
    blocks.append("If the kernel must stay like this, waive the gate in the kernel package's pyproject.toml and say why:")
    for gate in row.broken:
        if gate not in row.waived:
            entries = {"gate": gate, "kernel": row.kernel, "function": row.function, "architecture": row.architecture, "reason": "…"}
            lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in entries.items()]
            blocks.append("\n".join(["[[tool.warpwave.waivers]]", *lines]))
    return "\n\n".join(blocks)


def _broken(cells: Iterable[CodegenCell]) -> list[Line]:
    """Return a line per function, target, gate and finding, each once. Sorted, because workers finish in any order."""
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
    lead = say(name(waiver.gate), " of ", name(_patterns(waiver.which)), ": ")
    if use.used:
        return lead + say(Bit("waived", Verdict.ABSENT), f" for {use.used} of {plural(use.covered, 'kernel')}: ", name(waiver.reason))
    why = "every kernel it names meets the gate" if use.covered else "no kernel it names was compiled here"
    return lead + say(Bit("unused", Verdict.NOT_RUN), f", {why}: ", name(waiver.reason))


def _patterns(which: Which) -> str:
    """`matmul, sum_* copy_*, gfx1*`: the patterns, without those that match everything."""
    named = (which.function, which.architecture, which.types, which.launched_by)
    return ", ".join([" ".join(which.kernel), *(" ".join(patterns) for patterns in named if patterns != ("*",))])


def _open(comparison: Comparison) -> list[Line]:
    """Return the default gates that a package switched off or loosened, so that green does not claim more than was checked."""
    found: dict[str, list[str]] = {}
    for target in comparison.targets:
        if target.compiled and target.gates:
            for text in _looser(target.gates.limits):
                found.setdefault(text, []).append(target.target)
    return [say(name(text), " for every kernel on ", name(", ".join(targets))) for text, targets in found.items()]


def _left_out(comparison: Comparison) -> list[Line]:
    """Return the benchmark providers that the author left out. If one launches a kernel after all, no gate has checked it."""
    found: dict[tuple[str, ...], list[str]] = {}
    for target in comparison.targets:
        if target.peers:
            found.setdefault(target.peers, []).append(target.target)
    return [say(name(", ".join(peers)), " on ", name(", ".join(targets)), ", by pyproject.toml") for peers, targets in found.items()]


def _looser(limits: Limits) -> list[str]:
    usual = Limits()
    found = []
    for gate in ("spills", "private_bytes"):
        value, default = getattr(limits, gate), getattr(usual, gate)
        if value is None or value > default:
            found.append(f"{gate} switched off" if value is None else f"{gate} up to {value}")
    return found + [f"{gate} switched off" for gate in ("explicit_precision", "lds_waits") if not getattr(limits, gate)]
