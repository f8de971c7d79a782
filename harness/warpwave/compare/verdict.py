"""The result of one target and of all targets, as one word, one sentence and one exit code. Pure."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Union

from warpwave.compare.model import COMPLETE, FAILING, CardUse, DeviceSummary, TargetSummary, failures
from warpwave.compare.speeds import SMALLEST, copies_gbps, impossible, impossible_ceiling, judge, large_copies, products_tflops
from warpwave.compare.tests import count_reasons
from warpwave.compare.unchecked import causes
from warpwave.errors import ExitCode, Outcome
from warpwave.records import (
    GPU_PROPERTY,
    HARMLESS,
    HOST_CODE,
    UNCHECKED,
    Ceiling,
    DeviceFacts,
    NotRun,
    Stage,
    TargetRun,
    Verdict,
    grouped,
    reasons,
    worst,
)
from warpwave.records.selection import is_load
from warpwave.records.words import plural
from warpwave.stats import measurable

_GIB = 1 << 30
_CARDS = 512  # GPUs compared with each other: 64 shards of eight
_MOST, _LONGEST = 30, 400  # facts listed, and characters of each: a file from elsewhere may hold any number


def devices(run: TargetRun) -> tuple[DeviceSummary, ...]:
    """Return every GPU that the run reported, with the numbers of tests and points that ran on it."""
    tests = Counter(case.properties.get(GPU_PROPERTY, "") for case in run.cases)
    points = Counter(sample.device for sample in run.samples)
    copies = copies_gbps(run.ceilings)
    lost = {share.device: share.lost for share in run.shares if share.lost}
    return tuple(
        DeviceSummary(
            **{name: getattr(device, name) for name in ("index", "name", "architecture", "memory_bytes", "derived_gbps", "uuid")},
            ceiling_gbps=copies.get(device.index),
            tests=tests[str(device.index)],
            points=points[device.index],
            lost=lost.get(device.index, ""),
        )
        for device in (run.facts.devices if run.facts else ())
    )


def disagreements(run: TargetRun) -> tuple[str, ...]:
    """Return the facts and copy bandwidths that differ between the GPUs that were used. Empty if only one GPU was used."""
    used = {share.device for share in run.shares} | {sample.device for sample in run.samples}
    found = [device for device in (run.facts.devices if run.facts else ()) if device.index in used][:_CARDS]
    if len(found) < 2:
        return ()
    facts = {device.index: _facts(device) for device in found}
    names = dict.fromkeys(name for known in facts.values() for name in known)
    differing = [name for name in names if len({known.get(name) for known in facts.values()}) > 1][:_MOST]
    each = {name: ", ".join(f"{known.get(name, 'unknown')} on GPU {index}" for index, known in facts.items()) for name in differing}
    return (*(f"{name}: {text}"[:_LONGEST] for name, text in each.items()), *_copies(run.ceilings, set(facts)))


def _facts(device: DeviceFacts) -> dict[str, str]:
    facts: dict[str, Union[str, None]] = {
        "name": device.name,
        "architecture": device.architecture,
        "memory": f"{device.memory_bytes / _GIB:.1f} GiB",
        "multiprocessors": str(device.multiprocessors),
        "clock": f"{device.clock_mhz:.0f} MHz" if device.clock_mhz else None,
        "bandwidth by its driver's figures": f"{device.derived_gbps:.0f} GB/s" if device.derived_gbps else None,
        **device.told,
    }
    return {name: value for name, value in facts.items() if value is not None}


def _copies(ceilings: Iterable[Ceiling], used: set[int]) -> tuple[str, ...]:
    """Compare the slowest and the fastest GPU, if they are at least `SMALLEST` apart and their p20 to p80 ranges do not overlap."""
    best: dict[int, Ceiling] = {}
    for entry in large_copies(ceilings):
        sound = entry.device in used and measurable(entry.p20_ms) and measurable(entry.p80_ms)
        if sound and (entry.device not in best or best[entry.device].gbps < entry.gbps):
            best[entry.device] = entry
    if len(best) < 2:
        return ()
    slow, fast = (pick(best.values(), key=lambda entry: entry.gbps) for pick in (min, max))
    apart = fast.gbps * (fast.median_ms / fast.p80_ms) > slow.gbps * (slow.median_ms / slow.p20_ms)
    behind = 1 - slow.gbps / fast.gbps
    if not apart or behind < SMALLEST:
        return ()
    return (f"copy: GPU {slow.device} is {behind:.1%} slower than GPU {fast.device}, {slow.gbps:.4g} against {fast.gbps:.4g} GB/s",)


_PHRASES = {
    Verdict.ABSENT: "is absent",
    Verdict.NOT_RUN: "ran nothing",
    Verdict.TIMEOUT: "ran into its time limit",
    Verdict.CRASHED: "crashed",
    Verdict.OOM: "ran out of memory",
    Verdict.GPU_HANG: "hung the GPU",
    Verdict.INVALID: "has results that cannot be used",
    Verdict.STALE: "left files of another run",
    Verdict.INCOMPLETE: "is incomplete",
    Verdict.INFRA: "could not run",
    Verdict.ERROR: "ended in an error",
}
# The fields of a record that its summary has, too.
_OF_RECORD = (
    *("run_id", "started", "seconds", "commit", "host", "snapshot", "repository", "command"),
    *("environment", "emulated", "card", "attempts"),
)
_FORGED = "Code in the package rewrites its results, or the timer of that machine is broken: read the code, and measure again."
_REASON_LIMIT = 160
_MOST_PHRASES = 50
_MOST_NAMES = 8  # of targets in a phrase


def absent(name: str, given: Iterable[TargetRun] = ()) -> TargetSummary:
    """Return the summary of an expected target without a raw folder. A run that was stopped may not have come to it."""
    if any(run.record.exit and run.record.exit.interrupted and name in run.record.command for run in given):
        hint = "The command that continues the run starts it, too."
        return TargetSummary(name, name, Verdict.ABSENT, reason="not started, because the run was stopped", hint=hint)
    hint = f"Run it, or give its raw folder or artifact beside the others: raw/{name}."
    return TargetSummary(name, name, Verdict.ABSENT, reason="no raw folder was given", hint=hint)


def summarise(name: str, run: TargetRun, suspected: int = 0) -> TargetSummary:
    """Return one run as a row: the gravest verdict of the host, the stages, the tests and the compiler, and its reason."""
    record = run.record
    # That a file of benchmarks loads is no test that somebody wrote. One that does not load fails like a test.
    own = [case for case in run.cases if not (is_load(case.id) and case.verdict is Verdict.PASSED)]
    tests = _count(case.verdict for case in own)
    loads = len(run.cases) - len(own)
    copies, products = copies_gbps(run.ceilings), products_tflops(run.ceilings)
    points = _count(judge(sample, copies, products)[0] for sample in run.samples)
    binaries = [kernel for kernel in run.compiled if kernel.function != HOST_CODE]
    compiled = _count(kernel.verdict for kernel in binaries)
    # A case that ended early has a row for each architecture, and is one case.
    ended = {(row.origin, row.verdict, row.not_run): row for row in run.compiled if row.function == HOST_CODE}
    hosted = _count(row.verdict for row in ended.values())
    found = [(record.verdict, record.reason)]
    # A package may have no benchmarks. A package without tests fails: green must not mean that nothing ran.
    found += [
        (report.verdict, f"{report.stage.value}: {report.reason}" if report.reason else "")
        for report in run.stages
        if report.verdict is not Verdict.NOT_RUN or report.stage is Stage.TEST
    ]
    found += [(Verdict(word), _count_sentence(tests, "test")) for word in tests if Verdict(word) not in HARMLESS]
    found += [(Verdict(word), _count_sentence(compiled, "binary")) for word in compiled if Verdict(word) in FAILING]
    found += [(Verdict(word), _host_code(hosted)) for word in hosted if Verdict(word) in FAILING]
    benched = loads and (record.shard or Verdict.PASSED.value in {*points, *compiled})
    forged = _forged(run)
    found += [(Verdict.INVALID, forged)] if forged else []
    tested = any(report.stage is Stage.TEST for report in run.stages)
    unchecked = causes(run)
    # Where no test could run, what was compiled still was checked; but not where the author skips every test.
    late = any(report.stage is Stage.TEST and (report.out_of_time or report.left_out) for report in run.stages)
    no_test = (NotRun.EMPTY, *UNCHECKED, *([NotRun.SKIPPED] if late else []))
    untested = all(case.verdict is Verdict.NOT_RUN and case.not_run in no_test for case in own)
    if untested and Verdict.PASSED.value in compiled:
        found = [entry for entry in found if entry[0] is not Verdict.NOT_RUN]
    elif tests and set(tests) == {Verdict.NOT_RUN.value}:
        empty = set(count_reasons(run.cases)) == {NotRun.EMPTY.value}
        lacking = "no test could be checked" if unchecked else "every test was skipped"
        found.append((Verdict.NOT_RUN, "no test was found" if empty else lacking))
    elif record.verdict is not Verdict.ABSENT and (
        (tested and not tests and not benched) or not (tests or points or compiled or hosted or benched)
    ):
        found.append((Verdict.NOT_RUN, "no test was found" if tested else "no test, no benchmark and no kernel was found"))
    verdict = worst([entry for entry, _ in found])
    reason = next((text for entry, text in found if entry is verdict and text), "")
    hint = record.hint or next((report.hint for report in run.stages if report.verdict is verdict and report.hint), "")
    hint = hint or (_FORGED if forged and verdict is Verdict.INVALID else "")
    return TargetSummary(
        target=name,
        label=record.label,
        verdict=verdict,
        complete=not forged and (verdict in COMPLETE or _explained(verdict, run, tests, (points, compiled, hosted))),
        reason="" if verdict is Verdict.PASSED else reason,
        hint="" if verdict is Verdict.PASSED else hint,
        **{name: getattr(record, name) for name in _OF_RECORD},
        sanitized=run.sanitized,
        devices=devices(run),
        facts=run.facts,
        stages=run.stages,
        suspected=suspected,
        card_use=_card_use(run),
        ceilings=run.ceilings,
        tests=tests,
        loads=loads,
        unchecked=unchecked,
        points=points,
        compiled=compiled,
        tests_not_run=count_reasons(run.cases),
        compiled_not_run=count_reasons(binaries),
        host_code=hosted,
        host_code_not_run=count_reasons(ended.values()),
        only_gates=sum(kernel.only_gates for kernel in run.compiled),
        gates=run.gates,
        peers=run.peers if any(report.stage is Stage.COMPILE for report in run.stages) else (),
        disagreements=disagreements(run),
        narrowed=run.narrowed.by,
        chosen=run.narrowed.chosen.why,
    )


def _forged(run: TargetRun) -> str:
    """Name the first point or ceiling that no card can have measured, and how many more there are; empty if there is none."""
    copies, products = copies_gbps(run.ceilings), products_tflops(run.ceilings)
    measured = (sample for sample in (*run.samples, *run.again) if sample.verdict is Verdict.PASSED)
    found = [(f"{sample.case} [{sample.provider}]", impossible(sample, copies, products)) for sample in measured]
    found += [(f"{one.dtype or 'copy'} on GPU {one.device}", impossible_ceiling(one)) for one in run.ceilings]
    named = [f"{name}: {why}" for name, why in found if why]
    more = f"; and {len(named) - 1} more" if len(named) > 1 else ""
    return f"bench: {named[0]}{more}" if named else ""


def _card_use(run: TargetRun) -> CardUse | None:
    if not run.record.held:
        return None
    return CardUse(
        held_s=round(sum(run.record.held.values()), 3),
        used_s=round(sum(report.used_s or 0.0 for report in run.stages), 3),
        compiled_ahead=sum(report.compiled_ahead for report in run.stages),
        compiled_meanwhile=sum(report.compiled_here for report in run.stages if report.stage.value in run.record.held),
    )


def sentence(targets: Sequence[TargetSummary]) -> str:
    """Return the verdict in words: how many targets are complete, how much failed, and what each target did or why it did not."""
    complete = sum(target.complete for target in targets)
    verb = "is" if 1 in (complete, len(targets)) else "are"
    head = f"{complete} of {plural(len(targets), 'target')} {verb} complete"
    failed = {"test": failures(*(target.tests for target in targets)), "binary": failures(*(target.compiled for target in targets))}
    parts = [plural(count, f"failed {noun}") for noun, count in failed.items() if count]
    if hosted := failures(*(target.host_code for target in targets)):
        parts.append(f"{plural(hosted, 'failed case')} in host code")
    head += f", with {_listed(parts)}" if parts else ""
    return f"{head}: {'; '.join(_phrases(targets))}." if targets else "Nothing ran: no target was asked for and no raw folder was given."


def outcome(targets: Sequence[TargetSummary]) -> Outcome:
    """Return the exit code and reason: failed tests first, since a person must look; then broken infrastructure; then missing results."""
    if failed := [target for target in targets if (target.complete and target.verdict is not Verdict.PASSED) or _failures(target)]:
        return Outcome(ExitCode.FAILED, "; ".join(map(_failure, failed)))
    # A leg that has a record and is absent: its machine did not answer.
    if broken := [target for target in targets if target.verdict is Verdict.INFRA or (target.verdict is Verdict.ABSENT and target.run_id)]:
        return Outcome(ExitCode.INFRASTRUCTURE, "; ".join(together(broken)))
    if all(target.verdict is Verdict.NOT_RUN for target in targets):
        return Outcome(ExitCode.NOTHING_RAN, "; ".join(together(targets)) or "nothing ran")
    # A package that has only benchmarks misses no test on a target that can only load them.
    loaded = [target for target in targets if target.verdict is Verdict.NOT_RUN and target.loads and target.is_untested]
    fine = loaded if not any(target.tests for target in targets) else []
    wanting = [target for target in targets if target.verdict is not Verdict.PASSED and target not in fine]
    return Outcome(ExitCode.INCOMPLETE, "; ".join(together(wanting))) if wanting else Outcome()


def _failures(target: TargetSummary) -> int:
    return failures(target.tests, target.compiled, target.host_code)


def _failure(target: TargetSummary) -> str:
    """Say what failed on a target, even if its verdict is graver. If no test, point or kernel failed, report the stage."""
    harmless = {verdict.value for verdict in HARMLESS}
    if target.complete and not {*target.tests, *target.points, *target.compiled, *target.host_code} <= harmless:
        return phrase(target)
    parts = [_count_sentence(target.tests, "test", not_run=target.tests_not_run)] if failures(target.tests) else []
    parts += [_count_sentence(target.compiled, "binary", bad="could not compile or launch")] if failures(target.compiled) else []
    parts += [_host_code(target.host_code)] if failures(target.host_code) else []
    return f"{target.target} {_listed(parts) if parts else _ended(target)}"


def _ended(target: TargetSummary) -> str:
    return _PHRASES.get(target.verdict, target.verdict.value) + _because(target)


def _because(target: TargetSummary) -> str:
    reason = " ".join(target.reason.split()).rstrip(".")
    return f" ({reason if len(reason) <= _REASON_LIMIT else f'{reason[:_REASON_LIMIT]} …'})" if reason else ""


def _explained(verdict: Verdict, run: TargetRun, tests: dict[str, int], counts: Iterable[dict[str, int]]) -> bool:
    """Return whether single tests, points or kernels explain a grave verdict, in stages that ended normally.

    Invalid tests do not: they were not run as reported, and the same may be true of others.
    """
    ended = run.record.exit
    orderly = ended is None or (ended.code == 0 and not (ended.timed_out or ended.interrupted or ended.error or ended.exceeded))
    if verdict not in (*FAILING, Verdict.INVALID) or not orderly or run.problems:
        return False
    if any(report.exit_code or report.doubts for report in run.stages):
        return False
    return any(verdict.value in found for found in (*counts, *([tests] if verdict is not Verdict.INVALID else [])))


def _phrases(targets: Sequence[TargetSummary]) -> list[str]:
    """Say what each target did. If there are very many, the gravest ones, and how many more there are."""
    if len(targets) <= _MOST_PHRASES:
        return together(targets)
    grave = sorted(range(len(targets)), key=lambda position: -targets[position].verdict.severity)[:_MOST_PHRASES]
    return [*(phrase(targets[position]) for position in sorted(grave)), f"and {len(targets) - _MOST_PHRASES} more"]


def together(targets: Iterable[TargetSummary]) -> list[str]:
    """Say what each target did. Targets that did not complete for the same reason share a phrase: `a and b could not run (no disk)`."""
    said = ((target, phrase(target).removeprefix(f"{target.target} ")) for target in targets)
    names = grouped(((did, target.target if target.complete else ""), target.target) for target, did in said)
    return [f"{_names(alike)} {did}" for (did, _), alike in names.items()]


def _names(targets: Sequence[str]) -> str:
    more = len(targets) - _MOST_NAMES
    return _listed([*targets[:_MOST_NAMES], f"{more} more"] if more > 0 else targets)


def phrase(target: TargetSummary) -> str:
    """Say what a target did, or why it did not: `a passed 3 tests and measured 3 points`."""
    measured = _count_sentence(target.points, "point", "measured", "could not measure")
    # A kernel that breaks a gate did compile.
    ungated = Counter({Verdict.PASSED.value: target.only_gates, Verdict.FAILED.value: -target.only_gates})
    ungated.update(target.compiled)
    compiled = _count_sentence(ungated, "binary", "compiled", "could not compile or launch", target.compiled_not_run)
    hosted = _host_code(target.host_code, target.host_code_not_run)
    gates = f"broke a gate with {target.only_gates} of them" if target.only_gates else ""
    if target.verdict is Verdict.NOT_RUN and (measured or compiled or hosted):
        why = target if not target.unchecked else dataclasses.replace(target, reason=target.unchecked[0].text)
        done = [f"ran no test{_because(why)}", measured, compiled, gates, hosted]
    elif target.complete:
        tests = _count_sentence(target.tests, "test", "passed", "failed", target.tests_not_run)
        # Two options are enough to know that these were not all tests; the report lists them all.
        some = f" of those that {' and '.join(target.narrowed[:2])} chose" if target.narrowed and tests else ""
        suspected = f" ({target.suspected} of them suspected)" if target.suspected else ""
        tests = tests or ("found no test" if target.is_untested else "")
        loads = f"loaded {plural(target.loads, 'file')} of benchmarks" if target.loads else ""
        done = [tests + some + suspected, loads, measured, compiled, gates, hosted]
    else:
        done = []
    parts = [text for text in done if text] or [_ended(target)]
    return f"{target.target} {_listed(parts)}"


def _listed(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _host_code(counts: Mapping[str, int], not_run: Mapping[str, int] = MappingProxyType({})) -> str:
    """`failed 1 case in host code`, `did not run 3 cases to the end (2 raised, 1 decided by data)`. The report names them."""
    skipped, known = counts.get(Verdict.NOT_RUN.value, 0), counts.get(Verdict.KNOWN.value, 0)
    wrong = sum(counts.values()) - skipped - known
    parts = [f"failed {plural(wrong, 'case')} in host code"] if wrong else []
    parts += [f"has {plural(known, 'known failure')} in host code"] if known else []
    parts += [f"did not run {plural(skipped, 'case')} to the end ({', '.join(reasons(skipped, not_run))})"] if skipped else []
    return ", ".join(parts)


def _count_sentence(
    counts: Mapping[str, int], noun: str, good: str = "passed", bad: str = "failed", not_run: Mapping[str, int] = MappingProxyType({})
) -> str:
    """`passed 3 tests`, `failed 1 of 3 tests`, `passed 3 tests (1 skipped, 2 decided by data)`; empty if there are none."""
    total = sum(counts.values())
    if not total:
        return ""
    passed, expected, known, skipped = (counts.get(verdict.value, 0) for verdict in HARMLESS)
    wrong = total - passed - expected - known - skipped
    text = f"{bad} {wrong} of {plural(total, noun)}" if wrong else f"{good} {plural(passed, noun)}"
    beside = [plural(count, what) for count, what in ((expected, "expected failure"), (known, "known failure")) if count]
    beside += reasons(skipped, not_run)
    return f"{text} ({', '.join(beside)})" if beside else text


def _count(verdicts: Iterable[Verdict]) -> dict[str, int]:
    return dict(Counter(verdict.value for verdict in verdicts))
