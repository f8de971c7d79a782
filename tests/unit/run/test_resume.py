"""A run that was ended before its time is taken up again: what it has is kept, the rest is run, and nothing in its folder is obeyed."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from engine_requests import having, make_job, make_options

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

import command
from light import light_python

from warpwave.__main__ import _run_cli
from warpwave.collect import collect
from warpwave.config.targets import load_targets
from warpwave.engines.protocol import Layout
from warpwave.errors import InvalidInputError, UsageError
from warpwave.inside.bench import stage
from warpwave.inside.compile.stage import _fresh_rows
from warpwave.inside.process.journal import Journal
from warpwave.inside.process.workers import spawned
from warpwave.records import (
    Architecture,
    CaseResult,
    Chosen,
    CompiledKernel,
    Environment,
    Exit,
    Inputs,
    Sample,
    Stage,
    StageReport,
    Stages,
    TargetRun,
    Verdict,
    dump,
    to_json,
    write_text,
)
from warpwave.records.words import host_copy
from warpwave.run import attempt as attempt_module
from warpwave.run import inputs as inputs_module
from warpwave.run import run_target
from warpwave.run.inputs import package
from warpwave.run.resume import check_same, recorded_run_id

TESTS = """
import os, time
from pathlib import Path
def test_before():
    pass
def test_fails():
    assert False
def test_under_way():
    mark = Path(os.environ["MARK"])
    if not mark.exists():
        mark.touch()
        time.sleep(600)
def test_after():
    pass
