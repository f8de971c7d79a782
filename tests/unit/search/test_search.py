"""The steps of a search: what is asked again, what is kept, and what is refused. Nothing is run: the runs are made up."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from engine_requests import ask, having, make_options
from synthetic import case, run, sample
from wheels import wrap_triton

from warpwave.__main__ import _run_cli
from warpwave.compare.search import Answer, Kind, Question
from warpwave.config.targets import load_targets
from warpwave.errors import ConfigError, NothingRanError, UsageError, WarpwaveError
from warpwave.records import Shard, Stage, Verdict
from warpwave.search import steps
from warpwave.search.steps import Step, Steps, in_turns

GOOD, DOUBTFUL = run(samples=(sample(),)), run(samples=(sample(weak="a low clock"),))


def read_from(monkeypatch, runs):
    """Let a search read the runs that are made up for its folders."""
    for name, stand_in in {"find_raw": list, "collect_all": runs, "join": list}.items():
        monkeypatch.setattr(steps, name, stand_in)


@pytest.fixture
def told(monkeypatch):
    """What each try of the step `head` measures, in order; every other run measures the same as the first step. Collects what ran."""
    tries, ran = [], []
    monkeypatch.setattr(
        steps, "run_legs", lambda legs, options, say, on_event: (options.where.out.mkdir(parents=True), ran.append(options.where.out))
    )
    read_from(monkeypatch, lambda folders: [tries[int(folders[0].name) - 1] if "head" in str(folders[0]) else GOOD])
    return tries, ran


def search(out: Path, question: Question) -> Steps:
    return Steps(question, {"target": "cuda"}, out, print, print)


def step(name: str, out: Path) -> Step:
    return Step(name, load_targets()["cuda"], ask(load_targets()["cuda"], out, out).options)


@pytest.mark.parametrize(
    ("tries", "answer"), [([DOUBTFUL, GOOD], Answer.GOOD), ([DOUBTFUL] * 3, Answer.AMBIGUOUS)], ids=["settled", "never settled"]
)
def test_an_ambiguous_step_is_measured_again_and_never_guessed(tmp_path, told, tries, answer):
    """The first step is measured again with it, so that both are of one moment."""
    told[0].extend(tries)
    asked = search(tmp_path, Question(Kind.SLOWER, "*"))
    asked.ask(step("base", tmp_path))

    assert asked.ask(step("head", tmp_path)).answer is answer
    assert [path.relative_to(tmp_path / "steps").as_posix() for path in told[1]] == [
        *("base/1", "head/1"),
        *(name for number in range(2, len(tries) + 1) for name in (f"head/{number}", f"base/{number}")),
    ]
    told[1].clear()
    assert search(tmp_path, Question(Kind.SLOWER, "*")).ask(step("head", tmp_path)).answer is answer
    assert told[1] == []  # the answer is kept


@pytest.mark.parametrize(
    ("ends", "asked"),
    [("good bad", "skipped good"), ("broken bad", "bad good"), ("good broken", "bad good")],
    ids=["of a step in between", "of the first step", "of the last step"],
)
def test_files_that_do_not_import(tmp_path, monkeypatch, ends, asked):
    """Nobody knows what their tests would say, so the step is skipped; unless that is the fault which is searched for. Answers are kept."""
    found = {
        "good": run(cases=(case(),)),
        "bad": run(cases=(case(verdict=Verdict.FAILED),)),
        "broken": run(cases=(case("t.py", verdict=Verdict.ERROR, message="SyntaxError"),)),
    }
    monkeypatch.setattr(steps, "run_legs", lambda legs, options, say, on_event: options.where.out.mkdir(parents=True))
    read_from(monkeypatch, lambda folders: [found[folders[0].parent.name.partition("-")[2]]])
    names = [f"{number}-{name}" for number, name in enumerate(f"{ends} broken good".split())]
    for _ in range(2):
        one = search(tmp_path, Question(Kind.TEST, "t.py"))
        answers = [one.ask(step(name, tmp_path)).answer.value for name in names]
        assert answers == [*ends.replace("broken", "bad").split(), *asked.split()]
    if "broken" not in ends:
        fixed = Steps(Question(Kind.TEST, "t.py", fixed=True), {}, tmp_path / "fixed", print, print)
        assert [fixed.ask(step(name, tmp_path / "fixed")).answer.value for name in names] == ["bad", "good", "skipped", "bad"]


def test_a_step_that_cannot_be_asked_is_skipped(tmp_path, told):
    """Its settings are wrong, or it has no such test. Of the first step that is the user's own mistake."""

    def fail(error: type[WarpwaveError]) -> Step:
        raise error("There is no such file.", "", "")

    asked = search(tmp_path, Question(Kind.SLOWER, "*"))
    with pytest.raises(UsageError):
        asked.ask_for("base", lambda: fail(UsageError))
    asked.ask_for("base", lambda: step("base", tmp_path))

    for error in (UsageError, ConfigError, NothingRanError):
        reply = asked.ask_for("middle", lambda error=error: fail(error))
        assert (reply.answer, reply.reason) == (Answer.SKIPPED, "There is no such file.")


