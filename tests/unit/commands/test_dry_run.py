"""`run --dry-run` shows what would run, on which files, and runs nothing."""

import json
import socket
import subprocess

import pytest
from synthetic import write_whole

from warpwave.__main__ import _run_cli, cli
from warpwave.ci.job import check_options
from warpwave.cli import cards, watch
from warpwave.cli.parse import parse_options
from warpwave.cli.profile import _profiles, target_of
from warpwave.cli.run import run
from warpwave.doctor.machine import Machine
from warpwave.errors import Outcome, UsageError
from warpwave.run.folders import RUNS, point_to_latest

HOSTS = """
cuda: {slurm: {gpus: 1, time: "00:10:00"}, container: pyxis, image: /images/cuda.sqsh}
rocm: {ssh: me@there.example}
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with secrets, a cache and a link out, and a file that says where legs run."""
    root = tmp_path / "pkg"
    for name in ("test_one.py", ".env", "sub/.git/config", "node_modules/.npmrc", "tables/a.bin"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("def test_one(): pass\n")
    (root / "etc").symlink_to("/etc")
    (tmp_path / "hosts.yml").write_text(HOSTS)
    monkeypatch.chdir(tmp_path)
    return root


@pytest.fixture
def nothing_starts(monkeypatch):
    def refuse(*arguments, **more):
        raise AssertionError(f"started: {arguments}")

    def start(self, words, *rest, **more):
        return started(self, words, *rest, **more) if words[0] == "git" else refuse(words)

    started = subprocess.Popen.__init__
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(subprocess.Popen, "__init__", start)


def told(capsys, *words):
    assert _run_cli(["run", *words, "--kernels", "pkg", "--dry-run", "--json"]) == 0
    return json.loads(capsys.readouterr().out)["dry_run"]


@pytest.mark.usefixtures("nothing_starts")
def test_what_each_leg_would_do(package, capsys):
    """The engine, the image and the command, on this machine and on others; nothing is asked or written."""
    before = sorted(package.parent.rglob("*"))
    legs = told(capsys, "cuda", "rocm", "cpu", "--hosts", "hosts.yml", "--env", "A_TOKEN=hunter2")["targets"]
    slurm, ssh, here = legs

    assert [leg["target"] for leg in legs] == ["cuda", "rocm", "cpu"]
    assert (slurm["engine"], slurm["image"]) == ("slurm", "/images/cuda.sqsh")
    assert slurm["command"].startswith("srun ")
    assert ssh["engine"] == "ssh"
    assert ssh["image"].startswith("warpwave/rocm:")
    assert "warpwave.inside.watchdog" in ssh["command"]
    assert "copy" in ssh["package"]
    assert here["engine"] == "local"
    assert "nothing of it is hidden" in here["package"]
    assert "hunter2" not in json.dumps(legs)
    assert sorted(package.parent.rglob("*")) == before


def test_which_files_and_why_not_others(package, capsys):
    """With their sizes. A container on this machine sees more than what is sent, but no secret."""
    (leg,) = (found := told(capsys, "cuda"))["targets"]

    assert found["files"] == [{"path": "tables/a.bin", "bytes": 21}, {"path": "test_one.py", "bytes": 21}]
    assert {each["path"]: each["why"] for each in found["left_out"]} == {
        ".env": "may hold a password or a key",
        "sub/.git": "is a repository, whose settings may hold a password",
        "node_modules": "was left by a tool",
        "etc": "is a link out of the package",
    }
    assert sorted(found["hidden"]) == [".env", "node_modules/.npmrc", "sub/.git"]
    assert (leg["engine"], "read-only" in leg["package"]) == ("docker", True)

    assert _run_cli(["run", "cpu", "--stage", "bench", "--kernels", "pkg", "--dry-run"]) == 2


def test_no_job_of_a_workflow_is_a_dry_run_or_waits_for_edits(tmp_path, edited):
    with pytest.raises(UsageError, match="nothing would have run"):
        check_options("cpu", tmp_path, {"names": ("cpu",), "dry_run": True})

    options = run.make_context("run", ["cpu", "--watch", "--kernels", str(edited)]).params

    with pytest.raises(UsageError, match="--watch"):
        check_options("cpu", edited, options)


# `run --watch`: what an edit touches runs again, until Ctrl-C. Nothing waits: the clock of the loop makes the edits.

FILES = {
    "test_add.py": "import add\n\ndef test_add(): pass\n",
    "add.py": "",
    "test_mul.py": "def test_mul(): pass\n",
    "README.md": "",
    "reports/runs/1/raw/x": "",
}


@pytest.fixture
def edited(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def watched(edited, monkeypatch, edits, *words):
    """What each run was asked for: its files and stages. Each poll that follows a run makes the next edit; behind the last is Ctrl-C."""
    options = run.make_context("run", ["cpu", "--watch", "--kernels", str(edited), *words]).params
    assert options.pop("watch")
    asked, left = [], list(edits)

    def once(**given):
        left.insert(0, None)
        what = parse_options(given).what
        asked.append((what.chosen.tests, [stage.value for stage in what.stages or ()]))
        return Outcome()

    def sleep(seconds):
        if left and left[0] is None:  # the first poll after a run
            left.pop(0)
            if not left:
                raise KeyboardInterrupt
            name = left.pop(0)
            (edited / name).parent.mkdir(parents=True, exist_ok=True)
            (edited / name).write_text(FILES.get(name, "") + "\n# edited")

    monkeypatch.setattr(watch.time, "sleep", sleep)
    assert watch.watch(options, once) == Outcome()
    return asked


def test_what_an_edit_touches_runs_again(edited, monkeypatch):
    """The first run has everything; a module's edit runs the tests that import it, in the test stage."""
    asked = watched(edited, monkeypatch, ["add.py", "test_mul.py"])

    assert asked[0][0] is None
    assert asked[1:] == [(("test_add.py",), ["test"]), (("test_mul.py",), ["test"])]


def test_the_stages_that_were_asked_for_stay_and_the_choice_does_not(edited, monkeypatch):
    assert watched(edited, monkeypatch, ["test_mul.py"], "--stage", "compile")[1] == (("test_mul.py",), ["compile"])

    assert [tests for tests, _ in watched(edited, monkeypatch, ["add.py"], "--test", "test_mul.py")] == [("test_mul.py",), ("test_add.py",)]


def test_an_edit_that_touches_no_test_runs_nothing_and_goes_on(edited, monkeypatch, capsys):
    assert [tests for tests, _ in watched(edited, monkeypatch, ["README.md", "test_mul.py"])] == [None, ("test_mul.py",)]
    assert "none of the 2 test files and benches is touched" in capsys.readouterr().err


def test_results_and_caches_are_no_edits(edited):
    before = watch._times(edited)
    for name in ("reports/runs/1/raw/x", "__pycache__/a.pyc", ".git/index"):
        (edited / name).parent.mkdir(parents=True, exist_ok=True)
        (edited / name).write_text("new")

    assert watch._times(edited) == before
    (edited / "new.py").write_text("")
    assert watch._times(edited) != before


@pytest.mark.parametrize("words", [["--out", "x"], ["--json"], ["--dry-run"], ["--resume", "x"]])
def test_what_is_for_one_run_is_refused(edited, words):
    options = run.make_context("run", ["cpu", "--watch", "--kernels", str(edited), *words], obj={}).params
    options.pop("watch")

    with pytest.raises(UsageError, match="were both given"):
        watch.watch(options, lambda **given: Outcome())


# `warpwave profile`: which emulated target a name means, and what is refused before anything runs.


@pytest.mark.parametrize("name", ["gfx942", "MI300X", "mi325x", "gfx942-emulated"])
def test_a_card_has_many_names(name):
    assert target_of(name, None) == "gfx942-emulated"


def test_a_card_without_an_emulator_is_refused():
    with pytest.raises(UsageError) as caught:
        target_of("h100", None)

    assert "MI300X" in caught.value.remedy


@pytest.mark.parametrize(("counters", "said"), [("lines64", "needs a run to compare with"), ("lines64,line", "no counter 'line'")])
def test_counters_that_must_not_grow_are_known_and_have_a_run_to_compare_with(tmp_path, counters, said):
    """A misspelt one would never grow."""
    with pytest.raises(UsageError, match=said):
        cli.main(["profile", "gfx942", "--kernels", str(tmp_path), "--must-not-grow", counters], standalone_mode=False, obj={})


def test_a_run_without_counters_is_no_run_to_compare_with(tmp_path):
    (found,) = _profiles(write_whole(tmp_path / "whole"))

    assert found.function == "_softmax_fwd"
    (tmp_path / "whole" / "alpha" / "test" / "profile.jsonl").unlink()
    with pytest.raises(UsageError, match="has no profile"):
        _profiles(tmp_path / "whole")


# What somebody types first: no target, a wrong name, a target whose card is not here, and the page of the latest run.


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A folder with an empty package, on a machine without an engine of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    (tmp_path / "kernels").mkdir()


def machine(monkeypatch, root, vendor=""):
    device = root / "sys/bus/pci/devices/0000:01:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text(f"{vendor or '0x8086'}\n")
    (device / "class").write_text("0x030200\n" if vendor else "0x020000\n")
    monkeypatch.setattr(cards, "Machine", lambda: Machine(root))


@pytest.mark.parametrize(("vendor", "command"), [("", "run cpu gfx942-emulated"), ("0x10de", "run cuda"), ("0x1002", "run rocm")])
def test_a_run_without_a_target_names_what_fits_the_machine(vendor, command, tmp_path, monkeypatch, capsys):
    machine(monkeypatch, tmp_path / "root", vendor)

    assert _run_cli(["run"]) == 2
    assert f"`warpwave {command}`" in capsys.readouterr().err


def test_a_machine_without_cards_says_so_once(tmp_path, monkeypatch, capsys):
    """Of all targets together, with a command that works here; nothing is started or written."""
    machine(monkeypatch, tmp_path / "root")

    assert _run_cli(["run", "cuda", "rocm"]) == 3
    error = capsys.readouterr().err
    assert error.count("no card for cuda (NVIDIA CUDA) or rocm (AMD ROCm)") == 1
    assert "`warpwave run cpu gfx942-emulated`" in error
    assert "docker" not in error.lower()
    assert not RUNS.exists()


@pytest.mark.parametrize("more", [["--stage", "compile"], ["--engine", "local"]])
def test_what_needs_no_card_here_is_not_refused(more, tmp_path, monkeypatch, capsys):
    """Compiling needs none, and a Python of the user's may see what a bus does not show."""
    machine(monkeypatch, tmp_path / "root")
    monkeypatch.setattr("warpwave.run.target.run_target", lambda *_: pytest.fail("not reached"))
    _run_cli(["run", "cuda", *more, "--dry-run"])

    assert "no card" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "meant"), [("rocn", "rocm"), ("cdua", "cuda"), ("H100", "cuda"), ("mi300x", "gfx942-emulated or rocm"), ("NVIDIA", "cuda")]
)
def test_a_wrong_name_is_answered_with_the_nearest(name, meant, capsys):
    assert _run_cli(["run", name]) == 2
    assert f"The nearest is {meant}." in capsys.readouterr().err


def test_the_latest_run_has_a_link_and_its_page_is_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    for name in ("run-1", "run-2"):
        (RUNS / name).mkdir(parents=True)
        (RUNS / name / "comparison.html").write_text(name)
        point_to_latest(RUNS / name)

    assert _run_cli(["open"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / RUNS / "run-2" / "comparison.html")


def test_a_folder_that_is_called_latest_stays(tmp_path):
    (RUNS / "latest").mkdir(parents=True)
    (RUNS / "run-1").mkdir()
    point_to_latest(RUNS / "run-1")

    assert not (RUNS / "latest").is_symlink()
