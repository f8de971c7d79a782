"""The test stage: run pytest over the kernel package, with a result for every test, whatever happens to the process.

Run as `python -m warpwave.inside.test.stage job.json`. A crash or hang is attributed to its test, and the others still run
(`process/supervise.py`). This process writes the JUnit file from the journal, so it does not matter how pytest died.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Union

from warpwave.inside.benchmarks import find_benches, kernel_name
from warpwave.inside.environment import compiled_kernels, root_of, tell_workers, temporary_home
from warpwave.inside.multi_gpu.ledger import cards
from warpwave.inside.multi_gpu.share import SEAT, regroup, seats_for_tests, share
from warpwave.inside.process import forks, sealing
from warpwave.inside.process.journal import Event, Journal, emit
from warpwave.inside.process.lease import Lease, Used
from warpwave.inside.process.outcomes import doubted, few, hint_of, missing_of, with_reasons
from warpwave.inside.process.supervise import LOST_DEVICE, Death, faults_of, supervise
from warpwave.inside.process.workers import as_stage, budget_is_up, report_undisturbed, spawned, time_is_up
from warpwave.inside.scripts.script import how_to_run_scripts
from warpwave.inside.test.budget import CUT_SHORT, LONGER_BUDGET, MOST_REACHED, Pace, function_of
from warpwave.inside.test.notes import notes_of, refusal
from warpwave.inside.test.settings import counter_limits, files_with_tests, is_narrowed, pytest_options, selection_of, test_paths
from warpwave.records import (
    BUDGET_UP,
    FAILED_PROPERTY,
    GPU_PROPERTY,
    HARMLESS,
    JUNIT_XFAIL,
    MOST_FINDINGS,
    MOST_PROFILES,
    UNCHECKED,
    CaseResult,
    CounterLimit,
    Defect,
    Finding,
    Job,
    NotRun,
    Profile,
    Stage,
    StageReport,
    Verdict,
    from_json,
    to_json,
    worst,
)
from warpwave.records.selection import RAN_NO_TEST, is_load

# Case results → JUnit XML in pytest's shape (classname, name, properties per case), with verdicts that pytest does not have.

# Characters that XML 1.0 cannot hold are escaped, not dropped.
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(job: Job, cases: list[CaseResult]) -> str:
    """Return one `testsuites` element with one `testsuite`, named after the target."""
    failures = sum(case.verdict is Verdict.FAILED for case in cases)
    skipped = sum(case.verdict in (Verdict.NOT_RUN, Verdict.XFAILED) for case in cases)
    passed = sum(case.verdict is Verdict.PASSED for case in cases)
    counts = {"tests": len(cases), "failures": failures, "errors": len(cases) - failures - skipped - passed, "skipped": skipped}
    root = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(root, "testsuite", {"name": job.target, **{key: str(value) for key, value in counts.items()}})
    suite.set("time", f"{sum(case.seconds for case in cases):.3f}")
    suite.set("timestamp", datetime.now(timezone.utc).isoformat(timespec="seconds"))
    _properties(suite, {"run_id": job.run_id, "target": job.target})
    for case in cases:
        _case(suite, case)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _case(suite: ElementTree.Element, case: CaseResult) -> None:
    file, _, name = case.id.partition("::")
    classname = file.removesuffix(".py").replace("/", ".")
    element = ElementTree.SubElement(suite, "testcase", {"classname": _clean(classname), "name": _clean(name or file)})
    element.set("time", f"{case.seconds:.3f}")
    _properties(element, {"id": case.id, "kernel": case.kernel, **case.properties})
    if case.verdict in (Verdict.NOT_RUN, Verdict.XFAILED):
        kind = JUNIT_XFAIL if case.verdict is Verdict.XFAILED else (case.not_run or case.verdict).value
        ElementTree.SubElement(element, "skipped", {"type": kind, "message": _clean(case.message)})
    elif case.verdict is not Verdict.PASSED:
        tag = "failure" if case.verdict is Verdict.FAILED else "error"
        ElementTree.SubElement(element, tag, {"type": case.verdict.value, "message": _clean(case.message)}).text = _clean(case.detail)


def _properties(parent: ElementTree.Element, values: dict[str, str]) -> None:
    properties = ElementTree.SubElement(parent, "properties")
    for key, value in values.items():
        ElementTree.SubElement(properties, "property", {"name": _clean(key), "value": _clean(value)})


def _clean(text: str) -> str:
    return _ILLEGAL.sub(lambda match: f"\\x{ord(match.group()):02x}", text)


# The rows of the test stage: a result for every collected test, whatever happens to the processes that run them.

_OUTCOMES = {
    "passed": Verdict.PASSED,
    "failed": Verdict.FAILED,
    "error": Verdict.ERROR,
    "skipped": Verdict.NOT_RUN,
    "xfailed": Verdict.XFAILED,
    "invalid": Verdict.INVALID,
    "timeout": Verdict.TIMEOUT,
}
_TOLD_S = 0.1  # short tests follow each other faster than anybody reads their names
_COLLECT_ONLY = ("--collect-only", "--co", "--collectonly")


class Results:
    """The cases so far, and the JUnit file that is updated with them. Each collected test has a row, even if ids repeat."""

    def __init__(self, job: Job, folder: Path) -> None:
        self.job, self.folder, self.several = job, folder, False
        self.lease = Lease(job, Stage.TEST)
        self.used, self.compiled_before = defaultdict[Union[int, None], Used](Used), 0 if job.interpret else compiled_kernels()
        self.cases: dict[tuple[str, int], CaseResult] = {}
        self._kernels: dict[str, str] = {}  # by file
        self.collected: Counter[str] = Counter()
        self.total = 0  # of what was collected: tens of thousands are not added up for each of them
        self._loads: list[str] = []  # of files of benchmarks, which are no tests that somebody wrote
        self._collected_by: defaultdict[Any, Counter[str]] = defaultdict(Counter)  # of each worker, if there are several
        self._ran: defaultdict[str, set[Any]] = defaultdict(set)  # by file: the workers that ran tests of it
        self.wrong: dict[str, None] = {}
        self.notes: dict[str, None] = {}
        self.findings: list[Finding] = []
        self.profiles: list[Profile] = []
        self.over: defaultdict[str, list[str]] = defaultdict(list)  # by test: counters above a limit of the package's file
        self.met: set[CounterLimit] = set()  # limits of kernels that were launched
        self.deselected = self.left_out = 0
        self.left: dict[str, int] = {}  # what a quick run left out, by function
        self.pace, self.running, self.out_of_time = Pace(), dict[str, float](), False
        self.ended: dict[str, float] = {}  # tests that were ended so that others had a turn, and the time that they had
        self.announced = False  # whether pytest has collected
        self.stopped = ""
        self.postponed: dict[str, None] = {}
        self._reported: Counter[str] = Counter()
        self._due, self._behind = 0.0, False
        self._begun = ""  # a test that has begun, and of which the host was not told
        self._told_at = 0.0  # when the host was last told of a test

    def on_event(self, event: Event, card: int | None = None) -> None:
        """Process one journal event. `card` is the index of its GPU, if there are several."""
        kind = event["event"]
        self.used[card].note(event)
        self.pace.note(event, event.get(SEAT))
        if kind == "collected":
            self.announced = True
            ids = Counter[str](event["ids"])
            self.collected |= ids  # a new worker announces only what is left
            self._collected_by[event.get(SEAT)] |= ids
            self._loads = list(filter(is_load, self.collected))
            self.total = self.collected.total() - len(self._loads)
            self.deselected = max(self.deselected, int(event.get("deselected", 0)))
            self.left_out = max(self.left_out, int(event.get("left_out", 0)))
            self.left = self.left or dict(event.get("left", {}))
        elif kind == "start":
            self.running[event["id"]] = time.monotonic()
            self._begun = event["id"]
        elif kind in ("finish", "death"):
            case = self._case(event)
            if (over := self.over.pop(case.id, None)) and case.verdict is Verdict.PASSED:
                case = dataclasses.replace(case, verdict=Verdict.FAILED, message=f"gate of counters: {'; '.join(dict.fromkeys(over))}")
            self.running.pop(case.id, None)
            self.ended.pop(case.id, None)
            self._ran[_file_of(case.id)].add(event.get(SEAT))
            # a module that does not import fails in every worker; report it once
            if self.several and (case.id, 0) in self.cases and case.id not in self.collected:
                return
            if card is not None:
                case = dataclasses.replace(case, properties={**case.properties, GPU_PROPERTY: str(card)})
            self._add(case)
            by = case.properties.get(FAILED_PROPERTY, "")
            emit("result", stage="test", id=case.id, verdict=case.verdict.value, message=case.message, failed_by=by)
            self._behind = True
        elif kind == "ready" and "unfinished" in event:
            self.running.pop(event["id"], None)
            self.ended[event["id"]] = max(float(event["unfinished"]), self.ended.get(event["id"], 0.0))
        elif kind == "end":
            self.stopped = str(event.get("stopped") or self.stopped)
        elif kind == "wrong":
            self.wrong[event["reason"]] = None
        elif kind == "finding":
            self._find(event)
        elif kind == "profile":
            found = from_json(Profile, json.dumps({**event["row"], "case": event["id"], "kernel": self._kernel(event["id"])}))
            met = [limit for limit in counter_limits(self.job) if limit.which.covers(found)]
            self.met.update(met)
            self.over[found.case] += filter(None, (limit.broken_by(found) for limit in met))
            if len(self.profiles) < MOST_PROFILES:
                self.profiles.append(found)
            else:
                self.notes[f"counters were kept of the first {MOST_PROFILES} kernels of tests only"] = None
        elif kind == "postponed":
            self.postponed[event["id"]] = None
            self.findings = [found for found in self.findings if found.case != event["id"]]  # its run alone counts
        elif kind == "card":
            self.lease.ask()
        elif kind == "note":
            self.notes[event["text"]] = None
        if self._behind and time.monotonic() > self._due:
            self.write()
        if self._begun and (kind == "idle" or (kind == "start" and time.monotonic() > self._told_at + _TOLD_S)):
            done = len(self.cases) - sum((test, 0) in self.cases for test in self._loads)
            emit("case", stage="test", id=self._begun, done=done, total=self.total)
            self._begun, self._told_at = "", time.monotonic()

    def _add(self, case: CaseResult) -> None:
        """Add a case. Each test collected under its id has a row; further results only replace a row if they are graver."""
        occurrence = min(self._reported[case.id], max(1, self.collected[case.id]) - 1)
        self._reported[case.id] += 1
        known = self.cases.get((case.id, occurrence))
        if known is None or known.verdict.severity < case.verdict.severity:
            self.cases[case.id, occurrence] = case

    def _find(self, event: Event) -> None:
        """Add a finding of the sanitizer. A package can make any number of them."""
        if len(self.findings) < MOST_FINDINGS:
            row = {**event["row"], "case": event["id"], "kernel": self._kernel(event["id"])}
            self.findings.append(Finding(**{**row, "defect": Defect(row["defect"])}))

    def _kernel(self, case: str) -> str:
        file = _file_of(case)
        if file not in self._kernels:
            self._kernels[file] = kernel_name(Path(self.job.kernels, file), self.job)
        return self._kernels[file]

    def _case(self, event: Event) -> CaseResult:
        kernel = self._kernel(event["id"])
        if event["event"] == "death":
            why = event.get("not_run")
            return CaseResult(event["id"], kernel, Verdict(event["verdict"]), message=event["reason"], not_run=NotRun(why) if why else None)
        return CaseResult(
            id=event["id"],
            kernel=kernel,
            verdict=_OUTCOMES[event["outcome"]],
            seconds=event["seconds"],
            message=event["message"],
            detail=event["detail"],
            properties=event.get("properties", {}),
            not_run=NotRun(event["not_run"]) if event.get("not_run") and event["outcome"] == "skipped" else None,
        )

    def never_ran(self, why: str, kind: NotRun = NotRun.STOPPED, ended: bool = True) -> list[str]:
        """Add a row for every collected test without a result, and return their ids.

        Before the collection's end, tests are not known. If pytest has not `ended` by itself, their files get rows then.
        """
        if not self.announced and not ended:
            root, chosen = Path(self.job.kernels), selection_of(self.job)
            benches = [path.relative_to(root).as_posix() for path in find_benches(root, self.job.what.benches)]
            files = [*files_with_tests(self.job), *filter(chosen.looks_into, benches)]
            self.collected.update(path for path in files if (path, 0) not in self.cases)
        missing = [(case_id, n) for case_id, several in self.collected.items() for n in range(several) if (case_id, n) not in self.cases]
        for case_id, n in missing:
            row = {"event": "death", "id": case_id, "verdict": Verdict.NOT_RUN.value, "reason": why, "not_run": kind.value}
            self.cases[case_id, n] = self._case(row)
        return [case_id for case_id, _ in missing]

    def leave_out(self, only_ended: bool = False) -> None:
        """The budget is up, or tests were ended within it: count what was collected and has no result, and say what was running."""
        without = Counter({name: several for name, several in self.collected.items() if (name, 0) not in self.cases})
        slow = set(map(function_of, self.ended))
        left = Counter({name: several for name, several in without.items() if function_of(name) in slow or not only_ended})
        self.out_of_time = bool(left) or not self.announced
        self.collected -= left
        self.left_out += left.total()
        functions = Counter(self.left)
        for name, several in left.items():
            functions[function_of(name)] += several
        self.left = functions
        ended = [f"{name} ({seconds:.0f} s)" for name, seconds in self.ended.items() if name not in self.running]
        if ended:
            self.notes[f"not finished within their share of --budget, and left out: {few(ended)}"] = None
        ran = [f"{name} ({time.monotonic() - since:.0f} s)" for name, since in self.running.items() if name in left]
        if ran:
            self.notes[f"{BUDGET_UP} while this was running, which is left out: {few(ran)}"] = None
        if not self.announced:
            self.notes[f"{BUDGET_UP} before pytest had collected the tests"] = None

    def check_complete(self) -> None:
        """Check, after all workers completed, that every collected test was reported, or that a failure explains why not."""
        if any(option in _COLLECT_ONLY for option in self.job.what.pytest_args):
            return
        self._forget_other_names()
        bad = any(case.verdict not in HARMLESS for case in self.cases.values())
        stopped = f"pytest stopped before this test: {self.stopped}" if self.stopped else "it was collected, and never reported"
        missing = self.never_ran(stopped)
        if missing and not (bad and self.stopped):  # -x and --maxfail also stop pytest, but only after a failure
            why = f"; pytest stopped early: {self.stopped}" if self.stopped else ""
            several = self.collected.total()
            self.wrong[f"{several} tests were collected, {several - len(missing)} of them reported; missing: {few(missing)}{why}"] = None
        if self.cases and not self.collected and any(case.verdict is Verdict.PASSED for case in self.cases.values()):
            self.wrong[f"{len(self.cases)} tests were reported, none was collected"] = None

    def _forget_other_names(self) -> None:
        """Leave out ids that only workers collected which did not run the file: parameters may be random, or made from the time."""
        expected = {file: {name for seat in seats for name in self._collected_by[seat]} for file, seats in self._ran.items()}
        others = [
            name
            for name in self.collected
            if (name, 0) not in self.cases and (file := _file_of(name)) in expected and name not in expected[file]
        ]
        for name in others:
            del self.collected[name]
        if others:
            named = f"{len(others)} test{'s' if len(others) > 1 else ''} of {', '.join(sorted({_file_of(name) for name in others}))}"
            self.notes[f"{named} had other parameters in the process that ran the file: they are random, or made from the time"] = None

    def put_in_order(self) -> None:
        """Sort the cases in pytest's order: several GPUs report them as they finish."""
        place = {case_id: position for position, case_id in enumerate(self.collected)}
        self.cases = dict(sorted(self.cases.items(), key=lambda entry: (place.get(entry[0][0], len(place)), entry[0][1])))

    def write(self) -> None:
        """Replace the JUnit file. This takes longer with more tests, so it may use a twentieth of the time, and a hundredth of a core."""
        started, used = time.monotonic(), time.thread_time()
        sealing.replace(self.folder / "junit.xml", junit_xml(self.job, list(self.cases.values())))
        if self.findings:
            sealing.replace(self.folder / "findings.jsonl", "".join(to_json(found) + "\n" for found in self.findings))
        if self.profiles:
            sealing.replace(self.folder / "profile.jsonl", "".join(to_json(found) + "\n" for found in self.profiles))
        wait = max(20 * (time.monotonic() - started), 100 * (time.thread_time() - used))
        self._due, self._behind = started + wait, False


