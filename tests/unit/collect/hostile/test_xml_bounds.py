"""JUnit files, element by element, and their bounds at the edges: the most that is allowed passes, one more does not."""

from __future__ import annotations

import pytest

from warpwave.collect import cases
from warpwave.collect.cases import read_cases
from warpwave.collect.untrusted import RejectedError, Room
from warpwave.records import CaseResult, Verdict

INVALID, INCOMPLETE = Verdict.INVALID, Verdict.INCOMPLETE


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


@pytest.mark.parametrize(
    ("name", "kernel"),
    [("a/b/test_c.py::t", "a"), ("test_c.py::t", "c"), ("./test_c.py::t", "c"), ("/a/test_c.py", "a"), ("a::b/c", "a")],
)
def test_a_kernel_is_the_top_folder(tmp_path, name, kernel):
    """Of the file, not of a parameter; a file in no folder is called by its name."""
    assert xml(tmp_path, f'<testcase name="{name}"/>')[0].kernel == kernel
