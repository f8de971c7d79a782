"""Legs on a real Slurm: two partitions, a pending job, and what Slurm, an operator or a user can do to a job."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import own_slurm
import pytest
from own_slurm import Beside, Client, make_runs

from warpwave.collect import collect
from warpwave.config.hosts import Slurm
from warpwave.errors import UsageError
from warpwave.records import Verdict
from warpwave.run.attempt import worth_another

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(own_slurm.missing()), reason=own_slurm.missing())]
OCCUPY = ("sbatch", "--parsable", "--wrap=sleep 60", "--output=/dev/null")
NO_CARD = Slurm(partition="h100", gpus=0)
WAIT = {"MODE": "wait"}


@pytest.fixture(scope="module")
def cluster():
    with own_slurm.running() as own:
        yield own


@pytest.fixture(scope="module")
def runs(cluster, tmp_path_factory):
    return make_runs(tmp_path_factory.mktemp("slurm"))


@pytest.fixture(scope="module", autouse=True)
def slow(runs):
    """What takes a while runs beside the other tests: two real legs on two partitions, and a job at its time limit."""
    real = {"python": sys.executable, "environment": {"A_SECRET": "$(touch pwned)'\"\n"}}
    legs = [
        *runs.leg("limit", Slurm(partition="h100", gpus=0, time="00:01:00"), environment=WAIT),
        *runs.leg("one", Slurm(partition="h100", gres="gpu:h100:1"), **real),
        *runs.leg("two", Slurm(partition="mi300x", gres="gpu:mi300x:1"), **real),
    ]
    return {leg.name: Beside(lambda leg=leg: runs.run(leg)) for leg in legs}


@pytest.fixture
def running(cluster, runs):
    """Start a leg that waits, and return its thread and its job once it works."""

    def start(name, slurm=NO_CARD, **more):
        (leg,) = runs.leg(name, slurm, environment=WAIT, **more)
        beside = Beside(lambda: runs.run(leg))
        job = runs.job(name)
        runs.wait_until(lambda: runs.seen(name))
        return leg, beside, job

    return start


def test_a_job_that_somebody_cancels_is_infra_and_goes_on_with_resume(running, cluster, runs):
    leg, beside, job = running("cancelled")
    cluster.command("scancel", job)
    record = beside.outcome()

    assert (record.verdict, record.reason) == (Verdict.INFRA, f"Slurm job {job} was cancelled by someone else (state CANCELLED)")
    assert "--resume" in record.hint
    assert not worth_another(record, leg.raw)
    assert (leg.raw / "journal").read_text() == "one\n"

    (again,) = runs.leg("cancelled", NO_CARD, environment=WAIT, resume=True)
    assert runs.run(again).verdict is Verdict.PASSED
    assert (leg.raw / "journal").read_text() == "one\none\n"


def test_a_waiting_job_is_shown_and_ctrl_c_cancels_it(cluster, runs):
    blocker = cluster.command(*OCCUPY, "--partition=mi300x", "--gres=gpu:mi300x:1", "--time=5")
    try:
        (leg,) = runs.leg("waiting", Slurm(partition="mi300x", gres="gpu:mi300x:1"))
        client = Client(leg)
        client.wait_for(", estimated ")
        record = client.ends(signal.SIGINT)
    finally:
        cluster.command("scancel", blocker)

    assert (record.verdict, record.exit.interrupted) == (Verdict.INCOMPLETE, True)
    assert cluster.command("squeue", "-h", "-o", "%i", "--name=warpwave-run-waiting-waiting") == ""


def test_ctrl_c_lets_a_running_job_write_its_results(cluster, runs):
    (leg,) = runs.leg("stopped", NO_CARD, environment=WAIT)
    client = Client(leg)
    runs.wait_until(lambda: runs.seen("stopped"))
    record = client.ends(signal.SIGINT)

    assert (record.verdict, record.exit.interrupted, record.exit.code) == (Verdict.INCOMPLETE, True, 130)
    assert (leg.raw / "written-on-stop").exists()
    assert cluster.command("squeue", "-h", "-o", "%i", "--name=warpwave-run-stopped-stopped") == ""


@pytest.mark.parametrize("moment", ["running", "done"])
def test_a_later_client_finds_the_job_of_a_killed_one(moment, cluster, runs):
    """The job goes on. If it has ended in the meantime, its results are collected, and nothing runs again."""
    (leg,) = runs.leg(moment, NO_CARD, environment=WAIT)
    client = Client(leg)
    runs.wait_until(lambda: runs.seen(moment))
    client.ends(signal.SIGKILL)
    if moment == "running":
        Beside(lambda: (runs.wait_for("running: Slurm job"), runs.release(moment)))
    else:
        runs.release(moment)
        runs.wait_until(lambda: not cluster.command("squeue", "-h", "-o", "%i", "--name", f"warpwave-run-{moment}-{moment}"))
    (again,) = runs.leg(moment, NO_CARD, environment=WAIT, resume=True)
    record = runs.run(again)

    assert record.verdict is Verdict.PASSED, record.reason
    assert (leg.raw / "journal").read_text() == "one\n"
    assert any(f"{moment}: found Slurm job" in line for line in runs.said)


def test_a_preempted_job_gets_a_second_attempt(running, cluster):
    _, beside, job = running("preempted", Slurm(partition="h100", gres="gpu:h100:1"))
    urgent = cluster.command(*OCCUPY, "--partition=urgent", "--gres=gpu:h100:1", "--time=5")
    record = beside.outcome(but=lambda: cluster.command("scancel", urgent))

    assert record.verdict is Verdict.PASSED
    assert [each.reason for each in record.attempts] == [
        f"Slurm preempted job {job} (state PREEMPTED): a job of higher priority took its place on warp"
    ]


def test_a_controller_that_restarts_costs_nothing(running, cluster, runs):
    _, beside, _ = running("restarted")
    cluster.stop_controller()
    runs.release("restarted")
    cluster.start_controller()

    assert beside.outcome().verdict is Verdict.PASSED


def test_a_controller_that_does_not_answer_is_infra(cluster, runs):
    cluster.stop_controller()
    try:
        record = runs.run(runs.leg("silent", NO_CARD)[0])
    finally:
        cluster.start_controller()

    assert record.verdict is Verdict.INFRA
    assert "Unable to contact slurm controller" in record.reason
    assert "scontrol ping" in record.hint


@pytest.mark.parametrize(
    ("slurm", "words"),
    [
        (Slurm(partition="nope"), "Invalid partition name"),
        (Slurm(partition="h100;touch pwned"), "Invalid partition name"),
        (Slurm(partition="$(touch pwned)"), "Invalid partition name"),
        (Slurm(partition="h100", gres="gpu:b200:1"), "Requested node configuration is not available"),
        (Slurm(partition="h100", gpus=0, time="10-00:00:00"), "could never start (Partition"),
        (Slurm(partition="h100", gpus=0, options=("--no-such-option=`touch pwned`",)), "unrecognized option"),
    ],
)
def test_what_slurm_does_not_have_is_the_users_mistake(slurm, words, cluster, runs):
    with pytest.raises(UsageError) as caught:
        runs.run(runs.leg(f"mistake{abs(hash(slurm))}", slurm)[0])

    assert words in caught.value.happened
    assert "hosts.yml" in caught.value.remedy


def test_each_shard_is_a_job_with_a_folder_of_its_own(cluster, runs):
    legs = runs.leg("shards", NO_CARD, shards=3)
    clients = [Client(leg) for leg in legs]
    records = [client.ends() for client in clients]

    assert [record.verdict for record in records] == [Verdict.PASSED] * 3
    jobs = [record.environment.options["slurm"]["job"] for record in records]
    assert len(set(jobs)) == 3
    assert not (runs.folder / "shards" / "slurm").exists()


def test_files_reach_a_node_without_a_shared_file_system(cluster, runs):
    """They are broadcast into the running job, which keeps its results until they are collected."""
    (leg,) = runs.leg("sbcast", Slurm(partition="h100", gpus=0, stage="sbcast"))
    record = runs.run(leg)

    assert record.verdict is Verdict.PASSED, record.reason
    assert (leg.raw / "journal").read_text() == "one\n"
    runs.wait_until(lambda: not Path("/tmp/warpwave-run-sbcast-sbcast").exists())


def test_kernels_run_in_the_interpreter_on_two_partitions(slow, runs):
    records = [slow[name].outcome() for name in ("one", "two")]

    assert [record.verdict for record in records] == [Verdict.PASSED] * 2
    assert [record.environment.weakened for record in records] == [("container=none",)] * 2
    cases = [case for name in ("one", "two") for case in collect(runs.folder / name / "raw" / name).cases]
    assert [case.properties["cards"] for case in cases] == ["0/0", "1/1"]


def test_a_time_limit_is_infra_in_slurms_words(slow, runs):
    record = slow["limit"].outcome()

    assert (record.verdict, record.exit.timed_out) == (Verdict.INFRA, False)
    assert "at its time limit of 1:00" in record.reason
    assert "slurm.time" in record.hint
    assert (runs.folder / "limit" / "raw" / "limit" / "written-on-stop").exists()


def test_a_job_whose_node_fails_gets_a_second_attempt(running, cluster):
    _, beside, job = running("node")
    cluster.command("scontrol", "update", "NodeName=warp", "State=DOWN", "Reason=test")
    cluster.command("scontrol", "update", "NodeName=warp", "State=RESUME")
    record = beside.outcome()

    assert record.verdict is Verdict.PASSED
    assert [each.reason for each in record.attempts] == [f"the node failed under Slurm job {job} on warp (state NODE_FAIL)"]


def test_nothing_of_the_caller_reaches_a_job_and_nothing_was_expanded(runs):
    seen = json.loads((runs.folder / "stopped" / "raw" / "stopped" / "seen.json").read_text())

    assert "A_TOKEN_OF_THE_CALLER" not in seen
    assert not list(runs.folder.rglob("pwned"))


def test_everything_is_cleaned_up(slow, cluster, runs):
    for leg in slow.values():
        leg.outcome()
    runs.wait_until(lambda: cluster.command("squeue", "-h") == "")
    assert [path.parent.name for path in runs.folder.glob("*/slurm")] == []


# Slurm as sites have it: an sbatch that talks, a full shared disk, shards of which only a part works.


def wrap(monkeypatch, folder: Path, program: str, text: str) -> None:
    """Put a site's own version of a program before the real one, which is `$real` in it."""
    path = folder / "bin" / program
    path.parent.mkdir()
    path.write_text(f"#!/bin/bash\nreal={shutil.which(program)}\n{text}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")


