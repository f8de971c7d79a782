"""What a user names can be impossible, and what a command prints can have nowhere to go: three beats and 2 or 3, never a traceback.

All of it is real: links, closed folders, /proc, a read-only mount, /dev/full, a closed pipe, closed descriptors.
"""

import contextlib
import dataclasses
import errno
import json
import os
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import click
import command
import pytest
from click.testing import CliRunner
from command import beats
from engine_requests import ask, make_options
from slow_cases import slow_but
from synthetic import run, two_targets, write_raw

from warpwave.__main__ import _run_cli, cli
from warpwave.cli.options import OUT_FILE, OUT_FOLDER, parse_compiled
from warpwave.cli.parse import chosen_packages, chosen_variables, parse_options
from warpwave.cli.run import parse_run
from warpwave.config.pyproject import PackageEnvironment, load_environment, load_what
from warpwave.config.targets import load_targets, load_toolchains
from warpwave.config.toolchains import chosen, leg, legs, one, split_legs
from warpwave.engines.packages.plan import make_plan
from warpwave.engines.protocol import Layout, Request
from warpwave.errors import ConfigError, ExitCode, UsageError, explain
from warpwave.options import Build, Install
from warpwave.records import BenchScript, Budget, Cap, Declared, Shard, write_text
from warpwave.records.run import Toolchain, plain_target
from warpwave.records.selection import find_scripts
from warpwave.run import check_target
from warpwave.run.attempt import job_of
from warpwave.run.folders import check_no_links
from warpwave.run.shards import share_scripts

ROOT = os.getuid() == 0
_WITHOUT = "-dac_override,-dac_read_search"  # root that may open only what is its own, as any user
VARIABLES = {**os.environ, "COLUMNS": "200", "PYTHONPATH": str(Path(__file__).parents[3])}
warpwave = partial(command.warpwave, env=VARIABLES)
PLACES = ["below a file", "below proc", "proc itself", "a long name", "a loop of links", "behind a loop"]
PLACES += ["below a dangling link", "read-only"]


@pytest.fixture
def bundle(tmp_path):
    """A folder of results, a bit of everything in it."""
    for each in two_targets():
        write_raw(tmp_path / "runs" / "raw" / each.record.target, each)
    return tmp_path / "runs"


@pytest.fixture
def place(tmp_path):
    """A path at which nothing can be made, by its name."""
    mounted = []

    def make(name: str) -> Path:
        (tmp_path / "file").write_text("x")
        (tmp_path / "loop").symlink_to("pool")
        (tmp_path / "pool").symlink_to("loop")
        (tmp_path / "dangling").symlink_to(tmp_path / "file" / "nowhere")
        if name == "read-only":
            (tmp_path / "disk").mkdir()
            command = ["mount", "-t", "tmpfs", "-o", "size=64k,ro", "tmpfs", str(tmp_path / "disk")]
            if not ROOT or subprocess.run(command, capture_output=True).returncode:
                pytest.skip("only root can mount a file system")
            mounted.append(tmp_path / "disk")
        return {
            "below a file": tmp_path / "file" / "x",
            "below proc": Path("/proc/warpwave"),
            "proc itself": Path("/proc"),
            "a long name": tmp_path / ("n" * 300),
            "a loop of links": tmp_path / "loop",
            "behind a loop": tmp_path / "loop" / "x",
            "below a dangling link": tmp_path / "dangling" / "x",
            "read-only": tmp_path / "disk" / "out",
        }[name]

    yield make
    for folder in mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("name", slow_but(PLACES, ("below a file", "a loop of links", "read-only")))
def test_an_impossible_folder_is_the_users_mistake(place, bundle, tmp_path, name):
    """`run` starts nothing, `report` and `plot` write nothing: 2, in three beats that name the path."""
    where = place(name)
    (tmp_path / "kernels").mkdir()
    for words in (
        ("run", "cpu", "--engine", "local", "--kernels", tmp_path / "kernels", "--out", where),
        ("report", bundle, "--out", where),
        ("plot", bundle, "--out", where),
    ):
        done = warpwave(*words)
        lines = beats(done)
        assert (done.returncode, len(lines)) in ((2, 3), (2, 4)), (words, done.stdout, done.stderr)  # 4: click's own words for an option
        assert str(where)[:40] in done.stderr


@pytest.mark.parametrize("name", slow_but([*PLACES[:2], *PLACES[3:6], "read-only"], ("below a file", "a loop of links")))
def test_an_impossible_file_is_the_users_mistake(place, bundle, tmp_path, name):
    where = place(name)
    for words in (
        ("export", bundle, "--format", "csv", "--out", where),
        ("report", bundle, "--out", tmp_path / "out", "--svg", where),
        ("codegen", "diff", bundle, bundle, f"--json={where}"),
        ("codegen", "diff", bundle, bundle, "--html", where),
        ("compare", bundle, bundle, "--markdown", where),
        ("history", bundle, "--markdown", where),
        ("ci", "plan", "--runners", '{"cuda": ["self-hosted", "gpu"]}', "--output", where),
        ("ci", "comment", bundle, "--out", where),
        ("ci", "report", bundle, "--out", tmp_path / "ci", "--summary", where),
        ("list", "--targets", where),
        ("init", where),
    ):
        done = warpwave(*words, cwd=tmp_path)
        if os.path.isfile(where):  # noqa: PTH113 - a name may be too long for pathlib; a link has been replaced by the file
            where.unlink()
            where.symlink_to("pool")
            continue
        assert done.returncode == 2, (words, done.stdout, done.stderr)
        assert len(beats(done)) >= 3, done.stderr
        assert "fault of warpwave" not in done.stderr, done.stderr


