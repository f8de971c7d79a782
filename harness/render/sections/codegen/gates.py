"""Comparison → sections, third part: gates that are broken, not judged, waived or open, and providers that were left out."""

from __future__ import annotations

import glob
import json
from collections.abc import Iterable, Sequence

from harness.compare.codegen.alignment import by_generation, configuration
from harness.compare.model import CodegenCell, Comparison, WaiverUse
from harness.records import CompiledKernel, Limits, Verdict, Which
from harness.render.sections.model import MOST_LINES, Bit, Line, Section, name, say, shorten
from harness.render.text import plural

BROKEN = "Gates broken"
NOT_JUDGED = "Gates not judged"
_FEW_PLACES = 3  # configurations of one finding


def sections(comparison: Comparison, few: int | None) -> list[Section]:
    """Return what a reader must know before trusting a green result; nothing if every kernel met the defaults."""
    cells = [cell for row in comparison.codegen for cell in row.cells if cell.compiled.only_gates]
    found: list[Section] = []
    if findings := _findings(cells):
        found.append(_broken(findings, few))
    if lines := _discarded(cell for row in comparison.codegen for cell in row.cells if cell.compiled.is_discarded):
        found.append(Section("Candidates that an autotuner discards", lines=shorten(lines, few)))
    if lines := _unjudged(cell for row in comparison.codegen for cell in row.cells):
        found.append(Section(NOT_JUDGED, lines=shorten(lines, few)))
    if lines := [*map(_waiver, comparison.waivers), *_open(comparison)]:
        found.append(Section("Gates waived or open", lines=shorten(lines, few)))
    if lines := _left_out(comparison):
        found.append(Section("Not compiled: peers, which launch no kernel of the package", lines=tuple(lines)))
    return found


def how_to_waive(row: CompiledKernel) -> str:
    """Return what to do about the gates that a row breaks: where the kernel is, and waivers to paste."""
    place = f" It is {_place(row)}." if row.source else ""
    blocks = [f"Fix the kernel or its launch configuration; docs/gates.md says what each gate means.{place}"]
    blocks.append("If the kernel must stay like this, waive the gate in the kernel package's pyproject.toml and say why:")
    blocks += [_waive(gate, [row]) for gate in row.broken if gate not in row.waived]
    return "\n\n".join(blocks)


_Findings = dict[tuple[str, str, str, str], list[CompiledKernel]]  # by function, target, gate and what was found


def _findings(cells: Iterable[CodegenCell]) -> _Findings:
    """Return the rows of each finding. Sorted, because workers finish in any order."""
    groups: _Findings = {}
    for cell in cells:
        made = cell.compiled
        for gate, found in made.broken.items():
            if gate not in made.waived:
                groups.setdefault((f"{made.kernel} {made.function}", cell.target, gate, found), []).append(made)
    return dict(sorted(groups.items()))


def _broken(findings: _Findings, few: int | None) -> Section:
    """Return a block per finding, with its configurations and their place in the source, and a waiver per kernel and gate to paste."""
    most = MOST_LINES if few is None else few
    shown = list(findings.items())[:most]
    lines = [line for key, rows in shown for line in _finding(key, rows)]
    if len(findings) > most:
        lines.append(say(f"… and {len(findings) - most} more findings in comparison.json"))
    kernels: dict[tuple[str, str], list[CompiledKernel]] = {}
    for (function, _, gate, _), rows in shown:
        kernels.setdefault((function, gate), []).extend(rows)
    legend = (
        "What to do: fix the kernel or its launch; docs/gates.md says what each gate means.",
        "If it must stay like this, paste this into the package's pyproject.toml, and say why:",
    )
    return Section(BROKEN, lines=tuple(lines), legend=legend, paste="\n\n".join(_waive(gate, rows) for (_, gate), rows in kernels.items()))


def _finding(key: tuple[str, str, str, str], rows: Sequence[CompiledKernel]) -> list[Line]:
    function, target, gate, found = key
    where = ", ".join(_architectures(rows))
    many = f", {len(rows)} times" if len(rows) > 1 else ""
    head = say(name(function), " on ", name(target), " for ", name(where), many, ": ", Bit("failed", Verdict.FAILED), ": ")
    places = list(dict.fromkeys(filter(None, map(_place, rows))))
    more = [say(f"  and {plural(len(places) - _FEW_PLACES, 'more configuration')}")] if len(places) > _FEW_PLACES else []
    return [head + say(name(f"{gate}: {found}")), *(say("  ", name(place)) for place in places[:_FEW_PLACES]), *more]


def _place(row: CompiledKernel) -> str:
    """`softmax.py:41, *bf16 i32, BLOCK=8192, 4 warps, 3 stages`."""
    return ", ".join(filter(None, (row.source, configuration(row))))


def _architectures(rows: Iterable[CompiledKernel]) -> list[str]:
    return sorted({row.architecture for row in rows}, key=by_generation)


def _waive(gate: str, rows: Sequence[CompiledKernel]) -> str:
    """Return the waiver that silences a gate for all of these rows of one kernel. A JSON string is a TOML string too."""
    where = [glob.escape(architecture) for architecture in _architectures(rows)]
    entries = {"gate": gate, "kernel": glob.escape(rows[0].kernel), "function": glob.escape(rows[0].function)}
    listed = {**entries, "architecture": where if len(where) > 1 else where[0], "reason": "…"}
    return "\n".join(["[[tool.warpwave.waivers]]", *(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in listed.items())])


def _discarded(cells: Iterable[CodegenCell]) -> list[Line]:
    """Return a line per function and target: how many configurations, and what is wrong with the first of them."""
    groups: dict[tuple[str, str], list[CompiledKernel]] = {}
    for cell in cells:
        groups.setdefault((f"{cell.compiled.kernel} {cell.compiled.function}", cell.target), []).append(cell.compiled)
    return [
        say(name(function), " on ", name(target), " for ", name(", ".join(_architectures(rows))), f", {plural(len(rows), 'candidate')}: ")
        + say(Bit("discarded", Verdict.NOT_RUN), ": ", name(rows[0].reason))
        for (function, target), rows in sorted(groups.items())
    ]


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
    return found + [f"{gate} switched off" for gate in ("explicit_precision", "lds_waits", "release_waits") if not getattr(limits, gate)]
