"""Comparison → the first sentence of a report: what is wrong, and where; or that nothing is. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from harness.compare.answer.overview import FAR, KernelLine, Reached
from harness.compare.model import FAILING, Comparison, TargetSummary
from harness.compare.tests.mistyped import mistyped
from harness.compare.verdict import phrase, sentence
from harness.records import BY_TORCH, HOST_CODE, RUNS_ON, CompiledKernel, NotRun, Verdict
from harness.records.selection.package import is_load

_MOST = 8  # targets in a clause
_FEW_CARDS = 3  # named in a clause
_LIMIT = f"{FAR:.0%}"


def headline(comparison: Comparison, lines: Sequence[KernelLine]) -> str:
    """Return `6 tests fail on b; 3 kernels reach less than 70% of the copy there.`, or else what is known to be good.

    If the command was stopped or a file could not be written, that stands before the comparison's own sentence, and comes first here too.
    """
    own = sentence(comparison.targets)
    lead = comparison.sentence.removesuffix(own).strip() if comparison.sentence.endswith(own) else ""
    words = mistyped(comparison.targets, comparison.tests)
    lead = lead.removeprefix(f"{words}.").strip() if words else lead  # the command's reason may be the same words
    said = [words[0].upper() + words[1:]] if words else _wrong(comparison, lines)
    said = said or ([] if comparison.exit_code and not lead else _right(comparison, lines))
    return " ".join(filter(None, (lead, f"{'; '.join(said)}."))) if said else comparison.sentence


def _wrong(comparison: Comparison, lines: Sequence[KernelLine]) -> list[str]:
    """Return a clause for each kind of fault, the gravest first. A clause about the one target of the clause before says `there`."""
    targets = comparison.targets
    cells = [cell.compiled for row in comparison.codegen for cell in row.cells]
    unloaded = _unloaded(comparison)

    def cards(is_wrong: Callable[[CompiledKernel], bool]) -> str:
        named = list(dict.fromkeys(made.architecture for made in cells if is_wrong(made)))
        return ", ".join(named) if len(named) <= _FEW_CARDS else f"{len(named)} architectures"

    faults = (
        (_count(targets, lambda target: _failed(target) - unloaded.get(target.target, 0)), "test", "fails", "fail"),
        (unloaded, "benchmark file", "does not load", "do not load"),
        (_origins(comparison), "case", "fails in host code", "fail in host code"),
        (
            _kernels(comparison, _is_uncompiled),
            "kernel",
            f"does not compile for {cards(_is_uncompiled)}",
            f"do not compile for {cards(_is_uncompiled)}",
        ),
        (
            _kernels(comparison, _is_refused),
            "kernel",
            f"cannot be launched on {cards(_is_refused)}",
            f"cannot be launched on {cards(_is_refused)}",
        ),
        (_kernels(comparison, lambda made: made.only_gates), "kernel", "breaks a gate", "break a gate"),
        (_count(targets, _unmeasured), "point", "could not be measured", "could not be measured"),
        (_slower(lines), "kernel", "is slower than in the base run", "are slower than in the base run"),
        (_far(lines, "copy"), "kernel", f"reaches less than {_LIMIT} of the copy", f"reach less than {_LIMIT} of the copy"),
        (
            _far(lines, "product"),
            "kernel",
            f"reaches less than {_LIMIT} of a product",
            f"reach less than {_LIMIT} of a product",
        ),
        (_far(lines, "peer"), "kernel", f"is below {_LIMIT} of its fastest peer", f"are below {_LIMIT} of their fastest peers"),
    )
    clauses = [phrase(target) for target in targets if not target.complete][:_MOST]
    clauses += _on_some_architectures(cells)
    remarks = {target.target: remark for target in targets if (remark := _remark(target))}
    before: list[str] = []
    for counted, noun, one, many in faults:
        if counted:
            there = before == list(counted) and len(counted) == 1
            clauses.append(_clause(counted, noun, one, many, there=there, remarks=remarks if noun == "test" else {}))
            before = list(counted)
    return clauses


def _clause(counted: Mapping[str, int], noun: str, one: str, many: str, *, there: bool, remarks: Mapping[str, str]) -> str:
    """`6 tests fail on a (1 timeout), 1 on b (suspected)`: the words in brackets are the target's in `remarks`."""

    def where(target: str) -> str:
        return f"on {target} ({remarks[target]})" if target in remarks else f"on {target}"

    (first, count), *others = counted.items()
    text = f"{count} {noun} {one}" if count == 1 else f"{count} {noun}s {many}"
    more = [f"{number} {where(target)}" for target, number in others[: _MOST - 1]]
    more += [f"some on {len(others) - len(more)} more targets"] if len(others) > len(more) else []
    return ", ".join([f"{text} {'there' if there else where(first)}", *more])


def _remark(target: TargetSummary) -> str:
    """Say how tests of a target failed: `2 suspected, 1 timeout`; nothing if all of them failed in the usual way."""
    how = {verdict.value: target.tests.get(verdict.value, 0) for verdict in FAILING if verdict not in (Verdict.FAILED, Verdict.ERROR)}
    failed = _failed(target)
    if target.suspected == failed:
        return "suspected" if failed else ""
    return ", ".join(f"{number} {word}" for word, number in {"suspected": target.suspected, **how}.items() if number)


