"""Honest raw folders, found and read into target runs. All data is synthetic."""

import dataclasses
import json
import os
from pathlib import Path

import pytest
from engine_requests import having, make_job
from recorded import recorded
from synthetic import CEILING, WHOLE, case, compiled, edit, emulated, lines, record, run, sample, write_raw

from warpwave.collect import collect, collect_all, find_raw, raw_folder
from warpwave.collect.cases import read_cases
from warpwave.collect.untrusted import Room, read_record
from warpwave.config.package import package_names
from warpwave.errors import ExitCode, InvalidInputError
from warpwave.inside.benchmarks import find_benches, kernel_name
from warpwave.records import Gates, Hardware, Job, RunRecord, Stage, StageReport, Verdict, to_json
from warpwave.records.selection import is_bench, is_test, kernel_of
from warpwave.report import write_report


def test_tests_with_the_same_id_are_all_kept_and_every_verdict_survives_the_xml(tmp_path):
    """Failure, error with a type, and skip keep verdict, message, traceback and the author's properties."""
    verdicts = (
        *(Verdict.PASSED, Verdict.FAILED, Verdict.ERROR, Verdict.TIMEOUT, Verdict.CRASHED, Verdict.OOM, Verdict.GPU_HANG),
        Verdict.NOT_RUN,
    )
    cases = tuple(case(f"softmax/t.py::t[{v.value}]", v, message="" if v is Verdict.PASSED else "why <&>") for v in verdicts)
    cases = (*cases, case("softmax/t.py::numbers", properties={"max_abs_err": "1e-07", "max_ulp": "2"}))

    assert cases == collect(write_raw(tmp_path / "alpha", run(cases=cases))).cases

    cases = (case(verdict=Verdict.FAILED, message="first"), case())

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


@pytest.mark.parametrize(("paths", "said"), [([], "no raw folder in an"), (["."], "no raw folder in /"), (["missing"], "missing.")])
def test_no_raw_folder_is_an_error_in_three_beats(tmp_path, paths, said):
    with pytest.raises(InvalidInputError) as caught:
        find_raw([tmp_path / path for path in paths])

    assert caught.value.exit_code == ExitCode.INCOMPLETE
    assert len(str(caught.value).splitlines()) == 3
    assert said in str(caught.value).splitlines()[0]


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("Fix it. Its traceback is in test/log.txt.", "Fix it."),
        ("Looked for tests; see test/log.txt.", "Looked for tests."),
        ("See bench/log.txt.", "See {raw}/bench/log.txt."),
        (
            "It failed. The end of bench/log.txt has details. Report it with engine.log.",
            "It failed. The end of {raw}/bench/log.txt has details.",
        ),
        ("See the author's test/log.txt.old", "See the author's test/log.txt.old"),
    ],
)
def test_a_log_in_a_hint_is_one_that_exists(tmp_path, said, kept):
    """By its whole path; a sentence about another one is left out, as of a stage that was never reached."""
    broken = run(record=record(verdict=Verdict.CRASHED, hint=said))
    raw = write_raw(tmp_path / "alpha", broken)
    (raw / "bench").mkdir(exist_ok=True)
    (raw / "bench" / "log.txt").write_text("said")

    assert collect(raw).record.hint == kept.format(raw=raw)


# A raw folder with every file there can be: what each of them is for, and what it costs when it is broken. All data is synthetic.

INVALID, INCOMPLETE = Verdict.INVALID, Verdict.INCOMPLETE