"""


@pytest.fixture
def warpwave(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "test_op.py").write_text(TESTS)
    (tmp_path / "targets.yml").write_text("schema_version: 1\ntargets:\n  cpu: {interpret: false, stages: [test]}\n")
    fixed = [light_python(), "-m", "warpwave", "run", "cpu", "--engine", "local", "--kernels", "package", "--targets", "targets.yml"]

    def start(*more: str) -> subprocess.Popen[str]:
        variables = {**os.environ, "MARK": str(tmp_path / "mark"), "COLUMNS": "200"}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen([*fixed, *more], cwd=tmp_path, env=variables, **pipes)

    return start


@pytest.fixture
def killed(warpwave, tmp_path):
    """A run of which warpwave itself was killed in the middle of a test, once what went before it was on disk."""
    process = warpwave("--out", "out")
    until = time.monotonic() + 120
    junit = tmp_path / "out" / "raw" / "cpu" / "test" / "junit.xml"
    while not ((tmp_path / "mark").exists() and junit.exists() and "test_fails" in junit.read_text()) and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return tmp_path / "out"


def ran(run: TargetRun) -> list[CaseResult]:
    return [case for case in run.cases if case.verdict is not Verdict.NOT_RUN]


def test_a_killed_harness_leaves_a_valid_bundle_that_is_completed(killed, tmp_path):
    """The page from the start says incomplete, and how to go on; resumed, each test has run once, the failed one too."""
    words = ("run", "cpu", "--engine", "local", "--kernels", "package", "--targets", "targets.yml", "--resume", "out")
    variables = {**os.environ, "MARK": str(tmp_path / "mark"), "COLUMNS": "200"}
    before = collect(killed / "raw" / "cpu")
    resumed = command.warpwave(*words, light=True, cwd=tmp_path, env=variables)
    after = collect(killed / "raw" / "cpu")
    again = command.warpwave(*words, light=True, cwd=tmp_path, env=variables)
    events = [json.loads(line) for line in (killed / "raw" / "cpu" / "test" / "journal.jsonl").read_text().splitlines()]
    ends = [event["id"] for event in events if event["event"] in ("finish", "death")]

    assert (before.record.verdict, before.record.command[1]) == (Verdict.INCOMPLETE, "run")
    assert "has not ended" in before.record.reason
    assert "--resume" in before.record.hint
    assert [case.id for case in ran(before)] == ["test_op.py::test_before", "test_op.py::test_fails"]
    assert resumed.returncode == 1, resumed.stdout + resumed.stderr
    assert [(case.id.rpartition("_")[2], case.verdict.value) for case in after.cases] == [
        *(("before", "passed"), ("fails", "failed"), ("way", "passed"), ("after", "passed")),
    ]
    assert sorted(ends) == sorted(set(ends))
    assert (after.record.verdict, after.problems) == (Verdict.FAILED, ())
    assert [attempt.verdict for attempt in after.record.attempts] == [Verdict.INCOMPLETE]
    assert "attempt 1: incomplete" in resumed.stdout

    assert "nothing left to do" in again.stdout + again.stderr
    assert (again.returncode, collect(killed / "raw" / "cpu")) == (1, after)


@pytest.mark.slow
def test_another_environment_is_not_mixed_in(killed, warpwave):
    """What only the inside can see, such as a driver: the run stays as it is, says so, and is incomplete."""
    path = killed / "raw" / "cpu" / "facts.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "driver": "1.0"}))
    (process := warpwave("--resume", "out")).communicate(timeout=300)
    run = collect(killed / "raw" / "cpu")

    assert process.returncode in (1, 4)  # incomplete; a test of it has failed
    assert run.record.verdict is Verdict.INCOMPLETE
    assert "driver has changed from 1.0 to None" in run.record.reason
    assert "--out" in run.record.hint
    assert [case.verdict for case in ran(run)] == [Verdict.PASSED, Verdict.FAILED]


JOB = make_job("run-1", "cpu", (Stage.TEST,), "/kernels", "/results")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"stages": (Stage.TEST, Stage.COMPILE)}, ["stages", "'test'", "'test compile'"]),
        ({"quick": True}, ["quick", "'False'", "'True'"]),
        (
            {"chosen": Chosen(("test_x.py::test_y",), ("z.py",), how=("--test", "--deselect-from FILE"))},
            ["its choice of tests was 'none', now it is '--test --deselect-from FILE (1 chosen: test_x.py::test_y; 1 left out: z.py)'"],
        ),
        ({"pytest_args": ("-m=slow",)}, ["its pytest args was '', now it is '-m=slow'"]),
        ({"files": ("test_x.py",)}, ["its part of the package (--shard) was 'None', now it is 'test_x.py'"]),
    ],
)
def test_another_job_is_refused(tmp_path, changes, words):
    dump(JOB, host_copy(tmp_path / "raw" / "cpu", "job.json"))
    with pytest.raises(UsageError) as caught:
        check_same(tmp_path / "raw" / "cpu", having(JOB, **changes))

    assert all(word in caught.value.happened for word in words)


def test_another_job_is_refused_unused(tmp_path):
    dump(JOB, host_copy(tmp_path / "raw" / "cpu", "job.json"))
    check_same(tmp_path / "raw" / "cpu", having(JOB, kernels="/elsewhere", output="/there", test_s=900.0))


@pytest.mark.parametrize("content", ["{", '{"run_id": "../../x"}', "[]"])
def test_a_folder_that_holds_no_run(tmp_path, content):
    """No folder, no target in it, or pages that cannot be read: three beats and the exit code of each."""
    with pytest.raises(UsageError, match="no run to resume"):
        recorded_run_id(tmp_path)
    (tmp_path / "raw" / "cpu").mkdir(parents=True)
    write_text(host_copy(tmp_path / "raw" / "cpu", "run.json"), content)
    with pytest.raises(InvalidInputError):
        recorded_run_id(tmp_path)


def test_a_torn_line_costs_only_itself(tmp_path):
    """What comes after a kill in the middle of a write is not glued to what was left of it."""
    journal = Journal(tmp_path / "journal.jsonl")
    journal.write("finish", id="a")
    with open(journal.path, "ab") as file:
        file.write(b'{"event": "finish", "id": "b", "mess')
    journal.repair()
    journal.write("finish", id="c")

    assert journal.done() == {"a", "c"}

    # It starts with nothing loaded; kernels of the worker before it come again under another case's name.
    card = Architecture("cuda", 90, 32, {}, name="sy_90")

    def kernel(function: str, origin: str) -> dict:
        return {"event": "kernel", "row": dataclasses.asdict(CompiledKernel("op", function, "sy_90", Verdict.PASSED, origin=origin))}

    rows = _fresh_rows(())
    events = [{"event": "worker"}, kernel("f", "one"), kernel("g", "two"), {"event": "worker"}, kernel("g", "three"), kernel("h", "three")]
    found = [(row.function, row.origin) for event in events for row in rows(event, card)]

    assert found == [("f", "one"), ("g", "two"), ("h", "three")]


def test_the_sweep_is_written_anew_from_its_journal(tmp_path, monkeypatch):
    """What a kill has torn in the file does not matter; what the journal holds is there once, and is not measured again."""
    (package := tmp_path / "package").mkdir()
    (package / "bench_op.py").write_text("")
    (folder := tmp_path / "bench").mkdir()
    journal = Journal(folder / "journal.jsonl")
    for n in (1, 2):
        sample = Sample(f"op/N={n}", "op", "triton", {"N": n}, 0, Verdict.PASSED, value=8.0 * n)
        journal.write("finish", id=f"op/N={n} [triton]", verdict="passed", reason="", sample=to_json(sample))
    (folder / "samples.jsonl").write_text('{"case": "op/N=1", "ker')
    job = make_job("run-1", "cuda", (Stage.BENCH,), str(package), str(tmp_path))
    program = "from warpwave.inside.process.journal import Journal; Journal.from_environment().write('end')"
    monkeypatch.setattr(stage, "spawned", lambda command: spawned([sys.executable, "-c", program]))
    monkeypatch.setattr(stage.ahead, "start", lambda job: None)
    monkeypatch.setattr(sys, "argv", ["measure", "job.json"])
    report = stage.measure(job)

    assert [json.loads(line)["value"] for line in (folder / "samples.jsonl").read_text().splitlines()] == [8.0, 16.0]
    assert (report.verdict, report.counts) == (Verdict.PASSED, {"passed": 2})


# `--resume` never passes stale results off as fresh: what decides a result is held against what it was when the run began.

PACKAGE = {
    "ops/test_op.py": "from helper import VALUE\n\ndef test_op():\n    assert VALUE == 2\n",
    "ops/helper.py": "from pathlib import Path\nVALUE = int(Path(__file__).with_name('value.txt').read_text())\n",
    "ops/value.txt": "1",
    "ops/conftest.py": "",
    "ops/__init__.py": "",
    "ops/pytest.ini": "[pytest]\naddopts = -q\n",
    "targets.yml": "schema_version: 1\ntargets:\n  cpu: {interpret: false, stages: [test], environment: {A_SETTING: 'on'}}\n"
    "  other: {label: another, engine: local, stages: [test], image: {dockerfile: x, base: y}}\n",
}


RUN = ["run", "cpu", "--engine", "local", "--python", light_python(), "--kernels", "ops", "--targets", "targets.yml"]


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    pytest.importorskip("triton", reason="the local engine needs torch and triton; `nox -s tests` installs them")
    folder = tmp_path_factory.mktemp("first")
    for name, text in PACKAGE.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert _run_cli([*RUN, "--out", "first", "--quiet"]) == 1
    return folder


@pytest.fixture
def place(first, tmp_path, monkeypatch):
    """A copy of it, to be changed. `tidy` says what is on disk."""
    folder = tmp_path / "place"
    shutil.copytree(first, folder)
    monkeypatch.chdir(folder)
    return folder


def resume(*more, base=RUN):
    return _run_cli([*base, "--resume", "first", "--quiet", *more])


def contents(folder):
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_finished_run_of_the_same_things_is_finished(place, capsys):
    """What Python, editors and other runs leave in the package is nothing that a result depends on."""
    (place / "ops" / "__pycache__").mkdir(exist_ok=True)
    (place / "ops" / "__pycache__" / "helper.pyc").write_bytes(b"x")
    (place / "ops" / ".helper.py.swp").write_bytes(b"x")
    (place / "ops" / ".cache").mkdir()
    (place / "ops" / ".cache" / "CACHEDIR.TAG").write_text("Signature: 8a477f597d28d172789f06886806bc55")
    (place / "ops" / "old" / "raw" / "cpu").mkdir(parents=True)
    (place / "ops" / "old" / "raw" / "cpu" / "run.json").write_text("{}")

    assert _run_cli([*RUN, "--resume", "first"]) == 1
    assert "nothing left to do" in capsys.readouterr().err


CHANGES = {
    "a test": (lambda at: (at / "ops" / "test_op.py").write_text("def test_op(): pass\n"), "test_op.py has changed"),
    "a helper": (lambda at: (at / "ops" / "helper.py").write_text("VALUE = 2\n"), "helper.py has changed"),
    "a data file": (lambda at: (at / "ops" / "value.txt").write_text("2"), "value.txt has changed"),
    "conftest.py": (lambda at: (at / "ops" / "conftest.py").write_text("import sys\n"), "conftest.py has changed"),
    "__init__.py": (lambda at: (at / "ops" / "__init__.py").write_text("import sys\n"), "__init__.py has changed"),
    "options of pytest": (lambda at: (at / "ops" / "pytest.ini").write_text(""), "pytest.ini has changed"),
    "a file that is gone": (lambda at: (at / "ops" / "conftest.py").unlink(), "conftest.py' is gone"),
    "a new file": (lambda at: (at / "ops" / "test_new.py").write_text("def test_new(): pass\n"), "test_new.py' is new"),
    "gates above it": (lambda at: (at / "pyproject.toml").write_text("[tool.warpwave.gates]\nspills = 4\n"), "../pyproject.toml' is new"),
    "the target": (
        lambda at: (at / "targets.yml").write_text(PACKAGE["targets.yml"].replace("'on'", "'off'")),
        "variable A_SETTING has changed",
    ),
    "stages of the target": (
        lambda at: (at / "targets.yml").write_text(PACKAGE["targets.yml"].replace("[test], env", "[test, compile], env")),
        "its stages was 'test', now it is 'test compile'",
    ),
    "no record": (lambda at: (at / "first" / "host" / "cpu.inputs.json").unlink(), "an older warpwave"),
    "a damaged record": (lambda at: (at / "first" / "host" / "cpu.inputs.json").write_text("{"), "damaged"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_finished_run_of_something_else_is_refused(place, capsys, what):
    """Exit code 2 in three beats that name the change; not a byte of the run is touched, and nothing is started."""
    change, words = CHANGES[what]
    change(place)
    before = contents(place / "first")
    code = resume()
    lines = capsys.readouterr().err.splitlines()

    assert (code, contents(place / "first")) == (2, before)
    assert words.replace("'", "") in lines[0].replace("'", ""), lines
    assert len(lines) == 3
    assert "--out" in lines[2] or "new run" in lines[2]


OPTIONS = {
    "tests": (["-k", "op"], "its pytest args"),
    "benches": (["--bench", "speed_*.py"], "its benches"),
    "quick": (["--quick"], "its quick"),
    "shard": (["--shard", "1/1"], "shard has changed"),
    "gpu": (["--gpu", "1"], "gpu has changed"),
    "protections": (["--weaken", "network=host"], "protections has changed"),
}


@pytest.mark.parametrize("what", OPTIONS)
def test_other_options_are_refused(place, capsys, what):
    more, words = OPTIONS[what]

    assert resume(*more) == 2
    assert words in capsys.readouterr().err


def test_another_engine_is_refused(place, capsys):
    """Its results are those of another environment; no engine has to answer for that to be said."""
    assert _run_cli(["run", "cpu", "--engine", "docker", "--kernels", "ops", "--targets", "targets.yml", "--resume", "first"]) == 2
    assert "engine has changed: it was 'local', now it is 'docker'" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "value"), [("TRITON_DEFAULT_FP_FUSION", "0"), ("PYTEST_ADDOPTS", "-x"), ("PYTHONOPTIMIZE", "1")])
def test_the_callers_variables_count_without_a_container(place, capsys, monkeypatch, name, value):
    """They get into a process of this machine, and decide results there. Their values are nobody else's business."""
    monkeypatch.setenv(name, value)

    assert resume() == 2
    assert f"variable {name} has changed" in capsys.readouterr().err


