"""One JUnit file for all targets, read back with another parser. All data is synthetic."""

import dataclasses
import xml.etree.ElementTree as ElementTree

import pytest
from synthetic import GPU_B, case, compiled, facts, no_gpu, record, run, two_targets, write_raw

from warpwave.collect import collect
from warpwave.compare import compare
from warpwave.records import Stage, StageReport, Verdict
from warpwave.render.junit import render_junit


def read(runs, expected=()) -> dict[str, ElementTree.Element]:
    """The suites of the written file, by name."""
    root = ElementTree.fromstring(render_junit(compare(runs, expected)))
    assert root.tag == "testsuites"
    return {suite.get("name"): suite for suite in root}


def numbers(suite) -> tuple[int, ...]:
    """The counts in the suite's attributes."""
    return tuple(int(suite.get(key)) for key in ("tests", "failures", "errors", "skipped"))


def counted(suite) -> tuple[int, ...]:
    """The cases that the suite contains."""
    return tuple(len(suite.findall(path)) for path in ("testcase", "testcase/failure", "testcase/error", "testcase/skipped"))


def properties(element) -> dict[str, str]:
    """Properties by name."""
    return {entry.get("name"): entry.get("value") for entry in element.findall("properties/property")}


def test_a_suite_per_target_and_gpu_with_what_it_ran_on():
    """Each suite can be traced to a GPU, a driver, an image and a commit."""
    suites = read(two_targets())
    found = properties(suites["beta/Synthetic GPU B"])

    assert list(suites)[:3] == ["alpha/Synthetic GPU A", "alpha/run", "alpha/compile/sy_80"]
    assert {**found, "image_digest": found["image_digest"][:9]} == {
        "label": "Synthetic beta",
        "device": "Synthetic GPU B",
        "driver": "7.7",
        "runtime": "synthetic 2.0",
        "torch": "2.13.0+synthetic",
        "triton": "3.9.1",
        "image": "synthetic:1",
        "image_digest": "sha256:00",
        "commit": "0123abc",
        "run_id": "run-1",
        "verdict": "failed",
    }
    assert suites["alpha/run"].get("timestamp") == "2026-01-02T03:04:05+00:00"


@pytest.mark.parametrize("runs", [two_targets(), [no_gpu()], two_targets()[:1], []], ids=len)
def test_every_count_is_what_the_file_holds(runs):
    """The counts of the suites and of the root are right, and so are their sums."""
    root = ElementTree.fromstring(render_junit(compare(runs, ["alpha", "beta"])))

    assert [numbers(suite) for suite in root] == [counted(suite) for suite in root]
    assert numbers(root) == tuple(map(sum, zip(*map(counted, root), strict=True)))


def test_verdicts_keep_their_kind_message_and_traceback():
    """A failure stays a failure, a crash an error of that type, a skip a skip."""
    cases = (
        case("softmax/test_softmax.py::TestRows::test_a[x/y::z]", Verdict.FAILED, message="one\ntwo", detail="line 1\nline 2"),
        case("softmax/test_softmax.py::test_b", Verdict.CRASHED, message="SIGSEGV"),
        case("softmax/test_softmax.py::test_c", Verdict.NOT_RUN, message="needs a GPU"),
        case("softmax/test_softmax.py::test_d", properties={"max_abs_err": "1e-7"}),
    )
    suite = read([run(cases=cases)])["alpha/Synthetic GPU A"]
    failed, crashed, skipped, passed = suite.findall("testcase")

    assert (failed.get("classname"), failed.get("name")) == ("softmax.test_softmax", "TestRows::test_a[x/y::z]")
    assert (failed[1].tag, failed[1].get("message"), failed[1].text) == ("failure", "one", "line 1\nline 2")
    assert (crashed[1].tag, crashed[1].get("type"), crashed[1].get("message")) == ("error", "crashed", "SIGSEGV")
    assert (skipped[1].tag, skipped[1].get("message")) == ("skipped", "needs a GPU")
    assert properties(passed) == {"id": "softmax/test_softmax.py::test_d", "kernel": "softmax", "max_abs_err": "1e-7"}


def test_what_was_written_can_be_collected_again(tmp_path):
    """The harness itself can read the file: ids, verdicts and properties survive."""
    (source, _) = two_targets()
    text = render_junit(compare([source]))
    raw = write_raw(tmp_path / "alpha", source)
    (raw / "test/junit.xml").write_text(text)

    found = collect(raw).cases

    assert found[: len(source.cases)] == source.cases


def test_an_absent_target_is_an_error_not_a_gap():
    """Readers of JUnit alone must not see green."""
    suite = read([run()], ["alpha", "beta"])["beta/run"]

    assert numbers(suite) == (1, 0, 1, 0)
    error = suite.find("testcase/error")
    assert (error.get("type"), error.get("message")) == ("absent", "no raw folder was given")


