"""Legs side by side: a process and a log for each, one signal for all, and a leg that fails to start costs the others nothing."""

import io
import json
import os
import signal
import time
from dataclasses import replace

import pytest
from engine_requests import having, make_options
from rich.console import Console

from warpwave.cli.progress import LegsView
from warpwave.config.hosts import Host, Slurm
from warpwave.config.targets import load_targets
from warpwave.engines import waiting
from warpwave.engines.choose import choose_engine
from warpwave.errors import ExitCode, UnreachableError, UsageError
from warpwave.records import Shard, Stage, Verdict
from warpwave.report import make_report
from warpwave.run import attempt as attempt_module
from warpwave.run import legs as leg_process
from warpwave.run import legs as side_by_side
from warpwave.run.legs import Leg, lanes, run_side_by_side

# Stands for the Python of the kernels: has everything, and runs until somebody ends it, or as long as LASTS says.
INSIDE = """#!/bin/sh
[ "$1" = -c ] && { [ $# = 2 ] && echo "{}"; exit 0; }
echo '{"event": "stage", "stage": "test"}'
echo '{"event": "case", "stage": "test", "done": 3, "total": 9, "id": "test_op.py::test_x"}'
exec sleep LASTS
"""


class Watcher(LegsView):
    """Notes what the view is told, and shows it to nobody who looks."""

    def __init__(self, legs, act=None, terminal=False):
        self.out, self.act, self.told = io.StringIO(), act or (lambda leg, what: None), []
        super().__init__(Console(file=self.out, force_terminal=terminal, width=100, height=20), legs)

    def started(self, leg):
        super().started(leg)
        self.told.append((leg.name, "started"))

    def on_event(self, leg, event):
        super().on_event(leg, event)
        self.act(leg, event["event"])

    def ended(self, leg, verdict, reason):
        super().ended(leg, verdict, reason)
        self.told.append((leg.name, verdict))


@pytest.fixture
def legs(tmp_path):
    """Legs of the target cpu by name, whose insides last for the given seconds."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "test_op.py").write_text("def test_x(): pass\n")

    def make(*names, lasts=0, **more):
        python = tmp_path / f"inside-{lasts}"
        python.write_text(INSIDE.replace("LASTS", str(lasts)))
        python.chmod(0o755)
        options = make_options("run-1", tmp_path / "out", package, engine="local", python=str(python), stages=(Stage.TEST,), **more)
        options = having(options, commit="abc", snapshot="0123")
        cpu = load_targets()["cpu"]
        return [
            Leg(replace(cpu, name=name, entry="cpu"), having(options, host=Host(name=name, target="cpu", ssh=f"{name}.example")))
            for name in names
        ]

    return make


def run(legs, watcher=None):
    watcher = watcher or Watcher(legs)
    with watcher:
        records, refused = run_side_by_side([[leg] for leg in legs], watcher)
    return {record.target: record for record in records}, refused, watcher


@pytest.fixture(autouse=True)
def local(monkeypatch):
    """The legs' hosts are other machines by name only; `gone` does not answer."""

    def choose(asked, target, say, host=None):
        if target.name == "gone":
            raise UnreachableError("gone.example does not answer.", "It is switched off.", "Switch it on.")
        if target.name == "wrong":
            raise UsageError("No.", "It cannot be.", "Do not.")
        if target.name == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        say("pending: Priority, estimated 14:05")
        return choose_engine("local", target, say)

    monkeypatch.setattr(attempt_module, "choose_engine", choose)
    monkeypatch.setattr(side_by_side, "take_once", lambda options: None)
    yield
    waiting._state.signals.clear()  # of this process, which lives on


def test_a_leg_that_cannot_start_costs_the_others_nothing(legs):
    """Unreachable is absent with its reason; refused, killed and run are each what they are, in one report with exit code 3."""
    made = legs("fine", "gone", "wrong", "killed")
    records, refused, watcher = run(made)
    report = make_report([made[0].options.where.out], made[0].options.where.out, [leg.name for leg in made], list(records.values()))
    verdicts = {target.target: target.verdict for target in report.comparison.targets}

    assert set(records) == {"fine", "gone"}
    assert (records["gone"].verdict, records["gone"].reason[:28]) == (Verdict.ABSENT, "gone.example does not answer")
    assert [error.happened for error in refused] == ["No."]
    assert verdicts["gone"] is Verdict.ABSENT
    assert verdicts["killed"] is Verdict.INCOMPLETE
    assert "gone is absent (gone.example does not answer" in report.comparison.sentence
    assert report.comparison.exit_code == ExitCode.INFRASTRUCTURE
    assert {"fine": "started", "killed": "incomplete"}.items() <= dict(watcher.told[:4]).items() | dict(watcher.told[4:]).items()