def _unjudged(results: Results) -> Iterator[str]:
    """Say which limits of counters no kernel was held against."""
    asked = results.job.what.gates.counters if results.job.what.gates else ()
    if asked and not results.job.emulate:
        yield "limits of counters were not judged: only emulated kernels are counted"
    elif not is_narrowed(results.job):
        names = dict.fromkeys(f"{limit.counter} of {', '.join(limit.which.function)}" for limit in asked if limit not in results.met)
        yield from (f"no kernel was launched that the limit of {name} is for" for name in names)


def _file_of(test: str) -> str:
    return test.partition("::")[0]


def verify(job: Job) -> StageReport:
    """Run the package's tests and write `test/junit.xml`."""
    folder = Path(job.output) / Stage.TEST.value
    results = Results(job, folder)
    # Capture only Python's streams. What a GPU's runtime prints before it aborts must reach the log.
    options = ["--capture=sys", *pytest_options(job, folder)]
    command = [sys.executable, "-m", "pytest", "-p", "warpwave.inside.test.pytest_plugin", *options, *test_paths(job)]
    if job.what.passes:
        os.environ["TRITON_ALWAYS_COMPILE"] = "1"
    tell_workers(job)
    why, kind, deaths, ended = "the run was stopped before this test", NotRun.STOPPED, list[Death](), False
    try:
        deaths = _run(job, folder, command, results)
        report_undisturbed(job)
        if deaths and deaths[-1].case is None:
            why = f"pytest stopped early: {deaths[-1].reason}"
        else:
            ended = True
            if results.stopped == BUDGET_UP:
                results.leave_out()
            else:
                if results.ended:
                    results.leave_out(only_ended=True)
                results.check_complete()
            if job.limits.budget:
                results.put_in_order()
    except KeyboardInterrupt:
        if budget_is_up(job):
            report_undisturbed(job)
            results.leave_out()
            results.put_in_order()
            ended = True
            return _report(results, deaths, folder)
        if time_is_up():
            why, kind = "the time was up before this test", NotRun.TIME_UP
        raise
    finally:
        results.lease.give_back()
        results.never_ran(why, kind, ended)
        results.write()
        if kind is NotRun.TIME_UP:
            sealing.close(_report(results, deaths, folder), job)  # the inside adds that the time was up
    return _report(results, deaths, folder)


