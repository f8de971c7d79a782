"""The command line from outside: exit codes, three beats for every mistake, JSON that is one document, a third vendor that is data."""

import ast
import dataclasses
import json
import os
import shlex
import signal
import subprocess
import time
import xml.etree.ElementTree as ElementTree
from functools import partial
from pathlib import Path

import pytest
from recorded import recorded

pytest.importorskip("triton", reason="the local engine needs torch and triton; `nox -s tests` installs them")

import click
import command
from command import beats
from light import light_python
from synthetic import compiled, facts, record, run, sample, write_raw

from warpwave import console
from warpwave.__main__ import _run_cli, cli
from warpwave.compare import compare, outcome
from warpwave.errors import ExitCode, Outcome
from warpwave.records import Stage, StageReport, Verdict
from warpwave.report import write_report
from warpwave.run.folders import RUNS as FOLDER_RUNS
from warpwave.run.folders import ignored_by_git

THIRD = """
targets:
  third:
    label: a third vendor, as data only
    engine: local
    stages: [test]
    interpret: true
    image: {dockerfile: third.Dockerfile, base: "vendor/base:1"}
    environment: {THIRD_SETTING: "on"}
    visible_devices: THIRD_VISIBLE_DEVICES
"""


ENVIRONMENT_TEST = """
import os
def test_environment():
    assert (os.environ["THIRD_SETTING"], os.environ["THIRD_VISIBLE_DEVICES"]) == ("on", "1")
"""


@pytest.fixture
def warpwave(tmp_path):
    # GPUs are lent by files in the temporary folder: a run of these tests beside this one may have the third vendor's.
    variables = {**os.environ, "DOCKER_HOST": f"unix://{tmp_path}/no.sock", "COLUMNS": "200", "TMPDIR": str(tmp_path)}
    return partial(command.warpwave, cwd=tmp_path, env=variables, light=True)


@pytest.fixture
def package(tmp_path):
    def write(text: str, name: str = "test_op.py"):
        folder = tmp_path / "package"
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(text)
        return str(folder)

    return write


def test_a_third_vendor_runs_without_code_and_a_failure_of_one_costs_the_other_nothing(warpwave, package, tmp_path):
    """Two targets: one without its engine, and one entry of the user's, with its environment, its visible devices and its suite. The
    comparison is there, says so, and has exit code 3."""
    (tmp_path / "mine.yml").write_text(THIRD)
    words = ("--targets", "mine.yml", "--kernels", package(ENVIRONMENT_TEST), "--gpu", "1", "--out", "out")
    done = warpwave("run", "cuda", "third", *words)
    targets = json.loads((tmp_path / "out" / "comparison.json").read_text())["targets"]
    suites = {suite.get("name") for suite in ElementTree.parse(tmp_path / "out" / "junit.xml").getroot().iter("testsuite")}

    assert done.returncode == 3
    assert [(target["target"], target["verdict"]) for target in targets] == [("cuda", "infra"), ("third", "passed")]
    assert any(name.startswith("third") for name in suites)
    assert "Docker" in done.stdout


MISTAKES = {
    "unknown target": (
        ("run", "metal"),
        2,
        "metal",
        "cpu, gfx942-emulated, gfx950-emulated, gfx90a-emulated, gfx1100-emulated, gfx1200-emulated, gfx1201-emulated, cuda, rocm",
    ),
    "no kernel package": (("run", "cpu", "--kernels", "nowhere"), 2, "nowhere", "--kernels"),
    "wrong YAML": (("run", "cpu", "--targets", "wrong.yml"), 2, "targets.cpu.stages[0]", "docs/reference/targets.md"),
    "unknown stage": (("run", "cpu", "--kernels", ".", "--stage", "fly"), 2, "'fly'", "test, bench, compile"),
    "stage of another target": (("run", "cpu", "--kernels", ".", "--stage", "bench"), 2, "'cpu'", "test, compile"),
    "unknown toolchain": (("run", "cpu", "--kernels", ".", "--toolchain", "none"), 2, "no toolchain named 'none'", ""),
    "unknown weakening": (("run", "cpu", "--kernels", ".", "--engine", "local", "--weaken", "all"), 2, "no weakening named 'all'", ""),
    "unreadable raw folder": (("report", "nowhere"), 4, "nowhere", ""),
    "no raw folder": (("report", "."), 4, "", ""),
}


