"""Comparison → sections: how much of a GPU's JIT code the compile stage reproduces without a GPU."""

from __future__ import annotations

import dataclasses
import glob
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from warpwave.compare.codegen import by_generation, configuration
from warpwave.compare.model import FAILING, CodegenCell, Comparison, Fidelity, WaiverUse, full_name, is_dead
from warpwave.records import HOST_CODE, CompiledKernel, Gates, NotRun, Verdict, Which, grouped, plural
from warpwave.render.sections.model import MOST_LINES, Bit, Line, Section, name, say, shorten
from warpwave.render.text import NOTHING, first_line, stacked

TITLE = "Generated code against the card's own JIT"


def fidelity_sections(comparison: Comparison, few: int | None) -> list[Section]:
    """Return a line per target and compile stage, and below it the launches that differ."""
    lines: list[Line] = []
    for entry in comparison.fidelity:
        lines += [line(entry), *(say("  ", name(first_line(text, 400))) for text in entry.differing)]
    return [Section(TITLE, lines=shorten(lines, few))] if lines else []


def line(entry: Fidelity) -> Line:
    """`cuda against cpu: of 47 launches of the card's own JIT, 46 equal byte for byte, 1 differs`."""
    lead = say(name(entry.target), *((" against ", name(entry.against)) if entry.against else ()), ": ")
    launches = f"{plural(entry.launched, 'launch')} of the card's own JIT"
    if not entry.against:
        return lead + say(f"{launches}, not compared: ", name(entry.reason))
    others = len(entry.differing)
    differ = f", {others} {'differs' if others == 1 else 'differ'}" if others else ""
    return lead + say(f"of {launches}, {entry.equal} equal byte for byte{differ}")


# Comparison → sections, third part: gates that are broken, not judged, waived or open, and providers that were left out.

BROKEN = "Gates broken"
NOT_JUDGED = "Gates not judged"
ADVICE = "Advice"
ADVICE_LEGEND = "Advice fails no run. To fail on it, set the gate in the package's pyproject.toml, or use --gates strict: docs/gates.md."
_FEW_PLACES = 3  # configurations of one finding


def gate_sections(comparison: Comparison, few: int | None) -> list[Section]:
    """Return what a reader must know before trusting a green result; nothing if every kernel met the defaults."""
    cells = list(comparison.compiled_cells)
    findings = _findings(cell for cell in cells if cell.compiled.only_gates)
    listed: tuple[tuple[str, Sequence[Line], tuple[str, ...]], ...] = (
        (ADVICE, _advice(cells), (ADVICE_LEGEND,)),
        ("Candidates that an autotuner discards", _discarded(cells), ()),
        (NOT_JUDGED, _unjudged(cells), ()),
        ("Gates waived or open", [*map(_waiver, comparison.waivers), *_open(comparison)], ()),
    )
    found = [_broken(findings, few)] if findings else []
    found += [Section(title, lines=shorten(lines, few), legend=legend) for title, lines, legend in listed if lines]
    if lines := _left_out(comparison):
        found.append(Section("Not compiled: peers, which launch no kernel of the package", lines=lines))
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
    broken = ((cell.target, cell.compiled) for cell in cells)
    groups = grouped(
        ((_function(made), target, gate, text), made)
        for target, made in broken
        for gate, text in made.broken.items()
        if gate not in made.waived
    )
    return dict(sorted(groups.items()))


def _function(made: CompiledKernel) -> str:
    return f"{made.kernel} {made.function}"


def _on(function: str, target: str, rows: Iterable[CompiledKernel]) -> Line:
    return say(name(function), " on ", name(target), " for ", name(", ".join(sorted({row.hardware for row in rows}, key=by_generation))))


def _broken(findings: _Findings, few: int | None) -> Section:
    """Return a block per finding, with its configurations and their place in the source, and a waiver per kernel and gate to paste."""
    most = MOST_LINES if few is None else few
    shown = list(findings.items())[:most]
    lines = [line for key, rows in shown for line in _finding(key, rows)]
    if len(findings) > most:
        lines.append(say(f"… and {len(findings) - most} more findings in comparison.json"))
    kernels = grouped(((function, gate), row) for (function, _, gate, _), rows in shown for row in rows)
    legend = (
        "What to do: fix the kernel or its launch; docs/gates.md says what each gate means.",
        "If it must stay like this, paste this into the package's pyproject.toml, and say why:",
    )
    return Section(BROKEN, lines=tuple(lines), legend=legend, paste="\n\n".join(_waive(gate, rows) for (_, gate), rows in kernels.items()))


