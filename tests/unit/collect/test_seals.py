"""Files that are not what their stage wrote or counted. All data is synthetic."""

import dataclasses
import hashlib

import pytest
from synthetic import edit, run, write_raw

from warpwave.collect import collect
from warpwave.records import Stage, StageReport, Verdict


def stage(found, name):
    return next(report for report in found.stages if report.stage is name)


MISCOUNTED = {
    "fewer": ({"passed": 4}, "3 tests are in the file, the stage counted 4"),
    "more": ({"passed": 2}, "3 tests are in the file, the stage counted 2"),
    "others": ({"passed": 2, "failed": 1}, "0 tests in the file are failed, the stage counted 1"),
}


@pytest.mark.parametrize("name", MISCOUNTED)
def test_other_tests_in_the_file_than_the_stage_counted_are_invalid(tmp_path, name):
    """A well-formed file is not enough: the counts must agree, and the problem names both. The tests are kept."""
    counts, text = MISCOUNTED[name]
    reports = tuple(StageReport(entry, Verdict.PASSED, counts=counts if entry is Stage.TEST else {}) for entry in Stage)

    found = collect(write_raw(tmp_path / "alpha", run(stages=reports)))

    assert Verdict.INVALID is stage(found, Stage.TEST).verdict
    assert (stage(found, Stage.TEST).reason, found.problems) == (text, (f"test/junit.xml: invalid: {text}",))
    assert len(found.cases) == 3


SEALED = ("facts.json", "test/junit.xml", "bench/samples.jsonl", "bench/ceilings.jsonl", "compile/kernels.jsonl")


def sealed(folder):
    """A run whose stages and host recorded the hashes of what they wrote."""
    written = write_raw(folder, run())
    hashes = {name: hashlib.sha256((written / name).read_bytes()).hexdigest() for name in SEALED}
    own = {Stage.FACTS: "facts.json", Stage.TEST: "test/", Stage.BENCH: "bench/", Stage.COMPILE: "compile/"}
    files = {entry: {name: text for name, text in hashes.items() if name.startswith(own[entry])} for entry in Stage}
    reports = tuple(dataclasses.replace(report, files=files[report.stage]) for report in run().stages)
    write_raw(folder, run(stages=reports))
    edit(folder / "run.json", stages_hash=hashlib.sha256((folder / "stages.json").read_bytes()).hexdigest())
    return folder


def test_files_that_nobody_has_changed_are_believed(tmp_path):
    """Their hashes are those that the run recorded."""
    found = collect(sealed(tmp_path / "alpha"))

    assert (found.record.verdict, found.problems) == (Verdict.PASSED, ())


@pytest.mark.parametrize("name", SEALED)
def test_a_file_that_was_changed_after_it_was_written_is_invalid(tmp_path, name):
    """Its stage is invalid and the others stay as they were. The changed content is still shown."""
    folder = sealed(tmp_path / "alpha")
    with open(folder / name, "a", encoding="utf-8") as file:
        file.write("\n")
    found = collect(folder)

    assert found.problems == (f"{name}: invalid: it was changed after it was written",)
    assert [report.verdict for report in found.stages].count(Verdict.INVALID) == 1
    assert (len(found.cases), len(found.samples)) == (3, 3)


def test_stages_that_were_changed_after_the_run_are_invalid(tmp_path):
    """Otherwise the hashes of files could be changed too. The host has the hash of stages.json in run.json."""
    folder = sealed(tmp_path / "alpha")
    (folder / "stages.json").write_text((folder / "stages.json").read_text() + " ")
    found = collect(folder)

    assert (found.record.verdict, found.problems) == (Verdict.INVALID, ("stages.json: invalid: it was changed after it was written",))