@pytest.mark.parametrize("name", ["below a file", "a long name", "a loop of links", "behind a loop"])
def test_an_impossible_input_is_the_users_mistake(place, tmp_path, name):
    where = place(name)
    for words in (("report", where), ("compare", where, where), ("export", where, "--format", "csv"), ("run", "cpu", "--kernels", where)):
        done = warpwave(*words, cwd=tmp_path)
        assert done.returncode in (2, 4), (words, done.stderr)
        assert len(beats(done)) >= 3


@pytest.mark.skipif(not ROOT or not shutil.which("setpriv"), reason="only root can make what it may not open")
def test_a_closed_folder(bundle, tmp_path):
    """Somebody else's, of which one may open nothing, or change nothing: 2, whichever command."""
    closed, others = tmp_path / "closed", tmp_path / "others"
    (closed / "x").mkdir(parents=True)
    others.mkdir()
    (tmp_path / "kernels").mkdir()
    for folder, mode in ((closed, 0o700), (others, 0o755)):
        os.chown(folder, 65534, 65534)
        folder.chmod(mode)
    for words in (
        ("run", "cpu", "--engine", "local", "--kernels", tmp_path / "kernels", "--out", closed / "x"),
        ("run", "cpu", "--engine", "local", "--kernels", tmp_path / "kernels", "--out", others / "mine"),
        ("run", "cpu", "--engine", "local", "--kernels", closed / "x"),
        ("report", bundle, "--out", closed),
        ("report", bundle, "--out", others / "mine"),
        ("report", bundle, "--out", others),
        ("export", bundle, "--format", "csv", "--out", closed / "x.csv"),
        ("list", "--targets", closed / "targets.yml"),
    ):
        done = warpwave(*words, kind="command", before=("setpriv", f"--inh-caps={_WITHOUT}", f"--bounding-set={_WITHOUT}"))
        assert done.returncode == 2, (words, done.stdout, done.stderr)
        assert len(beats(done)) >= 3


TALKERS = [
    tuple(line.split())
    for line in ("list", "list --json", "--version", "--help", "run --help", "report BUNDLE", "export BUNDLE --format csv")
]


# What the shell's words for it make of the descriptors 0, 1 and 2 of a command that is forked.
SHELL = {
    ">/dev/full": (None, "full", None),
    ">&-": (None, -1, None),
    "2>/dev/full": (None, None, "full"),
    "2>&-": (None, None, -1),
    "<&-": (-1, None, None),
    ">&- 2>&- <&-": (-1, -1, -1),
    "| true": (None, "nobody", None),
    "| head -c 1": (None, "one byte", None),
    "2>&1 | true": (None, "nobody", "nobody"),
}


@pytest.fixture
def redirected():
    """Run a command with what stands behind it on a shell's line."""

    def run(arguments, shell: str) -> subprocess.CompletedProcess[str]:
        with contextlib.ExitStack() as stack:
            return warpwave(*arguments, descriptors=[open_as(one, stack) for one in SHELL[shell]])

    return run


def open_as(one: int | str | None, stack: contextlib.ExitStack) -> int | None:
    """A descriptor of that kind, until the end of `stack`."""
    if not isinstance(one, str):
        return one
    if one == "full":
        return stack.enter_context(open("/dev/full", "wb", buffering=0)).fileno()
    reading, writing = os.pipe()
    if one == "one byte":
        reader = subprocess.Popen(["head", "-c", "1"], stdin=reading, stdout=subprocess.DEVNULL)
        stack.callback(reader.wait)
    os.close(reading)
    stack.callback(os.close, writing)
    return writing


@pytest.mark.parametrize("arguments", slow_but(TALKERS, (TALKERS[0], TALKERS[5])), ids=" ".join)
def test_an_answer_that_cannot_be_written(redirected, bundle, arguments):
    """A full disk behind standard output, or none at all: 3 where it was 0, said on standard error; never 1, which means failed tests."""
    arguments = [str(bundle) if word == "BUNDLE" else word for word in arguments]
    usual = warpwave(*arguments).returncode
    for shell in (">/dev/full", ">&-"):
        done = redirected(arguments, shell)
        assert done.returncode == (usual or ExitCode.INFRASTRUCTURE), (shell, done.stderr)
        assert len(beats(done)) == 3, done.stderr
        assert "standard output" in done.stderr
    assert redirected(arguments, ">&- 2>&- <&-").returncode == (usual or ExitCode.INFRASTRUCTURE)
    for shell in ("2>/dev/full", "2>&-", "<&-"):
        assert redirected(arguments, shell).returncode == usual


