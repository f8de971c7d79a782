"""The bounds of JSON files at their edges: the most that is allowed passes, one more does not."""

from __future__ import annotations

import dataclasses
import hashlib
import json

import pytest
from synthetic import case, sample

from warpwave.collect import cases, raw_folder, untrusted
from warpwave.collect.cases import read_cases
from warpwave.collect.raw_folder import miscounted, was_changed
from warpwave.collect.untrusted import Budget, Fault, RejectedError, Room, clip, read_lines, read_record
from warpwave.records import CaseResult, Ceiling, Sample, Stage, StageReport, Verdict, to_json

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


def test_one_wrong_line_is_reported_alone(tmp_path):
    """Without a count of others; and of very many wrong values, how many there are."""
    _, fault = read_lines(put(tmp_path, "x\n" + LINE), "a.jsonl", Ceiling)
    many = to_json(dataclasses.replace(sample(), times_ms=())).replace('"times_ms": []', f'"times_ms": [{", ".join(["null"] * 101)}]')
    _, values = read_record(put(tmp_path, many, "b"), "b", Sample)

    assert fault.text.startswith("line 1: not JSON")
    assert "more" not in fault.text
    assert values.text.startswith("101 ")


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


def test_the_place_of_a_wrong_value_is_reported(tmp_path):
    """The key path in the record."""
    wrong = to_json(StageReport(Stage.TEST, INVALID)).replace('"counts": {}', '"counts": {"a": -1}')
    _, fault = read_record(put(tmp_path, wrong, "a"), "a", StageReport)
    _, top = read_record(put(tmp_path, "[]", "a"), "a", StageReport)

    assert fault.text.startswith("counts.a: ")
    assert "top level" in top.text


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


def test_a_text_is_clipped_at_its_limit():
    """And says how much is gone."""
    assert (clip("abc", 3), clip("abcd", 3)) == ("abc", "abc … 1 characters cut")


def test_tests_are_counted_by_verdict():
    """In all, then each verdict; nothing counted is nothing to compare."""
    tests = (case("a"), case("b", Verdict.FAILED))

    def told(**counts):
        return miscounted(StageReport(Stage.TEST, INVALID, counts={name.replace("_", "-"): count for name, count in counts.items()}), tests)

    assert (told(), told(passed=1, failed=1), told(passed=1, failed=1, error=0)) == ("", "", "")
    assert told(passed=1) == "2 tests are in the file, the stage counted 1"
    assert told(passed=2) == "1 tests in the file are failed, the stage counted 0"
    assert told(failed=2) == "1 tests in the file are failed, the stage counted 2"
    assert told(passed=1, error=1) == "0 tests in the file are error, the stage counted 1"


def test_a_seal_is_of_the_whole_file(tmp_path, monkeypatch):
    """Read in pieces; without a hash, or without the file, nothing is told here."""
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
    """Anything else is no case."""
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


def test_what_a_refused_file_took_is_given_back(tmp_path):
    """Also where it is only not well-formed at its end."""
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
