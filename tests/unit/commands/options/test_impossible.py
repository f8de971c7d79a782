"""What a user names can be impossible, and what a command prints can have nowhere to go: three beats and 2 or 3, never a traceback.

All of it is real: links, closed folders, /proc, a read-only mount, /dev/full, a closed pipe, closed descriptors.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import command
import pytest
from slow_cases import slow_but
from synthetic import two_targets, write_raw

from warpwave.errors import ExitCode, UsageError, explain

ROOT = os.getuid() == 0
_WITHOUT = "-dac_override,-dac_read_search"  # root that may open only what is its own, as any user
VARIABLES = {**os.environ, "COLUMNS": "200", "PYTHONPATH": str(Path(__file__).parents[4])}
warpwave = partial(command.warpwave, env=VARIABLES)
PLACES = [
    "below a file",
    "below proc",
    "proc itself",
    "a long name",
    "a loop of links",
    "behind a loop",
    "below a dangling link",
    "read-only",
]


def started(*arguments: object, shell: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command from its start; `shell` is what stands behind it on a shell's line."""
    words = ["bash", "-c", f'"$@" {shell}', "-", sys.executable, "-m", "warpwave", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=120, env=VARIABLES)


def beats(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines of an error, without a traceback in them. The reason of the exit code is a line before it."""
    assert "Traceback" not in done.stderr + done.stdout
    return [line.strip() for line in done.stderr.strip().splitlines() if not line.startswith("exit code ")]


@pytest.fixture
def bundle(tmp_path):
    """A folder of results, a bit of everything in it."""
    for run in two_targets():
        write_raw(tmp_path / "runs" / "raw" / run.record.target, run)
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
    """Whatever else a command is told to write."""
    where = place(name)
    for words in (
        ("export", bundle, "--format", "csv", "--out", where),
        ("report", bundle, "--out", tmp_path / "out", "--svg", where),
        ("codegen", "diff", bundle, bundle, f"--json={where}"),
        ("codegen", "diff", bundle, bundle, "--html", where),
        ("compare", bundle, bundle, "--markdown", where),
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
    done = warpwave("history", "add", bundle, "--file", where)
    assert done.returncode in (2, 3)
    assert len(beats(done)) >= 3


@pytest.mark.parametrize("name", ["below a file", "a long name", "a loop of links", "behind a loop"])
def test_an_impossible_input_is_the_users_mistake(place, tmp_path, name):
    """A path that is read."""
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


@pytest.mark.parametrize("name", ["below a file", "behind a loop", "read-only"])
def test_json_stays_one_document(place, bundle, name):
    """Also for a path that cannot be."""
    done = warpwave("report", bundle, "--out", place(name), "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["exit_code"], document["error"]["code"]) == (2, 2, 2)
    assert all(document["error"].values())


TALKERS = [
    ("list",),
    ("list", "--json"),
    ("--version",),
    ("--help",),
    ("run", "--help"),
    ("report", "BUNDLE"),
    ("export", "BUNDLE", "--format", "csv"),
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
    """`| head -1`, and a reader that never came: quiet, with the usual code."""
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
        done = started("list", shell=shell)
        assert (done.returncode, len(beats(done))) == (code, 3 if code and "2>" not in shell else 0), (shell, done.stderr)


def test_an_error_survives_a_closed_output(redirected):
    """A mistake keeps its own code, wherever its words go."""
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
        [sys.executable, "-m", "warpwave", "run", "mét\u2028al"],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
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
    """Whatever its parser raises for it."""
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
    """The one function behind `main`."""
    if callable(error):
        with pytest.raises(UnicodeError) as raised:
            error()
        error = raised.value
    told = explain(error)
    assert told.exit_code == code
    assert all((told.happened, told.meaning, told.remedy))
    assert "\n" not in told.happened + told.meaning + told.remedy


def test_a_fault_of_ours_says_so_and_how_to_see_it(tmp_path):
    """Three beats and 3; with a variable set the traceback too, and still 3."""
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


def test_a_second_target_that_exists_is_said_before_the_first_one_runs(tmp_path):
    """A mistake about the last target costs no hour of the first."""
    (tmp_path / "kernels").mkdir()
    (tmp_path / "out" / "raw" / "cuda").mkdir(parents=True)
    done = warpwave("run", "cpu", "cuda", "--engine", "local", "--kernels", tmp_path / "kernels", "--out", tmp_path / "out")
    assert (done.returncode, len(beats(done))) == (2, 3)
    assert not (tmp_path / "out" / "raw" / "cpu").exists()
