"""What the bench stage has measured, put together as it comes: a line a point, whichever worker it is from, and each point once."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from harness.inside.process import sealing
from harness.inside.process.audit import Event
from harness.inside.process.events import emit
from harness.inside.process.exceptions import doubted, few
from harness.inside.process.supervise import LOST_DEVICE, Death
from harness.records import Sample, Stage, StageReport, Verdict, to_json, worst


class Sink:
    """The files of one sweep: `name` for the points and, unless it is the second of an A/A run, ceilings and compiled kernels."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name, self.first = folder, name, name == "samples.jsonl"
        self.pending: dict[str, Sample] = {}
        self.verdicts: list[Verdict] = []
        self.reasons: list[str] = []
        self.wrong: dict[str, None] = {}
        self._lines: list[tuple[str, str]] = []  # of whom each line tells, and the line
        self._told: dict[str, int] = {}
        for old in (name, "ceilings.jsonl", "kernels.jsonl") if self.first else (name,):
            sealing.remove(folder / old)  # of a run that is taken up again: the journal tells all of it

    def on_event(self, event: Event, card: int = 0) -> None:
        """Progress out, results to disk."""
        kind = event["event"]
        if kind == "collected":
            self.pending.update({identity: Sample(**fields, verdict=Verdict.NOT_RUN) for identity, fields in event["points"].items()})
        elif kind == "start":
            emit("case", stage="bench", id=event["id"], done=len(self.verdicts), total=len(self.pending) or None)
        elif kind == "kernel" and self.first:
            # Each card's worker compiles what its points launch: the same comes once, whatever it was launched by.
            same = json.dumps({**event["row"], "origin": "", "seconds": 0.0}, sort_keys=True)
            if self._is_new(f"kernel {same}", card):
                self._append("kernels.jsonl", json.dumps(event["row"]))
        elif kind == "finish" and "ceiling" in event:
            if self.first:
                self._append("ceilings.jsonl", event["ceiling"])
        elif kind in ("finish", "death") and self._is_new(event["id"], card):
            self._point(event, card)
        elif kind == "wrong":
            self.wrong[event["reason"]] = None

    def report(self, deaths: list[Death]) -> StageReport:
        """How the sweep ended."""
        if self.verdicts:
            self._put_in_order()
        counts = {verdict.value: self.verdicts.count(verdict) for verdict in Verdict if verdict in self.verdicts}
        if deaths and deaths[-1].case is None:
            hint = LOST_DEVICE if deaths[-1].verdict is Verdict.INFRA else "See bench/log.txt."
            report = StageReport(Stage.BENCH, deaths[-1].verdict, reason=deaths[-1].reason, hint=hint, counts=counts)
        else:
            self._check_complete()
            # A point that skips itself is no failure.
            ran: list[Verdict] = [verdict for verdict in self.verdicts if verdict is not Verdict.NOT_RUN]
            report = StageReport(Stage.BENCH, worst(ran), reason=self.reasons[0][:500] if self.reasons else "", counts=counts)
        return doubted(report, self.wrong)

    def _check_complete(self) -> None:
        """After workers that have all got to their end: every point that was announced was reported."""
        missing = [identity for identity in self.pending if identity not in self._told]
        if missing:
            several = len(self.pending)
            told = f"{several} points were announced, {several - len(missing)} of them reported"
            self.wrong[f"{told}; missing: {few(missing)}"] = None

    def _point(self, event: Event, card: int) -> None:
        line = event.get("sample")
        if line is None:
            identity = event["id"]
            base = self.pending.get(identity) or Sample(identity, identity.split()[0], "", {}, 0, Verdict.ERROR)
            line = to_json(dataclasses.replace(base, device=card, verdict=Verdict(event["verdict"]), reason=event["reason"]))
        else:
            self._check_planned(event, json.loads(line))
        self.verdicts.append(Verdict(event["verdict"]))
        if event["reason"] and self.verdicts[-1] is not Verdict.NOT_RUN:
            self.reasons.append(f"{event['id']}: {event['reason']}")
        self._lines.append((event["id"], line))
        self._append(self.name, line)

    def _check_planned(self, event: Event, sample: dict[str, object]) -> None:
        """A sample is that of the point that it was announced as, and as good as its event says."""
        planned = self.pending.get(event["id"])
        if planned and (sample.get("case"), sample.get("provider")) != (planned.case, planned.provider):
            self.wrong[f"{event['id']}: its sample is that of {sample.get('case')} [{sample.get('provider')}]"] = None
        if sample.get("verdict", event["verdict"]) != event["verdict"]:
            self.wrong[f"{event['id']}: its sample is {sample['verdict']}, its worker said {event['verdict']}"] = None

    def _put_in_order(self) -> None:
        """The authors' order, whose first provider is the kernel's own: told first is whoever is quietest, or on the fastest card."""
        place = {identity: position for position, identity in enumerate(self.pending)}
        told = sorted(self._lines, key=lambda entry: place.get(entry[0], len(place)))
        sealing.replace(self.folder / self.name, "".join(line + "\n" for _, line in told))

    def _is_new(self, told: str, card: int) -> bool:
        """Whether no other card has told it: a bench that does not load does not on any."""
        return self._told.setdefault(told, card) == card

    def _append(self, name: str, line: str) -> None:
        sealing.append(self.folder / name, line)