@pytest.mark.parametrize("verdict", [Verdict.INFRA, Verdict.INCOMPLETE, Verdict.STALE, Verdict.INVALID, Verdict.TIMEOUT, Verdict.NOT_RUN])
def test_a_target_that_is_not_complete_is_an_error(verdict):
    """This includes a target that ran nothing: as a skipped case, it would be green."""
    suite = read([run(record=record(verdict=verdict, reason="why"), stages=(), cases=())])["alpha/run"]

    assert suite.find("testcase/error").get("type") == verdict.value


def test_a_failed_test_is_counted_once():
    """The stage and the target that it failed in completed."""
    stages = (StageReport(Stage.TEST, Verdict.FAILED, exit_code=0), StageReport(Stage.BENCH, Verdict.PASSED))
    suites = read([run(record=record(verdict=Verdict.FAILED), stages=stages, cases=(case(verdict=Verdict.FAILED),))])

    assert sum(numbers(suite)[1] + numbers(suite)[2] for suite in suites.values()) == 1


def test_a_bench_that_failed_has_no_other_place_to_be_seen():
    """Points are no test cases, so the stage is one."""
    stages = (StageReport(Stage.TEST, Verdict.PASSED), StageReport(Stage.BENCH, Verdict.ERROR, reason="RuntimeError: x"))
    suite = read([run(stages=stages)])["alpha/run"]

    assert [case.get("name") for case in suite.findall("testcase") if case.find("error") is not None] == ["bench"]


def test_compiled_kernels_are_a_suite_per_architecture():
    """A broken gate is a failed case with its reason."""
    broken = (compiled("sy_90"), compiled("syn942"), compiled("syn942", num_warps=16, verdict=Verdict.FAILED, reason="1024 threads\nmore"))
    suites = read([run("cpu", None, compiled=broken, samples=())])
    failed = [entry for entry in suites["cpu/compile/syn942"].findall("testcase") if entry.find("failure") is not None]

    assert (numbers(suites["cpu/compile/sy_90"]), numbers(suites["cpu/compile/syn942"])) == ((1, 0, 0, 0), (2, 1, 0, 0))
    assert failed[0].get("classname") == "softmax._softmax_fwd"
    assert "16 warps" in failed[0].get("name")
    assert failed[0].find("failure").get("message") == "1024 threads"


def test_nothing_is_collapsed():
    """Two runs that look alike are two suites; two tests with one id are two cases with different names."""
    twice = (case(), case(verdict=Verdict.FAILED))
    suites = read([run(cases=twice), run(cases=twice)])
    names = [entry.get("name") for entry in suites["alpha/Synthetic GPU A"].findall("testcase")]

    assert {"alpha/Synthetic GPU A", "alpha (2)/Synthetic GPU A"} <= set(suites)
    assert names == ["test_softmax[fp32-1823x781]", "test_softmax[fp32-1823x781] (2)"]


def test_a_gpu_of_an_unlucky_name_is_not_merged_with_another_suite():
    """Suites with similar names are not merged, even if a name from outside makes them look equal."""
    root = ElementTree.fromstring(render_junit(compare([run("alpha", "run")])))

    assert [suite.get("name") for suite in root] == ["alpha/run", "alpha/run", "alpha/compile/sy_90"]


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0, 1e308])
def test_impossible_times_are_zero(seconds):
    """A parser must not fail because of a number."""
    suites = read([run(cases=(dataclasses.replace(case(), seconds=seconds),), compiled=(compiled(seconds=seconds),))])

    assert {
        entry.get("time") for name in ("alpha/Synthetic GPU A", "alpha/compile/sy_90") for entry in suites[name].findall("testcase")
    } == {"0.0"}


@pytest.mark.parametrize(
    "name", ["\x00\x1b[31m\x9b", "</testcase>", "]]>", "&#0;", "\ud800", "\ufffe", "a\r\nb", "\"'", "::error::x", "><testcase"]
)
def test_hostile_names_make_no_markup(name):
    """The file is well-formed and keeps its counts; characters that XML cannot hold are escaped."""
    failed = case(f"softmax/t.py::{name}", Verdict.FAILED, message=name, detail=name, properties={name: name})
    hostile = run(
        name,
        record=dataclasses.replace(record(name), started=name, label=name, commit=name),
        facts=facts(name, driver=name),
        cases=(failed,),
        compiled=(compiled(name, kernel=name, function=name, verdict=Verdict.FAILED, reason=name),),
    )

    text = render_junit(compare([hostile, run("other", GPU_B)]))
    root = ElementTree.fromstring(text.encode("utf-8"))

    assert [numbers(suite) for suite in root] == [counted(suite) for suite in root]
    assert len(root) == 6
    assert root[0].get("timestamp") is None
