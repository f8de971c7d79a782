"""The bounds of what is read, each at its edge: the most that is allowed passes, one more does not. All data is synthetic."""

from __future__ import annotations

import dataclasses
import hashlib
import json

import pytest
from synthetic import case, compiled, edit, record, run, sample, write_raw

from harness.collect import cases, collect, collect_all, find_raw, guard, raw, seals, untrusted
from harness.collect.cases import read_cases
from harness.collect.guard import Fault, read_lines, read_record
from harness.collect.seals import miscounted, was_changed
from harness.collect.untrusted import Budget, RejectedError, Room, clip
from harness.errors import InvalidInputError
from harness.records import (
    OPEN,
    CardShare,
    CaseResult,
    Ceiling,
    Gates,
    Job,
    RunRecord,
    Sample,
    Stage,
    StageReport,
    Verdict,
    Waiver,
    Which,
    to_json,
)

INVALID, INCOMPLETE = Verdict.INVALID, Verdict.INCOMPLETE


def lines(*entries):
    return "".join(to_json(entry) + "\n" for entry in entries)


WHOLE = run(
    again=(sample(1),),
    launched=(compiled(origin="elsewhere"),),
    shares=(CardShare(Stage.TEST, 0, 3, 1.0), CardShare(Stage.BENCH, 1, 2, 1.0, "lost")),
    gates=Gates(OPEN, waivers=(Waiver("spills", "why", Which(("softmax",))),)),
    peers=("torch",),
)
EXTRA = {
    "bench/kernels.jsonl": lines(*WHOLE.launched),
    "test/cards.jsonl": lines(WHOLE.shares[0]),
    "bench/cards.jsonl": lines(WHOLE.shares[1]),
}


@pytest.fixture
def folder(tmp_path):
    """A raw folder with every file that there can be."""
    made = write_raw(tmp_path / "alpha", WHOLE)
    for name, text in EXTRA.items():
        (made / name).write_text(text)
    stages = tuple(report.stage for report in WHOLE.stages)
    (made / "job.json").write_text(to_json(Job("run-1", "alpha", stages, "/kernels", "/out", gates=WHOLE.gates, peers=WHOLE.peers)))
    return made


# --- the whole folder -------------------------------------------------------------------------------------------------------------------


def test_every_file_comes_back(folder):
    """In the field that it is for."""
    assert collect(folder) == WHOLE


# The stage that a file is of, None where it is about all of them, and the fields that come from it alone.
FILES = {
    "run.json": (None, set()),
    "job.json": (None, {"gates", "peers"}),
    "stages.json": (None, {"stages"}),
    "facts.json": (Stage.FACTS, {"facts"}),
    "test/junit.xml": (Stage.TEST, {"cases"}),
    "test/cards.jsonl": (Stage.TEST, {"shares"}),
    "bench/samples.jsonl": (Stage.BENCH, {"samples"}),
    "bench/again.jsonl": (Stage.BENCH, {"again"}),
    "bench/ceilings.jsonl": (Stage.BENCH, {"ceilings"}),
    "bench/kernels.jsonl": (Stage.BENCH, {"launched"}),
    "bench/cards.jsonl": (Stage.BENCH, {"shares"}),
    "compile/kernels.jsonl": (Stage.COMPILE, {"compiled"}),
}


@pytest.mark.parametrize("name", FILES)
def test_a_broken_file_costs_its_stage_or_the_run(folder, name):
    """Each of them by its name, and none of the other stages; all that was in the other files is there."""
    (folder / name).write_text("nonsense\n")
    found = collect(folder)
    stage, lost = FILES[name]
    differ = {field.name for field in dataclasses.fields(found) if getattr(found, field.name) != getattr(WHOLE, field.name)}

    assert [problem.partition(":")[0] for problem in found.problems] == [name]
    assert [report.stage for report in found.stages if report.verdict is INVALID] == ([stage] if stage else [])
    assert all(f"{name}: invalid: " in report.reason for report in found.stages if report.verdict is INVALID)
    assert (found.record.verdict is INVALID) == (stage is None)
    assert differ == {*lost, "problems", "stages" if stage else "record"}


@pytest.mark.parametrize("name", FILES)
def test_all_files_of_a_report_share_its_room(folder, name):
    """Nothing is read beyond it, whichever file comes last."""
    for other in FILES:
        if other != name and (folder / other).exists():
            (folder / other).unlink()
    room = Room()
    room.disk = 10

    assert any(problem.startswith(f"{name}: invalid: there is no room") for problem in collect(folder, room).problems)
    assert not any("no room" in problem for problem in collect(folder, Room()).problems)