@pytest.mark.parametrize("arguments", slow_but(TALKERS, (TALKERS[0], TALKERS[5])), ids=" ".join)
def test_a_reader_that_leaves_is_no_error(redirected, bundle, arguments):
    arguments = [str(bundle) if word == "BUNDLE" else word for word in arguments]
    usual = warpwave(*arguments).returncode
    for shell in ("| true", "| head -c 1"):
        done = redirected(arguments, shell)
        assert (done.returncode, beats(done)) == (usual, []), (shell, done.stderr)
    assert redirected(arguments, "2>&1 | true").returncode == usual


@pytest.mark.slow
def test_python_itself_starts_without_descriptors():
    """As above, from the start of the process: Python has no stream for what is closed, and writes what is left at its end."""
    for shell, code in ((">/dev/full", 3), (">&-", 3), (">&- 2>&- <&-", 3), ("2>&-", 0), ("<&-", 0), ("| true; exit ${PIPESTATUS[0]}", 0)):
        words = ["bash", "-c", f'"$@" {shell}', "-", sys.executable, "-m", "warpwave", "list"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=VARIABLES)
        assert (done.returncode, len(beats(done))) == (code, 3 if code and "2>" not in shell else 0), (shell, done.stderr)


def test_an_error_survives_a_closed_output(redirected):
    for shell in (">/dev/full", ">&-", ">&- 2>&- <&-", "2>/dev/full", "2>&1 | true"):
        done = redirected(("run", "metal"), shell)
        assert done.returncode == 2, (shell, done.stderr)
        assert "Traceback" not in done.stderr


def test_names_that_are_no_text(tmp_path):
    """Bytes that are not UTF-8, in a path and in a folder's name; and a terminal that knows only ASCII."""
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe")
    Path(odd).mkdir()
    run = ("run", "cpu", "--engine", "local", "--kernels", odd, "--out", tmp_path / "o")
    for words in (run, ("report", odd), ("run", os.fsdecode(b"\xff"))):
        done = warpwave(*words, cwd=tmp_path)
        assert done.returncode in (2, 4), done.stderr
        assert len(beats(done)) >= 3
    done = warpwave("list", cwd=tmp_path)
    plain = subprocess.run(
        [sys.executable, "-m", "warpwave", "run", "mét\u2028al"], capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"}
    )
    assert (done.returncode, plain.returncode) == (0, 2)
    assert b"Traceback" not in plain.stderr


DEEP = 20_000


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("targets.yml", "a: 2001-99-99"),
        ("targets.yml", "[" * DEEP),
        ("targets.yml", "a: !!float x"),
        ("targets.yml", "? [a]\n: b"),
        ("targets.yml", "a: \x00"),
        ("pyproject.toml", "a = " + "[" * DEEP + "]" * DEEP),
        ("pyproject.toml", "a = " + "9" * 5000),
        ("pyproject.toml", "a = 2001-99-99"),
    ],
)
def test_a_settings_file_of_any_kind_is_refused_by_name(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    options = ("--targets", tmp_path / name) if name.endswith("yml") else ("--kernels", tmp_path)
    done = warpwave("run", "cpu", "--engine", "local", "--out", tmp_path / "out", "--kernels", tmp_path, *options)
    lines = beats(done)
    assert (done.returncode, len(lines)) == (2, 3), done.stderr
    assert name in lines[0]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/x"), 3),
        (OSError(errno.EDQUOT, "Disk quota exceeded", "/x"), 3),
        (OSError(errno.EFBIG, "File too large"), 3),
        (OSError(errno.EIO, "Input/output error", "/x"), 3),
        (OSError(errno.EMFILE, "Too many open files", "/x"), 3),
        (OSError("no number"), 3),
        (OSError(errno.EROFS, "Read-only file system", "/x"), 2),
        (OSError(errno.ENAMETOOLONG, "File name too long", "/x"), 2),
        (PermissionError(errno.EACCES, "Permission denied", b"/x\xff"), 2),
        (RuntimeError("Symlink loop from '/x'"), 2),
        ("\udcff".encode, 2),
        (b"\xff".decode, 2),
        (MemoryError(), 3),
        (RecursionError("maximum recursion depth exceeded"), 4),
        (KeyError("verdict"), 3),
        (ZeroDivisionError("\x1b[31mred\n::error::"), 3),
        (UsageError("A.", "B.", "C."), 2),
    ],
)
def test_every_exception_has_three_beats(error, code):
    if callable(error):
        with pytest.raises(UnicodeError) as raised:
            error()
        error = raised.value
    told = explain(error)
    assert told.exit_code == code
    assert all((told.happened, told.meaning, told.remedy))
    assert "\n" not in told.happened + told.meaning + told.remedy


def test_a_fault_of_ours_says_so_and_how_to_see_it(tmp_path):
    program = (
        "import sys, warpwave.__main__ as cli, warpwave.config.targets\n"
        "def broken(overlay=None): raise KeyError('of ours')\n"
        "warpwave.config.targets.load_targets = broken\nsys.argv = ['warpwave', 'list']\ncli.main()\n"
    )
    for variables, shown in (({}, False), ({"WARPWAVE_TRACEBACK": "1"}, True)):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ, **variables})
        assert done.returncode == 3, done.stderr
        assert "fault of warpwave" in done.stderr
        assert ("Traceback" in done.stderr) is shown
        assert "WARPWAVE_TRACEBACK=1" in done.stderr


# What the commands have in common: one habit for `--json`, completion in the shell, targets that exist. All data is synthetic.


