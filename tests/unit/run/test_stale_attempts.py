"""A second attempt or another image never passes stale results off as fresh; the engine is a fake."""

from __future__ import annotations

import json

import pytest

from warpwave.__main__ import _run_cli
from warpwave.config.targets import load_targets
from warpwave.engines.protocol import Layout
from warpwave.errors import UsageError
from warpwave.options import RunOptions
from warpwave.records import Environment, Exit, Inputs, RunRecord, Stage, StageReport, Stages, Verdict, dump
from warpwave.run import attempt as attempt_module
from warpwave.run import inputs as inputs_module
from warpwave.run import run_target
from warpwave.run.inputs import package


def contents(folder):
    """Everything below a folder, by path."""
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


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
    """Run a target on a fake engine with an image."""
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "test_op.py").write_text("")

    def start(act, name="cpu", *, image="sha256:1", again=False, **more):
        engine = Fake(act, image)
        monkeypatch.setattr(attempt_module, "choose_engine", lambda *_: engine)
        monkeypatch.setattr(inputs_module, "load_engine", lambda *_: engine)
        monkeypatch.setattr(inputs_module, "final_recipe", lambda request: type("Recipe", (), {"tag": "fake:1"}))
        settings = RunOptions("run-1", tmp_path / "out", tmp_path / "kernels", resume=again, **more)
        return run_target(load_targets()[name], settings, lambda line: None, lambda event: None)

    return start


def ended(verdict=Verdict.PASSED, stages=(Stage.TEST,)):
    """What an inside leaves that came to its end."""

    def act(raw):
        reports = (StageReport(Stage.FACTS, Verdict.PASSED, exit_code=0), *(StageReport(stage, verdict, exit_code=0) for stage in stages))
        dump(Stages("run-1", raw.name, True, reports), raw / "stages.json")

    return act


def never(raw):
    raise AssertionError("this was started")


@pytest.mark.parametrize("whole", [True, False], ids=["finished", "unfinished"])
def test_another_image_is_refused(run, tmp_path, whole):
    """One of another recipe, and one that was built anew of the same."""
    run(ended() if whole else lambda raw: Exit(137, 1.0, interrupted=True))
    before = contents(tmp_path / "out")
    with pytest.raises(UsageError, match="image id has changed: it was 'sha256:1', now it is 'sha256:2'"):
        run(never, image="sha256:2", again=True)

    assert contents(tmp_path / "out") == before


def test_an_image_that_was_removed_says_nothing(run):
    """A finished target needs none, and its recipe is the same."""
    run(ended())

    assert run(never, image=None, again=True).verdict is Verdict.PASSED


def test_a_finished_stage_is_not_kept_beside_new_kernels(run, tmp_path):
    """Half of the run is there, from before the edit: the other half is not made of the new kernels."""
    run(lambda raw: ended(stages=())(raw) or Exit(137, 1.0, interrupted=True))
    (tmp_path / "kernels" / "test_op.py").write_text("# edited\n")
    with pytest.raises(UsageError, match=r"test_op.py' has changed"):
        run(never, again=True)


def test_what_is_not_stale_is_resumed(run, tmp_path):
    """Where nothing has changed, the rest is run, and a second target joins."""
    run(lambda raw: Exit(137, 1.0, interrupted=True))

    assert run(ended(), again=True).verdict is Verdict.PASSED
    assert run(ended(), "cuda", again=True).verdict is Verdict.PASSED


def test_a_run_that_never_began_has_nothing_to_mix(run, tmp_path):
    """It died before anything ran: the kernels may be edited since."""
    (tmp_path / "out" / "raw" / "cpu").mkdir(parents=True)
    dump(RunRecord("run-1", "cpu", "l", Verdict.INFRA, "no engine", "", "", 0.0, "", "kernels", ()), tmp_path / "out/raw/cpu/run.json")
    (tmp_path / "kernels" / "test_op.py").write_text("# edited\n")

    assert run(ended(), again=True).verdict is Verdict.PASSED


def test_the_second_attempt_of_one_command_does_not_mix_either(run, tmp_path):
    """The package was edited while the machine broke: the first attempt's record stays, and says what broke."""

    def act(raw):
        (tmp_path / "kernels" / "test_op.py").write_text("# edited\n")
        return Exit(None, 1.0, error="the connection broke")

    record = run(act)

    assert (record.verdict, len(record.attempts)) == (Verdict.INFRA, 0)


def test_what_tests_write_beside_themselves_does_not_stop_the_second_attempt(run, tmp_path):
    """Without a container they can, and nobody has edited anything."""
    acts = [lambda raw: Exit(None, 1.0, error="the connection broke"), ended()]

    def act(raw):
        (tmp_path / "kernels" / "picture.png").write_text("")
        return acts.pop(0)(raw)

    assert run(act).verdict is Verdict.PASSED


def test_two_runs_in_one_folder_keep_their_ids(run, tmp_path):
    """`nox -s cuda rocm` puts two of them side by side."""
    run(ended())
    path = tmp_path / "out" / "raw" / "cpu"
    for name in ("run.json", "job.json", "stages.json"):
        (path / name).write_text((path / name).read_text().replace('"run-1"', '"run-2"'))

    assert run(never, again=True).run_id == "run-2"


def test_files_that_are_no_files_neither_hang_nor_fail(tmp_path):
    """A pipe, a link in a circle, a link to nothing, a name of bytes that are no text."""
    import os

    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "circle").symlink_to(tmp_path)
    (tmp_path / "nothing.py").symlink_to(tmp_path / "gone")
    (tmp_path / os.fsdecode(b"\xff.py")).write_text("x")
    (tmp_path / "shared").mkdir()
    found = package(RunOptions("run-1", tmp_path / "out", tmp_path))

    assert set(found) == {"pipe", "circle", "nothing.py", "\\xff.py"}
    dump(Inputs("run-1", "cpu", found, "1", {}), tmp_path / "inputs.json")


def test_a_file_behind_a_link_out_of_the_package_is_not_read(tmp_path):
    """A stranger's package must not lead the host to other files."""
    (tmp_path / "kernels").mkdir()
    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "tiles.py").write_text("TILE = 1\n")
    (tmp_path / "kernels" / "common").symlink_to(tmp_path / "common")
    settings = RunOptions("run-1", tmp_path / "out", tmp_path / "kernels")
    before = package(settings)
    (tmp_path / "common" / "tiles.py").write_text("TILE = 2\n")

    assert ("common/tiles.py" in before, package(settings) == before) == (False, True)


def test_an_enormous_package_is_still_kept_apart(tmp_path, monkeypatch):
    """Its files are told apart by the folder that they are in; one digest a folder."""
    monkeypatch.setattr(inputs_module, "_MOST_NAMED", 3)
    for name in ("a/1.py", "a/2.py", "b/3.py", "b/4.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    settings = RunOptions("run-1", tmp_path / "out", tmp_path)
    before = package(settings)
    (tmp_path / "b" / "4.py").write_text("y")
    after = package(settings)

    assert [path for path in before if before[path] != after[path]] == ["b"]


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
    """Not after its hour, with its report never written."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out" / "raw" / "cuda").mkdir(parents=True)
    code = _run_cli(["run", "cpu", "cuda", "--kernels", str(tmp_path), "--out", "out"])

    assert (code, [path.name for path in (tmp_path / "out" / "raw").iterdir()]) == (2, ["cuda"])
    assert "exists already" in capsys.readouterr().err
