"""The plan of a workflow at its bounds, and the whole matrix that a job starts from."""

import dataclasses
import hashlib
import json
import re
import shlex
from pathlib import Path, PurePath
from types import SimpleNamespace

import click
import pytest
from synthetic import case, compiled, record, run, sample

from warpwave.__main__ import _run_cli
from warpwave.ci import base as since_base
from warpwave.ci.base import Asked, against_base, parse_asked
from warpwave.ci.plan import Leg, as_outputs, plan_legs
from warpwave.cli.parse import _command
from warpwave.cli.run import parse_run
from warpwave.cli.run import run as run_command
from warpwave.compare import compare
from warpwave.compare.changed_codegen import Concern
from warpwave.doctor import Finding
from warpwave.errors import Outcome, UsageError
from warpwave.records import CaseResult, Verdict
from warpwave.render import commands
from warpwave.render.commands import look_closer, next_commands
from warpwave.render.sections import outline


def asked(**machines):
    return json.dumps(machines)


@pytest.mark.parametrize(
    ("text", "shards", "count"),
    [
        (asked(a=[[str(n)] for n in range(64)]), 1, 64),
        (asked(a=[[str(n)] for n in range(65)]), 1, None),
        (asked(a="x"), 64, 64),
        (asked(a="x"), 65, None),
        (asked(a="x", b="y"), 32, 64),
        (asked(a=[str(n) for n in range(16)]), 1, 1),
        (asked(a=[str(n) for n in range(17)]), 1, None),
        (asked(a=["self-hosted", "x"]), 1, 1),
        (asked(a=[["self-hosted"], ["x"]]), 1, None),
        (asked(a=["x", ""]), 1, None),
        (asked(a=["x", "a\tb"]), 1, None),
        (asked(a=["x", ["y"]]), 1, None),
        (asked(a=None), 1, None),
        (asked(a={"x": 1}), 1, None),
        ("[]", 1, None),
        ("{", 1, None),
        ("{}", 1, None),
        ("[" * 100_000, 1, None),
        (asked(a=1), 1, None),
        (asked(a=[]), 1, None),
        (asked(c="x"), 1, None),
        (asked(a=[["x"], ["y"]]), 2, None),
    ],
)
def test_a_plan_has_bounds(text, shards, count):
    """64 jobs, and 16 labels that can be printed for each of them; `self-hosted` alone is every machine."""
    if count is None:
        with pytest.raises(UsageError) as caught:
            plan_legs(text, ["a", "b"], shards)
        assert all((caught.value.happened, caught.value.meaning, caught.value.remedy))
    else:
        assert len(plan_legs(text, ["a", "b"], shards)) == count


def test_the_outputs_of_a_plan():
    """Each job with its labels; shards are expected as one run, several machines as several."""
    legs = plan_legs(asked(a="x", b=["y", "z"]), ["a", "b"], shards=2)
    told = as_outputs(legs)

    assert legs[:2] == (Leg("a", ("x",), "a-1of2", "1/2"), Leg("a", ("x",), "a-2of2", "2/2"))
    assert json.loads(told["matrix"]) == {
        "include": [
            {"target": "a", "runner": ["x"], "name": "a-1of2", "shard": "1/2"},
            {"target": "a", "runner": ["x"], "name": "a-2of2", "shard": "2/2"},
            {"target": "b", "runner": ["y", "z"], "name": "b-1of2", "shard": "1/2"},
            {"target": "b", "runner": ["y", "z"], "name": "b-2of2", "shard": "2/2"},
        ]
    }
    assert told["expect"] == "a,b"
    assert as_outputs(plan_legs(asked(a=[["x"], ["y"], ["z"]], b="x"), ["a", "b"]))["expect"] == "a,a (2),a (3),b"
    assert (told["compile"], set(told)) == ("", {"matrix", "expect", "compile", "artifact"})

    # For the cards of the plan, by a target without one; the report has it once.
    cards = {"a": ["x1", "x2"], "b": ["x2", "x3"]}
    alone = as_outputs(plan_legs(asked(a="x", b="y"), ["a", "b", "cpu"]), cards, "cpu")
    beside = as_outputs(plan_legs(asked(a="x", cpu="y"), ["a", "b", "cpu"]), cards, "cpu")

    assert (alone["compile"], alone["expect"], alone["artifact"]) == ("x1,x2,x3", "a,b,cpu", "raw-compile")
    assert (beside["compile"], beside["expect"], beside["artifact"]) == ("x1,x2", "a,cpu", "compiled")
    assert as_outputs(plan_legs(asked(cpu="y"), ["a", "cpu"]), cards, "cpu")["compile"] == ""


