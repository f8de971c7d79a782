"""The bounds of JSON files at their edges: the most that is allowed passes, one more does not."""

import dataclasses
import hashlib
import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from slow_cases import slow_but
from synthetic import case, edit, run, sample, two_targets, write_raw

from warpwave.__main__ import _run_cli
from warpwave.collect import cases, collect, raw_folder, untrusted
from warpwave.collect.cases import read_cases
from warpwave.collect.raw_folder import miscounted, was_changed
from warpwave.collect.untrusted import Budget, Fault, RejectedError, Room, clip, read_lines, read_record
from warpwave.errors import ExitCode, UsageError
from warpwave.records import CaseResult, Ceiling, Sample, Stage, StageReport, Verdict, to_json
from warpwave.run.shards import parse_shard

INVALID, INCOMPLETE = Verdict.INVALID, Verdict.INCOMPLETE


def put(tmp_path, text, name="a.jsonl"):
    (tmp_path / name).write_text(text)
    return tmp_path


CEILING = Ceiling(0, 1, 1.0, 1.0, 1.0, "before")
LINE = to_json(CEILING) + "\n"


@pytest.mark.parametrize(("count", "good"), [(3, True), (4, False)])
def test_lines_have_a_bound(tmp_path, monkeypatch, count, good):
    """Empty ones are counted, too."""
    monkeypatch.setattr(untrusted, "MAX_LINES", 3)
    found, fault = read_lines(put(tmp_path, "\n" + LINE * (count - 1)), "a.jsonl", Ceiling)

    assert (len(found), fault is None) == ((count - 1, True) if good else (0, False))
    assert good or fault == Fault("a.jsonl", INVALID, "it is too large: more than 3 lines")


def test_the_length_of_a_line_has_a_bound(tmp_path, monkeypatch):
    """With its end."""
    found = []
    for most in (len(LINE), len(LINE) - 1):
        monkeypatch.setattr(untrusted, "MAX_LINE_BYTES", most)
        found.append(read_lines(put(tmp_path, LINE * 2), "a.jsonl", Ceiling))

    assert found[0] == ((CEILING, CEILING), None)
    assert found[1][0] == ()
    assert "line 1 " in found[1][1].text


@pytest.mark.parametrize(
    ("text", "kept", "fault"),
    [
        (LINE + "x\n" + LINE, 2, (INVALID, "line 2: not JSON")),
        ("x\ny\n" + LINE, 1, (INVALID, "; and 1 more lines")),
        ("x\n" * 3 + LINE, 0, (INVALID, "; and 2 more lines, and the rest was not read")),
        (LINE + LINE[:-5], 1, (INCOMPLETE, "the 1 before it are kept")),
        ("x\n" + LINE[:-5], 0, (INVALID, "line 1: not JSON")),
        (LINE + LINE[:-1], 2, None),
        ("", 0, None),
        ("\n \n" + LINE, 1, None),
    ],
)
def test_lines_that_are_wrong_are_counted(tmp_path, monkeypatch, text, kept, fault):
    """Valid lines are kept, the first wrong line is reported, and the last line may be incomplete."""
    monkeypatch.setattr(untrusted, "MAX_WRONG_LINES", 3)
    found, told = read_lines(put(tmp_path, text), "a.jsonl", Ceiling)

    assert found == (CEILING,) * kept
    assert (told and (told.name, told.verdict, told.missing)) == (fault and ("a.jsonl", fault[0], False))
    assert not fault or fault[1] in told.text