@pytest.mark.parametrize("name", ["bench/again.jsonl", "bench/kernels.jsonl", "test/cards.jsonl", "bench/cards.jsonl"])
def test_what_is_there_on_request_only_is_missed_by_nobody(folder, name):
    """A bundle from before that format is whole, too."""
    (folder / name).unlink()

    assert collect(folder).problems == ()


def test_a_record_that_this_process_has_made_counts(folder):
    """The file may be older, or broken: the disk was full."""
    (folder / "run.json").write_text("{")
    made = dataclasses.replace(WHOLE.record, reason="made here")

    assert collect(folder, None, made) == dataclasses.replace(WHOLE, record=made)
    assert collect_all([folder], {folder: made})[0].record == made


def test_small_folders_are_read_first_and_come_back_in_their_order(tmp_path, monkeypatch):
    """A huge one does not take the room that all share."""
    huge, small = (write_raw(tmp_path / name, run(samples=points)) for name, points in (("a", [sample(1)] * 50), ("b", [sample(1)])))
    order = []
    read = raw.collect

    def note(folder, *more):
        order.append(folder)
        return read(folder, *more)

    monkeypatch.setattr(raw, "collect", note)
    found = collect_all([huge, small])

    assert order == [small, huge]
    assert [len(each.samples) for each in found] == [50, 1]


def test_a_folder_without_a_page_of_the_host_is_told_by_its_job_or_stages(folder):
    """The run's id from either; the package from the job; never a pass."""
    (folder / "run.json").unlink()
    by_job = collect(folder).record
    (folder / "job.json").unlink()
    by_stages = collect(folder).record

    assert by_job == RunRecord(
        *("run-1", "alpha", "alpha", INCOMPLETE, "run.json: incomplete: it is missing"),
        hint=by_job.hint,
        started="",
        seconds=0.0,
        commit="",
        kernels="/kernels",
        command=(),
    )
    assert by_job.hint
    assert (by_stages.run_id, by_stages.kernels) == ("run-1", "")


def test_a_name_of_a_folder_is_no_text_until_it_is_made_one(tmp_path):
    """Bytes that are no UTF-8, and far too many of them."""
    (tmp_path / "raw" / ("x" * 150)).mkdir(parents=True)
    (found,) = collect_all(find_raw([tmp_path]))

    assert found.record.target == found.record.label == f"{'x' * 100} … 50 characters cut"


@pytest.mark.parametrize("key", ["run_id", "target"])
@pytest.mark.parametrize("name", ["job.json", "stages.json"])
def test_a_file_of_another_run_names_both(folder, name, key):
    """Its own first, then that of run.json; long names are cut."""
    edit(folder / name, **{key: "y" * 50})
    found = collect(folder)
    told = {"run_id": f"alpha of run {'y' * 40} … 10 characters cut", "target": f"{'y' * 40} … 10 characters cut of run run-1"}[key]

    assert found.record.verdict is Verdict.STALE
    assert [problem.startswith("stale: " + name) for problem in found.problems] == [True]
    assert f"{told}, run.json about alpha of run run-1" in found.record.reason


@pytest.mark.parametrize(
    ("verdict", "finished", "expected"),
    [
        (Verdict.PASSED, False, INCOMPLETE),
        (Verdict.FAILED, False, INCOMPLETE),
        (Verdict.TIMEOUT, False, Verdict.TIMEOUT),
        (Verdict.PASSED, True, Verdict.PASSED),
    ],
)
def test_a_run_that_its_host_says_has_ended_badly_may_be_unfinished(tmp_path, verdict, finished, expected):
    """Only a good end and an unfinished inside disagree."""
    found = collect(write_raw(tmp_path / "a", run(record=record(verdict=verdict, reason="")), finished=finished))

    assert found.record.verdict is expected
    assert len(found.problems) == (expected is INCOMPLETE)


