"""Slurm from a machine that is no login node: its commands over a real ssh server, files and results too."""

import os
from dataclasses import replace

import own_slurm
import own_sshd
import pytest
from own_slurm import Beside, make_runs

from warpwave.collect import collect
from warpwave.config.hosts import Slurm
from warpwave.engines.slurm import engine
from warpwave.engines.slurm.engine import ask, connect
from warpwave.errors import InfrastructureError, UnreachableError
from warpwave.records import Verdict

WHY = own_slurm.missing() or own_sshd.missing()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(WHY), reason=WHY)]
NO_CARD = Slurm(partition="h100", gpus=0)


@pytest.fixture(scope="module")
def login():
    """A login node: Slurm's configuration is known there, and not here."""
    cluster, server = own_slurm.OwnSlurm(), own_sshd.OwnSshd()
    try:
        cluster.start()
        server.start(f"SetEnv SLURM_CONF={cluster.environment['SLURM_CONF']}")
        server.cluster = cluster
        yield server
    finally:
        server.stop()
        cluster.stop()


@pytest.fixture(scope="module")
def runs(login, tmp_path_factory):
    return make_runs(tmp_path_factory.mktemp("login"))


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """The shared file system: a folder whose name no shell may read."""
    folder = tmp_path_factory.mktemp("shared") / "a 'b' $(touch pwned)"
    folder.mkdir()
    return folder


@pytest.fixture
def there(login, shared):
    """What hosts.yml says of a leg on the login node."""
    return {"ssh": "card", "ssh_config": login.config}


def on(shared, slurm=NO_CARD):
    return replace(slurm, folder=str(shared))


def test_a_leg_runs_through_a_login_node_and_leaves_nothing_there(runs, shared, there):
    """What comes back is distrusted: no link, and no record that only this machine writes."""
    (leg,) = runs.leg("far", on(shared), environment={"MODE": "wait"}, **there)
    beside = Beside(lambda: runs.run(leg))
    runs.wait_until(lambda: list(shared.glob("*/far/results/seen.json")))
    results = shared / "warpwave-run-far" / "far" / "results"
    (results / "passwd").symlink_to("/etc/passwd")
    (results / "run.json").write_text('{"verdict": "failed"}')
    (results / "release").touch()
    record = beside.outcome()

    assert record.verdict is Verdict.PASSED, record.reason
    assert (leg.raw / "journal").read_text() == "one\n"
    assert not os.path.lexists(leg.raw / "passwd")
    assert collect(leg.raw).record == record
    assert list(shared.iterdir()) == []
    assert not (leg.options.where.out / "slurm").exists()


def test_a_connection_that_breaks_loses_nothing(runs, shared, there, login, monkeypatch):
    """The job goes on meanwhile. Its output and results arrive as soon as the login node is back."""
    monkeypatch.setattr(engine, "_LONGEST_S", 0.5)
    (leg,) = runs.leg("broken", on(shared), environment={"MODE": "wait"}, **there)
    beside = Beside(lambda: runs.run(leg))
    runs.wait_for("broken: Slurm job")
    runs.wait_until(lambda: list(shared.glob("*/broken/results/seen.json")))
    login.end()
    (shared / "warpwave-run-broken" / "broken" / "results" / "release").touch()
    runs.wait_for("broken: card cannot be reached over ssh")
    login.start(f"SetEnv SLURM_CONF={login.cluster.environment['SLURM_CONF']}")

    assert beside.outcome().verdict is Verdict.PASSED


def test_a_question_runs_where_the_card_is(runs, there):
    (leg,) = runs.leg("asked", Slurm(partition="mi300x", gres="gpu:mi300x:1"), **there)

    assert ask(leg.options.where.host, ["sh", "-c", 'echo "$ROCR_VISIBLE_DEVICES $SLURM_JOB_PARTITION"'], 10.0).text == "1 mi300x\n"
    with pytest.raises(InfrastructureError, match="nvalid partition"):
        ask(replace(leg.options.where.host, slurm=Slurm(partition="nope")), ["true"], 10.0)


def test_a_login_node_that_does_not_answer_is_unreachable(runs, there, login):
    (leg,) = runs.leg("absent", NO_CARD, **there)
    closed = replace(leg.options.where.host, ssh_config=login.configuration("closed", port=1))

    with pytest.raises(UnreachableError, match="cannot be reached over ssh"):
        connect(closed)
