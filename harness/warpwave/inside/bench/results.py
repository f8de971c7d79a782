"""Collect what the bench stage measures: one line per point, whichever worker measured it, each point once."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from pathlib import Path
from typing import Any

from warpwave.inside.bench.timing import Timing
from warpwave.inside.benchmarks import Point
from warpwave.inside.facts.device import trouble
from warpwave.inside.multi_gpu.ledger import own_index
from warpwave.inside.process import sealing
from warpwave.inside.process.journal import Event, Journal, emit
from warpwave.inside.process.lease import Lease
from warpwave.inside.process.outcomes import doubted, few
from warpwave.inside.process.supervise import LOST_DEVICE, Death
from warpwave.inside.scripts.script import Call
from warpwave.records import BUDGET_UP, Sample, Stage, StageReport, Verdict, to_json, worst

MOST_FUNCTIONS = 100  # of one point


class Sink:
    """The files of one sweep: `name` for the points, and in the first pass of an A/A run also ceilings and compiled kernels."""

    def __init__(self, folder: Path, name: str, lease: Lease | None = None) -> None:
        self.folder, self.name, self.first, self.lease = folder, name, name == "samples.jsonl", lease
        self.used_s = 0.0  # the time for which a device was busy with what was timed
        self.pending: dict[str, Sample] = {}
        self.verdicts: list[Verdict] = []
        self.reasons: list[str] = []
        self.wrong: dict[str, None] = {}
        self._lines: list[tuple[str, str]] = []  # the point's id, and the line
        self._reporters: dict[str, int] = {}
        self.left_out: list[str] = []
        self.out_of_time, self._began = False, time.monotonic()
        for old in (name, "ceilings.jsonl", "kernels.jsonl") if self.first else (name,):
            sealing.remove(folder / old)  # from an interrupted run; the journal holds everything

    def on_event(self, event: Event, on: int | None = None) -> None:
        """Emit progress and write results. `on` is the index of the worker's GPU, if there are several."""
        card = on or 0
        kind = event["event"]
        self.used_s += event.get("timed_s", 0.0)
        if kind == "card" and self.lease:
            self.lease.ask()
        if kind == "collected":
            self.pending.update({identity: Sample(**fields, verdict=Verdict.NOT_RUN) for identity, fields in event["points"].items()})
        elif kind == "start":
            emit("case", stage="bench", id=event["id"], done=len(self.verdicts), total=len(self.pending) or None)
        elif kind == "kernel" and self.first:
            # Each GPU's worker compiles what its points launch. Write equal kernels once, whatever launched them.
            same = json.dumps({**event["row"], "origin": "", "seconds": 0.0}, sort_keys=True)
            if self._is_new(f"kernel {same}", card):
                sealing.append(self.folder / "kernels.jsonl", json.dumps(event["row"]))
        elif kind == "finish" and "ceiling" in event:
            if self.first:
                sealing.append(self.folder / "ceilings.jsonl", event["ceiling"])
        elif kind in ("finish", "death") and self._is_new(event["id"], card):
            self._point(event, card)
        elif kind == "wrong":
            self.wrong[event["reason"]] = None

    def leave_out(self) -> None:
        """The budget is up: give each point that was announced and not measured a row that says so."""
        self.left_out = [identity for identity in self.pending if identity not in self._reporters]
        for identity in self.left_out:
            self.on_event({"event": "finish", "id": identity, "verdict": Verdict.NOT_RUN.value, "reason": f"{BUDGET_UP} before this point"})
        self.out_of_time = True

    def report(self, deaths: list[Death]) -> StageReport:
        """Return the stage's report at the end of the sweep."""
        if self.verdicts:  # they arrived in order of completion. In the authors' order, the kernel's own provider comes first.
            place = {identity: position for position, identity in enumerate(self.pending)}
            lines = sorted(self._lines, key=lambda entry: place.get(entry[0], len(place)))
            sealing.replace(self.folder / self.name, "".join(line + "\n" for _, line in lines))
        counts = {verdict.value: self.verdicts.count(verdict) for verdict in Verdict if verdict in self.verdicts}
        if deaths and deaths[-1].case is None:
            hint = LOST_DEVICE if deaths[-1].verdict is Verdict.INFRA else "See bench/log.txt."
            report = StageReport(Stage.BENCH, deaths[-1].verdict, reason=deaths[-1].reason, hint=hint, counts=counts)
        else:
            # All workers have completed, so every announced point must have been reported.
            if missing := [identity for identity in self.pending if identity not in self._reporters]:
                several = len(self.pending)
                counted = f"{several} points were announced, {several - len(missing)} of them reported"
                self.wrong[f"{counted}; missing: {few(missing)}"] = None
            # A point that skips itself is not a failure.
            ran: list[Verdict] = [verdict for verdict in self.verdicts if verdict is not Verdict.NOT_RUN]
            report = StageReport(Stage.BENCH, worst(ran), reason=self.reasons[0][:500] if self.reasons else "", counts=counts)
        report = dataclasses.replace(report, used_s=round(self.used_s, 3), left_out=len(self.left_out), out_of_time=self.out_of_time)
        if self.out_of_time:
            named = f": {few(self.left_out)}" if self.left_out else ""
            took, measured = time.monotonic() - self._began, len(self.verdicts) - len(self.left_out)
            lasts = round(took * len(self.left_out) / measured, 1) if measured and self.left_out else None
            report = dataclasses.replace(report, left_out_s=lasts, notes=(f"{BUDGET_UP} before every point was measured{named}",))
        return doubted(report, self.wrong)

    def _point(self, event: Event, card: int) -> None:
        line, identity = event.get("sample"), event["id"]
        planned = self.pending.get(identity)
        if line is None:
            base = planned or Sample(identity, identity.split()[0], "", {}, 0, Verdict.ERROR)
            line = to_json(dataclasses.replace(base, device=card, verdict=Verdict(event["verdict"]), reason=event["reason"]))
        else:
            sample = json.loads(line)
            if planned and (sample.get("case"), sample.get("provider")) != (planned.case, planned.provider):
                self.wrong[f"{identity}: its sample is that of {sample.get('case')} [{sample.get('provider')}]"] = None
            if sample.get("verdict", event["verdict"]) != event["verdict"]:
                self.wrong[f"{identity}: its sample is {sample['verdict']}, its worker said {event['verdict']}"] = None
        self.verdicts.append(Verdict(event["verdict"]))
        if event["reason"] and self.verdicts[-1] is not Verdict.NOT_RUN:
            self.reasons.append(f"{identity}: {event['reason']}")
        self._lines.append((identity, line))
        sealing.append(self.folder / self.name, line)

    def _is_new(self, identity: str, card: int) -> bool:
        """Return whether no other GPU has reported this. A bench that does not load fails on all GPUs alike."""
        return self._reporters.setdefault(identity, card) == card


