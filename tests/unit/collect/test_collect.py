"""Raw folders, honest and hostile, read into target runs. All data is synthetic."""

import dataclasses
import hashlib
import json
import os
import time
from pathlib import Path

import pytest
from synthetic import case, edit, record, run, sample, write_raw

from harness.collect import cases, collect, find_raw, guard, untrusted
from harness.errors import ExitCode, InvalidInputError
from harness.records import Stage, StageReport, Verdict, to_json


@pytest.fixture
def raw(tmp_path) -> Path:
    """One complete, synthetic raw folder."""
    return write_raw(tmp_path / "raw" / "alpha", run())


def stage(found, name):
    return next(report for report in found.stages if report.stage is name)


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


DOCTYPE = '<!DOCTYPE testsuites SYSTEM "http://example.invalid/x.dtd"><testsuites/>'
BOMB = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]><testsuites><testsuite name="&b;"/></testsuites>'
XXE = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/hostname">]><testsuites><testsuite name="x">&a;</testsuite></testsuites>'
HOSTILE_XML = {
    "document type": (DOCTYPE, "document type"),
    "bomb": (BOMB, "document type"),
    "outside entity": (XXE, "document type"),
    "deep": ("<testsuites>" + "<testsuite>" * 200_000 + "</testsuite>" * 200_000 + "</testsuites>", "nested deeper"),
    "truncated": ('<testsuites>\n<testsuite name="x">\n<testcase name="a"', "line 3"),
    "empty": ("", "line 1"),
    "not xml": ("Segmentation fault\n", "line 1"),
    "html": ("<html><body>404</body></html>", "root element"),
    "another namespace": ('<testsuites xmlns="urn:x"/>', "root element"),
    "nameless": ("<testsuites><testsuite><testcase/></testsuite></testsuites>", "neither an id nor a name"),
    "no such encoding": ('<?xml version="1.0" encoding="nonsense"?><testsuites/>', "encoding"),
}


@pytest.mark.parametrize("name", HOSTILE_XML)
def test_a_hostile_junit_file_costs_the_test_stage_only(raw, name):
    """It is invalid, with a sentence that says where. Samples, kernels and facts are still read, and it takes little time."""
    content, word = HOSTILE_XML[name]
    (raw / "test/junit.xml").write_text(content)

    started = time.monotonic()
    found = collect(raw)

    assert time.monotonic() - started < 5
    assert Verdict.INVALID is stage(found, Stage.TEST).verdict
    assert found.problems[0].startswith("test/junit.xml: invalid: ")
    assert word in found.problems[0]
    assert found.cases == ()
    assert (run().samples, run().compiled, run().facts) == (found.samples, found.compiled, found.facts)
    assert Verdict.PASSED is stage(found, Stage.BENCH).verdict


def test_bytes_that_are_no_text_are_invalid(raw):
    """A binary file instead of XML or JSON is refused, not decoded."""
    for name in ("test/junit.xml", "facts.json", "bench/samples.jsonl"):
        (raw / name).write_bytes(b"\xff\xfe\x00\xd8" * 10 + b"\n")

    found = collect(raw)

    assert len(found.problems) == 3
    assert {Verdict.INVALID} == {stage(found, name).verdict for name in (Stage.TEST, Stage.FACTS, Stage.BENCH)}


