"""The plan of a workflow at its bounds, and the whole matrix that a job starts from."""

from __future__ import annotations

import json

import pytest

from warpwave.__main__ import _run_cli
from warpwave.ci.plan import Leg, as_outputs, plan_legs
from warpwave.errors import UsageError


def asked(**machines):
    return json.dumps(machines)


@pytest.mark.parametrize(
    ("text", "shards", "count"),
    [
        (asked(a=[[str(n)] for n in range(64)]), 1, 64),
        (asked(a=[[str(n)] for n in range(65)]), 1, None),
        (asked(a="x"), 64, 64),
        (asked(a="x"), 65, None),
        (asked(a="x", b="y"), 32, 64),
        (asked(a=[str(n) for n in range(16)]), 1, 1),
        (asked(a=[str(n) for n in range(17)]), 1, None),
        (asked(a=["self-hosted", "x"]), 1, 1),
        (asked(a=[["self-hosted"], ["x"]]), 1, None),
        (asked(a=["x", ""]), 1, None),
        (asked(a=["x", "a\tb"]), 1, None),
        (asked(a=["x", ["y"]]), 1, None),
        (asked(a=None), 1, None),
        (asked(a={"x": 1}), 1, None),
        ("[]", 1, None),
        ("{", 1, None),
        ("{}", 1, None),
    ],
)
def test_a_plan_has_bounds(text, shards, count):
    """64 jobs, and 16 labels that can be printed for each of them; `self-hosted` alone is every machine."""
    if count is None:
        with pytest.raises(UsageError) as caught:
            plan_legs(text, ["a", "b"], shards)
        assert all((caught.value.happened, caught.value.meaning, caught.value.remedy))
    else:
        assert len(plan_legs(text, ["a", "b"], shards)) == count


def test_an_unknown_target_is_named_beside_those_that_are_known():
    """In the order of the file."""
    with pytest.raises(UsageError) as caught:
        plan_legs(asked(c="x"), ["b", "a"])

    assert "'c'" in caught.value.happened
    assert "b, a" in caught.value.remedy


def test_labels_that_are_none_are_shown_with_their_target():
    """There may be many targets."""
    for labels in ([1], ["self-hosted"]):
        with pytest.raises(UsageError) as caught:
            plan_legs(asked(a="x", b=labels), ["a", "b"])
        assert "--runners: b: " in caught.value.happened


def test_several_machines_and_shards_name_the_target_that_has_both():
    """The one that has several machines, not the first."""
    with pytest.raises(UsageError) as caught:
        plan_legs(asked(a="x", b=[["y"], ["z"]]), ["a", "b"], shards=2)

    assert " b several" in caught.value.happened


def test_the_outputs_of_a_plan():
    """Each job with its labels; shards are expected as one run, several machines as several."""
    legs = plan_legs(asked(a="x", b=["y", "z"]), ["a", "b"], shards=2)
    told = as_outputs(legs)

    assert legs[:2] == (Leg("a", ("x",), "a-1of2", "1/2"), Leg("a", ("x",), "a-2of2", "2/2"))
    assert json.loads(told["matrix"]) == {
        "include": [
            {"target": "a", "runner": ["x"], "name": "a-1of2", "shard": "1/2"},
            {"target": "a", "runner": ["x"], "name": "a-2of2", "shard": "2/2"},
            {"target": "b", "runner": ["y", "z"], "name": "b-1of2", "shard": "1/2"},
            {"target": "b", "runner": ["y", "z"], "name": "b-2of2", "shard": "2/2"},
        ]
    }
    assert told["expect"] == "a,b"
    assert as_outputs(plan_legs(asked(a=[["x"], ["y"], ["z"]], b="x"), ["a", "b"]))["expect"] == "a,a (2),a (3),b"
    assert (told["compile"], set(told)) == ("", {"matrix", "expect", "compile", "artifact"})


def test_what_is_compiled_before_a_card_is_taken():
    """For the cards of the plan, by a target without one; the report has it once."""
    cards = {"a": ["x1", "x2"], "b": ["x2", "x3"]}
    alone = as_outputs(plan_legs(asked(a="x", b="y"), ["a", "b", "cpu"]), cards, "cpu")
    beside = as_outputs(plan_legs(asked(a="x", cpu="y"), ["a", "b", "cpu"]), cards, "cpu")

    assert (alone["compile"], alone["expect"], alone["artifact"]) == ("x1,x2,x3", "a,b,cpu", "raw-compile")
    assert (beside["compile"], beside["expect"], beside["artifact"]) == ("x1,x2", "a,cpu", "compiled")
    assert as_outputs(plan_legs(asked(cpu="y"), ["a", "cpu"]), cards, "cpu")["compile"] == ""


HOSTS = """
cuda: {runner: [self-hosted, h100], shards: 2}
big: {target: cuda, ssh: b200, runner: [self-hosted, b200]}
"""


def test_a_hosts_file_is_a_plan(tmp_path, capsys):
    """Each leg on the runner that has its card, in the file's own parts; the report expects the legs."""
    (tmp_path / "hosts.yml").write_text(HOSTS)
    assert _run_cli(["ci", "plan", "--kernels", str(tmp_path), "--output", str(tmp_path / "outputs")]) == 0
    told = (tmp_path / "outputs").read_text()

    assert capsys.readouterr().out.splitlines() == [
        "cuda-1of2: cuda on self-hosted, h100",
        "cuda-2of2: cuda on self-hosted, h100",
        "big: big on self-hosted, b200",
        "before them: cpu compiles for sm_80,sm_90,sm_100, without a card",
    ]
    assert "cuda,big" in told


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: {target: cuda, shards: 60, runner: [h100]}\nb: {target: cuda, shards: 5, runner: [b200]}", "asks for 65 jobs"),
        ("cuda: {ssh: a}", "names no runner"),
        ("cuda: {runner: [self-hosted]}", "`self-hosted` alone"),
        (None, "There is no hosts.yml"),
    ],
)
def test_a_hosts_file_without_runners_is_refused(tmp_path, capsys, monkeypatch, text, said):
    """No job would find its machine."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    if text:
        (tmp_path / "hosts.yml").write_text(text)

    assert _run_cli(["ci", "plan", "--kernels", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err
