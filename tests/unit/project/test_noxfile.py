"""nox sessions come from docker/targets.yml, and a third vendor's with them."""

import ast
import importlib.util
import re
import subprocess
import sys
import types
from pathlib import Path

import command
import pytest

pytest.importorskip("nox")
REPOSITORY = Path(__file__).parents[3]


def sessions(folder: Path) -> str:
    command = [sys.executable, "-m", "nox", "--list", "--script-mode", "none", "-f", str(folder / "noxfile.py")]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_every_target_has_a_session():
    listed = sessions(REPOSITORY)

    assert "* cpu -> " in listed
    assert "- cuda -> Run the kernels on NVIDIA CUDA." in listed
    assert "- rocm -> Run the kernels on AMD ROCm." in listed
    assert "- gfx942-emulated -> " in listed
    assert "- emulated -> " in listed


OPTIONS = {
    "nothing": ([], None, True),
    "two words": (["--out", "x"], "x", True),
    "one word": (["--out=x"], "x", True),
    "twice": (["--out=y", "--out", "x"], "x", True),
    "a value that looks like an option": (["--out=x", "-k", "--out"], "x", True),
    "a value that is an engine's name": (["-kdocker", "--env", "docker"], None, True),
    "an engine": (["--engine=docker"], None, False),
    "an engine in two words": (["--engine", "docker"], None, False),
    "the last of two engines": (["--engine=docker", "--engine=local"], None, True),
    "a Python of one's own": (["--python=/usr/bin/python3"], None, False),
    "a run to resume": (["--resume=x"], "x", True),
    "after two dashes": (["--out=x", "--"], "x", True),
}


class Session:
    """Asks the real `warpwave` what options come to, as nox would, and otherwise only notes what it is told."""

    def __init__(self, posargs, answers=True):
        self.posargs, self.answers, self.noted, self.ran = posargs, answers, [], ()

    def install(self, *words):
        """Nothing: it is there."""

    def notify(self, name, posargs):
        self.noted.append((name, posargs))

    def run(self, *words, **more):
        if words[:3] != ("warpwave", "ci", "options"):
            self.ran = words
        elif self.answers:
            done = command.warpwave(*words[1:])
            assert done.returncode == 0, done.stderr
            return done.stdout
        return None


@pytest.fixture
def noxfile(monkeypatch):
    """The file, loaded; `installed` notes for which sessions torch was."""
    monkeypatch.chdir(REPOSITORY)
    monkeypatch.setattr("nox.registry._REGISTRY", {})
    spec = importlib.util.spec_from_file_location("noxfile", REPOSITORY / "noxfile.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.installed = []
    module.install_inside = module.installed.append
    return module


@pytest.mark.parametrize("what", OPTIONS)
def test_options_are_parsed_once(noxfile, what):
    """By `warpwave` itself: the report finds the results, and torch is installed where the local engine will look for it."""
    options, out, inside = OPTIONS[what]
    noxfile.run_target(session := Session(options), "cpu")

    assert session.noted == [("report", [out or str(noxfile.OUT)])]
    assert session.ran[session.ran.index("--no-report") + 1 :] == tuple(options)
    assert (str(noxfile.OUT) in session.ran) == (out is None)
    assert bool(noxfile.installed) == inside


def test_emulated_runs_the_first_emulated_target(noxfile):
    session = Session([])
    session.install = lambda *words: setattr(session, "installed", words)
    noxfile.emulated.func(session)

    assert session.installed == ("-e", ".[emulator]")
    assert session.ran[:3] == ("warpwave", "run", "gfx942-emulated")
    assert noxfile.EXPECTED == ["gfx942-emulated"]
    assert [name for name, entry in noxfile.TARGETS.items() if entry.get("emulate")][:1] == noxfile.EXPECTED


def test_a_run_has_time_to_stop():
    """nox would kill its child 0.5 s after Ctrl-C; every rung of the ladder fits into what it is given instead, for every run."""
    from warpwave.engines.docker import engine
    from warpwave.records import Limits

    text = (REPOSITORY / "noxfile.py").read_text()
    patience = ast.literal_eval(re.search(r"^PATIENCE = (.*)$", text, re.MULTILINE).group(1))
    ladder = Limits.grace_s + engine._TERMINATE_S + engine._KILL_S + engine._DRAIN_S
    runs = [line for line in text.splitlines() if '"warpwave", "run"' in line]

    assert patience["interrupt_timeout"] > ladder
    assert patience["terminate_timeout"] > engine._KILL_S + engine._DRAIN_S
    assert runs
    assert all("**PATIENCE" in line for line in runs)


class Queued(Session):
    """A session of a call of nox in which those of `waiting` follow."""

    def __init__(self, posargs, waiting):
        super().__init__(posargs)
        self.said = []
        sessions = [(types.SimpleNamespace(name=name), name in waiting) for name in ("cpu", "cuda", "rocm", "lint")]
        self._runner = types.SimpleNamespace(manifest=types.SimpleNamespace(list_all_sessions=lambda: sessions))

    def log(self, text):
        self.said.append(text)

    def error(self, text):
        raise RuntimeError(text)


def test_the_first_session_starts_what_can_run_beside_it(noxfile, tmp_path):
    """Where a hosts file puts targets on different machines; a later session then ends as its target did."""
    hosts, out = tmp_path / "hosts.yml", tmp_path / "out"
    hosts.write_text("cuda: {ssh: a}\nsmall: {target: rocm, ssh: b}\nbig: {target: rocm, ssh: c}\n")
    options = ["--hosts", str(hosts), "--out", str(out)]
    first, second = Queued(options, ["rocm", "lint"]), Queued(options, ["lint"])
    noxfile.run_target(first, "cuda")

    assert first.ran[:5] == ("warpwave", "run", "cuda", "rocm", "--no-report")
    assert noxfile.EXPECTED == ["cuda", "small", "big"]
    for leg in ("small", "big"):
        (out / "raw" / leg).mkdir(parents=True)
        (out / "raw" / leg / "run.json").write_text('{"verdict": "passed"}')
    noxfile.run_target(second, "rocm")
    assert second.ran == ()
    assert second.said == ["rocm ran beside the first target of this command: passed"]
    (out / "raw" / "big" / "run.json").write_text('{"verdict": "absent"}')
    with pytest.raises(RuntimeError, match="rocm: absent, passed"):
        noxfile.run_target(Queued(options, []), "rocm")