@pytest.fixture
def one_run(tmp_path):
    write_raw(tmp_path / "run" / "raw" / "alpha", run())
    return str(tmp_path / "run")


COMMANDS = {
    "report": ["report", "--json", "RUN"],
    "compare": ["compare", "--json", "RUN", "RUN"],
    "compare, at the end": ["compare", "RUN", "RUN", "--json"],
    "codegen diff": ["codegen", "diff", "--json", "RUN", "RUN"],
    "history": ["history", "--json", "RUN"],
    "list": ["list", "--json"],
}


@pytest.mark.parametrize("what", COMMANDS)
def test_json_is_one_habit(one_run, tmp_path, monkeypatch, capsys, what):
    """Alone it prints the document instead of text; with a file it writes the same there, and prints text."""
    monkeypatch.chdir(tmp_path)
    words = [one_run if word == "RUN" else word for word in COMMANDS[what]]

    code = _run_cli(words)
    printed = json.loads(capsys.readouterr().out)
    with_file = [part for word in words for part in ([word, "all.json"] if word == "--json" else [word])]
    assert _run_cli(with_file) == code
    text = capsys.readouterr().out
    assert json.loads((tmp_path / "all.json").read_text()) == printed
    assert text
    assert not text.startswith(("{", "["))


def test_an_expected_target_has_to_exist(one_run, tmp_path, capsys):
    out = ["--out", str(tmp_path / "out")]
    assert _run_cli(["report", one_run, *out, "--expect", "alpha,hip"]) == 2
    said = capsys.readouterr().err
    assert "'hip'" in said
    assert "rocm" in said

    overlay = tmp_path / "targets.yml"
    overlay.write_text(
        "schema_version: 1\ntargets:\n  hip: {label: mine, engine: local, stages: [test], image: {dockerfile: x, base: y}}\n"
    )
    assert _run_cli(["report", one_run, *out, "--expect", "hip", "--targets", str(overlay)]) == 4
    assert "absent" in capsys.readouterr().out


# `--requirements`, `--install` and `--env`, on the command line and in the package's own file.

NOTHING = {"requirements": (), "with_packages": (), "install": None, "extras": ()}


@pytest.fixture
def kernels(tmp_path) -> Path:
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "pyproject.toml").write_text("[project]\nname = 'ops'\n")
    (tmp_path / "ops" / "needs.txt").write_text("einops\n")
    return tmp_path / "ops"


def write(kernels: Path, text: str) -> None:
    (kernels / "pyproject.toml").write_text(f"[tool.warpwave]\n{text}\n")


def test_an_extra_is_one_that_the_package_has(kernels):
    """Of its table, of its dependency groups, or of a file named after it; a package that computes its extras may have any."""
    project = "[project]\nname = 'ops'\noptional-dependencies = {Cuda_12 = []}\n[dependency-groups]\nbench = []\n"
    (kernels / "pyproject.toml").write_text(project)
    (kernels / "requirements-eval.txt").write_text("einops\n")
    asked = {**NOTHING, "install": "all", "extras": ("cuda-12", "bench", "eval")}

    assert chosen_packages(asked, kernels).extras == ("cuda-12", "bench", "eval")
    with pytest.raises(UsageError, match=r"(?s)no extra and no dependency group 'bensh'.*nearest is bench"):
        chosen_packages({**asked, "extras": ("bensh",)}, kernels)
    with pytest.raises(UsageError, match="without --install"):
        chosen_packages({**asked, "install": None}, kernels)
    (kernels / "pyproject.toml").write_text("[project]\nname = 'ops'\ndynamic = ['optional-dependencies']\n")
    assert chosen_packages({**asked, "extras": ("any",)}, kernels).extras == ("any",)


def test_what_is_asked_for(kernels):
    needs = kernels / "needs.txt"

    assert chosen_packages(NOTHING, kernels) == Install()
    assert chosen_packages({**NOTHING, "install": "all", "requirements": (needs,)}, kernels) == Install((needs,), "all")
    assert chosen_packages({**NOTHING, "install": "alone"}, kernels) == Install((), "alone")
    write(kernels, "requirements = ['needs.txt']\nenv = {TRITON_DEBUG = '1'}")
    assert load_environment(kernels) == PackageEnvironment((needs,), {"TRITON_DEBUG": "1"})
    assert chosen_packages({**NOTHING, "install": "all"}, kernels) == Install((needs,), "all")
    write(kernels, "skip-requirements = ['flash-attn']")
    assert chosen_packages({**NOTHING, "install": "all"}, kernels) == Install((), "all", (), ("flash-attn",))
    write(kernels, "requirements = ['needs.txt']\nskip-requirements = ['flash-attn']\nenv = {TRITON_DEBUG = '1'}")
    assert chosen_packages({**NOTHING, "install": "alone"}, kernels) == Install((), "alone")
    assert chosen_packages(NOTHING, kernels) == Install(), "a stranger's file alone starts no build"
    assert chosen_variables(("TRITON_DEBUG=2",)) == {"TRITON_DEBUG": "2"}
    with pytest.raises(UsageError, match=r"gone\.txt"):
        chosen_packages({**NOTHING, "requirements": (kernels / "gone.txt",)}, kernels)