def test_the_packages_of_the_python_count(place, capsys):
    """A plugin of pytest may decide as much as Triton does."""
    path = place / "first" / "host" / "cpu.inputs.json"
    told = json.loads(path.read_text())
    told["facts"]["package pytest"] = "1.0"
    path.write_text(json.dumps(told))

    assert resume() == 2
    assert "package pytest has changed: it was '1.0'" in capsys.readouterr().err


def test_another_warpwave_is_refused(place, capsys, monkeypatch):
    monkeypatch.setattr(inputs_module, "_WHAT_RUNS", ("inside",))

    assert resume() == 2
    assert "warpwave has changed" in capsys.readouterr().err


def test_a_new_target_is_not_mixed_with_a_stale_one(place, capsys):
    """One run is one state of the kernels, whichever of its targets is asked for."""
    (place / "ops" / "helper.py").write_text("VALUE = 2\n")
    code = resume(base=["run", "other", *RUN[2:]])

    assert (code, [path.name for path in (place / "first" / "raw").iterdir()]) == (2, ["cpu"])
    assert "helper.py has changed" in capsys.readouterr().err.replace("'", "")


def test_two_folders_for_one_run_are_refused_and_the_place_of_the_package_is_free(place, capsys):
    assert resume("--out", "second") == 2
    assert "--resume names first and --out names second" in capsys.readouterr().err
    assert resume("--out", "./first") == 1

    (place / "elsewhere").mkdir()
    shutil.move(place / "ops", place / "elsewhere" / "ops")

    assert resume("--kernels", "elsewhere/ops") == 1


