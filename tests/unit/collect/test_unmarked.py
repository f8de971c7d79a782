"""Raw folders of emulated targets: what could be taken for results of a card is invalid."""

import json

import pytest
from synthetic import CEILING, edit, emulated, run, sample, write_raw

from warpwave.collect import collect
from warpwave.records import Verdict


def test_an_emulated_run_is_read_back(tmp_path):
    """With the architecture that was emulated."""
    found = collect(write_raw(tmp_path / "syn942-emulated", emulated()))

    assert found == emulated()
    assert found.record.emulated == "syn942"


def test_speeds_of_an_emulated_target_are_dropped(tmp_path):
    """And its results are invalid: nothing of warpwave writes such a file."""
    found = collect(write_raw(tmp_path / "syn942-emulated", emulated(samples=(sample(),), ceilings=(CEILING,))))

    assert (found.samples, found.ceilings, found.record.verdict) == ((), (), Verdict.INVALID)
    assert "emulated targets measure nothing" in found.record.reason


@pytest.mark.parametrize(
    ("name", "target", "changes", "words"),
    [
        ("run.json", "syn942-emulated", {"emulated": ""}, "job.json says that syn942 was emulated, run.json nothing"),
        ("job.json", "syn942-emulated", {"emulate": None}, "job.json says that nothing was emulated, run.json syn942"),
        ("run.json", "rocm", {}, "syn942 was emulated, but the target's name does not say so"),
    ],
)
def test_an_unmarked_result_is_invalid(tmp_path, name, target, changes, words):
    """One edit of a file does not turn it into a card's."""
    raw = write_raw(tmp_path / target, emulated(target=target))
    edit(raw / name, **changes)
    found = collect(raw)

    assert found.record.verdict is Verdict.INVALID
    assert words in found.record.reason


def test_a_record_of_an_earlier_version_says_nothing_was_emulated(tmp_path):
    """Neither file has the field."""
    raw = write_raw(tmp_path / "alpha", run())
    for name, key in (("run.json", "emulated"), ("job.json", "emulate")):
        known = json.loads((raw / name).read_text())
        del known[key]
        (raw / name).write_text(json.dumps(known))

    assert collect(raw) == run()