@pytest.mark.parametrize(
    "text", ["install = true", "requirements = 'needs.txt'", "env = ['HOME']", "env = {A = 1}", "skip-requirements = ['a>=1']"]
)
def test_a_wrong_setting_is_refused(kernels, text):
    """A file can name values, but never take one of the caller's: it may be a stranger's, and the value a token."""
    write(kernels, text)

    with pytest.raises(ConfigError, match=r"pyproject\.toml"):
        load_environment(kernels)


@pytest.mark.parametrize("pair", ["NOT_SET_ANYWHERE", "HOME=/x", "TRITON_INTERPRET=1", "WARPWAVE_JOURNAL=x", "PATH=", "=x", "A B=1"])
def test_variables_of_the_harness_are_refused(kernels, monkeypatch, pair):
    monkeypatch.delenv("NOT_SET_ANYWHERE", raising=False)

    with pytest.raises(UsageError, match="--env"):
        chosen_variables((pair,))


@pytest.mark.parametrize("name", ["cpu", "cpu@triton-3.6.0"])
def test_a_budget_knows_how_far_the_list_of_a_target_goes_on_any_toolchain(tmp_path, name):
    budget = Budget(60.0, seen={"cpu": {"test test_a.py": 2}, "rocm": {"test test_b.py": 9}})
    request = Request(dataclasses.replace(load_targets()["cpu"], name=name), make_options("r", tmp_path, tmp_path, budget=budget), tmp_path)

    assert job_of(Layout("", "", ""), request, ()).limits.budget.seen == {name: {"test test_a.py": 2}}


def test_what_the_user_gives_comes_before_the_package(tmp_path, kernels, monkeypatch):
    """Both are for the kernels; the package's go into the job, since they are no secret."""
    options = make_options("r", tmp_path, tmp_path, variables={"A": "mine"}, declared=Declared(variables={"A": "theirs", "B": "theirs"}))
    request = Request(load_targets()["cpu"], options, tmp_path)

    assert job_of(Layout("", "", ""), request, ()).declared.variables == {"B": "theirs"}

    monkeypatch.setenv("A_TOKEN", "secret=1")
    found = chosen_variables(("A_TOKEN", "B=", "C=x=y", "PYTHONPATH=/lib"))

    assert found == {"A_TOKEN": "secret=1", "B": "", "C": "x=y", "PYTHONPATH": "/lib"}


def test_the_variable_that_selects_gpus_is_refused(kernels, tmp_path):
    options = make_options("r", tmp_path / "out", kernels, variables={"CUDA_VISIBLE_DEVICES": "1"})

    with pytest.raises(UsageError, match="CUDA_VISIBLE_DEVICES"):
        check_target(load_targets()["cuda"], options)
    check_target(load_targets()["rocm"], options)


@pytest.mark.parametrize("named", ["link.txt", "../private.txt", "folder/private.txt", "/etc/hostname"])
def test_a_package_names_requirements_of_its_own_repository_only(kernels, named):
    """Its lines would go to pip, and pip would print them. Links count with what they lead to."""
    (kernels.parent / "private.txt").write_text("a secret\n")
    (kernels / "link.txt").symlink_to("../private.txt")
    (kernels / "folder").symlink_to("..")
    write(kernels, f"requirements = ['{named}']")
    with pytest.raises(ConfigError, match="which no link leads out of"):
        load_environment(kernels)

    (kernels / "needs.txt").write_text(f"-r {named}\n")
    request = ask(load_targets()["cpu"], kernels, kernels / "raw", install=Install((kernels / "needs.txt",)))
    with pytest.raises(UsageError, match="lies outside of"):
        make_plan(request)


def test_a_part_of_a_repository_may_name_files_of_the_whole(kernels):
    (kernels.parent / ".git").mkdir()
    (kernels.parent / "all.txt").write_text("einops\n")
    write(kernels, "requirements = ['../all.txt']")
    assert load_environment(kernels).requirements == (kernels / "../all.txt",)

    (kernels.parent / ".git").rmdir()
    (kernels.parent / "mine.txt").write_text("-r all.txt\n")
    request = ask(load_targets()["cpu"], kernels, kernels / "raw", install=Install((kernels.parent / "mine.txt",)))
    assert make_plan(request).files["requirements.txt"] == b"einops\n"


def test_a_build_reads_no_project_file_through_a_link_out(kernels):
    (kernels.parent / "setup.cfg").write_text("[metadata]\nname = mine\n")
    (kernels / "setup.cfg").symlink_to("../setup.cfg")
    request = ask(load_targets()["cpu"], kernels, kernels / "raw", install=Install((), "all"))
    before = make_plan(request).key
    (kernels.parent / "setup.cfg").write_text("[metadata]\nname = other\n")

    assert make_plan(request).key == before


# `bench-scripts = ["benchmarks/*.py -- --dtype bf16"]`: how it is read, and what of it a job and a shard get.