ORDER = "\n::error::planted\x1b[2J\u202e"


@pytest.mark.parametrize(
    "change",
    [{"harness": ORDER}, {"files": {ORDER: "1"}}, {"facts": {ORDER: "1"}}, {"facts": {"image": ORDER}}],
    ids=["harness", "file", "fact", "value"],
)
def test_what_a_run_says_it_was_made_of_gives_no_orders(place, capsys, change):
    """Names of files are the package's: a refusal quotes them on one line, as text."""
    path = place / "first" / "host" / "cpu.inputs.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    code, said = resume(), capsys.readouterr().err

    assert (code, len(said.splitlines())) == (2, 3)
    assert all(letter.isprintable() for letter in said.replace("\n", ""))


# A second attempt or another image never passes stale results off as fresh; the engine is a fake.


class Fake:
    """An engine with an image, which does in `execute` what a test tells it to."""

    name = "docker"

    def __init__(self, act, image="sha256:1"):
        self.act, self.image = act, image

    def prepare(self, request, say):
        return Environment(engine="fake", python="python3", image="fake:1", image_id=self.image)

    def image_id(self, request):
        return self.image

    def layout(self, request):
        return Layout("/harness", "/kernels", "/results")

    def execute(self, request, environment, on_line):
        return environment, self.act(request.raw) or Exit(0, 1.0)