def test_two_searches_do_not_share_a_folder(tmp_path, told):
    search(tmp_path, Question(Kind.SLOWER, "*"))
    with pytest.raises(UsageError, match="is another one: its question"):
        search(tmp_path, Question(Kind.SLOWER, "softmax"))


# Two toolchains that measure on one card take turns.


@pytest.fixture
def options(tmp_path):
    """A package of three benchmarks with a test each."""
    for name in ("gelu", "norm", "softmax"):
        folder = tmp_path / "ops" / name
        folder.mkdir(parents=True)
        (folder / f"bench_{name}.py").write_text("#")
        (folder / f"test_{name}.py").write_text("#")
    return make_options("run", tmp_path / "out", tmp_path / "ops", benches=("bench_*.py",))


def _pair(name):
    target = load_targets()[name]
    return [replace(target, name=f"{name}@{toolchain}") for toolchain in ("old", "new")]


def _told(legs):
    return [leg.name for leg in legs]


def test_a_card_alternates(options):
    """Each shard runs on both, and the one that was second is first in the next shard. No two legs share a folder."""
    legs = in_turns(_pair("cuda"), options)

    assert _told(legs) == [f"cuda@{name}" for name in ("old 1/3", "new 1/3", "new 2/3", "old 2/3", "old 3/3", "new 3/3")]
    assert len({leg.raw for leg in legs}) == len({(leg.target.name, leg.options.where.run_id) for leg in legs}) == 6
    assert {leg.options.where.folder for leg in legs} == {options.where.out}


@pytest.mark.parametrize("change", [{"stages": (Stage.TEST, Stage.COMPILE)}, {"shard": Shard(1, 2)}, {"benches": ("bench_gelu.py",)}])
def test_one_after_the_other_where_turns_help_nothing(options, change):
    """Nothing is measured, the user divided the package, or there is one benchmark."""
    assert _told(in_turns(_pair("cuda"), having(options, **change))) == ["cuda@old", "cuda@new"]


def test_a_target_without_a_card_is_not_divided(options):
    assert _told(in_turns(_pair("cpu"), options)) == ["cpu@old", "cpu@new"]


# A release of Triton with another default is found: by bisecting releases.


KERNEL = """
import triton, triton.language as tl
@triton.jit
def sum_kernel(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out, tl.sum(tl.load(x + i), 0))
"""
LAUNCH = """
import torch
from ops import sum_kernel
def test_sum():
    sum_kernel[(1,)](torch.empty(8192, device="cuda"), torch.empty(1, device="cuda"), 8192)
"""
# What the planted releases change: a launch has one warp if it does not say how many.
ONE_WARP = """
from triton.backends.nvidia import compiler as _compiler
_plain = _compiler.CUDAOptions.__init__
def _changed(self, *words, num_warps=1, **more):
    _plain(self, *words, num_warps=num_warps, **more)
_compiler.CUDAOptions.__init__ = _changed
"""
FOLDER = "mine.yml"
TARGETS = """
schema_version: 1
targets:
  cpu: {architectures: [sm_90], quick: [sm_90]}
build: {wheelhouse: wheels}
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    pytest.importorskip("pip", reason="the installer uses the pip of the kernels' Python")
    root = tmp_path_factory.mktemp("planted")
    (root / "ops").mkdir()
    for name, text in {"ops.py": KERNEL, "test_ops.py": LAUNCH}.items():
        (root / "ops" / name).write_text(text)
    for number in range(1, 4):
        wrap_triton(root / "wheels", f"3.9.0.post{number}", ONE_WARP if number > 1 else "")
    (root / FOLDER).write_text(TARGETS)
    return root


@pytest.fixture
def ask_planted(place, monkeypatch, capsys):
    """Runs a search, and returns its exit code and its JSON."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))

    def run(*words: str) -> tuple[int, dict]:
        code = _run_cli([*words, "--targets", str(place / FOLDER), "--quiet", "--json"])
        return code, json.loads(capsys.readouterr().out)

    return run


@pytest.mark.slow
def test_bisecting_releases_finds_the_planted_one(place, ask_planted):
    """In three steps, with the generated code beside it. The second time, nothing runs."""
    words = ["bisect", "cpu", "--over", "triton", "--good", "3.9.0.post1", "--bad", "3.9.0.post3", "--worse", "registers"]
    words += ["--kernels", str(place / "ops"), "--out", str(place / "bisect")]
    code, told = ask_planted(*words, "--markdown", str(place / "page.md"))
    (place / "cache").rename(place / "away")  # what has an answer needs no environment
    again = ask_planted(*words)
    (place / "away").rename(place / "cache")

    assert (code, told["sentence"]) == (0, "triton-3.9.0.post2 is the first bad one; triton-3.9.0.post1 is the last good one.")
    assert [one["reply"]["answer"] for one in told["bisect"]["tried"]] == ["good", "bad", "bad"]
    assert "4 → 1 warps" in (place / "page.md").read_text()
    assert again == (code, told)
    assert ask_planted(*[word.replace("registers", "occupancy") for word in words])[0] == 2  # another question, in the same folder
