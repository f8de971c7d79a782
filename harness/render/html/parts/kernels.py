"""Turn a comparison into a section for each kernel: its tests, sweeps, recorded numbers, code by architecture and configurations. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from harness.compare.answer.overview import KernelLine
from harness.compare.model import Comparison
from harness.records import HARMLESS, Verdict
from harness.records.selection.package import is_load
from harness.render.html.parts.generated_code import Function
from harness.render.html.parts.speeds import Kernel
from harness.render.html.parts.tests import Numeric
from harness.render.text import counts, gravest

_MOST_TESTS = 60  # test functions in a section
_FEW_CASES, _MOST_CHOICES = 3, 60  # of what an autotuner chose
_FEW_FUNCTIONS = 6  # functions whose code is shown at first


@dataclass(frozen=True)
class TestLine:
    """A test function with all of its parameters: per target its counts as text and the gravest verdict, or None."""

    file: str
    name: str
    cells: tuple[tuple[str, Verdict] | None, ...]


@dataclass(frozen=True)
class Choice:
    """A configuration that an autotuner chose: on which target, for which cases (the first of them, and how many)."""

    function: str
    target: str
    config: str
    cases: tuple[str, ...]
    n: int


@dataclass(frozen=True)
class Page:
    """All that is known of one kernel. `drawn` holds its figures, None without speeds. `configurations` counts its rows of code."""

    ident: str
    line: KernelLine
    tests: tuple[TestLine, ...]
    more_tests: int
    drawn: Kernel | None
    functions: tuple[Function, ...]
    configurations: int
    numerics: tuple[Numeric, ...]
    chosen: tuple[Choice, ...] = ()

    @property
    def open(self) -> tuple[Function, ...]:
        """The functions that a reader sees first: those with a fault, and the largest of the others, six in all or more."""
        faulty = [entry for entry in self.functions if any(cell and (cell.failed or cell.gated or cell.spills) for cell in entry.cells)]
        rest = sorted((entry for entry in self.functions if entry not in faulty), key=lambda entry: -entry.n)
        shown = faulty + rest[: max(0, _FEW_FUNCTIONS - len(faulty))]
        return tuple(entry for entry in self.functions if entry in shown)


def pages(
    comparison: Comparison,
    lines: Sequence[KernelLine],
    idents: Mapping[str, str],
    drawn: Sequence[Kernel],
    functions: Sequence[Function],
    numerics: Sequence[Numeric],
) -> tuple[Page, ...]:
    """Return one page for each kernel, sorted by name: readers look one up, and the order of the overview changes from run to run."""
    tests = _tests(comparison)
    figures = {kernel.name: kernel for kernel in drawn}
    code: dict[str, list[Function]] = {}
    for function in functions:
        code.setdefault(function.kernel, []).append(function)
    numbers: dict[str, list[Numeric]] = {}
    for numeric in numerics:
        numbers.setdefault(numeric.kernel, []).append(numeric)
    chosen = _chosen(comparison)
    found = []
    for kernel, line in _every(lines, code):
        mine = tests.get(kernel, [])
        own = code.get(kernel, [])
        found.append(
            Page(
                idents[kernel],
                line,
                tuple(mine[:_MOST_TESTS]),
                max(0, len(mine) - _MOST_TESTS),
                figures.get(kernel),
                tuple(own),
                sum(function.n for function in own),
                tuple(numbers.get(kernel, ())),
                chosen.get(kernel, ()),
            )
        )
    return tuple(sorted(found, key=lambda page: page.line.kernel))


def _chosen(comparison: Comparison) -> dict[str, tuple[Choice, ...]]:
    """Return what autotuners chose, by kernel. Configurations that won the most cases come first."""
    groups: dict[str, dict[tuple[str, str, str], list[str]]] = {}
    for row in comparison.rows:
        for cell in row.cells:
            for function, config in cell.tuned.items():
                groups.setdefault(row.kernel, {}).setdefault((function, cell.target, config), []).append(row.case)
    return {
        kernel: tuple(
            Choice(*key, tuple(dict.fromkeys(cases))[:_FEW_CASES], len(set(cases)))
            for key, cases in sorted(found.items(), key=lambda entry: (entry[0][:2], -len(entry[1])))
        )[:_MOST_CHOICES]
        for kernel, found in groups.items()
    }


def named(lines: Sequence[KernelLine], functions: Sequence[Function]) -> list[str]:
    """Return every kernel that has a page, those of the overview first."""
    return list(dict.fromkeys([line.kernel for line in lines] + [function.kernel for function in functions]))


def _every(lines: Sequence[KernelLine], code: Mapping[str, object]) -> list[tuple[str, KernelLine]]:
    known = {line.kernel: line for line in lines}
    return [(kernel, known.get(kernel) or KernelLine(kernel, (), None, ())) for kernel in dict.fromkeys([*known, *code])]


def _tests(comparison: Comparison) -> dict[str, list[TestLine]]:
    """Return the test functions by kernel, failed ones first."""
    targets = [target.target for target in comparison.targets]
    groups: dict[tuple[str, str], dict[str, dict[str, int]]] = {}
    for row in comparison.tests:
        group = groups.setdefault((row.kernel, row.id.partition("[")[0]), {})
        for cell in row.cells:
            counted = group.setdefault(cell.target, {})
            counted[cell.result.verdict.value] = counted.get(cell.result.verdict.value, 0) + 1
    found: dict[str, list[TestLine]] = {}
    for (kernel, test), group in groups.items():
        file, _, name = test.partition("::")
        cells = tuple((counts(group[target]), gravest(group[target])) if target in group else None for target in targets)
        found.setdefault(kernel, []).append(TestLine(file, "module: the file loads" if is_load(test) else name or test, cells))
    return {kernel: sorted(made, key=lambda test: -max(_severity(test))) for kernel, made in found.items()}


def _severity(test: TestLine) -> list[int]:
    return [cell[1].severity if cell and cell[1] not in HARMLESS else 0 for cell in test.cells]


def with_shown(kernel: Kernel, own: str) -> Kernel:
    """Mark the providers that are drawn at first: the kernel's own, and the fastest of the others."""
    best: dict[str, int] = {}
    for figure in (*kernel.curves, *kernel.lists):
        sweep = figure.sweep
        for position in range(len(sweep.labels)):
            values = [
                (point.value, curve.provider)
                for curve in sweep.series
                if curve.provider not in (own, "copy") and (point := curve.points[position]) and point.state != "suspect"
            ]
            if values:
                provider = (min if sweep.lower_is_better else max)(values)[1]
                best[provider] = best.get(provider, 0) + 1
    peer = max(best, key=lambda name: best[name], default="")
    return replace(kernel, providers=tuple(replace(key, shown=key.name in (own, peer)) for key in kernel.providers))