def test_one_wrong_line_or_value_is_reported_alone(tmp_path):
    """Without a count of others; and of very many wrong values, how many there are."""
    _, fault = read_lines(put(tmp_path, "x\n" + LINE), "a.jsonl", Ceiling)
    many = to_json(dataclasses.replace(sample(), times_ms=())).replace('"times_ms": []', f'"times_ms": [{", ".join(["null"] * 101)}]')
    _, values = read_record(put(tmp_path, many, "b"), "b", Sample)

    assert fault.text.startswith("line 1: not JSON")
    assert "more" not in fault.text
    assert values.text.startswith("101 ")

    wrong = to_json(StageReport(Stage.TEST, INVALID)).replace('"counts": {}', '"counts": {"a": -1}')
    _, fault = read_record(put(tmp_path, wrong, "a"), "a", StageReport)
    _, top = read_record(put(tmp_path, "[]", "a"), "a", StageReport)

    assert fault.text.startswith("counts.a: ")
    assert "top level" in top.text


def test_a_file_that_is_missing_says_so(tmp_path):
    """It is incomplete, and no more than that."""
    assert read_lines(tmp_path, "a.jsonl", Ceiling) == ((), Fault("a.jsonl", INCOMPLETE, "it is missing", missing=True))
    assert read_record(tmp_path, "a.json", Ceiling) == (None, Fault("a.json", INCOMPLETE, "it is missing", missing=True))
    assert str(Fault("a.json", INCOMPLETE, "it is missing")) == "a.json: incomplete: it is missing"


def nested(depth):
    return "[" * depth + "]" * depth


