"""The grid: each kernel function, whether its results are right, and on which cards it can run. Pure."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from warpwave.compare.codegen import by_generation
from warpwave.compare.model import FAILING, CodegenRow, Fit, Grid, GridCell, GridRow, ParityRow, Right, TargetSummary
from warpwave.compare.speeds import launched_by
from warpwave.records import HOST_CODE, CompiledKernel, Hardware, NotRun, Verdict, grouped
from warpwave.records.selection import is_load

Key = tuple[str, str]  # a kernel and its function
_BYTES_OF_A_REGISTER = 4
_FEW = 3  # cards named in a sentence
_LONGEST = 120  # characters of a reason in a sentence
# What a reason says → two words. The first seven are warpwave's own sentences about limits of a card, the others are the compiler's.
_CAUSES = (
    (re.compile(r"bytes of shared memory"), "shared memory"),
    (re.compile(r"are \d+ threads"), "threads"),
    (re.compile(r"registers of each of"), "registers"),
    (re.compile(r"columns of tensor memory"), "tensor memory"),
    (re.compile(r"\bits grid is\b|threads along"), "grid"),
    (re.compile(r"scratch memory, and the allocator"), "bad allocator"),
    (re.compile(r"bytes of scratch memory"), "no allocator"),
    (re.compile(r"\bcluster"), "cluster"),
    (re.compile(r"Input shapes should have M|only .* operands? .* dot|\bdot\b.*(support|dtype|type)", re.IGNORECASE), "no such `dot`"),
    (re.compile(r"static_assert|CompileTimeAssertionFailure"), "static_assert"),
    (re.compile(r"out of resource", re.IGNORECASE), "resources"),
    (re.compile(r"process exited|process .* while .* was compiled"), "process died"),
    (re.compile(r"ran longer than"), "too long"),
)
_RAISED = re.compile(r"(?:raises |^)(\w+(?:Error|Failure|Exception|Exit|Warning))\b")


def make_grid(
    targets: Sequence[TargetSummary], tests: Sequence[ParityRow], codegen: Sequence[CodegenRow], hardware: Iterable[Hardware]
) -> Grid:
    """Return the grid of a comparison. Of two targets that compiled for one card, the graver result stands."""
    rows = [cell.compiled for row in codegen for cell in row.cells]
    cards = _cards(hardware, {row.architecture: row.card for row in rows})
    named = {card.architecture: card for card in cards}
    where = {target.target: _where(target, named) for target in targets if target.tests}
    functions = _functions(rows)
    rights = _rights(tests, where, functions)
    tested = dict.fromkeys(row.kernel for row in tests if not is_load(row.id))
    compiled = {key[0] for key in functions}
    # A test that launched nothing is in a row without a function: all of such a kernel, of others those that fail.
    failed = {key[0] for key, right in rights.items() if not key[1] and right.failed}
    counted = {key[:2] for key in rights}
    nameless = ((kernel, "") for kernel in tested if (kernel, "") in counted and (kernel not in compiled or kernel in failed))
    keys = list(dict.fromkeys([*functions, *((kernel, name) for kernel, name, _ in rights if name), *nameless]))
    found = []
    for key in keys:
        own = functions.get(key, {})
        right = tuple(rights.get((*key, target)) for target in where)
        first = next((row for made in own.values() for row in made if row.source), None)
        found.append(GridRow(*key, first.source if first else "", right, tuple(_cell(own.get(card.architecture, [])) for card in cards)))
    return Grid(cards, where, tuple(sorted(found, key=_order)))


def _order(row: GridRow) -> tuple[bool, int, int, int]:
    gravities = [cell.fit.gravity for cell in row.cells if cell]
    cannot = sum(cell.fit.cannot_run for cell in row.cells if cell)
    return not cannot, -row.failed, -max(gravities, default=0), -sum(gravities)


def _cards(hardware: Iterable[Hardware], compiled: Mapping[str, str]) -> tuple[Hardware, ...]:
    """Return the cards of what was compiled: vendors together, each in the order of its generations."""
    known = {card.architecture: card for card in hardware}
    others = (Hardware(name, card=card) for name, card in compiled.items() if name not in known)
    cards = [card for card in (*known.values(), *others) if card.architecture in compiled]
    vendors = list(dict.fromkeys(card.vendor for card in cards))
    return tuple(sorted(cards, key=lambda card: (vendors.index(card.vendor), by_generation(card.architecture))))


def _where(target: TargetSummary, named: Mapping[str, Hardware]) -> str:
    """Return where a target's tests ran: `interpreter`, `MI300X, emulated`, or the names of its cards."""
    if target.emulated:
        return f"{named[target.emulated].name if target.emulated in named else target.card or target.emulated}, emulated"
    return target.gpus or "interpreter"