GOOD = to_json(sample(1024))
HOSTILE_LINES = {
    "NaN": (GOOD.replace("3000.0", "NaN"), "not a finite number"),
    "infinity": (GOOD.replace("3000.0", "-Infinity"), "not a finite number"),
    "1e999": (GOOD.replace("3000.0", "1e999"), "not a finite number"),
    "duplicate key": (GOOD.replace('"case"', '"provider": "other", "case"', 1), "occurs twice"),
    "duplicate key inside": (GOOD.replace('"N": 1024', '"N": 1024, "N": 2048'), "occurs twice"),
    "huge integer": (GOOD.replace('"N": 1024', '"N": ' + "9" * 5000), "too large"),
    "deep": (GOOD.replace('"N": 1024', '"N": ' + "[" * 200_000 + "]" * 200_000), "nested deeper"),
    "less deep": (GOOD.replace('"N": 1024', '"N": ' + "[" * 100 + "]" * 100), "nested deeper"),
    "unknown key": (GOOD.replace('"case"', '"surprise": 1, "case"', 1), "surprise"),
    "missing key": (GOOD.replace('"provider": "triton", ', ""), "provider"),
    "text for a number": (GOOD.replace("3000.0", '"3000"'), "value"),
    "number for a text": (GOOD.replace('"triton"', "1"), "provider"),
    "no such verdict": (GOOD.replace('"passed"', '"excellent"'), "verdict"),
    "lone surrogate": (GOOD.replace('"triton"', '"\\ud800"'), "JSON"),
    "long text": (GOOD.replace('"triton"', '"' + "x" * 200_000 + '"'), "200000 characters"),
    "a list": ("[1, 2]", "Input should be"),
    "not json": ("Traceback (most recent call last):", "not JSON"),
}


@pytest.mark.parametrize("name", HOSTILE_LINES)
def test_a_hostile_line_makes_the_stage_invalid_and_keeps_the_others(raw, name):
    """The good lines before and after it stay; the problem names the line."""
    content, word = HOSTILE_LINES[name]
    (raw / "bench/samples.jsonl").write_text(f"{GOOD}\n{content}\n{to_json(sample(2048))}\n")

    found = collect(raw)

    assert (sample(1024), sample(2048)) == found.samples
    assert Verdict.INVALID is stage(found, Stage.BENCH).verdict
    assert found.problems[0].startswith("bench/samples.jsonl: invalid: line 2: ")
    assert word in found.problems[0]
    assert Verdict.PASSED is stage(found, Stage.TEST).verdict


@pytest.mark.parametrize("name", ["run.json", "stages.json", "job.json", "facts.json"])
@pytest.mark.parametrize("content", ["", "null", '{"a": 1, "a": 2}', "[" * 100_000, '{"schema_version": 2}', '{"seconds": 1e999}'])
def test_a_hostile_record_never_raises_and_never_passes(raw, name, content):
    """Whatever a JSON file contains, the other files are read, and the run does not pass."""
    (raw / name).write_text(content)

    found = collect(raw)

    assert found.problems[0].startswith(f"{name}: invalid: ")
    assert Verdict.INVALID in {found.record.verdict, *(report.verdict for report in found.stages)}
    assert run().cases == found.cases


def test_a_newer_schema_is_named_as_such(raw):
    """A file of a later version is refused for its version, not for a key in it."""
    edit(raw / "facts.json", schema_version=2, new_fact="x")

    assert collect(raw).problems == ("facts.json: invalid: schema_version is 2, this warpwave reads 1",)


def test_a_last_line_that_was_cut_off_is_incomplete_not_invalid(raw):
    """A process that crashed while writing loses only that line."""
    path = raw / "bench/samples.jsonl"
    path.write_bytes(path.read_bytes()[:-200])

    found = collect(raw)

    assert run().samples[:2] == found.samples
    assert Verdict.INCOMPLETE is stage(found, Stage.BENCH).verdict
    assert "cut off" in found.problems[0]


def test_a_cut_off_line_does_not_hide_that_the_stage_timed_out(tmp_path):
    """The stage's own, better explanation stays."""
    reports = (StageReport(Stage.BENCH, Verdict.TIMEOUT, reason="the stage ran longer than 60 s"),)
    raw = write_raw(tmp_path / "alpha", run(stages=reports, record=record(verdict=Verdict.TIMEOUT)))
    path = raw / "bench/samples.jsonl"
    path.write_bytes(path.read_bytes()[:-9])

    assert Verdict.TIMEOUT is stage(collect(raw), Stage.BENCH).verdict