@pytest.fixture
def run(tmp_path, monkeypatch):
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "test_op.py").write_text("")

    def start(act, name="cpu", *, image="sha256:1", again=False, **more):
        engine = Fake(act, image)
        monkeypatch.setattr(attempt_module, "choose_engine", lambda *_: engine)
        monkeypatch.setattr(inputs_module, "load_engine", lambda *_: engine)
        monkeypatch.setattr(inputs_module, "final_recipe", lambda request: type("Recipe", (), {"tag": "fake:1"}))
        settings = make_options("run-1", tmp_path / "out", tmp_path / "kernels", resume=again, **more)
        return run_target(load_targets()[name], settings, lambda line: None, lambda event: None)

    return start


def ended(verdict=Verdict.PASSED, stages=(Stage.TEST,)):
    def act(raw):
        reports = (StageReport(Stage.FACTS, Verdict.PASSED, exit_code=0), *(StageReport(stage, verdict, exit_code=0) for stage in stages))
        dump(Stages("run-1", raw.name, True, reports), raw / "stages.json")

    return act


def never(raw):
    raise AssertionError("this was started")


@pytest.mark.parametrize("whole", [True, False], ids=["finished", "unfinished"])
def test_another_image_is_refused(run, tmp_path, whole):
    run(ended() if whole else lambda raw: Exit(137, 1.0, interrupted=True))
    before = contents(tmp_path / "out")
    with pytest.raises(UsageError, match="image id has changed: it was 'sha256:1', now it is 'sha256:2'"):
        run(never, image="sha256:2", again=True)

    assert contents(tmp_path / "out") == before