HOSTS = """
cuda: {runner: [self-hosted, h100], shards: 2}
big: {target: cuda, ssh: b200, runner: [self-hosted, b200]}
"""


def test_a_hosts_file_is_a_plan(tmp_path, capsys):
    """Each leg on the runner that has its card, in the file's own parts; the report expects the legs."""
    (tmp_path / "hosts.yml").write_text(HOSTS)
    assert _run_cli(["ci", "plan", "--kernels", str(tmp_path), "--output", str(tmp_path / "outputs")]) == 0
    told = (tmp_path / "outputs").read_text()

    assert capsys.readouterr().out.splitlines() == [
        "cuda-1of2: cuda on self-hosted, h100",
        "cuda-2of2: cuda on self-hosted, h100",
        "big: big on self-hosted, b200",
        "before them: cpu compiles for sm_80,sm_90,sm_100, without a card",
    ]
    assert "cuda,big" in told


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: {target: cuda, shards: 60, runner: [h100]}\nb: {target: cuda, shards: 5, runner: [b200]}", "asks for 65 jobs"),
        ("cuda: {ssh: a}", "names no runner"),
        ("cuda: {runner: [self-hosted]}", "`self-hosted` alone"),
        (None, "There is no hosts.yml"),
    ],
)
def test_a_hosts_file_without_runners_is_refused(tmp_path, capsys, monkeypatch, text, said):
    """No job would find its machine."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    if text:
        (tmp_path / "hosts.yml").write_text(text)

    assert _run_cli(["ci", "plan", "--kernels", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err


# `warpwave ci leg` hands the options of `warpwave run` on as `run` itself parses them; `warpwave ci options` says what they come to.

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

        def noted(**params):
            given.update(params, command=click.get_current_context().meta["warpwave.command"])
            return Outcome()

        monkeypatch.setattr("warpwave.doctor.examine", examine)
        monkeypatch.setattr(run_command, "callback", noted)
        return _run_cli(["ci", "leg", target, "--out", "bundle", *more, "--options", options]), given

    return start


def test_a_job_with_a_card_takes_what_another_job_compiled(leg, tmp_path, monkeypatch):
    """It does not compile for other cards again. The user's own options count, and without a hash nothing is taken."""
    folder = tmp_path / "compiled" / "raw" / "cpu" / "compile" / "triton-cache"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{}")
    digest = hashlib.sha256(b"{}").hexdigest()
    for target, options, given_hash, stages, taken in (
        *(("cuda", "", digest, "test,bench", True), ("cuda", "--stage bench", digest, "bench", True), ("cuda", "", "", None, False)),
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


def test_a_job_without_a_card_only_compiles_and_its_command_can_be_resumed(leg):
    """For the architectures of the plan, whatever stages the user's options name."""
    _, given = leg("cpu", "--stage test --quick", "--compile-for", "sm_90")

    assert (given["stages"], given["save_compiled"], given["quick"]) == ("compile", "sm_90", True)

    # `--targets` is the expression here, and the targets are the shipped ones.
    code, given = leg("cpu", "-k --targets")

    assert (code, given["keyword"], given["overlay"]) == (0, "--targets", None)

    # `ci leg` knows no --resume; `run` does.
    _, given = leg("cpu", "--quick")

    assert given["command"][:3] == ("warpwave", "run", "cpu")
    assert given["command"][-1] == "--quick"


FORMS = ["--targets mine.yml", "--targets=mine.yml", "--targets other.yml --targets=mine.yml", "-k --targets --targets=mine.yml"]


@pytest.mark.parametrize("options", FORMS)
def test_a_targets_file_counts_however_it_is_written(leg, options):
    """In two words, in one, twice, beside a value that looks like it."""
    code, given = leg("mine", options)

    assert code == 0
    assert "mine" in given["targets"]
    assert (given["names"], str(given["overlay"]), str(given["out"]), given["no_report"]) == (("mine",), "mine.yml", "bundle", True)


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
    code = _run_cli(["ci", "options", "cpu", "--out=x", "-kexpr", "--engine", "docker", "--engine=local", "--gpu", "0,1"])
    told = json.loads(capsys.readouterr().out)

    assert code == 0
    assert (told["names"], told["out"], told["keyword"], told["engine"], told["gpu"]) == (["cpu"], "x", "expr", "local", "0,1")
    assert (told["resume"], told["kernels"]) == (None, "kernels")

    # So that a report expects what will be there.
    assert _run_cli(["ci", "options", "cpu", "--triton", "3.8.0", "--toolchain", "triton-3.9"]) == 0
    (lane,) = json.loads(capsys.readouterr().out)["legs"]

    assert [leg["name"] for leg in lane] == ["cpu@triton-3.9", "cpu@triton-3.8.0"]


@pytest.mark.parametrize("words", [["cpu", "--no-such"], ["cpu", "--help"], []])
def test_options_that_are_wrong_are_refused(words):
    """So that a script stops there."""
    assert _run_cli(["ci", "options", *words]) == 2


def test_every_option_is_kept_or_left_out_of_a_repeated_command():
    """A value that looks like an option is a value, so the sets that read a recorded command know each option of the parser."""
    options = [one for one in run_command.params if isinstance(one, click.Option)]
    one_word = ["--install"]  # --install=alone: the next word is never its value
    flags = {name for one in options if one.is_flag or one.opts == one_word for name in (*one.opts, *one.secondary_opts)}
    valued = {name for one in options for name in one.opts} - flags

    assert valued == commands._KEPT | commands._DROPPED | commands._OPTIONAL
    assert flags == commands._KEPT_FLAGS | commands._DROPPED_FLAGS


# What the repeated command says anew: which part runs, and where its results go.
REPLACED = {
    *("names", "node_ids", "stages", "keyword", "tests", "last_failed", "changed_since", "deselect_from", "shard", "shard_times"),
    *("out", "resume", "save_compiled", "toolchains", "tritons"),
    *("again", "rebuild", "keep", "verbose", "no_report", "quiet", "full", "json"),
}
RECORDED = [
    "cpu --sanitize",
    "cpu --no-sanitize",
    "cpu cuda --env A=1 --env B --with numpy --with=scipy --install --kernels=.",
    "cpu --install=alone --engine local --python /usr/bin/python3 --here --quick --test-timeout 7",
    "cpu --triton 3.8.0 --toolchain old --targets t.yml --hosts h.yml",
    "cpu --pytest-args '-p no:x --runslow' -k 'a and --install' --out --sanitize --stage test",
    "cpu tests/test_a.py::test_a --sanitize --deselect-from --quick --last-failed x --changed-since main -- -p no:y",
    "cpu --json out.json --gpu 0,1 --requirements r.txt --weaken pids -v --aa --full --timeout 70",
    "cpu --bench 'perf_*.py' --precision 0.1 --test-workers 2 --compiled a",
    f"cpu --base-image b --compiled a@{64 * '0'}",
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
    again, (last, *_), closer = *pasted, next_commands(comparison, PurePath("out")), look_closer(target, "")

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


@pytest.mark.parametrize("recorded", [*RECORDED, "cpu --resume out --quick", "cpu --resume=out"])
def test_the_command_that_finishes_a_run_is_its_own(recorded, monkeypatch):
    """With each option, also with those that choose the tests: a run is resumed with the options that it was started with."""
    monkeypatch.setattr("sys.argv", ["warpwave", "run", *shlex.split(recorded)])
    asked = parse_run(shlex.split(recorded)).params
    stopped = run("cpu", record=record("cpu", verdict=Verdict.INCOMPLETE, hint="--resume continues the run.", command=_command()))

    finish = next_commands(compare([stopped]), PurePath("out"))[0]

    found = parse_run(shlex.split(finish)[2:]).params
    assert found.pop("resume") == Path("out")
    if "--" in shlex.split(recorded):  # what stands behind the dashes is recorded as an option
        assert found["pytest_args"]
        found, asked = ({**params, "pytest_args": None, "tests": None, "node_ids": None} for params in (found, asked))
    assert found == {option: value for option, value in asked.items() if option != "resume"}


def test_a_command_is_not_printed_without_some_of_its_options():
    """The same test might pass without them."""
    (target,) = compare([run("cpu")]).targets
    command = ("warpwave", "run", "cpu", "--sanitize", *("--env", f"A={'x' * 5000}"))

    assert commands.repro(dataclasses.replace(target, command=command), case("test_a.py::test_a")) == ""


# What `warpwave ci report` says of the base branch: which changes fail the job, which warn, and what each annotation names.


@pytest.fixture
def since(monkeypatch, tmp_path):
    """Compare two runs without files of theirs."""

    def compare(before, after, asked):
        sides = {"base": [before] if before else [], "head": [after] if after else []}
        monkeypatch.setattr(since_base, "latest", lambda folders: folders)
        monkeypatch.setattr(since_base, "find_raw", lambda folders: folders)
        monkeypatch.setattr(since_base, "collect_all", lambda folders: sides[folders[0].name])
        return against_base(tmp_path / "base", [tmp_path / "head"], asked)

    return compare


def measured(*times, scatter=0.001, **more):
    """A run of a point for each time in ms, with tests that passed; without code."""
    points = tuple(sample(1 << n, median_ms=time, scatter=scatter) if time else failed(1 << n) for n, time in enumerate(times))
    return run(compiled=(), samples=points, **more)


def failed(n):
    return sample(n, value=None, verdict=Verdict.ERROR, reason="out of memory\nat line 3")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nothing", Asked((), slower=False, lost_tests=False, threshold=0.1, fail_on="nothing")),
        ("new", Asked((), slower=False, lost_tests=False, threshold=0.1)),
        ("worse", dataclasses.replace(parse_asked("verdict,order,matrix,spills,occupancy,slower", 0.1), fail_on="worse")),
        ("any", Asked(tuple(Concern), slower=True, lost_tests=True, threshold=0.1, fail_on="any")),
        ("slower", Asked((), slower=True, lost_tests=False, threshold=0.1)),
        ("lost-tests,spills", Asked((Concern.SPILLS,), slower=False, lost_tests=True, threshold=0.1)),
        ("spills,slower,verdict", Asked((Concern.SPILLS, Concern.VERDICT), slower=True, lost_tests=False, threshold=0.1)),
    ],
)
def test_what_may_not_get_worse_is_named(text, expected):
    """One word for all and one for none; else what is named, and nothing beside it."""
    assert parse_asked(text, 0.1) == expected


