"""No exit code other than 0 without its reason: one type carries both, one place prints them, and every command comes through there."""

from __future__ import annotations

import ast
import dataclasses
import json
from pathlib import Path

import click
import pytest
from synthetic import compiled, facts, record, run, sample, write_raw

from warpwave.__main__ import _run_cli, cli
from warpwave.compare import compare, outcome
from warpwave.errors import ExitCode, Outcome
from warpwave.records import Stage, StageReport, Verdict
from warpwave.report import write_report

ROOT = Path(__file__).parents[3]


def commands(group: click.Group = cli, path: str = "") -> dict[str, click.Command]:
    """Every command, however deep."""
    found = {}
    for name, command in group.commands.items():
        words = f"{path} {name}".strip()
        found |= commands(command, words) if isinstance(command, click.Group) else {words: command}
    return found


@pytest.mark.parametrize("code", ExitCode)
def test_a_code_has_a_reason_and_a_reason_has_a_code(code):
    """Anything else cannot be made."""
    Outcome(code, "why" if code else "")
    with pytest.raises(ValueError, match="exit code"):
        Outcome(code, "" if code else "why")


@pytest.mark.parametrize("name", commands())
def test_every_command_comes_to_an_outcome(name):
    """None hands out a bare number."""
    assert commands()[name].callback.__annotations__["return"] == "Outcome"


@pytest.mark.parametrize(
    "path", [*sorted((ROOT / "harness" / "warpwave" / "cli").glob("*.py")), ROOT / "harness" / "warpwave" / "__main__.py"], ids=str
)
def test_there_is_no_other_way_out(path):
    """Only `main` ends the process; no command leaves past it."""
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
    """On the last line, in the first sentence, and in JSON."""
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


def test_an_absent_target_is_the_reason(tmp_path, capsys):
    """Not only of the exit code: it is named."""
    write_raw(tmp_path / "raw" / "alpha", run())

    assert _run_cli(["report", str(tmp_path), "--expect", "alpha,cuda"]) == 4
    assert "exit code 4: cuda is absent (no raw folder was given)" in capsys.readouterr().err


def test_a_report_that_cannot_be_written_is_the_reason(tmp_path):
    """All tests passed, and the sentence must not say so alone."""
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
    recorded = str(ROOT / "reports" / "h100")

    assert _run_cli(["compare", recorded, recorded]) == 0
    assert "skipped in both" in capsys.readouterr().out


def test_the_shards_of_a_run_are_compared_as_one(tmp_path, capsys):
    """Not the last of them alone: the point that is slower is in the first."""
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
    """As above."""
    base, head, code, words = CODEGEN[what]
    for name, given in (("base", base), ("head", head)):
        write_raw(tmp_path / name / "raw" / "alpha", given)
    found = _run_cli(["codegen", "diff", str(tmp_path / "base"), str(tmp_path / "head"), "--json", str(tmp_path / "out.json")])
    document = json.loads((tmp_path / "out.json").read_text())

    assert (found, document["exit_code"]) == (code, code)
    assert words in document["reason"]
    assert document["reason"] in document["sentence"]
    assert capsys.readouterr().err == f"exit code {code}: {document['reason']}\n"


def test_a_history_without_speeds_says_so(tmp_path, capsys):
    """And leaves the JSON that was asked for."""
    files = ["--file", str(tmp_path / "h.sqlite"), "--json", str(tmp_path / "out.json")]
    write_raw(tmp_path / "raw" / "alpha", run(samples=()))
    assert _run_cli(["history", "add", str(tmp_path), *files[:2]]) == 0

    assert _run_cli(["history", "show", *files]) == 5
    assert "exit code 5: " in capsys.readouterr().err
    assert json.loads((tmp_path / "out.json").read_text()) == []


def test_the_doctor_says_why(tmp_path, monkeypatch, capsys):
    """The check that failed, and what it saw. That may be another number a moment later: each answer is held against itself."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    assert _run_cli(["doctor", "cuda", "--json"]) == 3
    said = capsys.readouterr()
    document = json.loads(said.out)

    assert "cuda: " in document["reason"]
    assert said.err.count(f"exit code 3: {document['reason']}") == 1
    assert _run_cli(["doctor", "cuda"]) == 3
    assert any(line.startswith("exit code 3: ") and "cuda: " in line for line in capsys.readouterr().err.splitlines())


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
    """One document on standard output, with the same fields as any other."""
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


def test_lines_of_an_error_are_not_broken(tmp_path, capsys, monkeypatch):
    """A path in it can be copied."""
    monkeypatch.setenv("COLUMNS", "40")
    path = tmp_path / ("x" * 100)

    assert _run_cli(["report", str(path)]) == 4
    assert str(path) in capsys.readouterr().err