@pytest.mark.parametrize("name", ["test/junit.xml", "run.json", "bench/samples.jsonl"])
def test_symbolic_links_are_refused(raw, tmp_path, name):
    """A link is not followed, not even to a valid file."""
    outside = tmp_path / "outside"
    (raw / name).rename(outside)
    (raw / name).symlink_to(outside)

    found = collect(raw)

    assert "symbolic link" in found.problems[0]
    assert Verdict.INVALID in {found.record.verdict, *(report.verdict for report in found.stages)}


def test_a_linked_folder_is_refused_too(raw, tmp_path):
    """A link one level up is a link too."""
    (raw / "test").rename(tmp_path / "elsewhere")
    (raw / "test").symlink_to(tmp_path / "elsewhere")

    assert Verdict.INVALID is stage(collect(raw), Stage.TEST).verdict


def test_what_is_not_a_regular_file_is_refused_at_once(raw):
    """A named pipe cannot block the report, and a folder is no file."""
    (raw / "test/junit.xml").unlink()
    os.mkfifo(raw / "test/junit.xml")
    (raw / "facts.json").unlink()
    (raw / "facts.json").mkdir()

    found = collect(raw)

    assert {stage(found, Stage.TEST).verdict, stage(found, Stage.FACTS).verdict} == {Verdict.INVALID}
    assert "test/junit.xml: invalid: it is not a regular file" in found.problems


@pytest.mark.parametrize(
    ("reader", "cap", "value", "name", "stage_name"),
    [
        (cases, "MAX_XML_BYTES", 300, "test/junit.xml", Stage.TEST),
        (cases, "MAX_XML_ELEMENTS", 5, "test/junit.xml", Stage.TEST),
        (cases, "MAX_XML_DEPTH", 2, "test/junit.xml", Stage.TEST),
        (cases, "MAX_CASES", 2, "test/junit.xml", Stage.TEST),
        (cases, "MAX_NAMES", 5, "test/junit.xml", Stage.TEST),
        (cases, "MAX_TAG_BYTES", -1, "test/junit.xml", Stage.TEST),
        (cases, "MAX_MEMORY", 1000, "test/junit.xml", Stage.TEST),
        (guard, "MAX_LINES_BYTES", 300, "bench/samples.jsonl", Stage.BENCH),
        (guard, "MAX_LINES", 2, "bench/samples.jsonl", Stage.BENCH),
        (guard, "MAX_LINE_BYTES", 300, "bench/samples.jsonl", Stage.BENCH),
        (guard, "MAX_VALUES", 20, "bench/samples.jsonl", Stage.BENCH),
        (guard, "MAX_STRING", 10, "bench/samples.jsonl", Stage.BENCH),
        (guard, "MAX_MEMORY", 4000, "bench/samples.jsonl", Stage.BENCH),
        (guard, "MAX_JSON_BYTES", 300, "facts.json", Stage.FACTS),
        (guard, "MAX_JSON_DEPTH", 1, "facts.json", Stage.FACTS),
        (untrusted, "MAX_SECONDS", 0.0, "facts.json", Stage.FACTS),
        (untrusted, "MAX_SECONDS", 0.0, "test/junit.xml", Stage.TEST),
        (untrusted, "MAX_SECONDS", 0.0, "bench/samples.jsonl", Stage.BENCH),
    ],
)
def test_a_file_above_its_cap_is_refused(raw, monkeypatch, reader, cap, value, name, stage_name):
    """Size, depth, count, memory and time: each limit has its sentence."""
    monkeypatch.setattr(reader, cap, value)

    found = collect(raw)

    assert any(problem.startswith(f"{name}: invalid: ") for problem in found.problems)
    assert Verdict.INVALID is stage(found, stage_name).verdict


