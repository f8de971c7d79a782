"""Nothing that is printed gives an order: to a terminal, to a reader's eye, or to the runner of a CI system that reads along."""

import ast
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.text import Text
from synthetic import run, write_raw

from warpwave import console
from warpwave.__main__ import _run_cli
from warpwave.ci.job import command
from warpwave.cli.progress import Progress
from warpwave.safe_text import json_text, visible

ROOT = Path(__file__).parents[3]
# `installing` is a program of its own, which runs in an image, too: its output is a log.
HOST = [path for path in sorted((ROOT / "harness").rglob("*.py")) if not {"inside", "installing"} & set(path.parts)]
# What the runners of GitHub, Azure, TeamCity and GitLab obey, at the start of a line and in its middle.
ORDERS = [
    "::error::planted",
    "::error file=a,line=1::planted",
    "::stop-commands::planted",
    "::ADD-MASK::planted",
    "::some-later-command::planted",
    "##[add-mask]planted",
    "##[group]planted",
    "##vso[task.setvariable variable=x]planted",
    "##VSO[task.complete result=Succeeded;]planted",
    "##teamcity[buildStatus text='planted']",
    "section_start:1560896352:planted\r\x1b[0K",
]
BEFORE = ["", "  ", "\n", "x\n", "\r", "\x1b[31m", "\x1b[0m \t", "\x1b]0;t\x07", "\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\ufeff"]
BEFORE += ["\u200b", "\u202e", "\u2066", "\U000e0041", "\ud800", "\u3164", "\ufe0f", "word ", "a" * 79 + " ", "a" * 80, "w " * 40]
BEFORE += ["\u00a0", "#", ":"]
HOSTILE = [before + order for before in BEFORE for order in ORDERS]
STEERING = "\x1b\x9b\x07\x08\r\u202e\u2066\u200b\u2028\u2029\x85\ufeff\u3164\ufe0f\U000e0041\U000e0100\ud800"


def orders(text: str, ours: str = r"::(error|warning) title=[^:]*::") -> list[str]:
    """The lines of a log that a runner would obey, or that would steer whoever reads them."""
    found = []
    for line in re.split(r"[\n\r\v\f\x85\u2028\u2029]", text):
        bare = re.sub(r"\x1b\[[0-?]*[ -/]*[@-~]", "", line).lstrip(" \t\ufeff")
        begins = bare.startswith("::") and not re.match(ours, bare)
        if begins or re.search(r"##\w*\[|section_(start|end):\d", bare, re.IGNORECASE) or not bare.isprintable():
            found.append(line)
    return found


@pytest.fixture
def printed():
    def printed(function, *arguments, **options) -> str:
        with CliRunner().isolation() as (out, err, *_):
            function(*arguments, **options)
            return out.getvalue().decode() + err.getvalue().decode()

    return printed


WAYS_OUT = {
    "a line": lambda text: console.say(text),
    "standard error": lambda text: console.say(text, err=True),
    "several lines": lambda text: console.say(text.split("\n")),
    "drawn": lambda text: console.show(Text(visible(text))),
    "folded": lambda text: console.show(visible("x" * 30 + text), err=True),
    "JSON": lambda text: console.print_json({text: [text]}),
    "an annotation": lambda text: console.order(text),
    "an annotation of ours": lambda text: console.order(command("error", text, title=text)),
}


@pytest.mark.parametrize("way", WAYS_OUT)
def test_every_way_out_is_inert(printed, way):
    for text in HOSTILE:
        told = printed(WAYS_OUT[way], text)

        assert orders(told) == []
        assert set(told) & set(STEERING) == set()


def test_what_is_said_stays_on_its_line_and_folds_into_no_order(printed):
    """A line break in a name makes no line that looks like ours."""
    assert printed(console.say, "a\nerror: b\r\nc").count("\n") == 1

    # Of two texts that touch, or of a name that was harmless in the middle of its line.
    for width in range(2, 90):
        told = printed(console.show, Text("w" * width + " ::later-command::x"))
        assert orders(told) == []
    assert orders(printed(console.show, Text.assemble("#", ("#", ""), "[group]x"))) == []

    for text in ("ops/test_add.py::test_add[fp32]", "std::move", "## 12", "#[x]", "naïve 日本語 עברית", "section_start", "a::error_prone"):
        assert printed(console.say, text) == text + "\n"

    for text in HOSTILE:
        assert json.loads(printed(console.print_json, [text])) == [text]
    assert json.loads(json_text("section_end:1:x ##vso[a]")) == "section_end:1:x ##vso[a]"

    assert printed(console.order, command("error", "m", title="t")) == "::error title=t::m\n"
    at_a_line = command("error", "m", title="a.py::t,x", file="a,b:c.py", line="7")
    assert printed(console.order, at_a_line) == "::error title=a.py%3A%3At%2Cx,file=a%2Cb%3Ac.py,line=7::m\n"
    for text in (
        *("::error title=t::m", "::set-output name=x::y", "::error title=a::b\n::error::c", "::add-mask::x", "::error title=a::b\u202e"),
    ):
        assert orders(printed(console.order, text), ours="$") == []


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_a_stream_that_cannot_hold_a_letter_gets_it_spelt_out(monkeypatch, encoding):
    below = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(below, encoding=encoding))
    console.say("3.1 µs → 2.0 ✅")
    console.show(Text("3.1 µs → 2.0"))
    assert "\\u2192" in below.getvalue().decode(encoding)