def test_a_run_without_results_says_how_far_it_came_beside_its_reason(tmp_path):
    """Of the largest plan in the journal; nothing where all of them were measured, or the run finished."""
    made = write_raw(tmp_path / "a", run(record=record(verdict=Verdict.TIMEOUT, reason="slow")), finished=False)
    plans = [{"event": "collected", "points": dict.fromkeys(map(str, range(n)), 1)} for n in (5, 8)]
    (made / "bench/journal.jsonl").write_text("".join(json.dumps(plan) + "\n" for plan in [*plans, {"event": "other", "points": {}}]))
    reasons = [collect(made).record.reason]
    (made / "bench/journal.jsonl").write_text(json.dumps({"event": "collected", "points": dict.fromkeys("abc", 1)}) + "\n")
    reasons.append(collect(made).record.reason)

    assert reasons == ["slow; 3 of 8 points were measured", "slow"]


def test_waivers_have_a_bound(folder, monkeypatch):
    """In number, and in patterns beside those that fit everything; beyond it their use is not told."""
    found = []
    for most, patterns in ((1, 1), (0, 1), (1, 0)):
        monkeypatch.setattr(raw, "_MAX_WAIVERS", most)
        monkeypatch.setattr(raw, "_MAX_PATTERNS", patterns)
        found.append(collect(folder))

    assert [bool(each.gates) for each in found] == [True, False, False]
    assert [len(each.problems) for each in found] == [0, 1, 1]
    assert found[1].problems[0].startswith("job.json: ")


def test_architectures_have_a_bound(folder, monkeypatch):
    """The first ones are kept; a fault that the file has already stays."""
    monkeypatch.setattr(raw, "_MAX_ARCHITECTURES", 2)
    rows = [compiled(name) for name in ("a", "b", "a", "c")]
    (folder / "compile/kernels.jsonl").write_text(lines(*rows[:3]))
    within = collect(folder)
    (folder / "compile/kernels.jsonl").write_text(lines(*rows))
    beyond = collect(folder)
    (folder / "compile/kernels.jsonl").write_text("nonsense\n" + lines(*rows))
    broken = collect(folder)

    assert (len(within.compiled), within.problems) == (3, ())
    assert [row.architecture for row in beyond.compiled] == ["a", "b", "a"]
    assert beyond.problems == ("compile/kernels.jsonl: invalid: more than 2 architectures; the first 2 are kept",)
    assert "line 1" in broken.problems[0]


def test_the_search_has_bounds(tmp_path, monkeypatch):
    """Three folders below what is given, and no more of them than are looked into."""
    for name, deep in (("a/b/c/x", True), ("a/b/c/d/y", False)):
        write_raw(tmp_path / str(deep) / name, run())

    assert find_raw([tmp_path / "True" / "a"]) == [tmp_path / "True" / "a/b/c/x"]
    with pytest.raises(InvalidInputError):
        find_raw([tmp_path / "False" / "a"])
    assert find_raw([tmp_path / "False" / "a", tmp_path / "True" / "a"]) == [tmp_path / "True" / "a/b/c/x"]
    monkeypatch.setattr(raw, "MAX_FOLDERS", 3)
    assert find_raw([tmp_path / "True" / "a"])
    monkeypatch.setattr(raw, "MAX_FOLDERS", 2)
    with pytest.raises(InvalidInputError, match="2 folders"):
        find_raw([tmp_path / "True" / "a"])


# --- JSON -------------------------------------------------------------------------------------------------------------------------------


def put(tmp_path, text, name="a.jsonl"):
    (tmp_path / name).write_text(text)
    return tmp_path


CEILING = Ceiling(0, 1, 1.0, 1.0, 1.0, "before")
LINE = to_json(CEILING) + "\n"


@pytest.mark.parametrize(("count", "good"), [(3, True), (4, False)])
def test_lines_have_a_bound(tmp_path, monkeypatch, count, good):
    """Empty ones are counted, too."""
    monkeypatch.setattr(guard, "MAX_LINES", 3)
    found, fault = read_lines(put(tmp_path, "\n" + LINE * (count - 1)), "a.jsonl", Ceiling)

    assert (len(found), fault is None) == ((count - 1, True) if good else (0, False))
    assert good or fault == Fault("a.jsonl", INVALID, "it is too large: more than 3 lines")


def test_the_length_of_a_line_has_a_bound(tmp_path, monkeypatch):
    """With its end."""
    found = []
    for most in (len(LINE), len(LINE) - 1):
        monkeypatch.setattr(guard, "MAX_LINE_BYTES", most)
        found.append(read_lines(put(tmp_path, LINE * 2), "a.jsonl", Ceiling))

    assert found[0] == ((CEILING, CEILING), None)
    assert found[1][0] == ()
    assert "line 1 " in found[1][1].text