def test_a_wrong_command_is_answered_with_the_nearest(warpwave):
    for typed, answer in (("rnu", "No such command 'rnu'. Did you mean 'run'?"), ("xyzzy", "No such command 'xyzzy'.\n")):
        assert answer in (done := warpwave(typed)).stderr
        assert done.returncode == 2


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_gets_three_beats_and_its_exit_code(warpwave, tmp_path, mistake):
    arguments, code, happened, remedy = MISTAKES[mistake]
    (tmp_path / "wrong.yml").write_text("targets: {cpu: {stages: [tests]}}")
    done = warpwave(*arguments)
    lines = beats(done)

    assert (done.returncode, len(lines)) == (code, 3), done.stderr
    assert happened in lines[0]
    assert remedy in lines[2]


def test_no_docker_is_infrastructure_and_says_what_to_do(warpwave, package):
    """The engine was chosen, so there is no falling back."""
    done = warpwave("run", "cpu", "--engine", "docker", "--kernels", package("def test_x(): pass\n"), "--no-report")

    assert done.returncode == 3
    assert "infra" in done.stdout
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == ["exit code 3"]
    assert len(done.stdout.splitlines()) >= 2


def test_no_gpu_is_infrastructure_and_names_the_fix(warpwave, package):
    """A CPU build of torch where the target needs a vendor's: said before any test could fail for it."""
    done = warpwave("run", "cuda", "--engine", "local", "--kernels", package("def test_x(): assert False\n"), "--out", "out", light=False)

    assert done.returncode == 3, done.stdout
    assert "torch.version.cuda is not set" in done.stdout
    assert "pip install --force-reinstall torch --index-url https://" in done.stdout


def test_a_package_that_does_not_import_is_named(warpwave, package):
    """Its own error, what installs it, and where the traceback is. What is no terminal gets no colour."""
    done = warpwave("run", "cpu", "--stage", "test", "--kernels", package("import nothing_of_this_name\n"), "--out", "out")

    assert done.returncode == 5, done.stdout
    assert "nothing_of_this_name" in done.stdout
    assert "--with" in done.stdout
    assert "test/log.txt" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr


def test_green_because_nothing_ran_is_not_green(warpwave, tmp_path):
    (tmp_path / "empty").mkdir()

    assert warpwave("run", "cpu", "--stage", "test", "--kernels", "empty", "--out", "out").returncode == 5


def test_results_of_another_run_are_kept_and_a_report_is_made_again(warpwave, package, tmp_path):
    words = ("run", "cpu", "--stage", "test", "--kernels", package("def test_x(): pass\n"), "--out", "out", "--json")

    assert [warpwave(*words).returncode for _ in range(2)] == [0, 2]
    assert warpwave("report", "out", "--out", "again").returncode == 0
    assert (tmp_path / "again" / "comparison.json").read_text() == (tmp_path / "out" / "comparison.json").read_text()