@pytest.mark.parametrize("text", ["", "slow", "slower, spills", "any,slower", "nothing,slower", "spills,,slower"])
def test_what_nobody_knows_is_refused_with_all_that_is_known(text):
    """A word that is misspelt would fail no job."""
    with pytest.raises(UsageError) as caught:
        parse_asked(text, None)

    assert all(word in caught.value.remedy for word in ("spills", "slower", "lost-tests", "any", "nothing"))


def test_a_point_that_became_slower_is_named_with_its_times(since):
    """The annotation shows both medians, the change, its interval and the threshold. It is an error with `--fail-on`, else a warning."""
    runs = measured(1.0, 0.5), measured(1.25, 0.5)
    strict, lax = since(*runs, Asked(threshold=0.05)), since(*runs, Asked(slower=False, threshold=0.05))
    (line,) = strict.annotations
    figures = re.findall(r"\d[\d,.]*", line.partition("::")[2].partition("::")[2].replace("%25", "%"))

    assert line.startswith("::error title=slower%3A softmax/N=1 triton on alpha::")
    assert (figures[:3], figures[-1].rstrip(".")) == (["1000", "1250", "0.800"], "5.0")
    assert 0.79 < float(figures[3]) < 0.8 < float(figures[4]) < 0.81
    assert strict.worse
    assert "## Since the base branch" in strict.page
    assert "softmax" in strict.page
    assert lax.annotations == (line.replace("::error", "::warning"),)
    assert (lax.worse, lax.page) == ("", strict.page)

    # It has no time to compare, and it was measured before.
    found = since(measured(1.0, 0.5), measured(None, 0.5), Asked(threshold=0.05))

    assert found.annotations == ("::error title=failed%2C measured before%3A softmax/N=1 triton on alpha::out of memory",)
    assert found.worse

    found = since(measured(1.0), measured(1.25), Asked(threshold=0.5))

    assert (found.worse, found.annotations) == ("", ())
    assert found.page


