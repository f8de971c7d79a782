"""Shards in processes of their own become one array job."""

from __future__ import annotations

import threading

import pytest

from harness.engines.slurm import arrays
from harness.engines.slurm.arrays import submit_together
from harness.errors import InfrastructureError


def together(folder, legs, shards, submit):
    """What each shard's process gets: the id of its job, or the error."""
    found = {}

    def one(leg):
        try:
            found[leg] = submit_together(folder, leg, shards, submit)
        except InfrastructureError as error:
            found[leg] = error

    threads = [threading.Thread(target=one, args=(leg,)) for leg in legs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return found


@pytest.fixture
def calls():
    return []


@pytest.fixture
def submit(calls):
    def call(legs):
        calls.append(list(legs))
        return [f"{len(calls)}_{task}" for task in range(1, len(legs) + 1)]

    return call


def test_shards_that_are_ready_are_submitted_once_and_in_order(tmp_path, submit, calls):
    assert together(tmp_path / "a", ["/c", "/a", "/b"], 3, submit) == {"/a": "1_1", "/b": "1_2", "/c": "1_3"}
    assert calls == [["/a", "/b", "/c"]]


def test_a_shard_that_never_comes_is_not_waited_for(tmp_path, submit, calls, monkeypatch):
    """Its process failed before, or it has finished in an earlier run."""
    monkeypatch.setattr(arrays, "_SETTLED_S", 0.2)

    assert together(tmp_path, ["/a", "/b"], 3, submit) == {"/a": "1_1", "/b": "1_2"}
    assert together(tmp_path, ["/c"], 3, submit) == {"/c": "2_1"}
    assert calls == [["/a", "/b"], ["/c"]]


def test_a_refusal_reaches_every_shard(tmp_path):
    """The one that submitted has the whole error; the others its first sentence."""

    def refuse(legs):
        raise InfrastructureError("Slurm refused the job.", "It is busy.", "Wait.")

    found = together(tmp_path, ["/a", "/b"], 2, refuse)

    assert [error.happened for error in found.values()] == ["Slurm refused the job."] * 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock"]
