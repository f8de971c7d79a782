"""Honest raw folders, found and read into target runs. All data is synthetic."""

import os
from pathlib import Path

import pytest
from synthetic import case, run, sample, write_raw

from warpwave.collect import collect, find_raw
from warpwave.errors import ExitCode, InvalidInputError
from warpwave.records import Verdict


def test_what_was_written_is_what_is_read(raw):
    """A complete folder is read back as the same run, without a problem."""
    assert run() == collect(raw)


def test_the_second_pass_of_an_aa_run_is_read(tmp_path):
    """It exists only on request, so it may be missing."""
    twice = run(again=(sample(), sample(2048)))

    assert twice == collect(write_raw(tmp_path / "alpha", twice))


def test_every_verdict_of_a_test_survives_the_xml(tmp_path):
    """Failure, error with a type, and skip keep verdict, message, traceback and the author's properties."""
    verdicts = (
        Verdict.PASSED,
        Verdict.FAILED,
        Verdict.ERROR,
        Verdict.TIMEOUT,
        Verdict.CRASHED,
        Verdict.OOM,
        Verdict.GPU_HANG,
        Verdict.NOT_RUN,
    )
    cases = tuple(case(f"softmax/t.py::t[{v.value}]", v, message="" if v is Verdict.PASSED else "why <&>") for v in verdicts)
    cases = (*cases, case("softmax/t.py::numbers", properties={"max_abs_err": "1e-07", "max_ulp": "2"}))

    assert cases == collect(write_raw(tmp_path / "alpha", run(cases=cases))).cases


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("run/raw/alpha", ["run/raw/alpha"]),
        ("run/raw", ["run/raw/alpha", "run/raw/beta"]),
        ("run", ["run/raw/alpha", "run/raw/beta"]),
        ("artifacts", ["artifacts/one/raw/alpha", "artifacts/two"]),
    ],
)
def test_raw_folders_are_found_from_wherever_the_path_points(tmp_path, given, expected):
    """A raw folder, its parent, a run and a folder of artifacts all lead to the same folders."""
    for name in ("run/raw/alpha", "artifacts/one/raw/alpha", "artifacts/two"):
        write_raw(tmp_path / name, run())
    (tmp_path / "run/raw/beta").mkdir()  # it crashed before it wrote anything

    assert [tmp_path / name for name in expected] == find_raw([tmp_path / given])


def test_a_raw_folder_given_twice_is_found_once(raw):
    """Overlapping paths do not count a target twice."""
    assert [raw] == find_raw([raw, raw.parent, raw.parent.parent, raw / "." / "../alpha"])


@pytest.mark.parametrize("kind", ["folder", "pipe", "link"])
def test_what_lies_in_the_results_of_a_target_is_no_target(tmp_path, kind):
    """Code under test may replace run.json, and make a folder that looks like the results of a target that nobody ran."""
    raw = tmp_path / "raw" / "alpha"
    ghost = raw / "raw" / "ghost"
    ghost.mkdir(parents=True)
    (ghost / "run.json").write_text("{}")
    {"folder": Path.mkdir, "pipe": os.mkfifo, "link": lambda path: path.symlink_to(ghost / "run.json")}[kind](raw / "run.json")

    assert find_raw([raw]) == find_raw([tmp_path]) == [raw]
    assert collect(raw).record.verdict is Verdict.INVALID


def test_links_are_not_followed_when_searching(tmp_path, raw):
    """An artifact cannot point the report at a folder outside of itself."""
    artifact = tmp_path / "artifact"
    artifact.mkdir()
    (artifact / "raw").symlink_to(raw.parent)

    with pytest.raises(InvalidInputError):
        find_raw([artifact])


@pytest.mark.parametrize("paths", [[], ["."], ["missing"]])
def test_no_raw_folder_is_an_error_in_three_beats(tmp_path, paths):
    """The message says what was searched, why it may be missing, and what to give instead; exit code 4."""
    with pytest.raises(InvalidInputError) as caught:
        find_raw([tmp_path / path for path in paths])

    assert caught.value.exit_code == ExitCode.INCOMPLETE
    assert len(str(caught.value).splitlines()) == 3


def test_tests_with_the_same_id_are_all_kept(tmp_path):
    """Reading merges nothing."""
    cases = (case(verdict=Verdict.FAILED, message="first"), case())

    assert cases == collect(write_raw(tmp_path / "alpha", run(cases=cases))).cases


@pytest.mark.parametrize(("name", "kernel"), [("softmax/deep/t.py::t", "softmax"), ("test_softmax.py::t", "softmax"), ("odd", "odd")])
def test_the_kernel_is_the_top_folder_of_the_test(raw, name, kernel):
    """If the file does not name the kernel, the id does."""
    (raw / "test/junit.xml").write_text(
        f"<testsuite><testcase name='n'><properties><property name='id' value='{name}'/></properties></testcase></testsuite>"
    )

    assert [kernel] == [found.kernel for found in collect(raw).cases]
