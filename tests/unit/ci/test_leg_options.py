"""`warpwave ci leg` hands the options of `warpwave run` on as `run` itself parses them; `warpwave ci options` says what they come to."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shlex
from pathlib import Path, PurePath

import click
import pytest
from synthetic import run

from warpwave import __main__ as cli
from warpwave.__main__ import _run_cli
from warpwave.cli.parse import _command
from warpwave.cli.run import parse_run
from warpwave.compare import compare
from warpwave.doctor import Finding
from warpwave.errors import Outcome
from warpwave.records import CaseResult, Verdict
from warpwave.render import commands
from warpwave.render.commands import look_closer, next_commands
from warpwave.render.sections import outline

TARGETS = "schema_version: 1\ntargets:\n  mine: {label: mine, engine: local, stages: [test], image: {dockerfile: x, base: y}}\n"


@pytest.fixture
def leg(tmp_path, monkeypatch):
    """Run a leg on a machine that is fit, and have what `run` was given; or on one that is not, and have its record."""
    monkeypatch.chdir(tmp_path)
    for name in ("KERNELS", "ENGINE", "SHARD", "OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "mine.yml").write_text(TARGETS)
    given = {}

    def start(target, options, *more, fit=True):
        def examine(targets, names, engine=None):
            given.update(targets=list(targets), engine=engine)
            return [Finding(names[0], "pass" if fit else "fail", "no card")]

        def run(**params):
            given.update(params, command=click.get_current_context().meta["warpwave.command"])
            return Outcome()

        monkeypatch.setattr("warpwave.doctor.examine", examine)
        monkeypatch.setattr(cli.run, "callback", run)
        return _run_cli(["ci", "leg", target, "--out", "bundle", *more, "--options", options]), given

    return start


def test_a_job_with_a_card_takes_what_another_job_compiled(leg, tmp_path, monkeypatch):
    """It does not compile for other cards again. The user's own options count, and without a hash nothing is taken."""
    folder = tmp_path / "compiled" / "raw" / "cpu" / "compile" / "triton-cache"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{}")
    digest = hashlib.sha256(b"{}").hexdigest()
    for target, options, given_hash, stages, taken in (
        ("cuda", "", digest, "test,bench", True),
        ("cuda", "--stage bench", digest, "bench", True),
        ("cuda", "", "", None, False),
        ("cpu", "", digest, None, False),
    ):
        monkeypatch.setenv("COMPILED_HASH", given_hash)
        code, given = leg(target, options, "--compiled", "compiled")
        assert code == 0
        assert (given["stages"], given["compiled"] is not None) == (stages, taken), (target, options)


def test_an_artifact_that_is_missing_fails_nothing(leg, monkeypatch):
    """The job with the card does everything itself."""
    monkeypatch.setenv("COMPILED_HASH", "0" * 64)

    assert leg("cuda", "", "--compiled", "nowhere")[1]["compiled"] is None


def test_a_job_without_a_card_only_compiles(leg):
    """For the architectures of the plan, whatever stages the user's options name."""
    _, given = leg("cpu", "--stage test --quick", "--compile-for", "sm_90")

    assert (given["stages"], given["launches"], given["save_compiled"], given["quick"]) == ("compile", "bench,test", "sm_90", True)


FORMS = ["--targets mine.yml", "--targets=mine.yml", "--targets other.yml --targets=mine.yml", "-k --targets --targets=mine.yml"]


@pytest.mark.parametrize("options", FORMS)
def test_a_targets_file_counts_however_it_is_written(leg, options):
    """In two words, in one, twice, beside a value that looks like it."""
    code, given = leg("mine", options)

    assert code == 0
    assert "mine" in given["targets"]
    assert (given["names"], str(given["overlay"]), str(given["out"]), given["no_report"]) == (("mine",), "mine.yml", "bundle", True)


def test_what_an_option_names_is_no_option(leg):
    """`--targets` is the expression here, and the targets are the shipped ones."""
    code, given = leg("cpu", "-k --targets")

    assert (code, given["keyword"], given["overlay"]) == (0, "--targets", None)


@pytest.mark.parametrize("options", ["--engine=local", "--engine docker --engine=local"])
def test_the_machine_is_examined_for_the_engine_that_will_run(leg, options):
    """Not for the step's own, over which --options decides."""
    _, given = leg("cpu", options, "--engine", "docker")

    assert given["engine"] == "local"


def test_a_machine_that_is_not_fit_is_on_record_as_the_run_would_be(leg, tmp_path):
    """With the package and the shard of the options, and the command that would have run."""
    (tmp_path / "ops").mkdir()
    code, _ = leg("cpu", "--kernels=ops --shard=2/4", fit=False)
    told = json.loads((tmp_path / "bundle" / "raw" / "cpu" / "run.json").read_text())

    assert code == 3
    assert (told["kernels"], told["shard"], told["command"][:3]) == ("ops", "2/4", ["warpwave", "run", "cpu"])


def test_the_command_on_record_is_one_that_can_be_resumed(leg):
    """`ci leg` knows no --resume; `run` does."""
    _, given = leg("cpu", "--quick")

    assert given["command"][:3] == ("warpwave", "run", "cpu")
    assert given["command"][-1] == "--quick"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--out=elsewhere", "--options sets --out to elsewhere"),
        ("--out elsewhere", "--options sets --out to elsewhere"),
        ("--resume=elsewhere", "--options sets --resume to elsewhere"),
        ("--triton 3.8.0", "--options puts the target on a toolchain"),
        ("-- cuda", "'cuda'"),
        ("cuda", "'cuda'"),
        ("--help", "ask for help"),
        ("-k 'a", "cannot be split"),
        ("--shard=9/4", "--shard '9/4'"),
        ("--quickly", "No such option"),
        ("--engin=local", "No such option"),
    ],
)
def test_what_a_leg_cannot_do_is_refused(leg, capsys, options, words):
    """Nothing runs, and nothing is taken for something else: its results would be where nobody looks for them."""
    code, given = leg("cpu", options)

    assert (code, given) == (2, {})
    assert words in capsys.readouterr().err