def test_a_folder_without_run_json_is_an_incomplete_target(raw):
    """The host was stopped early: the inside's results are kept, under the folder's name."""
    (raw / "run.json").unlink()

    found = collect(raw)

    assert (found.record.target, found.record.verdict) == ("alpha", Verdict.INCOMPLETE)
    assert run().cases == found.cases


def test_an_empty_folder_is_an_incomplete_target_with_one_problem(tmp_path):
    """A target that crashed before its first line has a row, with a single problem."""
    (tmp_path / "gamma").mkdir()

    found = collect(tmp_path / "gamma")

    assert (found.record.target, found.record.verdict) == ("gamma", Verdict.INCOMPLETE)
    assert found.problems == ("run.json: incomplete: it is missing",)


def test_an_infrastructure_failure_is_not_reported_as_missing_files(tmp_path):
    """If the image could not be built, there is only run.json, and it explains everything."""
    raw = write_raw(tmp_path / "alpha", run(record=record(verdict=Verdict.INFRA, reason="the image could not be built")))
    for path in [*raw.rglob("*.xml"), *raw.rglob("*.jsonl"), raw / "job.json", raw / "stages.json", raw / "facts.json"]:
        path.unlink()

    found = collect(raw)

    assert (found.record.verdict, found.problems) == (Verdict.INFRA, ())


@pytest.mark.parametrize("name", ["stages.json", "job.json"])
@pytest.mark.parametrize("changes", [{"run_id": "run-0"}, {"target": "beta"}])
def test_files_of_two_runs_in_one_folder_are_stale(raw, name, changes):
    """Run id and target decide, not dates."""
    edit(raw / name, **changes)

    found = collect(raw)

    assert Verdict.STALE is found.record.verdict
    assert f"{name} is about" in found.record.reason


def test_a_run_that_did_not_finish_is_incomplete(tmp_path):
    """stages.json exists from the start, so its presence proves nothing."""
    assert Verdict.INCOMPLETE is collect(write_raw(tmp_path / "alpha", run(), finished=False)).record.verdict