@pytest.mark.parametrize("name", ["\n::error::x", "##vso[task.complete]", "\x1b[2J\u202e::stop-commands::y"], ids=range(3))
def test_no_command_prints_what_an_artifact_orders(tmp_path, name, monkeypatch):
    """A target's name, reason and label; file names; arguments, and click's own errors about them."""
    raw = write_raw(tmp_path / "in" / "raw" / "alpha", run())
    record = json.loads((raw / "run.json").read_text())
    (raw / "run.json").write_text(json.dumps({**record, "target": name, "label": name, "reason": name, "hint": name, "commit": name}))
    shutil.copytree(tmp_path / "in", tmp_path / "base")
    monkeypatch.chdir(tmp_path)
    file = name.replace("/", "_")
    (tmp_path / file).write_text("x: [\n")
    for words in (
        ["report", "in", "--out", "out"],
        ["report", "in", "--out", f"out{file}"],
        ["report", "in", "--out", "out", "--json"],
        ["report", file],
        ["ci", "report", "in", "--out", "out", "--expect", name, "--base", "base", "--summary", "summary.md"],
        ["ci", "comment", "in", "--out", "comment.md", "--base", "base"],
        ["ci", "plan", "--runners", json.dumps({name: "x"})],
        ["ci", "plan", "--runners", json.dumps({"cpu": ["self-hosted", name]})],
        ["ci", "leg", name, "--out", "leg"],
        ["compare", "base", "in"],
        ["codegen", "diff", "base", "in"],
        ["codegen", "diff", "base", "in", "--fail-on", name],
        ["history", "in", "base"],
        ["history", "in", "--kernel", name],
        *(["export", "in", "--format", kind] for kind in ("csv", "openmetrics", "benchmark-action", "bencher", "pytorch", name)),
        ["plot", "in", "--out", f"plots{file}"],
        ["list", "--targets", file],
        ["run", name],
        ["run", "cpu", "--kernels", file, "--out", "never"],
        ["doctor", name],
        ["init", f"new{file}", "--from", name],
        [name],
        ["report", f"--{name}"],
        ["report", "in", "--expect"],
    ):
        with CliRunner().isolation() as (out, err, *_):
            _run_cli(words)
            told = out.getvalue().decode() + err.getvalue().decode()

        assert orders(told) == [], words
    for page in ("summary.md", "comment.md"):
        assert orders((tmp_path / page).read_text()) == []


def test_a_name_that_is_no_text_is_a_mistake_in_usage(tmp_path, monkeypatch):
    """It would be in run.json, which nobody could read then."""
    folder = tmp_path / os.fsdecode(b"\xff")
    folder.mkdir()
    words = ["run", "cpu", "--kernels", str(folder), "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", ["warpwave", *words])
    with CliRunner().isolation() as (out, err, *_):
        code = _run_cli(words)
        told = out.getvalue().decode() + err.getvalue().decode()

    assert code == 2
    assert "is not valid UTF-8" in told
    assert not (tmp_path / "out").exists()


def test_live_events_and_lines_of_an_engine_are_inert(printed):
    def follow() -> None:
        with Progress(console.terminal(err=True), HOSTILE[0]) as progress:
            for text in HOSTILE:
                progress.say(text)
                progress.on_event({"event": "stage-end", "stage": text, "verdict": text, "seconds": 1.0})
            for text in HOSTILE[:9]:
                progress.on_event({"event": "result", "verdict": text, "id": text, "message": text})

    assert orders(printed(follow)) == []


def test_the_traceback_of_our_own_fault_is_inert():
    code = f"from warpwave import console\nconsole.print_tracebacks()\nraise ValueError({HOSTILE[0]!r} + chr(10) + {HOSTILE[1]!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert done.returncode == 1
    assert "ValueError" in done.stderr
    assert orders(done.stderr) == []


PRINTS = {"click.echo", "click.secho", "click.echo_via_pager", "click.confirm", "click.prompt", "click.progressbar", "rich.print"}
PRINTS |= {"sys.stdout", "sys.stderr", "sys.__stdout__", "sys.__stderr__", "os.write", "warnings.warn", "traceback.print_exc"}


PRINTERS = ("console.py",)


def printed_by_itself(path):
    """What in this file writes to a stream, makes a console, logs, or starts a program that prints for itself."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = {ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute)}
    calls = [(ast.unparse(node.func), {keyword.arg for keyword in node.keywords}) for node in nodes if isinstance(node, ast.Call)]
    modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    consoles = {"print", "Console", "rich.console.Console", *(["problem.show"] if path.name != "__main__.py" else [])}
    starts = ("subprocess.run", "subprocess.Popen", "subprocess.check_call", "os.system")
    loud = {called for called, words in calls if called in starts and not ("capture_output" in words or {"stdout", "stderr"} <= words)}
    return (names & PRINTS) | ({called for called, _ in calls} & consoles) | (modules & {"logging", "warnings"}) | loud


def test_only_the_console_prints():
    paths = [path for path in HOST if path.name not in PRINTERS]

    assert len(paths) > 100
    assert {str(path.relative_to(ROOT)): found for path in paths if (found := printed_by_itself(path))} == {}

    # Of all modules one makes them, and one hands them on.
    users = {path.relative_to(ROOT).as_posix() for path in HOST if re.search(r"\bconsole\.order\(", path.read_text())}

    makers = {path.relative_to(ROOT).as_posix() for path in HOST if re.search(r"(?<!class )\bAnnotation\(", path.read_text())}

    assert users == {"harness/warpwave/cli/ci.py"}
    assert makers == {"harness/warpwave/ci/job.py"}


def test_a_line_for_a_pipe_is_not_wrapped(capsys, monkeypatch):
    """A search in a log finds it. `COLUMNS` wraps it, as in a terminal."""
    monkeypatch.delenv("COLUMNS", raising=False)
    console.show(Text("word " * 40))
    monkeypatch.setenv("COLUMNS", "80")
    console.show(Text("word " * 40))

    assert [len(line.split()) for line in capsys.readouterr().out.splitlines()] == [40, 16, 16, 8]