# The stage that a file is of, None where it is about all of them, and the fields that come from it alone.
FILES = {
    "run.json": (None, set()),
    "job.json": (None, {"gates", "peers"}),
    "stages.json": (None, {"stages"}),
    "facts.json": (Stage.FACTS, {"facts"}),
    "test/junit.xml": (Stage.TEST, {"cases"}),
    "test/findings.jsonl": (Stage.TEST, {"findings"}),
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

    assert any(problem.startswith(f"{name}: invalid: ") for problem in collect(folder, room).problems)
    assert not any(problem.startswith(f"{name}: ") for problem in collect(folder, Room()).problems)


@pytest.mark.parametrize(
    "name", ["bench/again.jsonl", "bench/ceilings.jsonl", "bench/kernels.jsonl", "test/cards.jsonl", "bench/cards.jsonl"]
)
def test_what_is_there_on_request_only_is_missed_by_nobody(folder, name):
    """A bundle from before that format is whole, too."""
    (folder / name).unlink()

    assert collect(folder).problems == ()


def test_a_record_that_this_process_has_made_counts(folder):
    """The file may be older, or broken: the disk was full."""
    assert collect(folder) == WHOLE

    (folder / "run.json").write_text("{")
    made = dataclasses.replace(WHOLE.record, reason="made here")

    assert collect(folder, None, made) == dataclasses.replace(WHOLE, record=made)
    assert collect_all([folder], {folder: made})[0].record == made


def test_small_folders_are_read_first_and_come_back_in_their_order(tmp_path, monkeypatch):
    """A huge one does not take the room that all share."""
    huge, small = (write_raw(tmp_path / name, run(samples=points)) for name, points in (("a", [sample(1)] * 50), ("b", [sample(1)])))
    order = []
    read = raw_folder.collect

    def note(folder, *more):
        order.append(folder)
        return read(folder, *more)

    monkeypatch.setattr(raw_folder, "collect", note)
    found = collect_all([huge, small])

    assert order == [small, huge]
    assert [len(each.samples) for each in found] == [50, 1]


def test_a_folder_without_a_page_of_the_host_is_reported_by_its_job_or_stages(folder):
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


def test_a_job_of_version_1_is_read(tmp_path):
    """Its options were not in groups, and an option of then is gone: a run of then can still be compared."""
    folder = write_raw(tmp_path / "alpha", run())
    raw = json.loads((folder / "job.json").read_text())
    what, limits, declared = (raw.pop(group) for group in ("what", "limits", "declared"))
    old = {**raw, **what, "quick": True, "peers": ["torch"], "gates": dataclasses.asdict(Gates(source="pyproject.toml"))}
    old |= {"test_limit_s": limits["test_s"], "stage_limit_s": 60.0, "test_workers": 2, "torch_compile_ahead": None, "schema_version": 1}
    old |= {"package_names": ["ops"], "package_variables": {"OPS_X": "1"}, "pytest": declared["pytest"], "import_folders": ["src"]}
    (folder / "job.json").write_text(json.dumps(old))
    found = collect(folder)

    assert found.problems == ()
    assert (found.peers, found.gates, found.narrowed.by) == (("torch",), Gates(source="pyproject.toml"), ("--quick",))
    job = read_record(folder, "job.json", Job)[0]
    assert (job.limits.stage_s, job.limits.test_workers, job.declared.names) == (60.0, 2, ("ops",))
    assert (job.declared.variables, job.declared.import_folders) == ({"OPS_X": "1"}, ("src",))
    (folder / "job.json").write_text(json.dumps({**old, "dance": 1}))
    assert collect(folder).problems[0].startswith("job.json: invalid: dance")
    (folder / "job.json").write_text(json.dumps({name: value for name, value in old.items() if name != "schema_version"}))
    assert collect(folder).problems == (), "a file without a version has the first one"
    (folder / "job.json").write_text(json.dumps({**old, "schema_version": True}))
    assert collect(folder).problems[0] == "job.json: invalid: schema_version is True, this warpwave reads 2"


@pytest.mark.parametrize("key", ["run_id", "target"])
@pytest.mark.parametrize("name", ["job.json", "stages.json"])
def test_a_file_of_another_run_names_both(folder, name, key):
    edit(folder / name, **{key: "y" * 50})
    found = collect(folder)
    told = {"run_id": f"alpha of run {'y' * 40} … 10 characters cut", "target": f"{'y' * 40} … 10 characters cut of run run-1"}[key]

    assert found.record.verdict is Verdict.STALE
    assert [problem.startswith("stale: " + name) for problem in found.problems] == [True]
    assert f"{told}, run.json about alpha of run run-1" in found.record.reason


@pytest.mark.parametrize(
    ("verdict", "finished", "expected"),
    [
        *((Verdict.PASSED, False, INCOMPLETE), (Verdict.FAILED, False, INCOMPLETE), (Verdict.TIMEOUT, False, Verdict.TIMEOUT)),
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

    (made / "bench/journal.jsonl").write_text(json.dumps({"event": "other"}) + "\n")
    (made / "bench/samples.jsonl").write_text("")
    assert collect(made).record.reason == "slow"
    assert reasons == ["slow; 3 of 8 points were measured", "slow"]


def test_waivers_have_a_bound(folder, monkeypatch):
    """In number, and in patterns beside those that fit everything; beyond it their use is not told."""
    found = []
    for most, patterns in ((1, 1), (0, 1), (1, 0)):
        monkeypatch.setattr(raw_folder, "_MAX_WAIVERS", most)
        monkeypatch.setattr(raw_folder, "_MAX_PATTERNS", patterns)
        found.append(collect(folder))

    assert [bool(each.gates) for each in found] == [True, False, False]
    assert [len(each.problems) for each in found] == [0, 1, 1]
    assert found[1].problems[0].startswith("job.json: ")


def test_architectures_have_a_bound(folder, monkeypatch):
    """The first ones are kept; a fault that the file has already stays."""
    monkeypatch.setattr(raw_folder, "_MAX_ARCHITECTURES", 2)
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
    monkeypatch.setattr(raw_folder, "MAX_FOLDERS", 3)
    assert find_raw([tmp_path / "True" / "a"])
    monkeypatch.setattr(raw_folder, "MAX_FOLDERS", 2)
    with pytest.raises(InvalidInputError, match="2 folders"):
        find_raw([tmp_path / "True" / "a"])


# Raw folders of runs that ended early, or of two runs. All data is synthetic.


def stage(found, name):
    return next(report for report in found.stages if report.stage is name)


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


def test_a_folder_that_says_little_is_a_target(tmp_path):
    """A target that crashed before its first line has a row, with a single problem."""
    (tmp_path / "gamma").mkdir()

    found = collect(tmp_path / "gamma")

    assert (found.record.target, found.record.verdict) == ("gamma", Verdict.INCOMPLETE)
    assert found.problems == ("run.json: incomplete: it is missing",)

    # If the image could not be built, there is only run.json, and it explains everything.
    raw = write_raw(tmp_path / "alpha", run(record=record(verdict=Verdict.INFRA, reason="the image could not be built")))
    for path in [*raw.rglob("*.xml"), *raw.rglob("*.jsonl"), raw / "job.json", raw / "stages.json", raw / "facts.json"]:
        path.unlink()

    found = collect(raw)

    assert (found.record.verdict, found.problems) == (Verdict.INFRA, ())


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


def test_facts_that_say_why_there_are_none_miss_no_file(tmp_path):
    whole = run()
    stages = tuple(StageReport(each.stage, Verdict.INFRA, reason="no driver", exit_code=0) for each in whole.stages[:1])
    raw = write_raw(tmp_path / "alpha", dataclasses.replace(whole, stages=stages))
    (raw / "facts.json").unlink()

    assert not any("facts.json" in problem for problem in collect(raw).problems)


# Raw folders of emulated targets: what could be taken for results of a card is invalid.


def test_an_emulated_run_is_read_back(tmp_path):
    found = collect(write_raw(tmp_path / "syn942-emulated", emulated()))

    assert found == emulated(sanitized=True)
    assert found.record.emulated == "syn942"

    # Neither file has the field.
    raw = write_raw(tmp_path / "alpha", run())
    for name, key in (("run.json", "emulated"), ("job.json", "emulate")):
        known = json.loads((raw / name).read_text())
        del known[key]
        (raw / name).write_text(json.dumps(known))

    assert collect(raw) == run()

    # And its results are invalid: nothing of warpwave writes such a file.
    found = collect(write_raw(tmp_path / "syn942-emulated", emulated(samples=(sample(),), ceilings=(CEILING,))))

    assert (found.samples, found.ceilings, found.record.verdict) == ((), (), Verdict.INVALID)
    assert "emulated targets measure nothing" in found.record.reason


@pytest.mark.parametrize(("cards", "name"), [(["S90", "S91"], "S90"), ([], "Card 90 of 2026")])
def test_a_card_is_known_by_its_vendor_and_its_name(cards, name, tmp_path):
    """The first name of the targets file; a run of an older warpwave has torch's, which begins with the vendor."""
    folder = write_raw(tmp_path / "alpha", run())
    card = {
        "backend": "sy",
        "arch": 90,
        "warp_size": 32,
        "properties": {},
        "torch_properties": {"name": "Sy Card 90 of 2026"},
        "name": "sy_90",
    }
    edit(folder / "job.json", architectures=[{**card, "cards": cards}])

    assert collect(folder).hardware == (Hardware("sy_90", "Sy", name),)


@pytest.mark.parametrize(
    ("name", "target", "changes", "words"),
    [
        ("run.json", "syn942-emulated", {"emulated": ""}, "job.json says that syn942 was emulated, run.json nothing"),
        ("job.json", "syn942-emulated", {"emulate": None}, "job.json says that nothing was emulated, run.json syn942"),
        ("run.json", "rocm", {}, "syn942 was emulated, but the target's name does not say so"),
    ],
)
def test_an_unmarked_result_is_invalid(tmp_path, name, target, changes, words):
    """One edit of a file does not turn it into a card's."""
    raw = write_raw(tmp_path / target, emulated(target=target))
    edit(raw / name, **changes)
    found = collect(raw)

    assert found.record.verdict is Verdict.INVALID
    assert words in found.record.reason


# Recorded runs stay readable: today's code can render what was measured once.


def test_the_recorded_run_renders_to_the_same_results(tmp_path):
    """Every target, test, point and kernel of the recorded comparison appears with its verdict and number, and so do its failures."""
    then = json.loads((recorded() / "comparison.json").read_text())
    write_report([recorded()], tmp_path, [target["target"] for target in then["targets"]])
    again = json.loads((tmp_path / "comparison.json").read_text())

    assert (again["exit_code"], again["problems"]) == (then["exit_code"], then["problems"])
    for compared in (again, then):  # tiles that differ between cards once shared a row
        compiled = [cell for row in compared["codegen"] for cell in row["cells"]]
        compared["compiled"] = sorted(compiled, key=lambda cell: json.dumps([cell["target"], cell["compiled"]], sort_keys=True))
    for part in ("targets", "tests", "rows", "compiled"):
        assert then[part]
        assert in_both(again[part], then[part]) == in_both(then[part], again[part]), part


def in_both(one, other):
    """Return `one` with the fields alone that `other` has, too: some were added after the recording, and some removed."""
    if isinstance(one, dict) and isinstance(other, dict):
        return {key: in_both(value, other[key]) for key, value in one.items() if key in other}
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [in_both(*pair) for pair in zip(one, other, strict=True)]
    return one


# What a package's files are: one rule for the host and the inside.

JOB = make_job("r", "t", (), "/root", "/out")
KERNELS = {
    "softmax/bench_softmax.py": "softmax",
    "softmax/deep/test_rows.py": "softmax",
    "./softmax/test_rows.py": "softmax",
    "bench_add.py": "add",
    "./test_add.py": "add",
    "test_bench_add.py": "bench_add",
    "add.py": "add",
    "pkg.test_mod.TestX": "pkg.test_mod",
    "/softmax/test_rows.py": "softmax",
    "": "",
    # Folders that only have a role are skipped.
    "tests/test_softmax.py": "softmax",
    "tests/unit/softmax_test.py": "softmax",
    "op_tests/triton_tests/test_gemm.py": "gemm",
    "test/transformers/test_rms_norm.py": "rms_norm",
    "benchmarks/softmax_benchmark.py": "softmax",
    "benchmark/scripts/benchmark_geglu.py": "geglu",
    "python/tutorials/01-vector-add.py": "01-vector-add",
    "src/kernels/softmax/bench_rows.py": "softmax",
    "tests/test.py": "test",
    "latest/test_rows.py": "latest",
    "tests/conftest.py": "conftest",
}
# With a package that is called flash-ops.
OWN = {
    "flash_ops/test_rows.py": "rows",
    "Flash-Ops/tests/attention/test_rows.py": "attention",
    "flash/test_rows.py": "flash",
    "softmax/flash_ops/test_rows.py": "softmax",
}


@pytest.mark.parametrize("path", OWN)
def test_a_folder_with_the_package_s_name_says_nothing(path):
    """In any spelling; `kernel_name` asks the job for the name."""
    job = having(JOB, names=("flash-ops",))

    assert kernel_of(path, ["flash-ops"]) == kernel_name(Path("/root", path), job) == OWN[path]


def test_a_package_is_called_as_its_folder_and_its_project_are(tmp_path):
    (tmp_path / "checkout").mkdir()
    bare = package_names(tmp_path / "checkout")
    (tmp_path / "checkout" / "setup.cfg").write_text("[metadata]\nname = old\n")
    old = package_names(tmp_path / "checkout")
    (tmp_path / "checkout" / "pyproject.toml").write_text("[project]\nname = 'flash-ops'\n")

    assert (bare, old, package_names(tmp_path / "checkout")) == (("checkout",), ("checkout", "old"), ("checkout", "flash-ops"))

    found = [is_test(path) for path in ("a/test_x.py", "x_test.py", "a/bench_x.py", "a/testing.py", "test_/x.py", "a/test_x.txt")]

    assert found == [True, True, False, False, False, False]


BENCHES = {
    ("bench_add.py", "bench_*.py"): True,
    ("deep/er/bench_add.py", "bench_*.py"): True,
    ("softmax/timing.py", "softmax/*.py"): True,
    ("softmax/timing.py", "timing.py"): True,
    ("softmax/timing.py", "bench_*.py"): False,
    ("./bench_add.py", "bench_*.py"): True,
    (".venv/lib/bench_add.py", "bench_*.py"): False,
    ("softmax/__pycache__/bench_add.py", "bench_*.py"): False,
    ("__init__.py", "*.py"): True,
    ("bench_add.py", ""): False,
}


@pytest.mark.parametrize(("path", "pattern"), BENCHES)
def test_a_pattern_matches_a_name_or_a_path(path, pattern):
    """Of files that are not in a hidden folder or a cache."""
    assert is_bench(path, ["nothing", pattern]) is BENCHES[path, pattern]


@pytest.mark.parametrize("path", ["softmax/deep/test_rows.py", "tests/unit/softmax_test.py", "bench_add.py"])
def test_host_and_inside_agree(path, tmp_path):
    """On the kernel of a test in a JUnit file and of a bench; a bench in a hidden folder is none for either."""
    for name in (path, ".hidden/bench_x.py"):
        (tmp_path / "package" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "package" / name).touch()
    junit = f'<testsuite><testcase classname="{path}" name="test_x"/></testsuite>'
    (tmp_path / "junit.xml").write_text(junit)

    assert [case.kernel for case in read_cases(tmp_path, "junit.xml")] == [KERNELS[path]]
    assert kernel_name(Path("/root", path), JOB) == KERNELS[path]
    assert find_benches(tmp_path / "package", ("*.py",)) == [tmp_path / "package" / path]
