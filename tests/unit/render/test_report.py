"""From raw folders to the files of a report. All data is synthetic."""

import dataclasses
import gc
import json
import sys
from pathlib import PurePath

import pytest
from click.testing import CliRunner
from pydantic import TypeAdapter
from synthetic import no_gpu, record, two_targets, write_raw

from warpwave import __main__, report
from warpwave.compare import compare
from warpwave.compare.model import Comparison
from warpwave.errors import InvalidInputError
from warpwave.records import Verdict
from warpwave.render.commands import next_commands
from warpwave.render.files import json_pieces
from warpwave.report import write_report

FILES = {"junit.xml", "bandwidth.csv", "comparison.html", "comparison.md", "comparison.json"}


@pytest.fixture
def runs(tmp_path):
    """The run of two synthetic targets on disk."""
    for source in two_targets():
        write_raw(tmp_path / "raw" / source.record.target, source)
    return tmp_path


def test_all_files_are_written_and_tell_the_same(runs, tmp_path):
    """The returned comparison equals comparison.json, and no temporary file is left."""
    out = tmp_path / "out"
    comparison = write_report([runs], out, ["alpha", "beta"])

    assert {path.name for path in out.iterdir()} == FILES
    assert TypeAdapter(Comparison).validate_json((out / "comparison.json").read_bytes()) == comparison
    assert (comparison.exit_code, comparison.problems) == (1, ())


def test_the_collector_does_not_walk_the_records_while_they_are_shown_either(runs, monkeypatch):
    """With a million tests, this took a tenth of the command's time. Afterwards the collector runs again."""
    found = []
    monkeypatch.setattr(__main__, "show_report", lambda *_: found.append(gc.isenabled()) or 0)
    CliRunner().invoke(__main__.cli, ["report", str(runs)], standalone_mode=False)

    assert (found, gc.isenabled()) == ([False], True)


def test_what_is_no_number_does_not_make_the_document_unreadable(runs, tmp_path):
    """Collecting refuses NaN, so there should be none. If there is one, every parser must still accept the file."""
    comparison = dataclasses.replace(write_report([runs], tmp_path / "out"), exit_code=float("nan"))
    document = json.loads("".join(json_pieces(comparison)), parse_constant=pytest.fail)

    assert document["exit_code"] is None


def test_artifacts_of_two_machines_make_one_report(tmp_path):
    """Each target's folder may be anywhere; the order is that of the expected targets."""
    first, second = two_targets()
    write_raw(tmp_path / "from-one" / "raw" / "beta", second)
    write_raw(tmp_path / "from-another", first)

    comparison = write_report([tmp_path / "from-one", tmp_path / "from-another"], tmp_path / "out", ["alpha", "beta"])

    assert [target.target for target in comparison.targets] == ["alpha", "beta"]


def test_reporting_twice_into_the_folder_of_the_run_changes_nothing(runs):
    """The report is written beside `raw/` and is not taken for a target."""
    assert write_report([runs], runs) == write_report([runs], runs)


@pytest.mark.parametrize("name", sorted(FILES))
def test_one_writer_that_fails_costs_its_own_file_only(runs, tmp_path, monkeypatch, name):
    """The other files are written, the failure is reported, and the exit code is not 0."""

    def broken(*_):
        raise OSError(28, "No space left on device")

    out = tmp_path / "out"
    out.mkdir()
    (out / name).write_text("of an earlier report")
    monkeypatch.setitem(report.WRITERS, name, broken)

    comparison = write_report([runs / "raw" / "alpha"], out, ["alpha"])

    assert {path.name for path in out.iterdir()} == FILES - {name}
    assert comparison.problems == (f"{name} was not written: OSError: [Errno 28] No space left on device",)
    assert comparison.exit_code == 3


def test_a_writer_that_fails_is_reported_in_the_files_after_it(runs, tmp_path, monkeypatch):
    """Readers of the summary alone learn that the JUnit file is missing."""
    monkeypatch.setitem(report.WRITERS, "junit.xml", lambda *_: sys.exit.no_such_thing)
    write_report([runs], tmp_path / "out")

    assert "junit.xml was not written" in (tmp_path / "out/comparison.md").read_text()
    assert "junit.xml was not written" in json.loads((tmp_path / "out/comparison.json").read_text())["problems"][0]


def test_one_broken_target_does_not_hide_the_other(runs, tmp_path):
    """The report contains everything that can be read."""
    (runs / "raw/beta/test/junit.xml").write_text("<oops")
    comparison = write_report([runs], tmp_path / "out", ["alpha", "beta"])

    assert [target.verdict for target in comparison.targets] == [Verdict.PASSED, Verdict.INVALID]
    assert comparison.problems == ("beta: test/junit.xml: invalid: not well-formed XML, line 1: unclosed token",)
    assert "beta has results that cannot be used" in comparison.sentence


def test_nothing_to_report_is_an_error(tmp_path):
    """Without a raw folder, nothing is written."""
    with pytest.raises(InvalidInputError):
        write_report([tmp_path], tmp_path / "out")

    assert not (tmp_path / "out").exists()


def test_a_target_without_a_gpu_alone_makes_a_report(tmp_path):
    """Without any GPU, there is still a report."""
    write_raw(tmp_path / "raw" / "cpu", no_gpu())
    comparison = write_report([tmp_path], tmp_path, ["cpu"])

    assert (
        comparison.sentence
        == "1 of 1 target is complete, with 1 failed binary: cpu passed 27 tests and could not compile 1 of 96 binaries."
    )
    assert (tmp_path / "bandwidth.csv").read_text().count("\n") == 1


def test_a_record_of_infrastructure_needs_no_other_file(tmp_path):
    """A GPU that could not be used is a row with its reason and what to do."""
    folder = tmp_path / "raw" / "alpha"
    for path in [write_raw(folder, two_targets()[0])]:
        for name in ("job.json", "facts.json", "stages.json", "test/junit.xml"):
            (path / name).unlink()
    from warpwave.records import dump

    dump(record(verdict=Verdict.INFRA, reason="no driver.", hint="Install it."), folder / "run.json")
    comparison = write_report([folder], tmp_path, ["alpha"])

    assert comparison.exit_code == 3
    assert "alpha could not run (no driver)." in comparison.sentence


def test_a_run_ends_with_the_next_two_commands():
    """What failed again, with the options that decide a test's environment; or all of it. And the page."""
    good = compare([dataclasses.replace(no_gpu(), compiled=())])
    bad = dataclasses.replace(good, targets=(dataclasses.replace(good.targets[0], tests={"failed": 1}),))
    bad = dataclasses.replace(bad, targets=(dataclasses.replace(bad.targets[0], command=("warpwave", "run", "cpu", "--kernels", "a b")),))

    assert next_commands(good, PurePath("out")) == ("warpwave report out --full", "xdg-open out/comparison.html")
    assert next_commands(bad, PurePath("out"))[0] == "warpwave run cpu --kernels 'a b' --stage test --last-failed out"
