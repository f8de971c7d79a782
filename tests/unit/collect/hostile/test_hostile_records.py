"""Hostile files of a raw folder: XML, lines, records, links and sizes. All data is synthetic."""

import os
import time

import pytest
from synthetic import edit, run, sample

from warpwave.collect import cases, collect, untrusted
from warpwave.records import Stage, Verdict, to_json


def stage(found, name):
    return next(report for report in found.stages if report.stage is name)


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

    assert time.monotonic() - started < 30
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
        (untrusted, "MAX_LINES_BYTES", 300, "bench/samples.jsonl", Stage.BENCH),
        (untrusted, "MAX_LINES", 2, "bench/samples.jsonl", Stage.BENCH),
        (untrusted, "MAX_LINE_BYTES", 300, "bench/samples.jsonl", Stage.BENCH),
        (untrusted, "MAX_VALUES", 20, "bench/samples.jsonl", Stage.BENCH),
        (untrusted, "MAX_STRING", 10, "bench/samples.jsonl", Stage.BENCH),
        (untrusted, "MAX_MEMORY", 4000, "bench/samples.jsonl", Stage.BENCH),
        (untrusted, "MAX_JSON_BYTES", 300, "facts.json", Stage.FACTS),
        (untrusted, "MAX_JSON_DEPTH", 1, "facts.json", Stage.FACTS),
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


def test_an_unreadable_file_is_a_problem_not_a_traceback(raw, monkeypatch):
    """Missing permissions affect a single file too."""

    def refuse(path, *_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)

    assert Verdict.INVALID is collect(raw).record.verdict
