"""Each export is checked against what its consumer accepts. All data is synthetic."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import xml.etree.ElementTree as ElementTree
from importlib.resources import files

import pytest
from consumers import BENCHER, BENCHMARK_ACTION, PYTORCH
from hostile import PAGE_NAMES, hostile
from jsonschema import Draft202012Validator
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from pydantic import TypeAdapter
from synthetic import GPU_B, case, compiled, facts, no_gpu, profile, record, run, sample, two_targets, write_raw

from warpwave.__main__ import _run_cli
from warpwave.collect import collect
from warpwave.compare import compare
from warpwave.compare.model import Comparison
from warpwave.records import Stage, StageReport, Verdict, to_json
from warpwave.render.exports import FORMATS
from warpwave.render.files import COLUMNS, comparison_schema
from warpwave.render.junit import render_junit

SCHEMAS = {"benchmark-action": BENCHMARK_ACTION, "benchmark-action-times": BENCHMARK_ACTION, "bencher": BENCHER, "pytorch": PYTORCH}
NAMES = (*PAGE_NAMES, 'a"b\\c\nd', "# EOF", "=1+1", "", "é" * 2000)


def texts(name):
    """A sound comparison in which everything from outside is `name`."""
    points = tuple(
        sample(kernel="softmax", case=f"softmax/{name}/{n}", provider=name, unit=name, params={name: name}, value=100.0 + n) for n in (1, 2)
    )
    return compare([run(name or "-", samples=points)], [name or "-"])


def every():
    return [compare([]), compare([no_gpu()]), compare(two_targets(), ["alpha", "beta"]), *map(texts, NAMES), *map(hostile, PAGE_NAMES)]


@pytest.mark.parametrize("name", SCHEMAS)
def test_json_is_what_its_consumer_takes(name):
    """With two targets, without any number, and with any names."""
    validator = Draft202012Validator(SCHEMAS[name])
    for comparison in every():
        assert [error.message for error in validator.iter_errors(json.loads(FORMATS[name](comparison)))] == []


def test_openmetrics_is_read_by_prometheus_own_parser():
    """It reads back every sample with its labels, whatever they contain."""
    for comparison in every():
        families = {family.name: family for family in text_string_to_metric_families(FORMATS["openmetrics"](comparison))}
        sound = [cell for row in comparison.rows for cell in row.cells if cell.sound]
        assert len(families["warpwave_speed"].samples if sound else []) == len(sound)

    found = text_string_to_metric_families(FORMATS["openmetrics"](compare(two_targets(), ["alpha", "beta"])))
    samples = {
        (s.name, s.labels.get("target"), s.labels.get("case"), s.labels.get("provider"), s.labels.get("verdict")): s.value
        for f in found
        for s in f.samples
    }
    assert samples["warpwave_speed", "alpha", "vector_add/N=256", "triton", None] == 2400.0
    assert samples["warpwave_copy_bytes_per_second", "beta", None, None, None] == 5e12
    assert samples["warpwave_target_complete", "alpha", None, None, "passed"] == 1


def test_the_same_number_is_in_every_format():
    """Follow one point through all formats."""
    comparison = compare([run()], ["alpha"])
    point = "softmax/N=1024 [triton] on alpha, Synthetic GPU A"
    action = {entry["name"]: entry for entry in json.loads(FORMATS["benchmark-action"](comparison))}[point]
    bencher = json.loads(FORMATS["bencher"](comparison))[point]
    pytorch = next(entry for entry in json.loads(FORMATS["pytorch"](comparison)) if entry["model"]["name"] == "softmax/N=1024")
    table = next(csv.DictReader(io.StringIO(FORMATS["csv"](comparison))))

    assert (action["value"], action["unit"], action["range"]) == (3128.0, "GB/s", "± 31.28")
    assert bencher["gb-s"] == {
        "value": 3128.0,
        "lower_value": pytest.approx(3097.03, abs=0.01),
        "upper_value": pytest.approx(3159.6, abs=0.01),
    }
    assert bencher["ceiling-share"]["value"] == pytest.approx(0.782)
    assert (pytorch["metric"]["benchmark_values"], pytorch["benchmark"]["dtype"], pytorch["model"]["backend"]) == (
        [3128.0],
        "fp32",
        "triton",
    )
    assert pytorch["runners"][0]["gpu_info"] == "Synthetic GPU A"
    assert float(table["value"]) == 3128.0


def test_only_sound_numbers_leave():
    """Failed, unverified and suspect points are left out, except in CSV, which has a column for them."""
    unsound = (sample(1, None, verdict=Verdict.FAILED), sample(2, 1e9), sample(3, kernel="untested"), sample(4))
    comparison = compare([run(samples=unsound)])

    for name in ("benchmark-action", "bencher", "pytorch"):
        assert len(json.loads(FORMATS[name](comparison))) == 1
    assert len(FORMATS["csv"](comparison).splitlines()) == 5


def test_times_and_rates_do_not_share_a_file():
    """The action takes one direction per file: a faster kernel must not raise an alarm."""
    comparison = compare([run(samples=(sample(1), sample(2, 0.5, unit="ms")))])

    assert [entry["unit"] for entry in json.loads(FORMATS["benchmark-action"](comparison))] == ["GB/s"]
    assert [entry["unit"] for entry in json.loads(FORMATS["benchmark-action-times"](comparison))] == ["ms"]


def test_the_table_is_tidy():
    """One line per number, one column per variable, every line complete; no cell that a spreadsheet would compute."""
    for comparison in every():
        header, *lines = csv.reader(io.StringIO(FORMATS["csv"](comparison)))
        assert tuple(header) == COLUMNS
        assert len(lines) == sum(len(row.cells) for row in comparison.rows)
        assert {len(line) for line in lines} <= {len(COLUMNS)}
        numbers = [COLUMNS.index(name) for name in ("value", "median_ms", "p20_ms", "p80_ms", "ceiling_share")]
        assert not any(cell[:1] in "=+-@" for line in lines for position, cell in enumerate(line) if cell and position not in numbers)


def test_export_prints_or_writes(tmp_path, capsys):
    """Standard output contains only the document."""
    write_raw(tmp_path / "raw" / "alpha", run(samples=(sample(1), sample(2, 1e9))))
    assert _run_cli(["export", str(tmp_path), "--format", "bencher"]) == 0
    printed = capsys.readouterr()
    assert len(json.loads(printed.out)) == 1
    assert printed.err == "1 of 2 points are not sound and were left out.\n"

    assert _run_cli(["export", str(tmp_path), "--format", "csv", "--out", str(tmp_path / "x.csv")]) == 0
    assert (tmp_path / "x.csv").read_text().count("\n") == 3
    assert capsys.readouterr() == ("", "")

    assert _run_cli(["export", str(tmp_path), "--format", "xlsx"]) == 2
    assert "Choose from benchmark-action, " in capsys.readouterr().err


def test_a_run_without_speeds_has_nothing_to_export_or_plot(tmp_path, capsys):
    """An empty document would look like a result."""
    write_raw(tmp_path / "raw" / "alpha", run(samples=()))

    for words in (["export", "--format", "bencher"], ["export", "--format", "csv"], ["plot"]):
        assert _run_cli([*words, str(tmp_path)]) == 2
        said = capsys.readouterr()
        assert (said.out, "No target has measured points." in said.err) == ("", True)


# One JUnit file for all targets, read back with another parser. All data is synthetic.


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


@pytest.mark.parametrize("verdict", [Verdict.INFRA, Verdict.INCOMPLETE, Verdict.STALE, Verdict.INVALID, Verdict.TIMEOUT, Verdict.NOT_RUN])
def test_a_target_that_is_not_complete_is_an_error(verdict):
    """This includes a target that ran nothing, or is absent: as a skipped case, or without one, it would be green."""
    absent = read([run()], ["alpha", "beta"])["beta/run"]
    assert numbers(absent) == (1, 0, 1, 0)
    assert absent.find("testcase/error").attrib.items() >= {"type": "absent", "message": "no raw folder was given"}.items()
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


# comparison.json and its schema. All data is synthetic.


def test_the_stored_schema_is_that_of_the_code():
    """To update it: `python -c "from warpwave.render.files import *; print(comparison_schema(), end='')"`."""
    stored = files("warpwave").joinpath("schemas/comparison.schema.json").read_text(encoding="utf-8")

    assert json.loads(stored, object_hook=_explicit) == json.loads(comparison_schema(), object_hook=_explicit)


def _explicit(found):
    """Remove explicit defaults, which older versions of pydantic do not write."""
    return {key: value for key, value in found.items() if (key, value) != ("additionalProperties", True)}


def test_a_comparison_can_be_read_back_and_drawn_again():
    """The JSON is complete: what is read equals what was written."""
    comparison = compare([no_gpu(), *two_targets()], ["cpu", "alpha", "beta", "gamma"])

    assert TypeAdapter(Comparison).validate_json(to_json(comparison)) == comparison


def test_every_key_of_a_comparison_is_in_the_schema():
    """Nothing is written that the schema does not name, at any depth."""
    schema = json.loads(comparison_schema())

    def check(value, kind):
        while "$ref" in kind:
            kind = schema["$defs"][kind["$ref"].rpartition("/")[2]]
        if "anyOf" in kind:
            kind = next((option for option in kind["anyOf"] if option != {"type": "null"}), kind) if value is not None else {}
            return check(value, kind) if "anyOf" not in kind else None
        if isinstance(value, dict) and "properties" in kind:
            assert set(value) == set(kind["properties"])
            for key, below in value.items():
                check(below, kind["properties"][key])
        elif isinstance(value, list):
            for below in value:
                check(below, kind["items"])
        return None

    check(json.loads(to_json(compare(two_targets(), ["alpha", "beta"]))), schema)


def test_speedscope_has_the_instructions_of_each_line():
    """Stacks point to frames, and the weights are the counts of the lines."""
    made = json.loads(FORMATS["speedscope"](compare([run(profiles=(profile(),))])))
    (found,), frames = made["profiles"], made["shared"]["frames"]

    assert [[frames[at]["name"] for at in stack] for stack in found["samples"]] == [["_softmax_fwd", "rows.py:12 x = tl.load(x_ptr + i)"]]
    assert found["weights"] == [60]
    assert found["endValue"] == 60
    assert json.loads(FORMATS["speedscope"](compare([])))["profiles"] == []
