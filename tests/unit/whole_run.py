"""A run with every file that a raw folder can hold. All data is synthetic."""

from __future__ import annotations

from pathlib import Path

from synthetic import compiled, finding, run, sample, write_raw

from warpwave.records import OPEN, CardShare, Gates, Job, Stage, Waiver, Which, to_json


def lines(*entries):
    return "".join(to_json(entry) + "\n" for entry in entries)


WHOLE = run(
    again=(sample(1),),
    launched=(compiled(origin="elsewhere"),),
    shares=(CardShare(Stage.TEST, 0, 3, 1.0), CardShare(Stage.BENCH, 1, 2, 1.0, "lost")),
    findings=(finding(),),
    gates=Gates(OPEN, waivers=(Waiver("spills", "why", Which(("softmax",))),)),
    peers=("torch",),
)
EXTRA = {
    "bench/kernels.jsonl": lines(*WHOLE.launched),
    "test/findings.jsonl": lines(*WHOLE.findings),
    "test/cards.jsonl": lines(WHOLE.shares[0]),
    "bench/cards.jsonl": lines(WHOLE.shares[1]),
}


def write_whole(parent: Path) -> Path:
    """Write its raw folder."""
    made = write_raw(parent / "alpha", WHOLE)
    for name, text in EXTRA.items():
        (made / name).write_text(text)
    stages = tuple(report.stage for report in WHOLE.stages)
    (made / "job.json").write_text(to_json(Job("run-1", "alpha", stages, "/kernels", "/out", gates=WHOLE.gates, peers=WHOLE.peers)))
    return made
