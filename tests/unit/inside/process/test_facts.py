"""The first stage: a card that others use, or that does not answer, is told before anything runs on it."""

from __future__ import annotations

import dataclasses
import json
import sys
from types import SimpleNamespace

import pytest
from synthetic import facts

from warpwave.inside.facts import stage
from warpwave.inside.facts.stage import UnusableError
from warpwave.records import DeviceFacts, Stage, to_json

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

GIB = 1 << 30


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    ticking = Clock()
    monkeypatch.setattr(stage, "time", ticking)
    return ticking


def card(*used_gib, total_gib=140):
    """A card on which others hold this much, from one look to the next; the last stays."""
    left = list(used_gib)

    def mem_get_info(index):
        used = left.pop(0) if len(left) > 1 else left[0]
        return int((total_gib - used) * GIB), total_gib * GIB

    return SimpleNamespace(mem_get_info=mem_get_info)


def test_a_card_that_others_use_is_refused(clock):
    """After a bound, with how much is taken of what, and what to do about it."""
    with pytest.raises(UnusableError) as caught:
        stage._wait_for_memory(card(90), 1)

    assert "GPU 1: 90.0 of 140.0 GiB are in use" in str(caught.value)
    assert "doctor" in caught.value.hint
    assert "--gpu" in caught.value.hint
    assert clock.now <= 61.0


def test_memory_that_is_given_back_late_is_waited_for(clock):
    """What a process before this one had may take a while; a context and a desktop are no reason to wait."""
    stage._wait_for_memory(card(90, 90, 30, 1), 0)
    assert clock.now == 3.0
    stage._wait_for_memory(card(1.5, total_gib=8), 0)
    assert clock.now == 3.0


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("print('|  0  ERR!  N/A |'); raise SystemExit(9)", "exited with 9: |  0  ERR!  N/A |"),
        ("import time; time.sleep(600)", "did not answer within 1 s"),
    ],
)
def test_a_sick_card_stops_the_run_before_a_kernel(run_inside, tmp_path, program, reason):
    """A probe that says so, or that hangs as drivers do: infrastructure, within a bound, and no test was started."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "test_op.py").write_text("def test_op(): pass\n")
    probe = (sys.executable, "-c", program)
    output = run_inside(package, Stage.TEST, light=True, interpret=False, probe=probe, probe_limit_s=1.0)
    told, test = json.loads((output / "stages.json").read_text())["reports"]

    assert told["verdict"] == "infra"
    assert reason in told["reason"]
    assert (test["verdict"], test["seconds"]) == ("not-run", 0.0)


CARD = DeviceFacts(0, "A card", "sy_90", 1 << 36, 100, uuid="GPU-1")
CHANGES = {
    "kernels_hash": ("other", "the kernels have changed"),
    "python": ("3.13.0", "python has changed from 3.12.0 to 3.13.0"),
    "torch": ("0", "torch has changed from 2.13.0+synthetic to 0"),
    "triton": ("0", "triton has changed from 3.9.0 to 0"),
    "runtime": ("none", "runtime has changed from synthetic 1.0 to none"),
    "driver": (None, "driver has changed from 1.0 to None"),
    "fp_fusion": ("0", "fp fusion has changed from 1 to 0"),
    "devices": ((dataclasses.replace(CARD, uuid="GPU-2"),), "the GPUs have changed"),
    "platform": ("another", ""),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_run_is_not_taken_up_in_another_environment(tmp_path, name):
    """Numbers of both would be mixed. A kernel of the operating system that was updated is no other environment."""
    value, reason = CHANGES[name]
    before = facts(devices=(CARD,))
    (tmp_path / "facts.json").write_text(to_json(before))

    assert stage._changed(before, tmp_path / "facts.json") == ""
    assert stage._changed(dataclasses.replace(before, **{name: value}), tmp_path / "facts.json") == reason


def test_a_first_run_has_nothing_to_be_held_against(tmp_path):
    """Nor has one whose facts were cut off."""
    (tmp_path / "cut.json").write_text("{")

    assert stage._changed(facts(), tmp_path / "facts.json") == stage._changed(facts(), tmp_path / "cut.json") == ""
