"""The rows of the test stage: a result for every collected test, whatever happens to the processes that run them."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, Union

from harness.inside.benchmarks import find_benches, kernel_name
from harness.inside.environment.triton_cache import compiled_kernels
from harness.inside.multi_gpu.share import SEAT
from harness.inside.process import sealing
from harness.inside.process.audit import Event
from harness.inside.process.events import emit
from harness.inside.process.exceptions import few
from harness.inside.process.lease import Lease
from harness.inside.process.used import Used
from harness.inside.test.junit import junit_xml
from harness.inside.test.settings import files_with_tests, selection_of
from harness.records import (
    GPU_PROPERTY,
    HARMLESS,
    MOST_FINDINGS,
    CaseResult,
    Defect,
    Finding,
    Job,
    NotRun,
    Stage,
    Verdict,
    to_json,
)

_OUTCOMES = {
    "passed": Verdict.PASSED,
    "failed": Verdict.FAILED,
    "error": Verdict.ERROR,
    "skipped": Verdict.NOT_RUN,
    "xfailed": Verdict.XFAILED,
    "invalid": Verdict.INVALID,
    "timeout": Verdict.TIMEOUT,
}
_COLLECT_ONLY = ("--collect-only", "--co", "--collectonly")


class Results:
    """The cases so far, and the JUnit file that is updated with them. Each collected test has a row, even if ids repeat."""

    def __init__(self, job: Job, folder: Path) -> None:
        self.job, self.folder, self.several = job, folder, False
        self.lease = Lease(job, Stage.TEST)
        self.used, self.compiled_before = defaultdict[Union[int, None], Used](Used), compiled_kernels()
        self.cases: dict[tuple[str, int], CaseResult] = {}
        self.collected: Counter[str] = Counter()
        self._collected_by: defaultdict[Any, Counter[str]] = defaultdict(Counter)  # of each worker, if there are several
        self._ran: defaultdict[str, set[Any]] = defaultdict(set)  # by file: the workers that ran tests of it
        self.wrong: dict[str, None] = {}
        self.notes: dict[str, None] = {}
        self.findings: list[Finding] = []
        self.deselected = self.left_out = 0
        self.announced = False  # whether pytest has collected
        self.stopped = ""
        self.postponed: dict[str, None] = {}
        self._reported: Counter[str] = Counter()
        self._due, self._behind = 0.0, False

    def on_event(self, event: Event, card: int | None = None) -> None:
        """Process one journal event. `card` is the index of its GPU, if there are several."""
        kind = event["event"]
        self.used[card].note(event)
        if kind == "collected":
            self.announced = True
            self.collected |= Counter(event["ids"])  # a new worker announces only what is left
            self._collected_by[event.get(SEAT)] |= Counter(event["ids"])
            self.deselected = max(self.deselected, int(event.get("deselected", 0)))
            self.left_out = max(self.left_out, int(event.get("left_out", 0)))
        elif kind == "start":
            emit("case", stage="test", id=event["id"], done=len(self.cases), total=self.collected.total())
        elif kind in ("finish", "death"):
            case = self._case(event)
            self._ran[_file_of(case.id)].add(event.get(SEAT))
            # a module that does not import fails in every worker; report it once
            if self.several and (case.id, 0) in self.cases and case.id not in self.collected:
                return
            if card is not None:
                case = dataclasses.replace(case, properties={**case.properties, GPU_PROPERTY: str(card)})
            self._add(case)
            emit("result", stage="test", id=case.id, verdict=case.verdict.value, message=case.message)
            self._behind = True
        elif kind == "end":
            self.stopped = str(event.get("stopped") or self.stopped)
        elif kind == "wrong":
            self.wrong[event["reason"]] = None
        elif kind == "finding":
            self._find(event)
        elif kind == "postponed":
            self.postponed[event["id"]] = None
        elif kind == "card":
            self.lease.ask()
        elif kind == "note":
            self.notes[event["text"]] = None
        if self._behind and time.monotonic() > self._due:
            self.write()

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
        return kernel_name(Path(self.job.kernels, case.split("::")[0]), self.job)

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
            benches = [path.relative_to(root).as_posix() for path in find_benches(root, self.job.benches)]
            files = [*files_with_tests(self.job), *filter(chosen.looks_into, benches)]
            self.collected.update(path for path in files if (path, 0) not in self.cases)
        missing = [(case_id, n) for case_id, several in self.collected.items() for n in range(several) if (case_id, n) not in self.cases]
        for case_id, n in missing:
            row = {"event": "death", "id": case_id, "verdict": Verdict.NOT_RUN.value, "reason": why, "not_run": kind.value}
            self.cases[case_id, n] = self._case(row)
        return [case_id for case_id, _ in missing]

    def check_complete(self) -> None:
        """Check, after all workers completed, that every collected test was reported, or that a failure explains why not."""
        if any(option in _COLLECT_ONLY for option in self.job.pytest_args):
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
        """Replace the JUnit file. This takes longer with more tests, so it may use at most a twentieth of the time."""
        started = time.monotonic()
        sealing.replace(self.folder / "junit.xml", junit_xml(self.job, list(self.cases.values())))
        if self.findings:
            sealing.replace(self.folder / "findings.jsonl", "".join(to_json(found) + "\n" for found in self.findings))
        self._due, self._behind = started + 20 * (time.monotonic() - started), False


def _file_of(test: str) -> str:
    return test.partition("::")[0]
