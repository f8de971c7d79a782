"""What a tuner chose for a test: it is noted, named, and asked for."""

from types import SimpleNamespace

import pytest

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

from triton import Config
from triton.runtime.autotuner import Autotuner

from warpwave.inside.fake_gpu.launches import Launched
from warpwave.inside.test.autotuned import Timed
from warpwave.records.selection import parse_configuration

CONFIGS = [Config({"BLOCK": block}, num_warps=warps) for block, warps in ((64, 4), (128, 4), (128, 8))]


@pytest.fixture
def tuner(monkeypatch):
    """An autotuner as on a card, for which BLOCK=64 is the fastest, and 8 warps are next."""
    for name in ("run", "prune_configs"):
        monkeypatch.setattr(Autotuner, name, getattr(Autotuner, name))  # what `Timed` replaces is put back
    last = {}

    def launch(*args, **options):
        last.update(options)
        return options

    def time(call, **more):
        call()
        return [last["BLOCK"] - last["num_warps"]] * 3

    def matmul(x):
        pass

    kernel = SimpleNamespace(fn=matmul, run=launch, __name__="matmul")
    return Autotuner(kernel, ["x"], CONFIGS, ["x"], None, None, do_bench=time)


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        ({}, "BLOCK=64, num_warps=4, num_stages=3"),
        ({"other": {"BLOCK": "1"}}, "BLOCK=64, num_warps=4, num_stages=3"),
        ({"matmul": {"BLOCK": "128"}}, "BLOCK=128, num_warps=8, num_stages=3"),
        ({"matmul": {"BLOCK": "128", "num_warps": "4"}}, "BLOCK=128, num_warps=4, num_stages=3"),
    ],
)
def test_the_choice_on_a_card_is_noted_and_may_be_asked_for(tuner, asked, chosen):
    timed = Timed(asked)
    timed.begin()
    launched = tuner.run(1, grid=(1,))

    assert timed.chosen == {"matmul": f"{chosen} (chosen by the tuner)"}
    assert f"BLOCK={launched['BLOCK']}, num_warps={launched['num_warps']}," in chosen
    timed.begin()
    assert timed.chosen == {}


def test_what_no_configuration_has_is_refused(tuner):
    Timed({"matmul": {"BLOCK": "128", "num_warps": "2"}})
    with pytest.raises(ValueError, match=r"no configuration of `matmul` has BLOCK=128, num_warps=2.*It has: BLOCK=64, num_warps=4"):
        tuner.run(1, grid=(1,))


def test_a_failure_names_what_was_chosen_of_several(monkeypatch):
    """In its first line; a kernel with one configuration had no choice."""
    monkeypatch.setattr(Launched, "tuned", {"mul": "BLOCK=64 (2 of 3)", "add": "BLOCK=32"})
    assert Launched.with_configurations("wrong by 3\nat 5") == "wrong by 3 [mul with BLOCK=64 (2 of 3)]\nat 5"
    monkeypatch.setattr(Launched, "tuned", {"add": "BLOCK=32"})
    assert Launched.with_configurations("wrong") == "wrong"


@pytest.mark.parametrize("text", ["mul: BLOCK=128 num_warps=4", " mul:BLOCK=128,  num_warps=4 "])
def test_a_configuration_is_written_as_it_is_shown(text):
    assert parse_configuration(text) == ("mul", {"BLOCK": "128", "num_warps": "4"})


@pytest.mark.parametrize("text", ["mul", "mul:", ": BLOCK=1", "mul: BLOCK", "mul: =1", "mul: BLOCK=", ""])
def test_another_text_is_no_configuration(text):
    with pytest.raises(ValueError, match="is no configuration, such as"):
        parse_configuration(text)