def _functions(rows: Iterable[CompiledKernel]) -> dict[Key, dict[str, list[CompiledKernel]]]:
    """Return what was made of each function, by architecture. A test that ended before it launched anything there counts too.

    A function that a test launched on some cards, and a bench of another folder on the others, is one.
    """
    found: dict[Key, dict[str, list[CompiledKernel]]] = {}
    hosted = []
    for row in rows:
        if row.function == HOST_CODE:
            hosted.append(row)
        elif not row.is_discarded:
            found.setdefault((row.kernel, row.function), {}).setdefault(row.architecture, []).append(row)
    first: dict[tuple[str, str], Key] = {}
    for key, made in list(found.items()):
        source = next((row.source for rows in made.values() for row in rows if row.source), "")
        before = first.setdefault((source, key[1]), key) if source else key
        if before != key and not made.keys() & found[before].keys():
            found[before].update(found.pop(key))
    launched: dict[str, dict[Key, None]] = defaultdict(dict)
    for key, made in found.items():
        for row in (row for rows in made.values() for row in rows):
            launched[row.origin][key] = None
    for row in hosted:
        if row.not_run in (NotRun.SKIPPED, NotRun.XFAILED, NotRun.EMPTY):
            continue
        for key in launched.get(row.origin, ()):
            there = found[key].setdefault(row.architecture, [])
            if not any(one.origin == row.origin for one in there):
                there.append(row)
    return found


def _cell(made: Sequence[CompiledKernel]) -> GridCell | None:
    if not made:
        return None
    judged = [(*_fit(row), row) for row in made]
    fit, cause, gravest = max(judged, key=lambda entry: (entry[0].gravity, entry[2].spills or 0))
    binaries = [row for row in made if row.function != HOST_CODE]
    registers = [row.registers for row in binaries if row.registers is not None]
    shares = [row.occupancy for row in binaries if row.occupancy is not None]
    reason = gravest.reason.removeprefix("it ") if fit is not Fit.RUNS else ""
    return GridCell(fit, len(binaries), cause, reason, max(registers, default=None), min(shares, default=None))


def _fit(row: CompiledKernel) -> tuple[Fit, str]:
    """Return whether a configuration can run, and in two words why not, or what is to be seen."""
    # The author may allow a spill, and a tuner discards a configuration that spills if another one does not.
    tells = "spills" in row.broken or "spills" in row.advice
    spills = f"spills {_BYTES_OF_A_REGISTER * row.spills:,} B" if row.spills and tells else ""
    if row.only_gates:
        return Fit.BREAKS, spills if "spills" in row.broken else next(iter(row.broken)).replace("_", " ")
    if row.verdict in FAILING:
        fit = Fit.RAISES if row.function == HOST_CODE else Fit.UNLAUNCHABLE if row.binary_hash else Fit.UNCOMPILED
        return fit, cause(row.reason)
    if row.verdict is not Verdict.PASSED:
        return Fit.UNKNOWN, row.not_run.words if row.not_run else row.verdict.value
    return (Fit.ADVICE, spills) if spills else (Fit.RUNS, "")


def cause(reason: str) -> str:
    """Return why a kernel cannot run, in two words."""
    named = next((words for pattern, words in _CAUSES if pattern.search(reason)), "")
    if named and not reason.removeprefix("it ").startswith(("runs on ", "raises ")):
        return named
    raised = _RAISED.search(reason) or re.search(r"\braises (\w+) on ", reason)
    return raised[1] if raised and raised[1] != "CompilationError" else named or "compile error"