def test_a_finished_stage_is_not_kept_beside_new_kernels(run, tmp_path):
    """Half of the run is there, from before the edit: the other half is not made of the new kernels."""
    run(lambda raw: ended(stages=())(raw) or Exit(137, 1.0, interrupted=True))
    (tmp_path / "kernels" / "test_op.py").write_text("# edited\n")
    with pytest.raises(UsageError, match=r"test_op.py' has changed"):
        run(never, again=True)


def test_what_is_not_stale_is_resumed(run, tmp_path):
    run(lambda raw: Exit(137, 1.0, interrupted=True))

    assert run(ended(), again=True).verdict is Verdict.PASSED
    assert run(ended(), "cuda", again=True).verdict is Verdict.PASSED


def test_the_second_attempt_of_one_command_does_not_mix_either(run, tmp_path):
    """The package was edited while the machine broke: the first attempt's record stays, and says what broke."""

    def act(raw):
        (tmp_path / "kernels" / "test_op.py").write_text("# edited\n")
        return Exit(None, 1.0, error="the connection broke")

    record = run(act)

    assert (record.verdict, len(record.attempts)) == (Verdict.INFRA, 0)


def test_what_tests_write_beside_themselves_does_not_stop_the_second_attempt(run, tmp_path):
    acts = [lambda raw: Exit(None, 1.0, error="the connection broke"), ended()]

    def act(raw):
        (tmp_path / "kernels" / "picture.png").write_text("")
        return acts.pop(0)(raw)

    assert run(act).verdict is Verdict.PASSED


@pytest.fixture
def forged(run, tmp_path):
    """The results of a run whose host was killed after the code under test had replaced its records in there."""
    raw, host = tmp_path / "out" / "raw" / "cpu", tmp_path / "out" / "host"

    def act(raw):
        finished = ended()(raw) or Exit(0, 1.0)
        shutil.copytree(host, tmp_path / "then")
        record = json.loads((raw / "run.json").read_text())
        record |= {"verdict": "passed", "reason": "", "run_id": "forged", "exit": dataclasses.asdict(finished)}
        (tmp_path / "forged.json").write_text(json.dumps(record))
        return finished

    run(act)
    shutil.rmtree(host)
    shutil.move(tmp_path / "then", host)
    shutil.move(tmp_path / "forged.json", raw / "run.json")
    for name in ("inputs.json", "job.json"):
        (raw / name).write_text("{}")
    return raw