def _right(comparison: Comparison, lines: Sequence[KernelLine]) -> list[str]:
    """Return what is good: tests that pass, and the least share of the copy that a kernel reaches. What raised comes before that."""
    tested = [target.target for target in comparison.targets if target.tests.get(Verdict.PASSED.value)]
    more = f" and {len(tested) - _MOST} more targets" if len(tested) > _MOST else ""
    clauses = _raised(comparison)
    clauses += [f"{'all' if clauses else 'All'} tests that ran pass on {', '.join(tested[:_MOST])}{more}"] if tested else []
    untested = [target.target for target in comparison.targets if target.is_untested]
    clauses += [f"{'no' if clauses else 'No'} test was found on {', '.join(untested[:_MOST])}"] if untested else []
    shares = [(one.of_ceiling, target, line.kernel) for line, target, one in _each(lines) if one.of_ceiling and one.ground == "copy"]
    if shares:
        share, target, kernel = min(shares)
        where = f"{kernel} on {target} is the furthest away"
        clauses.append(f"{'every' if clauses else 'Every'} kernel reaches at least {share:.0%} of the copy ({where})")
    return clauses


def _count(targets: Sequence[TargetSummary], count: Callable[[TargetSummary], int]) -> dict[str, int]:
    return {target.target: number for target in targets if (number := count(target))}


def _kernels(comparison: Comparison, is_wrong: Callable[[CompiledKernel], bool]) -> dict[str, int]:
    """Count the kernels by target of which at least one binary is wrong."""
    found = {(cell.target, row.kernel) for row in comparison.codegen for cell in row.cells if is_wrong(cell.compiled)}
    counted = Counter(target for target, _ in found)
    return {target.target: counted[target.target] for target in comparison.targets if counted[target.target]}


def _is_uncompiled(made: CompiledKernel) -> bool:
    return made.verdict in FAILING and made.function != HOST_CODE and not made.only_gates and not made.binary_hash


def _is_refused(made: CompiledKernel) -> bool:
    """Whether it compiles, and no driver launches it."""
    return made.verdict in FAILING and not made.only_gates and bool(made.binary_hash)


def _origins(comparison: Comparison) -> dict[str, int]:
    """Count by target the tests and points whose host code failed while they were compiled, where no architecture is said to run them."""
    found = {
        (cell.target, cell.compiled.origin)
        for row in comparison.codegen
        for cell in row.cells
        if cell.compiled.function == HOST_CODE and cell.compiled.verdict in FAILING and not cell.compiled.reason.startswith(RUNS_ON)
    }
    counted = Counter(target for target, _ in found)
    return {target.target: counted[target.target] for target in comparison.targets if counted[target.target]}


def _on_some_architectures(cells: Sequence[CompiledKernel]) -> list[str]:
    """Return `test_scale runs on gfx942 and raises KeyError on sm_90`, and how many more there are."""
    found = {made.origin: made.reason for made in reversed(cells) if made.verdict in FAILING and made.reason.startswith(RUNS_ON)}
    if not found:
        return []
    origin, reason = list(found.items())[-1]
    more = f", and {len(found) - 1} more {'case' if len(found) == 2 else 'cases'} like it" if len(found) > 1 else ""
    return [f"{_short(origin)} {reason.removeprefix('it ').partition(': ')[0]}{more}"]


def _short(origin: str) -> str:
    """Return a test without its file, and a script without its kernel: `add [running bench_add.py]`."""
    return re.sub(r"^[^\[]*::|^[^\[]* \[running (.*)\]$", r"\1", origin)


def _raised(comparison: Comparison) -> list[str]:
    """Say how many cases raised, and whose fault it is as far as known: where torch refused, maybe that of what is pretended."""
    found = {
        cell.compiled.origin: cell.compiled.reason
        for row in comparison.codegen
        for cell in row.cells
        if cell.compiled.not_run is NotRun.RAISED
    }
    by_torch = sum(reason.endswith(BY_TORCH) for reason in found.values())
    counts = ((len(found) - by_torch, "code of the package"), (by_torch, "torch, maybe for what is pretended"))
    said = ", ".join(f"{count} raised by {who}" for count, who in counts if count)
    noun = "case" if len(found) == 1 else "cases"
    return [f"{len(found)} {noun} did not run to the end without a card ({said})"] if found else []


def _failed(target: TargetSummary) -> int:
    return sum(target.tests.get(verdict.value, 0) for verdict in FAILING)


def _unloaded(comparison: Comparison) -> dict[str, int]:
    """Count by target the files of benchmarks that do not load."""
    counted = Counter(cell.target for row in comparison.tests if is_load(row.id) for cell in row.cells if cell.result.verdict in FAILING)
    return {target.target: counted[target.target] for target in comparison.targets if counted[target.target]}


def _unmeasured(target: TargetSummary) -> int:
    """Count the points of a target that measured none: otherwise, the report lists what is missing beside what is there."""
    wrong = {word: number for word, number in target.points.items() if word not in (Verdict.PASSED.value, Verdict.NOT_RUN.value)}
    return 0 if target.points.get(Verdict.PASSED.value) else sum(wrong.values())


def _slower(lines: Sequence[KernelLine]) -> Counter[str]:
    """Count kernels by target of which some case is slower than in the base run, for sure."""
    return Counter(square.target for line in lines for square in line.squares if square.since and square.since.changes.get("slower"))


def _far(lines: Sequence[KernelLine], ground: str) -> Counter[str]:
    """Count kernels by target that are far from the ceiling, or without one from the fastest provider."""
    found = {
        (target, line.kernel) for line, target, one in _each(lines) if one.share is not None and one.share < FAR and one.ground == ground
    }
    return Counter(target for target, _ in sorted(found))


def _each(lines: Sequence[KernelLine]) -> Iterator[tuple[KernelLine, str, Reached]]:
    return ((line, square.target, one) for line in lines for square in line.squares for one in square.reached)