def test_options_are_reported_as_they_are_parsed(capsys):
    """On one line, for scripts; with the defaults, and without running anything."""
    code = _run_cli(["ci", "options", "cpu", "--out=x", "-kexpr", "--engine", "docker", "--engine=local", "--gpus", "0,1"])
    told = json.loads(capsys.readouterr().out)

    assert code == 0
    assert (told["names"], told["out"], told["keyword"], told["engine"], told["gpus"]) == (["cpu"], "x", "expr", "local", "0,1")
    assert (told["resume"], told["kernels"]) == (None, "kernels")


def test_the_names_are_those_of_the_legs(capsys):
    """So that a report expects what will be there."""
    assert _run_cli(["ci", "options", "cpu", "--triton", "3.8.0", "--toolchain", "triton-3.9"]) == 0
    (lane,) = json.loads(capsys.readouterr().out)["legs"]

    assert [leg["name"] for leg in lane] == ["cpu@triton-3.9", "cpu@triton-3.8.0"]


@pytest.mark.parametrize("words", [["cpu", "--no-such"], ["cpu", "--help"], []])
def test_options_that_are_wrong_are_refused(words):
    """So that a script stops there."""
    assert _run_cli(["ci", "options", *words]) == 2


def test_every_option_is_kept_or_left_out_of_a_repeated_command():
    """A value that looks like an option is a value, so the sets that read a recorded command know each option of the parser."""
    options = [one for one in cli.run.params if isinstance(one, click.Option)]
    valued = {name for one in options if not one.is_flag for name in one.opts}
    flags = {name for one in options if one.is_flag for name in (*one.opts, *one.secondary_opts)}

    assert valued == commands._KEPT | commands._DROPPED | commands._OPTIONAL
    assert flags == commands._KEPT_FLAGS | commands._DROPPED_FLAGS


# What the repeated command says anew: which part runs, and where its results go.
REPLACED = {
    *("names", "node_ids", "stages", "keyword", "tests", "last_failed", "changed_since", "deselect_from", "shard", "shard_times"),
    *("commit", "out", "resume", "gpu_wait", "save_compiled", "toolchains", "tritons"),
    *("again", "rebuild", "keep", "verbose", "no_report", "quiet", "full", "json"),
}
RECORDED = [
    "cpu --sanitize",
    "cpu --no-sanitize",
    "cpu cuda --autotune all --env A=1 --env B --with numpy --with=scipy --install --kernels=.",
    "cpu --install-no-deps --engine local --python /usr/bin/python3 --here --quick --test-timeout 7",
    "cpu --triton 3.8.0 --toolchain old --targets t.yml --hosts h.yml --bench-script 'bench_*.py -- --dtype bf16'",
    "cpu --pytest-args '-p no:x --runslow' -k 'a and --install' --out --sanitize --stage test",
    "cpu tests/test_a.py::test_a --sanitize --deselect-from --quick --last-failed x --changed-since main -- -p no:y",
    "cpu --json out.json --no-torch-compile-ahead --gpus 0,1 --requirements r.txt --weaken pids -v --aa --full --timeout 70",
    "cpu --launches test --bench 'perf_*.py' --precision 0.1 --test-workers 2 --results-limit 9 --results-files 9 --compiled a",
    "cpu --base-image b --wheelhouse w --ca-bundle c --pip-config p --build-network host --build-arg K=V --compiled-hash 0",
]


@pytest.mark.parametrize("recorded", RECORDED)
def test_each_printed_command_has_the_options_that_decide_a_verdict(recorded, monkeypatch):
    """Parsed by the real parser: a test that failed with a check fails again, and one that failed without it is not checked."""
    monkeypatch.setattr("sys.argv", ["warpwave", "run", *shlex.split(recorded)])
    asked = parse_run(shlex.split(recorded)).params
    failed = dataclasses.replace(run("cpu"), cases=(CaseResult("test_a.py::test_a", "a", Verdict.FAILED),))
    record = dataclasses.replace(failed.record, command=_command())
    comparison = compare([dataclasses.replace(failed, record=record)])
    (target,) = comparison.targets
    pasted = [section.paste for section in outline.did_not_pass(comparison, None)]
    again, (last, _), closer = *pasted, next_commands(comparison, PurePath("out")), look_closer(target, "")

    for command, replaced in ((again, REPLACED), (last, REPLACED), (closer, {*REPLACED, "quick"})):
        program, name, *words = shlex.split(command)
        assert (program, name) == ("warpwave", "run")
        found = parse_run(words).params
        assert found["names"] == ("cpu",)
        assert {option: value for option, value in found.items() if option not in replaced} == {
            option: value for option, value in asked.items() if option not in replaced
        }
    assert parse_run(shlex.split(again)[2:]).params["tests"] == ("test_a.py::test_a",)
    assert parse_run(shlex.split(last)[2:]).params["last_failed"] == Path("out")


def test_a_command_is_not_printed_without_some_of_its_options():
    """The same test might pass without them."""
    (target,) = compare([run("cpu")]).targets
    command = ("warpwave", "run", "cpu", "--sanitize", *("--env", f"A={'x' * 5000}"))

    assert commands.repro(dataclasses.replace(target, command=command), "test_a.py::test_a") == ""