def test_a_run_that_ended_in_the_middle_says_how_far_its_benchmarks_came(tmp_path):
    """The journal holds the plan, whatever else it contains. The host's own reason is not a fault of a file."""
    killed = record(verdict=Verdict.INCOMPLETE, reason="the run has not ended")
    folder = write_raw(tmp_path / "alpha", run(record=killed, samples=(sample(), sample(2048))), finished=False)
    plan = {f"softmax/N={n} [triton]": {"case": f"softmax/N={n}", "device": 0} for n in (1024, 2048, 4096)}
    lines = [{"event": "kernel", "row": {}}, {"event": "collected", "at": 1.0, "points": plan}, {"event": "turn", "id": "a"}]
    (folder / "bench" / "journal.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines) + '{"event": "tu')
    found = collect(folder)

    assert (found.record.verdict, found.record.reason) == (Verdict.INCOMPLETE, "the run has not ended; 2 of 3 points were measured")
    assert found.problems == ()


NO_PLAN = ("", "[]\n", '{"event": "collected", "points": 3}\n', '{"event": "collected", "points": {}}\n', "\xff\n")


@pytest.mark.parametrize("journal", NO_PLAN)
def test_a_journal_without_a_plan_tells_nothing(tmp_path, journal):
    """The journal is for resuming and not part of the results, so a broken one is no fault."""
    killed = record(verdict=Verdict.INCOMPLETE, reason="the run has not ended")
    folder = write_raw(tmp_path / "alpha", run(record=killed), finished=False)
    (folder / "bench" / "journal.jsonl").write_text(journal, encoding="latin-1")
    found = collect(folder)

    assert (found.record.reason, found.problems) == ("the run has not ended", ())


def test_a_stage_that_was_asked_for_and_has_no_report_is_not_run(raw):
    """The missing stage has a row, and the target is incomplete."""
    stages = [to_json(report) for report in run().stages if report.stage is not Stage.BENCH]
    (raw / "stages.json").write_text(f'{{"run_id": "run-1", "target": "alpha", "finished": true, "reports": [{", ".join(stages)}]}}')

    found = collect(raw)

    assert (stage(found, Stage.BENCH).verdict, found.record.verdict) == (Verdict.NOT_RUN, Verdict.INCOMPLETE)


@pytest.mark.parametrize("name", ["test/junit.xml", "bench/samples.jsonl", "compile/kernels.jsonl", "facts.json"])
def test_a_stage_that_passed_and_left_no_file_is_incomplete(raw, name):
    """Exit code 0 proves nothing."""
    (raw / name).unlink()

    found = collect(raw)

    assert (f"{name}: incomplete: it is missing",) == found.problems
    assert [report.verdict for report in found.stages if report.verdict is not Verdict.PASSED] == [Verdict.INCOMPLETE]


def test_a_missing_ceiling_is_no_fault(raw):
    """Without a ceiling there are no shares, but all numbers stay valid."""
    (raw / "bench/ceilings.jsonl").unlink()

    assert (run().samples, ()) == (collect(raw).samples, collect(raw).problems)


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


def test_tests_with_the_same_id_are_all_kept(tmp_path):
    """Reading merges nothing."""
    cases = (case(verdict=Verdict.FAILED, message="first"), case())

    assert cases == collect(write_raw(tmp_path / "alpha", run(cases=cases))).cases


XML_CASE = '<testsuite><testcase classname="c" name="n" time="{time}">{inner}</testcase></testsuite>'


@pytest.mark.parametrize(
    ("inner", "verdict"),
    [
        ("", Verdict.PASSED),
        ("<skipped/><failure message='m'/>", Verdict.FAILED),
        ("<error type='crashed'/><failure/>", Verdict.CRASHED),
        ("<error type='passed'/>", Verdict.ERROR),
        ("<error type='absent'/>", Verdict.ERROR),
        ("<error/>", Verdict.ERROR),
    ],
)
def test_the_gravest_result_of_a_case_counts(raw, inner, verdict):
    """A case with several results counts as its worst, and no type turns an error into a pass."""
    (raw / "test/junit.xml").write_text(XML_CASE.format(time="0.5", inner=inner))

    assert [verdict] == [found.verdict for found in collect(raw).cases]


@pytest.mark.parametrize("time", ["nan", "inf", "-1", "1e308", "1e999", "soon", ""])
def test_an_impossible_time_is_no_time(raw, time):
    """Seconds are finite and not negative, whatever the file says."""
    (raw / "test/junit.xml").write_text(XML_CASE.format(time=time, inner=""))

    assert [found.seconds for found in collect(raw).cases] == [0.0]


def test_long_texts_are_cut_and_say_so(raw):
    """Ten megabytes of output in a failure are not copied into reports."""
    (raw / "test/junit.xml").write_text(XML_CASE.format(time="1", inner=f"<failure message='{'m' * 9000}'>{'x' * 10_000_000}</failure>"))

    found = collect(raw).cases[0]

    assert found.detail.endswith(f"{10_000_000 - 20_000} characters cut")
    assert len(found.message) < 2100


@pytest.mark.parametrize(("name", "kernel"), [("softmax/deep/t.py::t", "softmax"), ("test_softmax.py::t", "softmax"), ("odd", "odd")])
def test_the_kernel_is_the_top_folder_of_the_test(raw, name, kernel):
    """If the file does not name the kernel, the id does."""
    (raw / "test/junit.xml").write_text(
        f"<testsuite><testcase name='n'><properties><property name='id' value='{name}'/></properties></testcase></testsuite>"
    )

    assert [kernel] == [found.kernel for found in collect(raw).cases]


def test_an_unreadable_file_is_a_problem_not_a_traceback(raw, monkeypatch):
    """Missing permissions affect a single file too."""

    def refuse(path, *_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)

    assert Verdict.INVALID is collect(raw).record.verdict