def _finding(key: tuple[str, str, str, str], rows: Sequence[CompiledKernel]) -> list[Line]:
    function, target, gate, found = key
    many = f", {len(rows)} times" if len(rows) > 1 else ""
    head = _on(function, target, rows) + say(many, ": ", Bit("failed", Verdict.FAILED), ": ")
    places = list(dict.fromkeys(filter(None, map(_place, rows))))
    more = [say(f"  and {plural(len(places) - _FEW_PLACES, 'more configuration')}")] if len(places) > _FEW_PLACES else []
    return [head + say(name(f"{gate}: {found}")), *(say("  ", name(place)) for place in places[:_FEW_PLACES]), *more]


def _advice(cells: Iterable[CodegenCell]) -> list[Line]:
    """Return a line per function, target and gate: the architectures, what was found first, and the places."""
    groups = grouped(
        ((_function(cell.compiled), cell.target, gate), cell.compiled)
        for cell in cells
        for gate in cell.compiled.advice.keys() - cell.compiled.waived.keys()
    )
    return [
        _on(function, target, rows)
        + say(": ", Bit(gate, Verdict.ABSENT), ": ", name(rows[0].advice[gate]), f", and in {len(rows) - 1} more" if len(rows) > 1 else "")
        + say(", at ", name(_place(rows[0])))
        for (function, target, gate), rows in sorted(groups.items())
    ]


def _place(row: CompiledKernel) -> str:
    """`softmax.py:41, *bf16 i32, BLOCK=8192, 4 warps, 3 stages`."""
    return ", ".join(filter(None, (row.source, configuration(row))))


def _waive(gate: str, rows: Sequence[CompiledKernel]) -> str:
    """Return the waiver that silences a gate for all of these rows of one kernel. A JSON string is a TOML string too."""
    where = [glob.escape(name) for name in sorted({row.architecture for row in rows}, key=by_generation)]
    entries = {"gate": gate, "kernel": glob.escape(rows[0].kernel), "function": glob.escape(rows[0].function)}
    listed = {**entries, "architecture": where if len(where) > 1 else where[0], "reason": "…"}
    return "\n".join(["[[tool.warpwave.waivers]]", *(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in listed.items())])


def _discarded(cells: Iterable[CodegenCell]) -> list[Line]:
    """Return a line per function, target and reason: how many configurations, and on which cards that is wrong with the first of them."""
    of_cards = grouped(
        ((_function(cell.compiled), cell.target, cell.compiled.hardware), cell.compiled) for cell in cells if cell.compiled.is_discarded
    )
    groups = grouped(((function, target, rows[0].reason), rows) for (function, target, _), rows in of_cards.items())
    return [
        _on(function, target, rows := [row for card in cards for row in card])
        + say(f", {plural(len(rows), 'candidate')}: ", Bit("discarded", Verdict.NOT_RUN), ": ", name(reason))
        for (function, target, reason), cards in sorted(groups.items())
    ]


def _unjudged(cells: Iterable[CodegenCell]) -> list[Line]:
    """Return a line for each target and reason, with the gates, the architectures and the number of kernels that it is about."""
    groups = grouped(
        ((cell.target, ", ".join(gates), why), cell.compiled.hardware)
        for cell in cells
        # What undefined lanes could not be followed in is among what was not checked, with what to do.
        for why, gates in grouped((why, gate) for gate, why in cell.compiled.unjudged.items() if gate != "undefined_lanes").items()
    )
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
    judged = ((target.target, target.gates) for target in comparison.targets if target.compiled and target.gates)
    found = grouped((text, target) for target, gates in judged for text in _looser(gates))
    return [say(name(text), " for every kernel on ", name(", ".join(targets))) for text, targets in found.items()]