def _run(job: Job, folder: Path, command: list[str], results: Results) -> list[Death]:
    """Run one pytest over everything, or several that share the files."""
    # With a budget, workers share the functions of a file, too.
    seats = seats_for_tests(job, cards(job), len(files_with_tests(job)) if not job.limits.budget else sys.maxsize)
    regroup(folder, "journal.jsonl", seats)
    if seats:
        results.several = True
        shared = [*command[:3], "-p", "warpwave.inside.multi_gpu.pytest_plugin", *command[3:]]
        deaths = share(job, Stage.TEST, seats, shared, "journal.jsonl", results.on_event, results.lease)
        results.put_in_order()
        return deaths
    journal = Journal(folder / "journal.jsonl")
    return supervise(spawned(command), journal, job.limits.test_s, folder / "log.txt", results.on_event, faults=faults_of(job))


_PYTEST_IS_WRONG = (
    "Its options, its settings or a plugin do not fit this pytest. --pytest-args '-p no:NAME' runs without a plugin, "
    "--pytest-args '-o addopts=' without the options of the package's settings."
)


def _report(results: Results, deaths: list[Death], folder: Path) -> StageReport:
    cases = list(results.cases.values())
    counts = {verdict.value: sum(case.verdict is verdict for case in cases) for verdict in Verdict}
    counts = {verdict: count for verdict, count in counts.items() if count}
    ran = [case for case in cases if case.verdict is not Verdict.NOT_RUN]
    tests = [case for case in cases if case.not_run is not NotRun.EMPTY]
    verdict = worst([Verdict.PASSED if case.verdict is Verdict.XFAILED else case.verdict for case in ran])
    bad = [case for case in ran if case.verdict not in HARMLESS]
    lacking = any(case.not_run in UNCHECKED for case in tests)
    reason = "" if ran else "no test could be checked" if lacking else "every test was skipped" if tests else "no test was found"
    if results.out_of_time and not ran:
        reason = f"{BUDGET_UP} before the first test had ended"
    if not tests and results.stopped:
        reason = f"no test was found; pytest stopped early: {results.stopped}"
    if bad:
        reason = f"{bad[0].id}: {next(iter(bad[0].message.splitlines()), '')}"
    judged = [case for case in cases if case.not_run is NotRun.REQUIREMENT or case in bad]
    about = [case.message for case in judged]
    hint = hint_of(about, root_of(results.job))
    if not tests:
        hint = "pytest collects files called test_*.py below the kernel folder; see test/log.txt."
        if results.out_of_time:
            hint = LONGER_BUDGET
        hint = how_to_run_scripts(results.job) + hint
        if results.deselected:
            hint = f"There are tests ({results.deselected}), and the options that choose tests left out each of them."
    elif any("::" not in case.id and (case.verdict is Verdict.ERROR or case.not_run is NotRun.REQUIREMENT) for case in judged):
        usual = "A module does not import: the environment lacks what it needs, or its code is broken."
        hint = f"{hint or usual} Its traceback is in test/log.txt."
    started = not deaths or deaths[-1].case is not None
    # A conftest.py that lacks a module keeps pytest from all tests, too; that has a row.
    refused = refusal(folder / "log.txt") if not results.announced and not ran and not lacking else ""
    if refused and not started:
        verdict, reason, hint = Verdict.ERROR, f"pytest did not start: {refused}", _PYTEST_IS_WRONG
    elif not started:
        verdict, reason, hint = deaths[-1].verdict, f"pytest: {deaths[-1].reason}", f"The end of {folder.name}/log.txt says why."
        if verdict is Verdict.INFRA:
            reason, hint = deaths[-1].reason, LOST_DEVICE
    elif refused:
        verdict, reason, hint = (
            Verdict.ERROR,
            f"{RAN_NO_TEST}{refused}",
            "An option for pytest is wrong, such as the expression of -k.",
        )
    job, in_part = results.job, {case.id for case in cases if CUT_SHORT in case.properties}
    cut = job.limits.budget if results.out_of_time or results.left_out or in_part else None
    reached = Counter(dict.fromkeys((*(case.id for case in cases if "::" not in case.id), *results.ended, *in_part) if cut else (), 0))
    reached.update(function_of(case.id) for case in cases if cut and "::" in case.id and case.id not in in_part)
    functions = {function_of(case.id) for case in tests if "::" in case.id and not is_load(case.id)}
    untried = {name for name in results.left if "::" in name} - functions
    notes = [*results.notes, *_unjudged(results), *notes_of(results.job, cases, len(results.postponed))]
    report = StageReport(
        Stage.TEST,
        verdict,
        reason=reason[:500],
        hint=hint,
        counts=counts,
        deselected=results.deselected,
        left_out=results.left_out,
        left_out_s=results.pace.estimate(results.left),
        out_of_time=results.out_of_time,
        reached=dict(reached.most_common(MOST_REACHED)),
        functions=len(functions | untried) if results.left_out else 0,
        untried=len(untried) if results.left_out else 0,
        budget_s=cut.seconds if cut else None,
        used_s=round(sum(used.seconds for used in results.used.values()), 3) if job.needs_card else None,
        compiled_here=0 if job.interpret else compiled_kernels() - results.compiled_before,
        notes=tuple(filter(None, [missing_of(about, root_of(results.job)), *notes])),
    )
    return doubted(with_reasons(report, Counter(case.not_run for case in cases if case.not_run)), results.wrong)


def main() -> None:
    """Run the stage's process."""
    job = Job.load(Path(sys.argv[1]))
    forks.shut()
    folder = Path(job.output) / Stage.TEST.value
    with nullcontext() if job.needs_card else temporary_home(folder):
        sealing.close(verify(job), job)


if __name__ == "__main__":
    as_stage(main)