# Make samples: the fields that a point has before it is measured, and those that its timing adds.


def fields_of(measured: Point | Call) -> dict[str, Any]:
    """Return the fields of a sample that are known before it is measured. The unit of a call in a script is that of `do_bench`."""
    names = ("case", "kernel", "provider", "params")
    of_kind = {"unit": "ms", "source": measured.source} if isinstance(measured, Call) else {"unit": measured.unit}
    return {**{name: getattr(measured, name) for name in names}, **of_kind, "device": own_index()}


_AS_TIMED = "rounds discarded late quiet timer flush_bytes cache_bytes warmup host_ms graph_ms argument_bytes tuned"


def with_timing(sample: Sample, timing: Timing) -> Sample:
    """Add the raw timings to a sample. The bytes that the author counted follow from GB/s and the time it was computed from."""
    in_gbps = sample.unit.replace(" ", "").lower() == "gb/s" and sample.value is not None
    same: dict[str, Any] = {name: getattr(timing, name) for name in _AS_TIMED.split()}
    return dataclasses.replace(
        sample,
        **same,
        median_ms=timing.median_ms,
        p20_ms=timing.quantile_ms(0.2),
        p80_ms=timing.quantile_ms(0.8),
        times_ms=tuple(round(time_ms, 6) for time_ms in timing.times_ms),  # to the nanosecond; events resolve less
        launched=tuple(dict.fromkeys((*sample.launched, *(timing.launched or ()))))[:MOST_FUNCTIONS],
        launches_noted=sample.launches_noted or timing.launched is not None,
        bytes_moved=round(sample.value * timing.returned_ms * 1e6) if in_gbps and sample.value else None,
    )


def finish(journal: Journal, identity: str, sample: Sample, **more: object) -> None:
    """Record a sample. If the device does not answer any more, end this worker: the next one continues behind this point."""
    poisoned = sample.verdict is not Verdict.PASSED and bool(trouble())
    fields = {"id": identity, **more, "verdict": sample.verdict.value, "reason": sample.reason, "sample": to_json(sample)}
    journal.write("poisoned" if poisoned else "finish", **fields)
    if poisoned:
        os._exit(1)


def verdict_of(error: Exception) -> Verdict:
    """Return what an exception makes of a point."""
    return Verdict.OOM if type(error).__name__ == "OutOfMemoryError" else Verdict.ERROR


def finite(value: object) -> float | None:
    """Return a number that JSON can hold, or None."""
    number = float(value) if isinstance(value, (int, float)) else None
    return number if number is not None and abs(number) < float("inf") else None