def test_an_sbatch_that_talks_submits_one_job(runs, cluster, tmp_path, monkeypatch):
    """Its id is found between greetings, before and after; nothing is left in the queue."""
    text = 'echo "Your project has 7 hours left"; echo "sbatch: lua: hello" >&2; "$real" "$@" || exit; echo "2 jobs of 100 are yours"'
    wrap(monkeypatch, tmp_path, "sbatch", text)
    (leg,) = runs.leg("talks", NO_CARD)

    assert runs.run(leg).verdict is Verdict.PASSED
    assert cluster.command("squeue", "-h", "-o", "%i") == ""


def test_a_full_shared_disk_is_said_and_resumed(runs, tmp_path):
    full = tmp_path / "full"
    full.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(full)], check=True)
    try:
        (leg,) = runs.leg("full", Slurm(partition="h100", gpus=0, folder=str(full)))
        record = runs.run(leg)
        assert record.verdict is Verdict.INFRA
        assert f"could not be written to {full}" in record.reason
        assert "No space left on device" in record.reason
        assert "--resume" in record.hint
        assert list(full.iterdir()) == []

        subprocess.run(["mount", "-o", "remount,size=64m", str(full)], check=True)
        (leg,) = runs.leg("full", Slurm(partition="h100", gpus=0, folder=str(full)), resume=True)
        assert runs.run(leg).verdict is Verdict.PASSED
    finally:
        subprocess.run(["umount", "-l", str(full)], check=True)