def test_every_leg_has_one_commit_one_snapshot_and_its_host(legs):
    made = legs("left", "right")
    records, _, _ = run(made)
    report = make_report([made[0].options.where.out], made[0].options.where.out, ["left", "right"], list(records.values()))

    assert {(record.commit, record.snapshot) for record in records.values()} == {("abc", "0123")}
    assert [(target.host, target.snapshot) for target in report.comparison.targets] == [("left.example", "0123"), ("right.example", "0123")]
    assert "0123" in (made[0].options.where.out / "comparison.html").read_text()


def test_one_signal_stops_every_leg_and_starts_no_other(legs):
    """Each stops as a run of its own would, its record says so, and nothing is left running."""
    first, second, third = legs("left", "right", "later", lasts=60)
    seen = set()

    def stop(leg, event):
        seen.add(leg.name)
        if len(seen) == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    began = time.monotonic()
    with Watcher([first, second, third], stop) as watcher:
        records, _ = run_side_by_side([[first, third], [second]], watcher)

    assert time.monotonic() - began < 30  # the insides would last for a minute
    assert sorted(record.target for record in records) == ["left", "right"]
    assert all(record.verdict is Verdict.INCOMPLETE and record.exit.interrupted for record in records)
    assert ("later", "started") not in watcher.told
    assert waiting.terminated()


def test_a_leg_ends_with_its_client(legs, tmp_path):
    """If the client is killed, each leg's process gets a signal, stops its kernels and records it."""
    (leg,) = legs("left", lasts=60)
    told = tmp_path / "told"
    client = os.fork()
    if client == 0:
        child = leg_process.LegProcess(leg)
        while not any(kind == leg_process.EVENT for kind, _ in child.read()):
            pass
        told.write_text(str(child.pid))
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(client, 0)
    until = time.monotonic() + 30
    while (record := json.loads((leg.raw / "run.json").read_text()))["exit"] is None or "had ended" in record["reason"]:
        assert time.monotonic() < until
        time.sleep(0.05)

    assert (record["verdict"], record["exit"]["interrupted"]) == ("incomplete", True)


PLACES = {
    "this machine's share its cores and cards": ([None, Host(name="b", target="b", engine="podman")], [[0, 1]]),
    "two machines": ([Host(name="a", target="a", ssh="x"), Host(name="b", target="b", ssh="y"), None], [[0], [1], [2]]),
    "one machine over ssh": ([Host(name="a", target="a", ssh="x"), Host(name="b", target="b", ssh="x")], [[0, 1]]),
    "jobs of one cluster": ([Host(name=name, target=name, ssh="x", slurm=Slurm()) for name in "ab"], [[0], [1]]),
}


@pytest.mark.parametrize("what", PLACES)
def test_what_would_disturb_each_other_runs_in_turn(what, tmp_path):
    """Legs of one machine share a lane; Slurm gives each job cards and cores of its own."""
    hosts, expected = PLACES[what]
    cpu, options = load_targets()["cpu"], make_options("run-1", tmp_path, tmp_path)
    legs = [Leg(replace(cpu, name="abc"[position]), having(options, host=host)) for position, host in enumerate(hosts)]

    assert [[legs.index(leg) for leg in lane] for lane in lanes(legs)] == expected


def test_shards_of_one_leg_run_at_once(tmp_path):
    cpu, host = load_targets()["cpu"], Host(name="a", target="a", ssh="x")
    options = make_options("run-1", tmp_path / "shards" / "1of2", tmp_path, host=host, whole=tmp_path)
    legs = [Leg(replace(cpu, name="a"), having(options, shard=Shard(number, 2))) for number in (1, 2)]

    assert [len(lane) for lane in lanes(legs)] == [1, 1]
    assert [leg.log.name for leg in legs] == ["a-1of2.log", "a-2of2.log"]
