"""What the commands have in common: one habit for `--json`, completion in the shell, targets that exist. All data is synthetic."""

from __future__ import annotations

import json

import pytest
from click.shell_completion import ShellComplete
from synthetic import run, write_raw

from warpwave.__main__ import _run_cli, cli


@pytest.fixture
def bundle(tmp_path):
    write_raw(tmp_path / "run" / "raw" / "alpha", run())
    return str(tmp_path / "run")


COMMANDS = {
    "report": ["report", "--json", "RUN"],
    "compare": ["compare", "--json", "RUN", "RUN"],
    "compare, at the end": ["compare", "RUN", "RUN", "--json"],
    "codegen diff": ["codegen", "diff", "--json", "RUN", "RUN"],
    "history show": ["history", "show", "--json"],
    "list": ["list", "--json"],
}


@pytest.mark.parametrize("what", COMMANDS)
def test_json_is_one_habit(bundle, tmp_path, monkeypatch, capsys, what):
    """Alone it prints the document instead of text; with a file it writes the same there, and prints text."""
    monkeypatch.chdir(tmp_path)
    assert _run_cli(["history", "add", bundle]) == 0
    capsys.readouterr()
    words = [bundle if word == "RUN" else word for word in COMMANDS[what]]

    code = _run_cli(words)
    printed = json.loads(capsys.readouterr().out)
    with_file = [part for word in words for part in ([word, "all.json"] if word == "--json" else [word])]
    assert _run_cli(with_file) == code
    text = capsys.readouterr().out
    assert json.loads((tmp_path / "all.json").read_text()) == printed
    assert text
    assert not text.startswith(("{", "["))


def completed(*words: str) -> list[str]:
    """What the shell offers for the last of the words."""
    return [item.value for item in ShellComplete(cli, {}, "warpwave", "_X").get_completions(list(words[:-1]), words[-1])]


def test_enumerations_complete_in_the_shell():
    """Also those in a list with commas, without the words that it has."""
    assert completed("export", "x", "--format", "benchm") == ["benchmark-action", "benchmark-action-times"]
    assert "test,bench" in completed("run", "cpu", "--stage", "test,b")
    assert "test,test" not in completed("run", "cpu", "--stage", "test,t")
    assert completed("run", "cpu", "--launches", "t") == ["test"]
    assert completed("codegen", "diff", "a", "b", "--fail-on", "spills,ma") == ["spills,matrix"]
    assert completed("run", "cpu", "--weaken", "net") == ["network=bridge", "network=host"]
    assert completed("report", "x", "--expect", "cu") == ["cuda"]


def test_an_expected_target_has_to_exist(bundle, tmp_path, capsys):
    """In a targets file or in a folder: `hip` would be absent for ever."""
    out = ["--out", str(tmp_path / "out")]
    assert _run_cli(["report", bundle, *out, "--expect", "alpha,hip"]) == 2
    said = capsys.readouterr().err
    assert "'hip'" in said
    assert "rocm" in said

    overlay = tmp_path / "targets.yml"
    overlay.write_text(
        "schema_version: 1\ntargets:\n  hip: {label: mine, engine: local, stages: [test], image: {dockerfile: x, base: y}}\n"
    )
    assert _run_cli(["report", bundle, *out, "--expect", "hip", "--targets", str(overlay)]) == 4
    assert "absent" in capsys.readouterr().out


def test_a_protection_that_does_not_exist_cannot_be_given_up(tmp_path, capsys):
    """Whichever engine runs: the report would claim it."""
    (tmp_path / "ops").mkdir()

    assert _run_cli(["run", "cpu", "--engine", "local", "--kernels", str(tmp_path / "ops"), "--weaken", "all"]) == 2
    assert "no weakening named 'all'" in capsys.readouterr().err