@pytest.fixture
def package(tmp_path):
    for name in ("speed.py", "benchmarks/b.py", "benchmarks/a.py", "benchmarks/deep/c.py", "my_ops/d.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("['-- --dtype bf16']", "allowed is a glob, and behind -- the arguments"),
        ("['speed.py --dtype bf16']", "allowed is a glob, and behind -- the arguments"),
        ('["\'speed.py"]', "allowed is a glob, and behind -- the arguments"),
        ("['/etc/*.py']", "allowed is a glob of files in"),
        ("['../*.py']", "allowed is a glob of files in"),
        ("['benchmark/*.py']", "allowed is a glob that matches a file in"),
        ("'benchmarks/*.py'", "allowed is a list of globs"),
    ],
)
def test_what_cannot_be_run_is_refused(package, text, words):
    (package / "pyproject.toml").write_text(f"[tool.warpwave]\nbench-scripts = {text}\n")
    with pytest.raises(ConfigError) as raised:
        load_what(package / "my_ops", package)
    assert "bench-scripts: found" in raised.value.happened
    assert words in raised.value.happened


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("speed.py", BenchScript("speed.py")),
        ("benchmarks/*.py -- --dtype bf16", BenchScript("benchmarks/*.py", ("--dtype", "bf16"))),
        ("speed.py -- 'two words' -- x", BenchScript("speed.py", ("two words", "--", "x"))),
        ("speed.py --", BenchScript("speed.py")),
        ("d.py", BenchScript("d.py")),
    ],
)
def test_a_glob_and_its_arguments(package, text, script):
    """Split as a shell splits it; the first -- ends the glob. Where the root has none, the kernels folder may."""
    (package / "pyproject.toml").write_text(f"[tool.warpwave]\nbench-scripts = [{json.dumps(text)}]\n")
    assert load_what(package / "my_ops", package)["bench_scripts"] == (script,)


def test_each_script_is_in_one_shard(package):
    asked = (BenchScript("benchmarks/**/*.py", ("-x",)), BenchScript("speed.py"))
    options = [make_options("run-1", package, package, bench_scripts=asked, shard=Shard(number, 3)) for number in (1, 2, 3)]
    shares = [share_scripts(each) for each in options]
    files = [[path for script in share for path, _ in find_scripts(script.pattern, package)] for share in shares]

    assert [len(found) for found in files] == [2, 1, 1]
    assert sorted(path.name for found in files for path in found) == ["a.py", "b.py", "c.py", "speed.py"]
    assert {script.arguments for share in shares for script in share if "speed" not in script.pattern} == {("-x",)}


# Toolchains as data: their names, what may be said of them, and the legs that they make.


def no_newest(index: str) -> str:
    raise AssertionError("nobody asked for the newest")


@pytest.mark.parametrize("target", ["cpu", "gfx942-emulated"])
def test_an_old_triton_needs_a_linker(target):
    known, old = load_toolchains(), Toolchain(name="old", triton="3.4.0")
    with pytest.raises(UsageError) as raised:
        leg(load_targets()[target], old, known)

    assert "gfx942" in raised.value.happened
    assert "ld.lld" in raised.value.meaning
    assert "3.5.0 or later" in raised.value.remedy
    assert leg(load_targets()["rocm"], old, known).name == "rocm@old"
    assert leg(load_targets()["cpu"], Toolchain(name="new", triton="3.10.0"), known).name == "cpu@new"  # 10 is more than 5
    assert leg(load_targets()["cpu"], Toolchain(name="short", triton="3.5"), known).name == "cpu@short"


def test_a_name_or_a_release(tmp_path):
    known = load_toolchains()

    assert one(known, "triton-3.8", no_newest).triton == "3.8.0"
    assert one(known, "3.10.0", no_newest) == Toolchain(name="triton-3.10.0", triton="3.10.0")
    assert one(known, "newest", lambda index: "4.0.0").name == "triton-4.0.0"
    nightly = one(known, "triton-nightly", lambda index: f"4.1.0+{index.count('nightly')}")
    assert (nightly.name, nightly.triton) == ("triton-nightly", "4.1.0+1")
    for wrong in ("triton-9", "../x", "3.8.0; rm"):
        with pytest.raises(UsageError):
            one(known, wrong, no_newest)

    found = legs([load_targets()[name] for name in ("cpu", "cuda")], chosen(known, ["triton-3.8"], ["3.9.0"], no_newest), known)

    assert [target.name for target in found] == ["cpu@triton-3.8", "cpu@triton-3.9.0", "cuda@triton-3.8", "cuda@triton-3.9.0"]
    assert [plain_target(target.name, target.toolchain.name) for target in found] == ["cpu", "cpu", "cuda", "cuda"]
    assert legs([load_targets()["cpu"]], [], known) == [load_targets()["cpu"]]

    # As a report shows it, so that the command beside a failed test can be typed: a toolchain of the file, or a release.
    known, targets = load_toolchains(), load_targets()
    found = split_legs(targets, ["cpu@triton-3.8", "cuda@triton-3.8.1", "other"], known, no_newest)

    assert list(found) == [*targets, "cpu@triton-3.8", "cuda@triton-3.8.1"]
    assert [found[name].toolchain.triton for name in list(found)[-2:]] == ["3.8.0", "3.8.1"]
    assert [found[name].name for name in list(found)[-2:]] == list(found)[-2:]
    with pytest.raises(UsageError, match="no toolchain named 'none'"):
        split_legs(targets, ["cpu@none"], known, no_newest)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("toolchains: {a: {tritn: 3.8.0}}", "toolchains.a.tritn"),
        ("toolchains: {../a: {triton: 3.8.0}}", "toolchains.../a"),
        ("toolchains: {a: {name: b}}", "toolchains.a"),
        ("toolchains: {a: {triton: 3.8}}", "toolchains.a.triton"),
    ],
)
def test_a_wrong_entry_is_refused_by_its_path(tmp_path, text, said):
    path = tmp_path / "mine.yml"
    path.write_text(f"schema_version: 1\ntargets: {{}}\n{text}\n")
    with pytest.raises(ConfigError, match="found") as raised:
        load_toolchains(path)

    assert said in raised.value.happened


