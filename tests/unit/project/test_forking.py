"""What the tests start as a fork looks like a Python that has just started; `forking` says what is left out."""

import json
import os
import subprocess
import sys
from pathlib import Path

import command
import pytest

from warpwave.records.isolated import isolated

SHOW = """
import json, os, signal, sys, tempfile, threading, warnings
gone = tempfile.TemporaryDirectory(prefix="gone-", dir=".")
own = {number.name: str(signal.getsignal(number)).partition(" at ")[0] for number in signal.Signals if number not in (9, 19)}
json.dump({
    "argv": sys.argv, "path": sys.path, "executable": sys.executable, "prefix": sys.prefix, "folder": os.getcwd(),
    "variables": dict(os.environ), "signals": own, "threads": threading.active_count(), "filters": str(warnings.filters),
    "name": __name__, "bytecode": sys.dont_write_bytecode, "leads": os.getpid() == os.getsid(0),
    "open": sorted(os.listdir("/proc/self/fd"))[:4],
    "harness": sorted(name for name in sys.modules if name.startswith(("harness", "click", "rich"))),
    "encodings": [sys.stdout.encoding, sys.stderr.errors, sys.stdout.line_buffering],
}, sys.stdout)
"""
# As the inside starts a stage: below a process that has set up signals and exits of its own. It ignores SIGUSR1
# alone. Signals that pytest's own parent ignores (`nohup` does so) are set back: LLVM, once it has compiled something in pytest's process,
# has replaced them there by its own handlers, and the fork server has not.
START = """
import atexit, click, os, signal, subprocess, sys, tempfile
kept = tempfile.TemporaryDirectory()
atexit.register(print, "of the parent")
for number in signal.valid_signals() - {{signal.SIGPIPE, signal.SIGXFSZ}}:
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.default_int_handler)
sys.argv.append("the parent's")
child = subprocess.Popen([sys.executable, *{words!r}], start_new_session=True, stdout=subprocess.PIPE, text=True)
print(child.communicate()[0], end="")
assert os.path.isdir(kept.name) and not [name for name in os.listdir() if name.startswith("gone-")]
atexit.unregister(print)
sys.exit(child.returncode)
"""


@pytest.fixture
def shown(tmp_path):
    """What a program shows, as a new process and as a fork, below a process of its own."""

    def run(*words: str) -> tuple[dict, dict]:
        variables = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
        program = START.format(words=words)
        real = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=variables, capture_output=True, text=True)
        fork = command.python("-c", program, cwd=tmp_path, env=variables)
        assert (fork.returncode, fork.stderr) == (real.returncode, real.stderr) == (0, "")
        return json.loads(real.stdout), json.loads(fork.stdout)

    return run


@pytest.mark.parametrize("form", ["code", "module", "file", "supervisor"])
def test_a_fork_looks_like_a_new_process(shown, tmp_path, form):
    (tmp_path / "shows.py").write_text(SHOW)
    words = {"code": ("-c", SHOW), "module": ("-m", "shows"), "file": ("shows.py",)}
    words["supervisor"] = isolated(sys.executable, str(tmp_path), "shows")[1:]
    real, fork = shown(*words[form], "a", "--b")

    assert {name: value for name, value in fork.items() if value != real[name]} == {}, real
    assert (real["signals"]["SIGUSR1"], real["signals"]["SIGQUIT"]) == ("1", "0")


@pytest.mark.parametrize(
    "end",
    [
        "raise SystemExit(3)",
        "raise SystemExit('why')",
        "1 / 0",
        "import os; os.kill(os.getpid(), 9)",
        "import os; os.kill(os.getpid(), 2)",
        "import os; os.abort()",
        "print('x'); import atexit; atexit.register(print, 'y')",
    ],
)
def test_a_fork_ends_as_a_new_process(end):
    """With its exit status or signal, its output, and the lines of a traceback."""
    real = subprocess.run([sys.executable, "-c", end], capture_output=True, text=True)
    fork = command.python("-c", end)

    assert (fork.returncode, fork.stdout, fork.stderr) == (real.returncode, real.stdout, real.stderr)


IMPORTS = """
import triton, triton.language as language
print(type(language.cumsum).__name__, getattr(triton, "knobs", triton).runtime.debug)
print(triton.__file__, triton.__spec__.origin, triton.__loader__.name)
"""


@pytest.mark.parametrize("variables", [{}, {"TRITON_INTERPRET": "1"}, {"TRITON_DEBUG": "1"}, {"PYTHONPATH": "."}], ids=str)
def test_triton_is_the_one_that_a_new_process_imports(tmp_path, variables):
    """It decides at its import whether it interprets, and another one may be found first."""
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "__init__.py").write_text("class runtime: debug = 'of another'\n")
    (tmp_path / "triton" / "language.py").write_text("cumsum = None\n")
    environment = {**os.environ, **variables}
    real = subprocess.run([sys.executable, "-P", "-c", IMPORTS], cwd=tmp_path, env=environment, capture_output=True, text=True)
    script = tmp_path / "elsewhere" / "script.py"
    script.parent.mkdir()
    script.write_text(IMPORTS)
    fork = command.python(script, cwd=tmp_path, env=environment, light=True)

    assert (fork.stdout, fork.stderr) == (real.stdout, "")
    assert ("of another" in fork.stdout) == ("PYTHONPATH" in variables)
    assert fork.stdout.startswith("InterpretedFunction") == ("TRITON_INTERPRET" in variables)


# What a stage starts has the variables of `temporary_home`. A new Python would import torch again, for each of many stages.
HOME = """
import pathlib, subprocess, sys
from warpwave.inside.environment import temporary_home
with temporary_home(pathlib.Path(".")):
    subprocess.run([sys.executable, "-c", "import sys; print('torch' in sys.modules)"])
"""


@pytest.mark.parametrize("kind", ["stages", "compiler"])
def test_what_a_stage_starts_is_a_fork_too(tmp_path, kind):
    found = command.python("-c", HOME, kind=kind, cwd=tmp_path, env={**os.environ, "PYTHONPATH": os.fspath(Path(__file__).parents[3])})

    assert (found.stdout, found.stderr) == ("True\n", "")


def test_light_finds_no_torch_but_its_stand_in():
    found = command.python("-c", "import torch; print(torch.__file__)", light=True)

    assert "/light/" in os.path.realpath(found.stdout.strip()), found
