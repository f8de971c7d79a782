"""Turn a list of TargetRun into a Comparison. Pure: no I/O, clock or environment, so a report can be drawn again at any time."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from harness.compare import verdict
from harness.compare.codegen.configurations import compare_codegen, use_of_waivers
from harness.compare.codegen.fidelity import compare_launches
from harness.compare.model import Comparison, Difference, ParityRow, TargetSummary, TestFinding
from harness.compare.speeds.noise import noise
from harness.compare.speeds.ratios import benched, compare_speeds, is_bandwidth
from harness.compare.speeds.since import since_base
from harness.compare.speeds.summary import condense, geomeans, portabilities, refusals
from harness.compare.tests.mistyped import mistyped
from harness.compare.tests.parity import compare_tests, count_tests
from harness.errors import ExitCode, Outcome
from harness.records import TargetRun, Verdict

_NOT_PORTED = "performance portability is not computed: {} targets, with their kernels, are too many"


def compare(runs: Iterable[TargetRun], expected: Sequence[str] = (), base: Sequence[TargetRun] = ()) -> Comparison:
    """Compare the targets. `expected` targets come first and in that order, whether or not they have a run.

    `base` is an earlier run of the same targets, since which speeds may have changed.
    """
    named = _named(runs, expected)
    given = {name: run for name, run in named.items() if run}
    tests = compare_tests(given)
    suspected = Counter(name for row in tests for name in row.suspected)
    targets = tuple(verdict.summarise(name, given[name], suspected[name]) if name in given else verdict.absent(name) for name in named)
    noises = {name: noise(name, run) for name, run in given.items()}
    baseline, rows = compare_speeds(given, noises)
    asked = benched(given)
    since, refused = since_base(base, list(given.values()))
    ported = portabilities(rows, asked)
    too_many = () if ported or len(asked) < 2 or not any(is_bandwidth(row.unit) for row in rows) else (_NOT_PORTED.format(len(asked)),)
    return Comparison(
        sentence=verdict.sentence(targets),
        exit_code=int(_outcome(targets, tests).code),
        targets=targets,
        baseline=baseline,
        differences=_differences(targets),
        kernels=count_tests(given),
        tests=tests,
        findings=tuple(TestFinding(name, found) for name, run in given.items() for found in run.findings),
        speeds=condense(rows),
        geomeans=geomeans(rows),
        portabilities=ported,
        noise=tuple(found for found in noises.values() if found),
        rows=rows,
        codegen=compare_codegen(given),
        waivers=use_of_waivers(given),
        fidelity=compare_launches(given),
        refusals=refusals(rows),
        problems=(*(f"{name}: {problem}" for name, run in given.items() for problem in run.problems), *too_many, *refused),
        since=since,
    )


def exit_code(comparison: Comparison) -> ExitCode:
    """Return a report's exit code.

    1 failed tests, 2 wrong options for tests, 3 infrastructure, 4 incomplete, invalid or absent targets, 5 nothing ran, else 0.
    """
    return ExitCode(comparison.exit_code)


def outcome(comparison: Comparison) -> Outcome:
    """Return the exit code with its reason: what the targets' verdicts say, or else which report could not be written."""
    found = _outcome(comparison.targets, comparison.tests)
    if found.code == comparison.exit_code:
        return found
    return Outcome(exit_code(comparison), comparison.problems[-1] if comparison.problems else comparison.sentence.rstrip("."))


def _outcome(targets: Sequence[TargetSummary], tests: Sequence[ParityRow]) -> Outcome:
    """Return what the verdicts say, unless only the options that chose tests are wrong."""
    words = mistyped(targets, tests)
    return Outcome(ExitCode.USAGE, words) if words else verdict.outcome(targets)


def _named(runs: Iterable[TargetRun], expected: Sequence[str]) -> dict[str, TargetRun | None]:
    """Name each run: expected targets in their order, then the others. Two runs of one target both stay."""
    seen: Counter[str] = Counter()
    named: dict[str, TargetRun | None] = dict.fromkeys(expected)
    order = {name: position for position, name in enumerate(named)}
    for run in sorted(runs, key=lambda run: order.get(run.record.target, len(order))):
        target = run.record.target
        seen[target] += 1
        name = target if seen[target] == 1 else f"{target} ({seen[target]})"
        while named.get(name) is not None:  # another target may itself be called `x (2)`
            seen[target] += 1
            name = f"{target} ({seen[target]})"
        named[name] = _usable(run)
    return named


def _usable(run: TargetRun) -> TargetRun:
    """Drop the results of a stale run: its folder holds files of two runs, so they belong to neither."""
    if run.record.verdict is not Verdict.STALE:
        return run
    return dataclasses.replace(run, cases=(), findings=(), samples=(), again=(), ceilings=(), compiled=(), launched=())


def _differences(targets: Sequence[TargetSummary]) -> tuple[Difference, ...]:
    """Return the facts that differ between the targets that reported facts."""
    facts = {target.target: _facts(target) for target in targets if target.facts}
    names = dict.fromkeys(name for known in facts.values() for name in known)
    found = [Difference(name, {target: known[name] for target, known in facts.items()}, name in _REFUSING) for name in names]
    return tuple(difference for difference in found if len(set(difference.values.values())) > 1)


_REFUSING = ("kernel sources", "FP fusion")


def _facts(target: TargetSummary) -> Mapping[str, str]:
    facts = target.facts
    assert facts is not None
    found = {
        "torch": facts.torch,
        "triton": facts.triton,
        "runtime": facts.runtime,
        "driver": facts.driver,
        "python": facts.python,
        "platform": facts.platform,
        "FP fusion": facts.fp_fusion,
        "kernel sources": facts.kernels_hash,
        "commit": target.commit,
        "snapshot": target.snapshot,
    }
    return {name: value or "unknown" for name, value in found.items()}