def test_help_shows_what_most_people_type_and_help_all_every_option():
    """Both are click's own text; an option without a group would still be shown, under `Options`."""
    texts = {word: CliRunner().invoke(cli, ["run", word]).output for word in ("--help", "--help-all")}
    names = {name for option in cli.get_command(None, "run").params if isinstance(option, click.Option) for name in option.opts}
    shown = {word: {name for name in names if re.search(rf"(?<![\w-]){name}(?![\w-])", text)} for word, text in texts.items()}

    assert {"--kernels", "--stage", "--quick", "--install", "--resume"} <= shown["--help"]
    assert len(texts["--help"].splitlines()) < 48
    assert shown["--help-all"] == names
    assert "Limits:" in texts["--help-all"]


# What the package's file and the user's targets file have in place of options.


def parsed(kernels, *words):
    return parse_options(parse_run(["cpu", "--kernels", str(kernels), *words]).params)


def test_a_file_of_tests_is_named_behind_the_target(capsys, tmp_path):
    (tmp_path / "test_a.py").touch()

    assert _run_cli(["run", "cpu", "--kernels", str(tmp_path / "test_a.py")]) == 2
    assert f"warpwave run cpu --kernels {tmp_path} test_a.py" in capsys.readouterr().err


def test_builds_and_limits_are_in_the_users_targets_file(kernels, tmp_path):
    own = tmp_path / "mine" / "targets.yml"
    own.parent.mkdir()
    own.write_text(
        "build: {wheelhouse: ../wheels, pip_config: /etc/pip.conf, network: host, args: {TORCH: base}}\n"
        "limits: {gpu_wait_s: 5, results_gib: 0.5, results_files: 7}\n"
    )
    found, usual = parsed(kernels, "--targets", str(own), "--base-image", "mine:1"), parsed(kernels)

    assert (found.build.wheelhouse.resolve(), found.build.pip_config) == (tmp_path / "wheels", Path("/etc/pip.conf"))
    assert (found.build.network, found.build.args, found.build.base_image) == ("host", {"TORCH": "base"}, "mine:1")
    assert (found.build.ca_bundle, found.build.rebuild) == (None, False)
    assert (found.limits.gpu_wait_s, found.limits.cap) == (5, Cap(1 << 29, 7))
    assert (usual.build, usual.limits.cap, usual.limits.gpu_wait_s) == (Build(), Cap(), 600)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("build: {wheels: x}", "build.wheels: found a key that does not exist"),
        ("build: {args: {K: 1}}", "build.args.K"),
        ("limits: {results_gib: 0}", "limits.results_gib"),
        ("limits: {results_files: 0.5}", "limits.results_files"),
        ("limits: {gpu_wait_s: -1}", "limits.gpu_wait_s"),
        ("limits: {timeout: 1}", "limits.timeout"),
    ],
)
def test_wrong_builds_and_limits_are_refused(kernels, tmp_path, text, where):
    (tmp_path / "mine.yml").write_text(text)
    with pytest.raises(ConfigError, match=re.escape(where)):
        parsed(kernels, "--targets", str(tmp_path / "mine.yml"))


LIMITS = [f"--budget={text}" for text in ("soon", "5s", "10x", "", "-1m", "1e9h")]
LIMITS += ["--timeout=0", "--timeout=-5", "--test-timeout=nan", "--timeout=1e10"]


@pytest.mark.parametrize("word", LIMITS)
def test_a_limit_is_a_time_that_stages_can_start_in(kernels, word):
    with pytest.raises((UsageError, click.UsageError), match=r"--budget|not a time"):
        parsed(kernels, word)


def test_a_budget_in_units_and_that_of_a_quick_run(kernels):
    """A quick run has a minute, unless --budget gives it another time or --timeout ends it earlier."""

    def seconds(*words):
        budget = parsed(kernels, *words).limits.budget
        return budget and budget.seconds

    assert [seconds("--budget", text) for text in ("90", "90s", "10m", "1h30m")] == [90.0, 90.0, 600.0, 5400.0]
    assert (seconds(), seconds("--quick"), seconds("--quick", "--budget", "5m")) == (None, 60.0, 300.0)
    assert seconds("--quick", "--timeout", "30") is None
    with pytest.raises(UsageError, match="--timeout"):
        seconds("--budget", "4h")