VALUES = {
    "a text as long as may be": ('"' + "x" * 10 + '"', True),
    "a longer text": ('"' + "x" * 11 + '"', False),
    "a key that is longer": ('{"' + "x" * 11 + '": 1}', False),
    "as deep as may be": (nested(4), True),
    "deeper": (nested(5), False),
    "as many as may be": ("[" + "1," * 8 + "1]", True),
    "more": ("[" + "1," * 9 + "1]", False),
    "the largest integer": (str((1 << 63) - 1), True),
    "a larger one": (str(1 << 63), False),
    "the smallest integer": (str(1 - (1 << 63)), True),
    "a smaller one": (str(-(1 << 63)), False),
    "an integer of too many digits": ("1" * 5000, False),
    "infinity": ("1e999", False),
    "no number": ("NaN", False),
    "a key that is there twice": ('{"a": 1, "a": 1}', False),
    "the schema that is read": ('{"schema_version": 1}', True),
    "a newer schema": ('{"schema_version": 2}', False),
    "a schema that is no number": ('{"schema_version": "1"}', False),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_have_bounds(tmp_path, monkeypatch, name):
    """Before they are held to what a record allows."""
    text, good = VALUES[name]
    for key, value in {"MAX_STRING": 20 if "schema" in text else 10, "MAX_JSON_DEPTH": 4, "MAX_VALUES": 10}.items():
        monkeypatch.setattr(untrusted, key, value)
    found, fault = read_record(put(tmp_path, text, "a.json"), "a.json", object)

    assert (fault is None) == good
    assert (found == json.loads(text)) if good else (found, fault.verdict) == (None, INVALID)


def test_memory_and_disk_have_bounds(tmp_path, monkeypatch):
    """A file of exactly as many bytes is read; a refused file gives back what its lines took."""
    put(tmp_path, LINE * 3)
    room = Room()
    before = room.memory
    monkeypatch.setattr(untrusted, "MAX_LINES_BYTES", len(LINE) * 3)
    assert len(read_lines(tmp_path, "a.jsonl", Ceiling, room)[0]) == 3
    kept = before - room.memory
    assert 3 * 1500 < kept < 20_000
    monkeypatch.setattr(untrusted, "MAX_LINES_BYTES", len(LINE) * 3 - 1)
    assert read_lines(tmp_path, "a.jsonl", Ceiling, room)[1].verdict is INVALID
    monkeypatch.undo()
    monkeypatch.setattr(untrusted, "MAX_MEMORY", kept - 1)
    assert "memory" in read_lines(tmp_path, "a.jsonl", Ceiling, room)[1].text
    assert room.memory == before - kept


def test_a_budget_at_its_edges(monkeypatch):
    """Bytes, memory and elements, of the file and of all of them; and the clock."""
    room = Room()
    room.disk, room.memory, room.elements = 15, 15, 15
    budget = Budget(10, 10, room)
    budget.read(10)
    budget.keep(10)
    budget.parse(15)
    for spend in (budget.read, budget.keep, budget.parse):
        with pytest.raises(RejectedError):
            spend(1)
    budget.give_back()
    assert (room.memory, room.disk) == (15, 4)
    budget.keep(10)
    second = Budget(10, 10, room)
    with pytest.raises(RejectedError):
        second.keep(6)
    second.keep(5)
    assert room.memory == 0
    with pytest.raises(RejectedError):
        second.read(5)
    for spend, unit in ((Room().read, "MiB"), (Room().keep, "MiB"), (Room().parse, "elements")):
        with pytest.raises(RejectedError, match=unit):
            spend(1 << 40)
    now = untrusted.time.monotonic()
    monkeypatch.setattr(untrusted.time, "monotonic", lambda: now)
    late = Budget(10, 10)
    monkeypatch.setattr(untrusted.time, "monotonic", lambda: now + untrusted.MAX_SECONDS - 0.1)
    late.read(1)
    monkeypatch.setattr(untrusted.time, "monotonic", lambda: now + untrusted.MAX_SECONDS)
    with pytest.raises(RejectedError, match="120 s"):
        late.read(1)


def test_a_text_is_clipped_and_tests_are_counted(tmp_path, monkeypatch):
    tests = (case("a"), case("b", Verdict.FAILED))

    def told(**counts):
        return miscounted(StageReport(Stage.TEST, INVALID, counts={name.replace("_", "-"): count for name, count in counts.items()}), tests)

    assert (told(), told(passed=1, failed=1), told(passed=1, failed=1, error=0)) == ("", "", "")
    assert told(passed=1) == "2 tests are in the file, the stage counted 1"
    assert told(passed=2) == "1 tests in the file are failed, the stage counted 0"
    assert told(failed=2) == "1 tests in the file are failed, the stage counted 2"
    assert told(passed=1, error=1) == "0 tests in the file are error, the stage counted 1"

    assert (clip("abc", 3), clip("abcd", 3)) == ("abc", "abc … 1 characters cut")

    # The file is read in pieces. Without a hash or without the file, there is no finding.
    monkeypatch.setattr(raw_folder, "_PIECE", 3)
    put(tmp_path, "12345678", "a")
    digest = hashlib.sha256(b"12345678").hexdigest()

    assert (was_changed(tmp_path, "a", digest), was_changed(tmp_path, "a", ""), was_changed(tmp_path, "b", digest)) == ("", "", "")
    assert was_changed(tmp_path, "a", digest[::-1])


# JUnit files, element by element, and their bounds at the edges: the most that is allowed passes, one more does not.


def xml(tmp_path, inner, suites="<testsuites><testsuite>{}</testsuite></testsuites>"):
    (tmp_path / "j.xml").write_text(suites.format(inner))
    return read_cases(tmp_path, "j.xml")


def test_a_case_field_by_field(tmp_path):
    """Its id and kernel are properties; the others are the author's. Without them its class and name are its id."""
    told = '<properties><property name="id" value="i"/><property name="kernel" value="k"/><property name="x" value="1"/></properties>'
    found = xml(tmp_path, f'<testcase classname="c" name="n" time="0.5">{told}<failure message="m">detail</failure></testcase>')
    bare = xml(tmp_path, '<testcase classname="c" name="n"/><testcase name="n"/><testcase classname="c"/>')

    assert found == (CaseResult("i", "k", Verdict.FAILED, 0.5, "m", "detail", {"x": "1"}),)
    assert [(each.id, each.kernel, each.seconds) for each in bare] == [("c::n", "c", 0.0), ("n", "n", 0.0), ("c", "c", 0.0)]


INNER = {
    "a skip": ('<skipped message="m">d</skipped>', (Verdict.NOT_RUN, "m", "d")),
    "an error": ('<error message="m">d</error>', (Verdict.ERROR, "m", "d")),
    "an error of a type": ('<error type="oom" message="m"/>', (Verdict.OOM, "m", "")),
    "an error that calls itself passed": ('<error type="passed"/>', (Verdict.ERROR, "", "")),
    "a failure of a type": ('<failure type="oom"/>', (Verdict.FAILED, "", "")),
    "the graver of two": ('<failure message="f">a</failure><error message="e">b</error><skipped/>', (Verdict.ERROR, "e", "b")),
    "the first of two alike": ('<failure message="f">a</failure><failure message="g">b</failure>', (Verdict.FAILED, "f", "a")),
    "text before another element": ("<failure>a<b>c</b>d</failure>", (Verdict.FAILED, "", "a")),
    "text that is no result's": ("x<system-out>y</system-out>z", (Verdict.PASSED, "", "")),
    "a result of something else": ("<system-out><failure/></system-out>", (Verdict.PASSED, "", "")),
    "a long text": (f"<failure>{'x' * 20_003}</failure>", (Verdict.FAILED, "", "x" * 20_000 + " … 3 characters cut")),
    "a long message": (f'<failure message="{"x" * 2001}"/>', (Verdict.FAILED, "x" * 2000 + " … 1 characters cut", "")),
    "text after a long one": (f"<failure>{'x' * 20_003}</failure><error>y</error>", (Verdict.ERROR, "", "y")),
}


@pytest.mark.parametrize("name", INNER)
def test_the_result_of_a_case(tmp_path, name):
    """The gravest, with its own message and text."""
    inner, expected = INNER[name]
    (found,) = xml(tmp_path, f'<testcase name="n">{inner}</testcase>')

    assert (found.verdict, found.message, found.detail) == expected


STATUSES = {
    "failed": ('status="failed"', "", (Verdict.FAILED, 'status="failed"')),
    "failed, and an element says why": ('status="failed"', '<failure message="m"/>', (Verdict.FAILED, "m")),
    "an error in capitals": ('result="ERROR"', "", (Verdict.ERROR, 'result="ERROR"')),
    "not run": ('status="notrun" result="suppressed"', "", (Verdict.NOT_RUN, 'status="notrun"')),
    "run, and its result": ('status="run" result="failed"', "", (Verdict.FAILED, 'result="failed"')),
    "run": ('status="run" result="completed"', "", (Verdict.PASSED, "")),
    "a word that nobody knows": ('status="passed" result="unstable"', "", (Verdict.INVALID, 'result="unstable"')),
    "run, and an element failed": ('status="passed"', '<failure message="m"/>', (Verdict.FAILED, "m")),
}


@pytest.mark.parametrize("name", STATUSES)
def test_the_status_of_a_case(tmp_path, name):
    """Other tools name it in an attribute, and write no element."""
    attributes, inner, expected = STATUSES[name]
    (found,) = xml(tmp_path, f'<testcase name="n" {attributes}>{inner}</testcase>')

    assert (found.verdict, found.message) == expected


@pytest.mark.parametrize("tag", ["Failure", "fail", "rerun"])
def test_an_unknown_element_is_no_pass(tmp_path, tag):
    """It may mean a failure. Surefire's attempts beside a result are known, and change nothing."""
    (found,) = xml(tmp_path, f'<testcase name="n"><{tag}/></testcase>')
    assert (found.verdict, found.message) == (Verdict.INVALID, f"JUnit has no element <{tag}>")

    (found,) = xml(tmp_path, '<testcase name="n"><system-out>x</system-out><flakyFailure><stackTrace/></flakyFailure></testcase>')
    assert found.verdict is Verdict.PASSED


@pytest.mark.parametrize("tag", ["error", "failure"])
def test_an_error_outside_of_any_test_is_no_pass(tmp_path, tag):
    """A suite whose preparation failed may have no failed case. One in something else is text."""
    with pytest.raises(RejectedError, match=f"line 1: <{tag}> outside of any test"):
        xml(tmp_path, f'<{tag}/><testcase name="n"/>')

    assert len(xml(tmp_path, f'<system-out><{tag}/></system-out><testcase name="n"/>')) == 1


def test_the_first_list_of_properties_counts(tmp_path):
    """And 64 of them, beside the id and the kernel; only what is right below the case."""
    many = "".join(f'<property name="p{n}" value="{n}"/>' for n in range(70))
    late = '<property name="id" value="i"/><property name="kernel" value="k"/>'
    second, odd = (
        '<properties><property name="q"/></properties>',
        '<property name="a"/><properties><x name="b"/><property name="c"/></properties>',
    )
    (found,) = xml(tmp_path, f'<testcase name="n"><properties>{many}{late}</properties>{second}</testcase>')
    (other,) = xml(tmp_path, f'<testcase name="n">{odd}</testcase>')

    assert (found.id, found.kernel, len(found.properties), "p63" in found.properties) == ("i", "k", 64, True)
    assert other.properties == {"c": ""}

    # Also where it is only not well-formed at its end.
    room = Room()
    memory = room.memory
    for end in ("<", "<testcase/></testsuite>"):
        (tmp_path / "j.xml").write_text('<testsuite><testcase name="n"/>' + end)
        with pytest.raises(RejectedError):
            read_cases(tmp_path, "j.xml", room)
        assert room.memory == memory
    (tmp_path / "j.xml").write_text('<testsuite><testcase name="n"/></testsuite>')
    read_cases(tmp_path, "j.xml", room)
    assert 400 < memory - room.memory < 2000


SUITES = {
    "below a suite": ("<testsuite>{}</testsuite>", 1),
    "below suites of suites": ("<testsuites><testsuite><testsuite>{}</testsuite></testsuite></testsuites>", 1),
    "below suites alone": ("<testsuites>{}</testsuites>", 0),
    "below something else": ("<testsuite><x>{}</x></testsuite>", 0),
    "after something else": ("<testsuite><x/>{}</testsuite>", 1),
    "after a suite": ("<testsuites><testsuite><testsuite/></testsuite><testsuite>{}</testsuite></testsuites>", 1),
    "below a suite in something else": ("<testsuites><x><testsuite>{}</testsuite></x></testsuites>", 0),
    "a case in a case": ('<testsuite><testcase name="n">{}</testcase></testsuite>', 1),
}


@pytest.mark.parametrize("name", SUITES)
def test_a_case_is_right_below_a_suite(tmp_path, name):
    suites, count = SUITES[name]

    assert len(xml(tmp_path, '<testcase name="n"/>', suites)) == count


@pytest.mark.parametrize(
    ("cap", "most", "inner"),
    [
        ("MAX_CASES", 2, '<testcase name="n"/>' * 2),
        ("MAX_XML_ELEMENTS", 4, '<testcase name="n"/>' * 2),
        ("MAX_XML_DEPTH", 4, '<testcase name="n"><a/></testcase>'),
        ("MAX_NAMES", 6, '<testcase name="n"><a b=""/></testcase>'),
    ],
)
def test_xml_has_bounds(tmp_path, monkeypatch, cap, most, inner):
    """The most that is allowed, and one less."""
    monkeypatch.setattr(cases, cap, most)
    assert xml(tmp_path, inner)
    monkeypatch.setattr(cases, cap, most - 1)
    with pytest.raises(RejectedError, match=str(most - 1)):
        xml(tmp_path, inner)


def test_a_tag_that_does_not_end_has_a_bound(tmp_path, monkeypatch):
    """It is in memory as a whole; the line is told."""
    monkeypatch.setattr(cases, "MAX_TAG_BYTES", 100)
    (tmp_path / "j.xml").write_text('<testsuite>\n<testcase name="' + "x" * 200)
    with pytest.raises(RejectedError, match=r"line 2: .* 100 bytes"):
        read_cases(tmp_path, "j.xml")


# Every field of a raw folder is validated when it is read: one bad field affects only its own file. All data is synthetic.


NO_SHARDS = (
    *("x", "1/999999999", "²/³", "1/2/3", "0/3", "4/3", "-1/2", "１/２", "1/65", "1/", "/2", " 1/2", "1/2\n", "+1/2", "1_0/20", "01/2"),  # noqa: RUF001
    *("1" * 5000 + "/2", "1/٣", "9" * 40_000 + "/" + "9" * 40_000),
)


@pytest.mark.parametrize("text", slow_but(NO_SHARDS, ("x", "1/999999999", "²/³", "4/3")), ids=lambda text: ascii(text[:12]))
def test_a_shard_of_a_bundle_is_read_as_the_command_line_reads_it(tmp_path, text):
    """The reader refuses what `--shard` refuses: the file is invalid, and every other target is in the report."""
    for source in two_targets():
        write_raw(tmp_path / "raw" / source.record.target, source)
    edit(tmp_path / "raw" / "alpha" / "run.json", shard=text)
    with pytest.raises(UsageError):
        parse_shard(text)

    for words in (
        ["report", str(tmp_path), "--out", str(tmp_path / "out")],
        ["ci", "report", str(tmp_path), "--out", str(tmp_path / "ci"), "--base", str(tmp_path)],
        ["ci", "comment", str(tmp_path), "--out", str(tmp_path / "comment.md")],
    ):
        with CliRunner().isolation():
            assert _run_cli(words) in (ExitCode.GOOD, ExitCode.FAILED, ExitCode.INCOMPLETE)
    comparison = json.loads((tmp_path / "out" / "comparison.json").read_text())

    assert [target["verdict"] for target in comparison["targets"]] == ["invalid", "failed"]
    assert comparison["problems"][0].startswith("alpha: run.json: invalid: shard: ")


DEEP = "a" * 3000
FIELDS = {
    "run.json": (
        *(("target", DEEP), ("run_id", DEEP), ("seconds", 1e308), ("seconds", -1.0)),
        *(("attempts", [{"started": "", "seconds": 0.0, "verdict": "infra", "reason": ""}] * 2000), ("command", ["a"] * 3000)),
        ("attempts", [{"started": "", "seconds": 1e300, "verdict": "infra", "reason": ""}]),
    ),
    "facts.json": (
        ("devices", [{"index": n, "name": "g", "architecture": "a", "memory_bytes": 1, "multiprocessors": 1} for n in range(5000)]),
        ("devices", [{"index": 1 << 62, "name": "g", "architecture": "a", "memory_bytes": 1, "multiprocessors": 1}]),
        ("devices", [{"index": -1, "name": "g", "architecture": "a", "memory_bytes": 1, "multiprocessors": 1}]),
        ("devices", [{"index": 0, "name": "g", "architecture": "a", "memory_bytes": 1, "multiprocessors": 1, "clock_mhz": 1e308}]),
    ),
    "stages.json": (
        ("reports", [{"stage": "test", "verdict": "passed", "seconds": 1e300}]),
        ("reports", [{"stage": "test", "verdict": "passed", "seconds": -1}]),
        ("reports", [{"stage": "test", "verdict": "passed", "counts": {"passed": -5}}]),
        ("reports", [{"stage": "test", "verdict": "passed", "counts": {str(n): n for n in range(1000)}}]),
        ("reports", [{"stage": "test", "verdict": "passed"}] * 1000),
    ),
    "job.json": (("what", {"peers": ["a"] * 5000}), ("what", {"stages": ["test"] * 5000})),
    "bench/samples.jsonl": (
        *(("device", -1), ("device", 1 << 40), ("kernel", DEEP), ("provider", DEEP), ("case", DEEP)),
        *(("params", {str(n): n for n in range(5000)}), ("rounds", [-1]), ("flush_bytes", -1), ("warmup", -1)),
    ),
    "bench/ceilings.jsonl": (("device", -1), ("device", 1 << 40)),
    "compile/kernels.jsonl": (
        *(("kernel", DEEP), ("function", DEEP), ("architecture", DEEP), ("seconds", 1e308), ("occupancy", 1e308), ("occupancy", -0.5)),
        *(("signature", {str(n): "i32" for n in range(5000)}), ("constants", {str(n): n for n in range(5000)})),
        *(("load_widths", [8] * 5000), ("instructions", {str(n): n for n in range(5000)}), ("matrix", ["a"] * 5000)),
    ),
}


@pytest.mark.parametrize(("name", "key", "value"), [(name, *entry) for name, found in FIELDS.items() for entry in found])
def test_a_field_beyond_its_bound_costs_its_file_or_line(tmp_path, name, key, value):
    raw = write_raw(tmp_path / "raw" / "alpha", run())
    lines = (raw / name).read_text().splitlines()
    lines[0] = json.dumps({**json.loads(lines[0]), key: value})
    (raw / name).write_text("\n".join(lines) + "\n")

    problems = collect(raw).problems

    assert len(problems) == 1
    assert problems[0].startswith(f"{name}: invalid: ")
    assert key in problems[0]


CLIPPED = {
    "run.json": ("label", "reason", "hint", "commit", "started"),
    "facts.json": ("torch", "triton", "runtime", "driver", "platform", "python", "kernels_hash"),
    "bench/samples.jsonl": ("timer", "unit", "weak", "reason"),
    "compile/kernels.jsonl": ("reason", "binary_hash"),
}


@pytest.mark.parametrize(("name", "key"), [(name, key) for name, keys in CLIPPED.items() for key in keys])
def test_prose_is_cut_and_costs_nothing(tmp_path, name, key):
    """A long reason is cut once, and stays the same when it is read again."""
    raw = write_raw(tmp_path / "raw" / "alpha", run())
    lines = (raw / name).read_text().splitlines()
    lines[0] = json.dumps({**json.loads(lines[0]), key: "é" * 50_000})
    (raw / name).write_text("\n".join(lines) + "\n")

    found = collect(raw)
    record = {"run.json": found.record, "facts.json": found.facts, "bench/samples.jsonl": found.samples[0]}.get(name, found.compiled[0])

    assert found.problems == ()
    assert len(getattr(record, key)) <= 10_000
    assert getattr(record, key).endswith("…")


def _limits() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
    resource.setrlimit(resource.RLIMIT_CPU, (60, 60))


def test_a_shard_of_a_billion_takes_no_memory(tmp_path):
    """In a process with a memory limit: the reader never enumerates shards up to the number."""
    edit(write_raw(tmp_path / "raw" / "alpha", run()) / "run.json", shard="1/999999999")
    command = [sys.executable, "-m", "warpwave", "report", str(tmp_path)]
    done = subprocess.run(command, cwd=Path(__file__).parents[3], preexec_fn=_limits, capture_output=True, text=True, check=False)

    assert done.returncode == ExitCode.INCOMPLETE, done.stderr


# Files that are not what their stage wrote or counted. All data is synthetic.


def stage(found, name):
    return next(report for report in found.stages if report.stage is name)


MISCOUNTED = {
    "fewer": ({"passed": 4}, "3 tests are in the file, the stage counted 4"),
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
    found = collect(sealed(tmp_path / "alpha"))

    assert (found.record.verdict, found.problems) == (Verdict.PASSED, ())

    # Otherwise the hashes of files could be changed too. The host has the hash of stages.json in run.json.
    folder = sealed(tmp_path / "alpha")
    (folder / "stages.json").write_text((folder / "stages.json").read_text() + " ")
    found = collect(folder)

    assert (found.record.verdict, found.problems) == (Verdict.INVALID, ("stages.json: invalid: it was changed after it was written",))


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