@pytest.mark.parametrize(
    ("text", "kept", "fault"),
    [
        (LINE + "x\n" + LINE, 2, (INVALID, "line 2: not JSON")),
        ("x\ny\n" + LINE, 1, (INVALID, "; and 1 more lines")),
        ("x\n" * 3 + LINE, 0, (INVALID, "; and 2 more lines, then it was given up")),
        (LINE + LINE[:-5], 1, (INCOMPLETE, "the 1 before it are kept")),
        ("x\n" + LINE[:-5], 0, (INVALID, "line 1: not JSON")),
        (LINE + LINE[:-1], 2, None),
        ("", 0, None),
        ("\n \n" + LINE, 1, None),
    ],
)
def test_lines_that_are_wrong_are_counted(tmp_path, monkeypatch, text, kept, fault):
    """Good ones are kept; the first wrong one is told, and a last line may be cut off."""
    monkeypatch.setattr(guard, "MAX_WRONG_LINES", 3)
    found, told = read_lines(put(tmp_path, text), "a.jsonl", Ceiling)

    assert found == (CEILING,) * kept
    assert (told and (told.name, told.verdict, told.missing)) == (fault and ("a.jsonl", fault[0], False))
    assert not fault or fault[1] in told.text


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
        monkeypatch.setattr(guard, key, value)
    found, fault = read_record(put(tmp_path, text, "a.json"), "a.json", object)

    assert (fault is None) == good
    assert (found == json.loads(text)) if good else (found, fault.verdict) == (None, INVALID)


def test_the_place_of_a_wrong_value_is_told(tmp_path):
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
    monkeypatch.setattr(guard, "MAX_LINES_BYTES", len(LINE) * 3)
    assert len(read_lines(tmp_path, "a.jsonl", Ceiling, room)[0]) == 3
    kept = before - room.memory
    assert 3 * 1500 < kept < 20_000
    monkeypatch.setattr(guard, "MAX_LINES_BYTES", len(LINE) * 3 - 1)
    assert read_lines(tmp_path, "a.jsonl", Ceiling, room)[1].verdict is INVALID
    monkeypatch.undo()
    monkeypatch.setattr(guard, "MAX_MEMORY", kept - 1)
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


# --- XML --------------------------------------------------------------------------------------------------------------------------------


def xml(tmp_path, inner, suites="<testsuites><testsuite>{}</testsuite></testsuites>"):
    put(tmp_path, suites.format(inner), "j.xml")
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


def test_what_a_refused_file_took_is_given_back(tmp_path):
    """Also where it is only not well-formed at its end."""
    room = Room()
    memory = room.memory
    for end in ("<", "<testcase/></testsuite>"):
        put(tmp_path, '<testsuite><testcase name="n"/>' + end, "j.xml")
        with pytest.raises(RejectedError):
            read_cases(tmp_path, "j.xml", room)
        assert room.memory == memory
    put(tmp_path, '<testsuite><testcase name="n"/></testsuite>', "j.xml")
    read_cases(tmp_path, "j.xml", room)
    assert 400 < memory - room.memory < 2000


@pytest.mark.parametrize(
    ("name", "kernel"),
    [("a/b/test_c.py::t", "a"), ("test_c.py::t", "c"), ("./test_c.py::t", "c"), ("/a/test_c.py", "/"), ("a::b/c", "a")],
)
def test_a_kernel_is_the_top_folder(tmp_path, name, kernel):
    """Of the file, not of a parameter; a file in no folder is called by its name."""
    assert xml(tmp_path, f'<testcase name="{name}"/>')[0].kernel == kernel


# --- seals ------------------------------------------------------------------------------------------------------------------------------


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
    monkeypatch.setattr(seals, "_PIECE", 3)
    put(tmp_path, "12345678", "a")
    digest = hashlib.sha256(b"12345678").hexdigest()

    assert (was_changed(tmp_path, "a", digest), was_changed(tmp_path, "a", ""), was_changed(tmp_path, "b", digest)) == ("", "", "")
    assert was_changed(tmp_path, "a", digest[::-1])


def test_a_sample_is_kept_whole(tmp_path):
    """Every field of it."""
    point = dataclasses.replace(sample(), rounds=(10, 11), discarded=3, late=4, host_ms=0.5, weak="w", low=1.0, high=2.0)

    assert read_lines(put(tmp_path, lines(point)), "a.jsonl", Sample) == ((point,), None)