@pytest.mark.parametrize(("words", "mode"), [([], ""), (["--install"], "all"), (["--install=all"], "all"), (["--install=alone"], "alone")])
def test_install_has_a_value_of_its_own(kernels, words, mode):
    params = parse_run(["--kernels", str(kernels), *words, "cpu"]).params

    assert (params["names"], parse_options(params).package.install.package) == (("cpu",), mode)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("run", (Path("run"), "")),
        ("a@b", (Path("a@b"), "")),
        (f"a@b@{'5e' * 32}", (Path("a@b"), "5e" * 32)),
        ("run@", (Path("run@"), "")),
        ("run@5e", (Path("run@5e"), "")),
    ],
)
def test_compiled_kernels_may_be_named_with_their_hash(text, found):
    """A part that is no hash belongs to the folder's name, so a hash that was cut off is never taken for none."""
    assert parse_compiled(text) == found


def test_the_commit_of_a_package_without_git_is_a_variable(kernels, monkeypatch):
    monkeypatch.setenv("WARPWAVE_COMMIT", "0123abc")
    assert parsed(kernels).package.commit == "0123abc"

    # Whatever the package says of its own compile stage: the run that takes them launches tests and benches.
    write(kernels, "launches = ['bench']")

    assert parsed(kernels).what.launches == ("bench",)
    assert parsed(kernels, "--save-compiled", "sm_90").what.launches == ("bench", "test")

    for text in ("build = {wheelhouse = 'x'}", "limits = {results_gib = 100}", "weaken = ['network=host']", "install = 'all'"):
        write(kernels, text)
        with pytest.raises(ConfigError, match="found a key that does not exist"):
            parsed(kernels)


# No command writes through a link that came with a package or with results.


@pytest.fixture
def repository(tmp_path, monkeypatch) -> Path:
    root = tmp_path / "repository"
    root.mkdir()
    (tmp_path / "outside").mkdir()
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    monkeypatch.chdir(root)
    return root


def link(path: Path, *, tracked: bool = False) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(Path.cwd().parent / "outside")
    if tracked:
        subprocess.run(["git", "add", str(path)], cwd=path.parent, check=True)
    return path


def test_a_link_of_the_repository_is_refused_and_ones_own_is_not(repository):
    """git knows the first. The second, to a disk with more room, is the user's own."""
    check_no_links(link(repository / "own") / "run")
    with pytest.raises(UsageError, match="leads through the link"):
        check_no_links(link(repository / "theirs", tracked=True) / "run")


def test_a_link_that_the_user_does_not_know_is_refused(tmp_path, monkeypatch):
    (tmp_path / "package").mkdir()
    monkeypatch.chdir(tmp_path / "package")
    link(Path("reports").absolute())

    with pytest.raises(UsageError, match="leads through the link"):
        check_no_links(Path("reports") / "runs")


def test_a_link_in_results_is_refused(tmp_path):
    (tmp_path / "run" / "raw" / "cpu").mkdir(parents=True)
    (tmp_path / "run" / "raw" / "cpu" / "run.json").write_text("{}")
    (tmp_path / "run" / "plots").symlink_to(tmp_path)

    with pytest.raises(UsageError, match="leads through the link"):
        check_no_links(tmp_path / "run" / "plots")


@pytest.mark.parametrize(
    "words",
    [
        ["run", "cpu", "--kernels", "kernels"],
        ["plot", "run", "--out", "reports/x"],
        ["compare", "run", "run", "--markdown", "reports/x.md"],
        ["init", "reports/x"],
        ["list", "--json", "reports/x.json"],
    ],
    ids=" ".join,
)
def test_a_command_that_writes_looks(repository, capsys, words):
    (repository / "kernels").mkdir()
    (repository / "kernels" / "test_one.py").write_text("def test_one(): pass\n")
    link(repository / "reports", tracked=True)

    assert _run_cli(words) == 2
    assert "leads through the link" in " ".join(capsys.readouterr().err.split())
    assert list((repository.parent / "outside").iterdir()) == []


def test_a_run_enters_no_link_in_its_results(repository, capsys):
    (repository / "kernels").mkdir()
    (repository / "kernels" / "test_one.py").write_text("def test_one(): pass\n")
    for name in ("raw", "logs"):
        link(repository.parent / "o" / name)
        assert _run_cli(["run", "cpu", "--engine", "local", "--kernels", "kernels", "--out", "../o"]) == 2
        (repository.parent / "o" / name).unlink()
    assert list((repository.parent / "outside").iterdir()) == []


@pytest.mark.parametrize("content", ["text", b"picture"])
def test_a_link_in_the_place_of_a_file_is_replaced(tmp_path, content):
    (tmp_path / "mine").write_text("kept")
    (tmp_path / "page").symlink_to("mine")
    write_text(tmp_path / "page", content)

    assert (tmp_path / "mine").read_text() == "kept"
    assert not (tmp_path / "page").is_symlink()


def all_commands(group: click.Group, name: str = ""):
    for key, entry in group.commands.items():
        if isinstance(entry, click.Group):
            yield from all_commands(entry, f"{name} {key}")
        else:
            yield f"{name} {key}".strip(), entry


WRITTEN = {"out", "markdown", "html_file", "svg", "summary", "json", "resume"}


def test_every_option_that_names_a_place_to_write_is_checked():
    """By its type, which the commands above have shown to look."""
    unchecked = {
        f"{name} {parameter.name}"
        for name, command in all_commands(cli)
        for parameter in command.params
        if parameter.name in WRITTEN and isinstance(parameter.type, click.Path) and parameter.type not in (OUT_FILE, OUT_FOLDER)
    }

    assert unchecked == set()