@pytest.mark.parametrize("several", [False, True])
def test_the_command_that_shows_everything_works_when_pasted(tmp_path, monkeypatch, capsys, several):
    """Of a run in a folder with a space, and of two folders, whose report is elsewhere."""
    monkeypatch.chdir(tmp_path)
    folders = [f"run {number}" for number in range(1 + several)]
    for number, folder in enumerate(folders):
        write_raw(tmp_path / folder / "raw" / f"t{number}", run(f"t{number}"))
    _run_cli(["report", *folders, "--expect", "cuda,t0"])
    printed = capsys.readouterr().out
    _, words = next(line for line in printed.splitlines() if line.startswith("Every test")).split(": ")
    program, *again = shlex.split(words)
    _run_cli(again)
    full = capsys.readouterr().out

    assert program == "warpwave"
    assert printed.splitlines()[0] == full.splitlines()[0]
    assert len(full) > len(printed)
    assert printed.splitlines()[-1] == full.splitlines()[-1]  # the same files


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)])
def test_ctrl_c_keeps_what_was_finished(package, tmp_path, number, code):
    """SIGINT or SIGTERM: exit 130 or 143, a JUnit file with the finished tests, a run that says incomplete, and no process left."""
    folder = package("import time, os\ndef test_a(): pass\ndef test_b():\n    open(os.environ['MARK'], 'w').close()\n    time.sleep(60)\n")
    mark = tmp_path / "mark"
    words = [light_python(), "-m", "warpwave", "run", "cpu", "--stage", "test", "--kernels", folder, "--out", "out"]
    process = subprocess.Popen(words, cwd=tmp_path, env={**os.environ, "MARK": str(mark)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + 60
    while not mark.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    raw = tmp_path / "out" / "raw" / "cpu"
    outcomes = {
        case.get("name"): [child.tag for child in case if child.tag != "properties"]
        for case in ElementTree.parse(raw / "test" / "junit.xml").iter("testcase")
    }

    assert process.returncode == code, output
    assert outcomes == {"test_a": [], "test_b": ["skipped"]}
    assert json.loads((raw / "run.json").read_text())["verdict"] == "incomplete"
    assert subprocess.run(["pgrep", "-f", folder], capture_output=True).returncode == 1


# No exit code other than 0 without its reason: one type carries both, one place prints them, and every command comes through there.

ROOT = Path(__file__).parents[3]


def commands(group: click.Group = cli, path: str = "") -> dict[str, click.Command]:
    found = {}
    for name in group.list_commands(None):
        one = group.get_command(None, name)
        words = f"{path} {name}".strip()
        found |= commands(one, words) if isinstance(one, click.Group) else {words: one}
    return found


@pytest.mark.parametrize("code", ExitCode)
def test_a_code_has_a_reason_and_a_reason_has_a_code(code):
    Outcome(code, "why" if code else "")
    with pytest.raises(ValueError, match="exit code"):
        Outcome(code, "" if code else "why")


@pytest.mark.parametrize("name", commands())
def test_every_command_comes_to_an_outcome(name):
    assert commands()[name].callback.__annotations__["return"] in (Outcome, "Outcome")


@pytest.mark.parametrize(
    "path", [*sorted((ROOT / "harness" / "warpwave" / "cli").glob("*.py")), ROOT / "harness" / "warpwave" / "__main__.py"], ids=str
)
def test_there_is_no_other_way_out(path):
    ways = []
    for function in ast.walk(ast.parse(path.read_text())):
        if isinstance(function, ast.FunctionDef) and function.name != "main":
            ways += [
                ast.unparse(node) for node in ast.walk(function) if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("exit")
            ]
            ways += [ast.unparse(node) for node in ast.walk(function) if isinstance(node, ast.Raise) and "Exit" in ast.unparse(node)]

    assert ways == []


def test_every_flag_that_asks_for_json_leaves_word():
    """So that an error is answered in JSON, too."""
    flags = [parameter for command in commands().values() for parameter in command.params if "--json" in parameter.opts]

    assert len(flags) >= 7
    assert all(flag.is_eager and flag.callback for flag in flags)


FAILED = (StageReport(Stage.TEST, Verdict.FAILED, reason="test_x: assert 1 == 2", exit_code=0),)
# A run, and what stands in the reason of its exit code.
RUNS = {
    "a test that failed": (run(cases=(dataclasses.replace(run().cases[0], verdict=Verdict.FAILED),)), 1, "alpha failed 1 of 1 test"),
    "a stage that failed without a test": (run(stages=FAILED), 1, "test_x: assert 1 == 2"),
    "a test that failed before the end": (
        run(
            record=record(verdict=Verdict.INCOMPLETE, reason="killed"),
            cases=(run().cases[1], dataclasses.replace(run().cases[0], verdict=Verdict.FAILED)),
        ),
        1,
        "alpha failed 1 of 2 tests",
    ),
    "a machine that broke": (run(record=record(verdict=Verdict.INFRA, reason="no card")), 3, "alpha could not run (no card"),
    "a run that was cut off": (run(record=record(verdict=Verdict.INCOMPLETE, reason="killed")), 4, "alpha is incomplete (killed"),
    "files of two runs": (run(record=record(verdict=Verdict.STALE, reason="two ids")), 4, "left files of another run (two ids"),
    "nothing": (run(cases=(), samples=(), compiled=(), ceilings=()), 5, "alpha ran nothing"),
}


@pytest.mark.parametrize("what", RUNS)
def test_a_report_says_why(tmp_path, capsys, what):
    given, code, words = RUNS[what]
    comparison = compare([given])
    ended = outcome(comparison)

    assert (ended.code, comparison.exit_code) == (code, code)
    assert words in ended.reason
    assert words in ended.lead(comparison.sentence)
    write_raw(tmp_path / "raw" / "alpha", given)
    assert _run_cli(["report", str(tmp_path), "--json"]) == _run_cli(["report", str(tmp_path)]) != 0
    said = capsys.readouterr()
    document = json.loads(said.out.partition("\n")[0])
    last = said.err.splitlines()[-1]

    assert last == f"exit code {document['exit_code']}: {document['reason']}"
    assert document["reason"] in document["comparison"]["sentence"]


def test_a_terminal_that_shows_the_reason_is_not_given_it_again(tmp_path, capsys, monkeypatch):
    """The last line is then the code alone. With --json the reason is nowhere else, and so it stays."""
    write_raw(tmp_path / "raw" / "alpha", run())
    monkeypatch.setattr(console, "watched", lambda: True)

    assert _run_cli(["report", str(tmp_path), "--expect", "alpha,cuda"]) == 4
    assert capsys.readouterr().err.splitlines()[-1] == "exit code 4"
    assert _run_cli(["report", str(tmp_path), "--expect", "alpha,cuda", "--json"]) == 4
    assert capsys.readouterr().err.splitlines()[-1] == "exit code 4: cuda is absent (no raw folder was given)"


def test_a_report_that_cannot_be_written_is_the_reason(tmp_path):
    write_raw(tmp_path / "raw" / "alpha", run())
    (tmp_path / "out" / "bandwidth.csv").mkdir(parents=True)
    comparison = write_report([tmp_path], tmp_path / "out")

    assert (outcome(comparison).code, comparison.sentence.partition(" ")[0]) == (3, "bandwidth.csv")
    assert outcome(comparison).reason in comparison.sentence


def skipped(n, **more):
    return sample(n, None, verdict=Verdict.NOT_RUN, reason="not installed", **more)


POINTS = {
    "skipped in both": ((sample(1024), skipped(2048)), (sample(1024), skipped(2048)), 0, ""),
    "skipped in BASE only": ((sample(1024), skipped(2048)), (sample(1024), sample(2048)), 0, ""),
    "skipped in HEAD only": ((sample(1024), sample(2048)), (sample(1024), skipped(2048)), 4, "softmax/N=2048 triton on alpha"),
    "all of them skipped in both": ((skipped(1024),), (skipped(1024),), 4, "no point was measured in both runs"),
    "another timer": ((sample(1024), sample(2048)), (sample(1024), sample(2048, timer="x")), 4, "different timers"),
    "slower": ((sample(1024, 3000.0),), (sample(1024, 1000.0),), 1, "1 of 1 point is slower"),
    "failed in HEAD": ((sample(1024),), (sample(1024, None, verdict=Verdict.ERROR, reason="x"),), 1, "1 point failed that did not before"),
}


@pytest.mark.parametrize("what", POINTS)
def test_compare_says_why(tmp_path, capsys, what):
    """A point that both runs skip is no reason; whatever is one is said on the page, in JSON and at the end."""
    base, head, code, words = POINTS[what]
    for name, samples in (("base", base), ("head", head)):
        write_raw(tmp_path / name / "raw" / "alpha", run(samples=samples))
    found = _run_cli(["compare", str(tmp_path / "base"), str(tmp_path / "head"), "--json", str(tmp_path / "out.json")])
    said, document = capsys.readouterr(), json.loads((tmp_path / "out.json").read_text())

    assert (found, document["exit_code"], document["ok"]) == (code, code, code == 0)
    assert words.lower() in document["reason"].lower()
    assert document["reason"].lower() in document["sentence"].lower()
    assert said.err == (f"exit code {code}: {document['reason']}\n" if code else "")
    assert ("skipped in both: not installed" in said.out) == ("in both" in what)


def test_a_recorded_run_compared_with_itself_is_good(capsys):
    """In which peers refuse sizes: nothing is slower, and nothing is missing that was there."""
    assert _run_cli(["compare", str(recorded()), str(recorded())]) == 0
    assert "skipped in both" in capsys.readouterr().out


def test_the_shards_of_a_run_are_compared_as_one(tmp_path, capsys):
    for name, speed in (("base", 3000.0), ("head", 1000.0)):
        for number in (1, 2):
            part = run(record=record(shard=f"{number}/2", run_id=f"r{number}"), samples=(sample(number, speed if number == 1 else 3000.0),))
            write_raw(tmp_path / name / str(number) / "raw" / "alpha", part)

    assert _run_cli(["compare", str(tmp_path / "base"), str(tmp_path / "head")]) == 1
    assert "exit code 1: 1 of 2 points is slower" in capsys.readouterr().err


CODEGEN = {
    "a spill": (run(), run(compiled=(compiled(spills=9),)), 1, "regression"),
    "a stage that died": (
        run(),
        run(stages=(StageReport(Stage.COMPILE, Verdict.CRASHED, reason="SIGSEGV"),)),
        4,
        "HEAD is incomplete (alpha: crashed",
    ),
}


@pytest.mark.parametrize("what", CODEGEN)
def test_codegen_diff_says_why(tmp_path, capsys, what):
    base, head, code, words = CODEGEN[what]
    for name, given in (("base", base), ("head", head)):
        write_raw(tmp_path / name / "raw" / "alpha", given)
    found = _run_cli(["codegen", "diff", str(tmp_path / "base"), str(tmp_path / "head"), "--json", str(tmp_path / "out.json")])
    document = json.loads((tmp_path / "out.json").read_text())

    assert (found, document["exit_code"]) == (code, code)
    assert words in document["reason"]
    assert document["reason"] in document["sentence"]
    assert capsys.readouterr().err == f"exit code {code}: {document['reason']}\n"


def test_what_got_worse_since_the_base_branch_is_the_reason(tmp_path, capsys):
    """All targets are good, and the status is not: the first words of the summary and of the log say why."""
    write_raw(tmp_path / "base" / "raw" / "alpha", run())
    write_raw(tmp_path / "head" / "raw" / "alpha", run(cases=run().cases[:1]))
    words = ["--out", str(tmp_path / "out"), "--summary", str(tmp_path / "page.md"), "--fail-on", "lost-tests"]
    code = _run_cli(["ci", "report", str(tmp_path / "head"), "--base", str(tmp_path / "base"), *words])
    said, why = capsys.readouterr(), "since the base branch: 2 tests that passed before are gone, skipped or expected to fail"

    assert code == 1
    assert f"exit code 1: {why}" in said.err
    assert said.out.splitlines()[0].lower().startswith(f"::error title=warpwave::{why}")
    assert (tmp_path / "page.md").read_text().splitlines()[0].lower().startswith(f"### ❌ {why}")


ERRORS = {
    "a word": ["report", "nowhere", "--json"],
    "an option that there is not": ["report", "nowhere", "--json", "--no-such"],
    "a value": ["doctor", "--json", "--engine", "podman"],
    "a value before it": ["doctor", "--engine", "podman", "--json"],
    "a target": ["run", "metal", "--json", "--kernels", "."],
}


@pytest.mark.parametrize("what", ERRORS)
def test_an_error_is_answered_in_json_where_that_was_asked_for(capsys, what):
    code = _run_cli(ERRORS[what])
    document = json.loads(capsys.readouterr().out)

    assert (document["ok"], document["exit_code"]) == (False, code)
    assert document["reason"]
    assert document["error"]["message"].startswith(document["reason"])


def test_a_value_that_looks_like_the_flag_is_a_value(tmp_path, capsys):
    """`--json FILE` is not `--json`: the error is text, and in the file; nor is a filter of that name."""
    write_raw(tmp_path / "raw" / "alpha", run(facts=facts(), samples=()))
    file = tmp_path / "out.json"

    assert _run_cli(["compare", str(tmp_path), str(tmp_path), "--json", str(file)]) == 2
    assert json.loads(file.read_text())["exit_code"] == 2
    assert _run_cli(["run", "metal", "-k", "--json", "--kernels", str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("error: ")) == ("", 2)


# Where results go if nobody says so, and what is left alone there. All data is synthetic.


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A repository of the user's, with two runs in it."""
    monkeypatch.chdir(tmp_path)
    subprocess.run(["git", "init", "-q"], check=True)
    for name in ("a", "b"):
        write_raw(tmp_path / name / "raw" / name, run(record=record(name)))
        (tmp_path / name / "comparison.html").write_text("mine")
    return tmp_path


def untracked() -> str:
    return subprocess.run(["git", "status", "--porcelain"], check=True, capture_output=True, text=True).stdout


def test_git_ignores_the_default_folder_and_no_other(here):
    before = untracked()
    made = ignored_by_git(FOLDER_RUNS / "one")
    made.mkdir()
    (made / "comparison.md").touch()
    assert untracked() == before

    ignored_by_git(Path("recorded") / "one")
    assert not Path("recorded").exists()


def test_a_report_of_several_runs_replaces_none_of_theirs(here, capsys):
    """It goes to a folder of its own, and the last line says where; so do pictures."""
    before = untracked()
    assert _run_cli(["report", "a", "b"]) == 0
    (made,) = (here / FOLDER_RUNS).glob("*/")

    assert f"Reports: {made.relative_to(here)}/comparison.html" in capsys.readouterr().out
    assert {path.read_text() for path in here.glob("?/comparison.html")} == {"mine"}
    assert _run_cli(["plot", "a", "b"]) == 0
    assert not (here / "a" / "plots").exists()
    assert untracked() == before


def test_the_report_of_one_run_is_written_again(here):
    assert _run_cli(["report", "a"]) == 0
    assert (here / "a" / "comparison.html").read_text() != "mine"