def test_a_forged_record_does_not_end_or_change_a_run(forged, tmp_path, run):
    record = collect(forged).record

    assert (record.run_id, record.verdict) == ("run-1", Verdict.INCOMPLETE)
    assert "has not ended" in record.reason

    record = run(ended(), again=True)

    assert (record.run_id, record.verdict, len(record.attempts)) == ("run-1", Verdict.PASSED, 1)


def test_two_runs_in_one_folder_keep_their_ids(run, tmp_path):
    run(ended())
    raw = tmp_path / "out" / "raw" / "cpu"
    for path in (host_copy(raw, "run.json"), host_copy(raw, "job.json"), raw / "stages.json"):
        path.write_text(path.read_text().replace('"run-1"', '"run-2"'))

    assert run(never, again=True).run_id == "run-2"


def test_files_that_are_no_files_neither_hang_nor_fail(tmp_path):
    """A pipe, a link in a circle, a link to nothing, a name of bytes that are no text."""
    import os

    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "circle").symlink_to(tmp_path)
    (tmp_path / "nothing.py").symlink_to(tmp_path / "gone")
    (tmp_path / os.fsdecode(b"\xff.py")).write_text("x")
    (tmp_path / "shared").mkdir()
    found = package(make_options("run-1", tmp_path / "out", tmp_path))

    assert set(found) == {"pipe", "circle", "nothing.py", "\\xff.py"}
    dump(Inputs("run-1", "cpu", found, "1", {}), tmp_path / "inputs.json")


def test_a_file_behind_a_link_out_of_the_package_is_not_read(tmp_path):
    (tmp_path / "kernels").mkdir()
    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "tiles.py").write_text("TILE = 1\n")
    (tmp_path / "kernels" / "common").symlink_to(tmp_path / "common")
    settings = make_options("run-1", tmp_path / "out", tmp_path / "kernels")
    before = package(settings)
    (tmp_path / "common" / "tiles.py").write_text("TILE = 2\n")

    assert ("common/tiles.py" in before, package(settings) == before) == (False, True)


def test_of_several_targets_only_the_stale_one_is_refused(run, tmp_path, monkeypatch, capsys):
    """The image of one was built anew: the other is resumed and reported, and exit code 2 says what was not."""
    import warpwave.run

    for name in ("cpu", "cuda"):
        run(lambda raw: Exit(137, 1.0, interrupted=True), name)
    stale = contents(tmp_path / "out" / "raw" / "cpu")

    def start(target, settings, say, on_event):
        image = "sha256:2" if target.name == "cpu" else "sha256:1"
        return run(ended(), target.name, image=image, again=True)

    monkeypatch.setattr(warpwave.run, "run_target", start)
    words = ["--kernels", str(tmp_path / "kernels"), "--resume", str(tmp_path / "out"), "--quiet", "--json"]
    code = _run_cli(["run", "cpu", "cuda", *words])
    said = capsys.readouterr()
    told = json.loads(said.out)

    assert (code, told["exit_code"], contents(tmp_path / "out" / "raw" / "cpu")) == (2, 2, stale)
    assert "image id has changed" in told["reason"]
    assert said.err.splitlines()[-1] == f"exit code 2: {told['reason']}"
    assert {target["target"]: target["run_id"] for target in told["comparison"]["targets"]} == {"cpu": "run-1", "cuda": "run-1"}
    assert json.loads((tmp_path / "out" / "raw" / "cuda" / "run.json").read_text())["attempts"]
    assert (tmp_path / "out" / "comparison.json").is_file()


def test_a_target_that_cannot_be_run_is_refused_before_the_first_one_is(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out" / "raw" / "cuda").mkdir(parents=True)
    code = _run_cli(["run", "cpu", "cuda", "--kernels", str(tmp_path), "--out", "out"])

    assert (code, [path.name for path in (tmp_path / "out" / "raw").iterdir()]) == (2, ["cuda"])
    assert "exists already" in capsys.readouterr().err