def test_code_that_got_worse_is_named_by_the_gravest_concern_that_was_asked_about(since):
    """With the figure of that concern, and the case that launched it; the page shows it in any case."""
    before = run(cases=(), samples=(), compiled=(compiled(spills=0, registers=30),))
    after = run(cases=(), samples=(), compiled=(compiled(spills=4, registers=255),))
    registers = since(before, after, Asked((Concern.SHARED, Concern.REGISTERS)))
    every = since(before, after, Asked(tuple(Concern)))
    nothing = since(before, after, Asked())

    assert [line.partition("; ")[0] for line in registers.annotations] == [
        "::error title=registers%3A _softmax_fwd for sy_90::registers: 30 → 255"
    ]
    assert [line.partition("; ")[0] for line in every.annotations] == [
        "::error title=spills%3A _softmax_fwd for sy_90::spilled registers: 0 → 4"
    ]
    assert every.annotations[0].endswith("bench")
    assert registers.worse
    assert every.worse
    assert (nothing.annotations, nothing.worse) == ((), "")
    assert "_softmax_fwd" in nothing.page


def test_a_test_that_is_lost_is_a_warning_or_an_error(since):
    """As it is asked about; a test that HEAD skipped says why, one that is gone says that."""
    both = (case("k.py::test_a"), case("k.py::test_b"), case("k.py::test_c"))
    before = run(cases=both, samples=(), compiled=())
    after = run(cases=(both[2], case("k.py::test_a", Verdict.NOT_RUN, message="no card")), samples=(), compiled=())
    strict, lax = since(before, after, Asked(lost_tests=True)), since(before, after, Asked())

    assert sorted(strict.annotations) == [
        "::error title=test is gone%3A k.py%3A%3Atest_b on alpha::is gone",
        "::error title=test is skipped now%3A k.py%3A%3Atest_a on alpha::no card",
    ]
    assert strict.worse.startswith("2 tests that passed before are ")
    assert sorted(lax.annotations) == [line.replace("::error", "::warning") for line in sorted(strict.annotations)]
    assert lax.worse == ""
    assert since(before, run(cases=both[1:], samples=(), compiled=()), Asked(lost_tests=True)).worse.startswith(
        "1 test that passed before is "
    )