def _left_out(comparison: Comparison) -> tuple[Line, ...]:
    """Return the benchmark providers that the author left out. If one launches a kernel after all, no gate has checked it."""
    found = grouped((target.peers, target.target) for target in comparison.targets if target.peers)
    return tuple(say(name(", ".join(peers)), " on ", name(", ".join(targets)), ", by pyproject.toml") for peers, targets in found.items())


def _looser(gates: Gates) -> list[str]:
    found = []
    for gate in ("spills", "private_bytes", "explicit_precision", "lds_waits", "release_waits", "undefined_lanes"):
        value = getattr(gates.limits, gate)
        if not gates.limits.asks(gate) and not gates.advice.asks(gate):
            found.append(f"{gate} switched off")
        elif value and value is not True:
            found.append(f"{gate} up to {value}")
    return found


# Comparison → sections: generated code side by side, and what did not compile.

# Architecture columns that fit beside the function's name on an 80-column page.
_CODEGEN_WIDTH = 57


_FEW_FAILURES = 10


UNCOMPILED = "Does not compile, or cannot launch"
RAISED = "Raised in host code while it was compiled"


_LEGEND = (
    "r: registers a thread, the most of all configurations. s: registers spilled to memory.",
    "16B, 4K: shared memory (LDS) of a block in bytes or KiB. No stages: each backend chooses.",
    "4x8w regs: a multiprocessor (SM, CU, WGP) holds 4 programs of 8 warps at a time, and this resource limits it:",
    "registers, shared memory, slots of programs or warps, scalar registers. None named: all warp slots are in use.",
)
# Words short enough for a column of five characters.
_LIMITED_BY = {"warps": "warps", "programs": "progs", "registers": "regs", "scalars": "sregs", "shared": "smem"}


def codegen(comparison: Comparison) -> list[Section]:
    """Return a line per configuration and a column per architecture."""
    cells = list(comparison.compiled_cells)
    if not cells:
        return []
    order = sorted(dict.fromkeys(cell.compiled.hardware for cell in cells), key=by_generation)
    columns = sorted(dict.fromkeys((cell.compiled.hardware, cell.target) for cell in cells), key=lambda column: order.index(column[0]))
    counted = Counter(architecture for architecture, _ in columns)
    twice = {architecture for architecture in order if counted[architecture] > 1}
    heads = {column: say(name(column[0])) + (say(" ", name(column[1])) if column[0] in twice else ()) for column in columns}
    sections = [_codegen(comparison, part, heads) for part in _pages(columns, twice)]
    return [*sections[:-1], dataclasses.replace(sections[-1], legend=_LEGEND)]


def uncompiled(comparison: Comparison) -> list[Section]:
    """Return what does not compile or cannot launch, what raised, and what did not run without a card, with the reasons."""
    cells = list(comparison.compiled_cells)
    skipped = [cell for cell in cells if not cell.compiled.was_compiled]
    raised = [cell for cell in skipped if cell.compiled.not_run is NotRun.RAISED]
    failing = [cell for cell in cells if is_dead(cell.compiled)]
    others = [cell for cell in skipped if cell.compiled.not_run is not NotRun.RAISED]
    # What each failed test says, without the exception's name.
    words = {
        (cell.target, row.id): first_line(cell.result.message).rpartition("Error: ")[2]
        for row in comparison.tests
        for cell in row.cells
        if cell.result.verdict in FAILING
    }
    sections = [*_not_compiled(UNCOMPILED, failing, words), *_not_compiled(RAISED, raised, words)]
    return [*sections, *_not_compiled("Not compiled: host code that does not run without a GPU", others)]