def _rights(
    tests: Iterable[ParityRow], where: Iterable[str], functions: Mapping[Key, Mapping[str, Sequence[CompiledKernel]]]
) -> dict[tuple[str, str, str], Right]:
    """Count the tests of each function by target. A test whose launches are not known counts for every function of its kernel.

    Which functions a test launched, it says itself; in an older run the binaries do, and each of these names only one test.
    """
    launched: dict[str, set[Key]] = defaultdict(set)
    of_kernel: dict[str, list[Key]] = defaultdict(list)
    of_name: dict[str, list[Key]] = defaultdict(list)
    for key, made in functions.items():
        of_kernel[key[0]].append(key)
        of_name[key[1]].append(key)
        for one in (one for rows in made.values() for one in rows):
            launched[_without_parameters(one.origin)].add(key)
    known = set(where)
    counts: dict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    for row in tests:
        if is_load(row.id):
            continue
        unknown = launched.get(_without_parameters(row.id)) or of_kernel.get(row.kernel) or [(row.kernel, "")]
        for cell in row.cells:
            if cell.target in known:
                named = launched_by(cell.result)
                own = [key for name in named or () for key in of_name[name] if key[0] == row.kernel or len(of_name[name]) == 1]
                uncompiled = functions and named and not any(of_name[name] for name in named)
                others = [(row.kernel, name) for name in named or ()] if uncompiled else unknown
                keys = own or ([(row.kernel, "")] if named == [] else others)
                verdict = cell.result.verdict
                kind = verdict.value if verdict in (Verdict.PASSED, Verdict.KNOWN) else "failed" if verdict in FAILING else "others"
                for key in keys:
                    counts[(*key, cell.target)][kind] += 1
                    counts[(*key, cell.target)]["suspected"] += kind == "failed" and cell.target in row.suspected
    return {key: Right(**count) for key, count in counts.items()}


def not_portable(grid: Grid) -> tuple[str, str]:
    """Say which function cannot run on which cards; and why, and how many more there are. Both are empty if all of them can."""
    bad = [row for row in grid.rows if row.gravest.cannot_run]
    if not bad:
        return "", ""
    cells = [(card, cell) for card, cell in zip(grid.cards, bad[0].cells, strict=True) if cell and cell.fit.cannot_run]
    groups = grouped(((cell.fit, cell.cause), card.name) for card, cell in cells)
    reasons = {(cell.fit, cell.cause): cell.reason for _, cell in reversed(cells)}
    said = [f"{fit.value} {'for' if fit is Fit.UNCOMPILED else 'on'} {_listed(names, grid)}" for (fit, _), names in groups.items()]
    causes = [_in_short(reasons[key]) for key in groups]
    # One line of host code may keep several kernels from being launched.
    alike = all(fit is Fit.RAISES for fit, _ in groups)
    others = sum(not alike or _reasons(row) != _reasons(bad[0]) for row in bad[1:])
    more = f"; and {others} more kernel{'s' if others > 1 else ''}" if others else ""
    who = f"Not portable: {'host code of ' if alike else ''}`{bad[0].function}`"
    if len(groups) == 1:
        return f"{who} {said[0]}", causes[0] + more
    where = _listed([card.name for card, _ in cells], grid)
    return f"{who} cannot run on {where}", ", and ".join(f"it {did}: {why}" for did, why in zip(said, causes, strict=True)) + more


def _reasons(row: GridRow) -> set[str]:
    return {cell.reason for cell in row.cells if cell and cell.fit.cannot_run}


def portable(grid: Grid) -> str:
    """Say that every function can run on every card, or on those on which it was launched; empty if that is not known of all of them."""
    functions = [row for row in grid.rows if row.function]
    if not functions or not all(cell is None or cell.fit in (Fit.RUNS, Fit.ADVICE, Fit.BREAKS) for row in functions for cell in row.cells):
        return ""
    alone = len(functions) == 1
    who = f"`{functions[0].function}`" if alone else f"all {len(functions)} kernels"
    if any(cell is None for row in functions for cell in row.cells):
        return f"{who} can launch on each card that {'it was' if alone else 'they were'} compiled for"
    return f"{who} can launch on {_listed([card.name for card in grid.cards], grid)}"


def _listed(names: Sequence[str], grid: Grid) -> str:
    if len(names) == len(grid.cards) > _FEW:
        return f"all {len(names)} cards"
    return ", ".join(names) if len(names) <= _FEW else f"{', '.join(names[: _FEW - 1])} and {len(names) - _FEW + 1} more cards"


def _in_short(reason: str) -> str:
    """`65,792 bytes of shared memory (LDS), 65,536 there`: a reason with large numbers in groups, and without the card's code name."""
    short = re.sub(r"^needs (\d+) bytes of shared memory, \S+ has (\d+)$", r"\1 bytes of shared memory (LDS), \2 there", reason)
    short = re.sub(r"^`\w+` cannot be launched on \S+: |^\w+: (?=.)|^runs on .* and raises (?=\w)", "", short)
    short = re.sub(r"\d{5,}", lambda number: f"{int(number[0]):,}", short)
    return short if len(short) <= _LONGEST else f"{short[:_LONGEST]} …"


def _without_parameters(test: str) -> str:
    return test.partition("[")[0]