SAME = "✅ None of 3 tests changed."


def of_tests(*found):
    return run(samples=(), compiled=(), cases=found)


def spilling(count):
    return run(samples=(), compiled=(compiled(spills=count),))


@pytest.mark.parametrize(
    ("before", "after", "heads"),
    [
        (of_tests(case("a"), case("b")), of_tests(case("a"), case("b")), ["✅ None of 2 tests changed."]),
        (of_tests(case("a")), of_tests(case("a", Verdict.FAILED)), ["❌ 1 test fails now."]),
        (of_tests(case("a"), case("b")), of_tests(case("a")), ["❌ 1 test is gone."]),
        (measured(1.0), measured(1.0), [SAME, "✅ None of 1 point is slower, 1 same."]),
        (measured(1.0), measured(2.0), [SAME, "❌ 1 of 1 point is slower."]),
        (measured(1.0), measured(None), [SAME, "❌ 1 point failed that did not before."]),
        (spilling(0), spilling(4), [SAME, "❌ 1 regression (1 spills) in 1 compared configuration: 0 unchanged."]),
        (spilling(4), spilling(0), [SAME, "✅ No regression in 1 compared configuration: 1 better, 0 unchanged."]),
    ],
)
def test_each_part_of_the_page_says_first_whether_it_is_good(since, before, after, heads):
    page = since(before, after, Asked(tuple(Concern), lost_tests=True, threshold=0.05)).page

    assert page.startswith(f"\n## Since the base branch\n\n### {heads[0]}\n")
    assert re.findall(r"(?<=\n\n)### (.*)\n", page) == heads


def test_all_that_got_worse_is_said_in_one_line(since):
    """A sentence a kind, without a full stop at the end."""
    before = run(cases=(case("a"), case("b")), samples=(sample(1, median_ms=1.0, scatter=0.001),), compiled=(compiled(spills=0),))
    after = run(cases=(case("a"),), samples=(sample(1, median_ms=2.0, scatter=0.001),), compiled=(compiled(spills=4),))
    found = since(before, after, Asked(tuple(Concern), lost_tests=True, threshold=0.05))

    assert found.worse.startswith("1 test that passed before ")
    assert found.worse.count(". ") >= 2
    assert not found.worse.endswith(".")
    assert len(found.annotations) == 3
    assert found.page.count("## Since the base branch") == 1


def test_what_one_side_lacks_is_not_compared_and_no_regression(since):
    """Each kind by itself: the other two are compared."""
    empty = run(cases=(), samples=(), compiled=())
    for before, after in ((empty, run()), (run(), empty)):
        found = since(before, after, Asked(tuple(Concern), threshold=0.05))

        assert found.worse == ""
        assert found.page.count("_Not compared with the base branch: ") == 2
        assert ": speeds. " in found.page
        assert ": generated code. " in found.page

    # Nothing measured, nothing compiled, no test: no page.
    found = since(empty, empty, Asked(tuple(Concern), lost_tests=True))

    assert (found.page, found.worse, found.annotations) == ("", "", ())

    # Its tests are not lost, and its speeds are not compared.
    found = since(run(), run("beta", record=record("beta")), Asked(lost_tests=True))

    assert (found.worse, found.annotations) == ("", ())


def test_an_error_is_on_the_page_and_no_regression(monkeypatch, tmp_path):
    """The report is made after this: a base that cannot be read must not stop it."""
    monkeypatch.setattr(since_base, "latest", lambda folders: SimpleNamespace(none=1)[0])
    found = against_base(tmp_path, [tmp_path], Asked())

    assert found.page.startswith("\n_Not compared with the base branch: this run. ")
    assert (found.worse, found.annotations) == ("", ())