def _not_compiled(title: str, cells: list[CodegenCell], failed: Mapping[tuple[str, str], str] = MappingProxyType({})) -> list[Section]:
    """Return a line per function, target and reason. A reason shared by many architectures or points is listed once.

    `failed` has the words of failed tests. A test that launches the function and fails with the compiler's words is named.
    """
    groups = grouped(
        ((_function(made), target, first_line(made.reason), made.verdict), made)
        for target, made in ((cell.target, cell.compiled) for cell in cells)
    )
    lines = []
    for (function, target, reason, verdict), found in groups.items():
        where = list(dict.fromkeys(made.hardware for made in found))
        shown = name(", ".join(where)) if len(where) <= 3 else f"{len(where)} architectures"
        origins = list(dict.fromkeys(made.origin for made in found if made.origin))
        same = [test for test in origins if (words := failed.get((target, test))) and words in reason]
        subject, more = (origins[0], len(origins) - 1) if found[0].function == HOST_CODE and origins else (function, 0)
        why = f", {found[0].not_run.words}: " if found[0].not_run else ": "
        lead = say(name(subject), f" and {more} more" if more else "", " on ", name(target), " for ", shown, ": ")
        tail = ("; ", name(same[0]), " fails with the same words") if same else ()
        lines.append(lead + say(Bit(verdict.value, verdict), why, name(reason), *tail))
    return [Section(title, lines=shorten(lines, _FEW_FAILURES))] if lines else []


def _pages(columns: list[tuple[str, str]], twice: set[str]) -> list[list[tuple[str, str]]]:
    """Split the columns into pages of about equal size that fit beside the function's name."""
    widths = [max(*map(len, stacked(name)), len(target) if name in twice else 0, 5) + 1 for name, target in columns]
    pages = math.ceil(sum(widths) / _CODEGEN_WIDTH)
    size = math.ceil(len(columns) / pages)
    return [columns[start : start + size] for start in range(0, len(columns), size)]


def _codegen(comparison: Comparison, columns: list[tuple[str, str]], heads: dict[tuple[str, str], Line]) -> Section:
    rows = []
    for label, entries in grouped((f"{full_name(row.kernel, row.function)}, {row.config}", row) for row in comparison.codegen).items():
        group = grouped(((cell.compiled.hardware, cell.target), cell.compiled) for row in entries for cell in row.cells)
        rows.append((say(name(label)), *(_generated(group.get(column, [])) for column in columns)))
    heading = (say("function"), *(heads[column] for column in columns))
    return Section("Generated code, every configuration", heading, tuple(rows), narrow=1, folded=True)


def _generated(kernels: list[CompiledKernel]) -> Line:
    if kernels and all(kernel.is_discarded for kernel in kernels):
        return say(Bit("discarded", Verdict.NOT_RUN))
    kernels = [kernel for kernel in kernels if not kernel.is_discarded]
    if all(kernel.verdict is Verdict.NOT_RUN for kernel in kernels):
        return say(NOTHING)
    failed = sum(map(is_dead, kernels))
    if failed:
        return say(Bit("failed" if failed == len(kernels) else f"{failed}/{len(kernels)} failed", Verdict.FAILED))
    registers = max((kernel.registers for kernel in kernels if kernel.registers is not None), default=None)
    spills = max(kernel.spills or 0 for kernel in kernels)
    shared = max(kernel.shared_bytes or 0 for kernel in kernels)
    text = ("ok" if registers is None else f"{registers}r") + (f" {spills}s" if spills else "") + (f" {_memory(shared)}" if shared else "")
    verdict = Verdict.FAILED if any(kernel.only_gates for kernel in kernels) else Verdict.ABSENT if spills else None
    return say(Bit(text + _resident(kernels), verdict))


def _memory(count: int) -> str:
    """`16B`, `64K`: short enough for a column of five characters."""
    return f"{count}B" if count < 1024 else f"{count / 1024:.3g}K"


def _resident(kernels: list[CompiledKernel]) -> str:
    """` 4x8w regs`: how many programs fit into a multiprocessor, for the tightest kernel; empty if unknown."""
    known = [kernel for kernel in kernels if kernel.occupancy is not None and kernel.programs is not None]
    if not known:
        return ""
    tightest = min(known, key=lambda kernel: kernel.occupancy or 0)
    # A full multiprocessor is limited too, but there is nothing to fix.
    full = tightest.occupancy == 1
    why = [] if full else [_LIMITED_BY[resource] for resource in tightest.limited_by or () if resource in _LIMITED_BY]
    return " " + " ".join([f"{tightest.programs}x{tightest.num_warps}w", *why])
