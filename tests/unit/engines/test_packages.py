"""What a package needs beside torch: what is installed, what never is, and what a user reads if it fails."""

import fcntl
import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
import tarfile
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("pip", reason="the installer uses the pip of the kernels' Python")

from command import warpwave
from engine_requests import ask, change
from wheels import make_package, make_wheel, wrap_triton

from warpwave.config.targets import load_targets, load_toolchains
from warpwave.config.toolchains import leg
from warpwave.engines.docker.images import recipe
from warpwave.engines.packages import environments as packages_module
from warpwave.engines.packages.environments import LOG, environments, on_toolchain, provide_toolchain, releases, unused, venv_of
from warpwave.engines.packages.environments import provide as provide_plan
from warpwave.engines.packages.installing import __main__ as installing
from warpwave.engines.packages.installing.calls import FailedError, last_words
from warpwave.engines.packages.installing.requirements import any_companion, declared, is_protected, sort_out
from warpwave.engines.packages.plan import make_plan
from warpwave.errors import InfrastructureError, UsageError
from warpwave.options import Build, Install
from warpwave.records.run import Toolchain


def provide(request, say):
    return provide_plan(request, make_plan(request), say)


@pytest.fixture
def wheels(tmp_path) -> Path:
    """An index in which torch has another version than here, with a runtime of its own."""
    folder = tmp_path / "wheels"
    make_wheel(folder, "helper", "1.0", "torch==1.0", "lower")
    make_wheel(folder, "lower", "2.0")
    make_wheel(folder, "torch", "1.0", "nvidia-cublas-cu12")
    make_wheel(folder, "nvidia-cublas-cu12", "12.0")
    make_wheel(folder, "extra-helper", "3.0")
    make_wheel(folder, "torch-user", "1.0", "torch==1.0")
    return folder


@pytest.fixture
def request_(tmp_path, wheels, monkeypatch):
    """A request for the package's tests, with the wheels as the only source."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = make_package(tmp_path / "ops")
    (tmp_path / "raw").mkdir()
    return ask(load_targets()["cpu"], root / "tests", tmp_path / "raw", root=root, build=Build(wheelhouse=wheels))


def requirements(request, text: str, mode: str = ""):
    """The request with a requirements file."""
    file = request.raw.parent / "requirements.txt"
    file.write_text(text)
    return change(request, install=Install((file,), mode))


def python(found, code: str) -> str:
    return subprocess.run([found.python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def files(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*")}


def test_the_package_is_installed_and_its_folder_is_not_touched(request_):
    """With what it needs and what its tests name, without torch, its runtime and linters; made once, and found again."""
    request, said = change(request_, install=Install(package="all")), []
    (request.options.package.folder / "requirements-eval.txt").write_text("evaluated\n")  # nobody asks for it
    before = files(request.options.package.folder)
    found = provide(request, said.append)
    again = provide(request, said.append)

    assert found.versions == {"extra-helper": "3.0", "helper": "1.0", "lower": "2.0", "my-ops": "1.5"}
    assert [note.partition(", present")[0] for note in found.notes] == ["ops wants torch==1.0", "helper 1.0 wants torch==1.0"]
    assert files(request.options.package.folder) == before
    assert (again, len(said)) == (found, 1)
    assert python(found, "import importlib.metadata as m, numpy, helper; print(m.version('my-ops'), helper.version)") == "1.5 1.0"
    assert str(request.raw.parent / "cache") in found.python


def test_the_package_alone(request_):
    assert provide(change(request_, install=Install(package="alone")), print).versions == {"my-ops": "1.5"}


@pytest.mark.slow
def test_a_package_that_cannot_be_built_here(request_):
    """Its declared dependencies are there, its version too, and one sentence says why."""
    (request_.options.package.folder / "fail").touch()
    found = provide(change(request_, install=Install(package="all")), print)

    assert {"helper": "1.0", "lower": "2.0"}.items() <= found.versions.items()
    assert found.notes[0] == (
        "ops could not be built (RuntimeError: nvcc was not found); its Python files are used from its folder, "
        "and its declared dependencies are installed"
    )
    assert "nvcc was not found" in (request_.raw / LOG).read_text()
    assert python(found, "import importlib.metadata as m; print(m.version('my-ops'))") == "1.5"


@pytest.mark.slow
def test_a_package_that_computes_what_it_needs_and_cannot_be_built(request_):
    """Its build script says so, where no file does; what is compiled for one torch is taken for the one that is here."""
    root = request_.options.package.folder
    (root / "fail").touch()
    (root / "pyproject.toml").write_text('[build-system]\nrequires = ["torch"]\nbuild-backend = "backend"\nbackend-path = ["."]\n')
    make_wheel(request_.raw.parent / "wheels", "torchvision", "0.2")
    with (root / "backend.py").open("a") as backend:
        backend.write(
            "\ndef prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):\n"
            "    folder = os.path.join(metadata_directory, 'my_ops-1.5.dist-info')\n"
            "    os.makedirs(folder)\n"
            "    needs = ['lower', 'torchvision<0.2', 'torch==1.0']\n"
            "    with open(os.path.join(folder, 'METADATA'), 'w') as file:\n"
            "        file.write('Metadata-Version: 2.1\\nName: my-ops\\nVersion: 1.5\\n')\n"
            "        file.writelines(f'Requires-Dist: {line}\\n' for line in needs)\n"
            "    return 'my_ops-1.5.dist-info'\n"
        )
    found = provide(change(request_, install=Install(package="all")), print)

    assert found.versions == {"lower": "2.0", "my-ops": "1.5", "torchvision": "0.2"}
    assert found.notes[0].endswith("its Python files are used from its folder, and its declared dependencies are installed")


@pytest.mark.slow
def test_a_declared_dependency_that_cannot_be_had(request_):
    """It is left out by name, with the reason; the others are there. What the user asks for by name must be there."""
    backend = request_.options.package.folder / "backend.py"
    wanted = "Requires-Dist: torch==1.0"
    backend.write_text(backend.read_text().replace(wanted, f"{wanted}\\nRequires-Dist: flash-nothing"))
    found = provide(change(request_, install=Install(package="all")), print)

    assert {"helper": "1.0", "lower": "2.0", "my-ops": "1.5"}.items() <= found.versions.items()
    assert any(note.startswith("flash-nothing of the package's dependencies was left out") for note in found.notes)
    with pytest.raises(InfrastructureError, match="flash-nothing"):
        provide(change(request_, install=Install(package="all", named=("flash-nothing",))), print)


@pytest.mark.slow
def test_what_only_tests_want_is_not_built(request_, wheels, tmp_path):
    """Without a wheel it is left out by name. The user gets it by asking for it."""
    sources = tmp_path / "extra-helper-4.0"
    sources.mkdir()
    (sources / "setup.py").write_text("raise SystemExit('it was built')")
    (sources / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: extra-helper\nVersion: 4.0\n")
    next(wheels.glob("extra_helper-*.whl")).unlink()
    with tarfile.open(wheels / "extra_helper-4.0.tar.gz", "w:gz") as archive:
        archive.add(sources, "extra_helper-4.0")
    found = provide(change(request_, install=Install(package="all")), print)

    assert found.versions == {"helper": "1.0", "lower": "2.0", "my-ops": "1.5"}
    assert any(note.startswith("extra-helper of the package's dependencies was left out") for note in found.notes)
    assert "it was built" not in (request_.raw / LOG).read_text()
    with pytest.raises(InfrastructureError, match="extra-helper"):
        provide(change(request_, install=Install(package="all", named=("extra-helper",))), print)
    assert "it was built" in (request_.raw / LOG).read_text()


@pytest.mark.parametrize(("asked", "options"), [("", ["--only-binary=extra-helper"]), ("extra-helper\n", [])])
def test_what_only_tests_want_is_taken_as_a_wheel(tmp_path, monkeypatch, asked, options):
    """Unless the user asks for it, too."""
    (tmp_path / "plan.json").write_text(json.dumps({"mode": "all", "name": "ops", "version": "1", "skipped": [], "extras": []}))
    (tmp_path / "requirements.txt").write_text(asked)
    found = []
    monkeypatch.setattr(installing, "build", lambda *_: (None, ["helper>=1"]))
    monkeypatch.setattr(installing, "helpers_of", lambda *_: ["extra-helper"])
    monkeypatch.setattr(installing, "own_packages", dict)
    monkeypatch.setattr(installing, "sysconfig", SimpleNamespace(get_paths=lambda: {"purelib": str(tmp_path)}))
    monkeypatch.setattr(installing, "_install", lambda plan, scratch, options, *_: found.append(options))
    installing.install(tmp_path, tmp_path)

    assert found == [options]


def test_extras_groups_and_files_that_are_asked_for(request_, wheels):
    """What is asked for must be there. Extras may name extras, and groups include groups."""
    root = request_.options.package.folder
    (root / "pyproject.toml").write_text(
        (root / "pyproject.toml").read_text()
        + "[project.optional-dependencies]\nall = ['my_ops[some]']\nsome = ['lower==1.0']\n"
        + "[dependency-groups]\nbench = [{include-group = 'inner'}]\ninner = ['torch-user']\n"
    )
    (root / "requirements-eval.txt").write_text("evaluated\n")
    backend = (root / "backend.py").read_text()
    extra = "metadata += \"Provides-Extra: all\\nProvides-Extra: some\\nRequires-Dist: my-ops[some]; extra == 'all'\\n"
    extra += 'Requires-Dist: lower==1.0; extra == \'some\'\\n"\n        archive.writestr("my_ops-1.5.dist-info/METADATA"'
    (root / "backend.py").write_text(backend.replace('archive.writestr("my_ops-1.5.dist-info/METADATA"', extra))
    make_wheel(wheels, "lower", "1.0")
    make_wheel(wheels, "evaluated", "1.0")

    found = provide(change(request_, install=Install(package="all", extras=("all", "bench", "eval"))), print)
    assert {"lower": "1.0", "torch-user": "1.0", "evaluated": "1.0", "helper": "1.0"}.items() <= found.versions.items()
    with pytest.raises(InfrastructureError, match=r"no extra and no dependency group 'al'; it has all, some, bench, inner"):
        provide(change(request_, install=Install(package="all", extras=("al",))), print)


LOCK = "[[package]]\nname = 'lower'\nversion = '1.0'\nsource = {registry = 'x'}\n"
LOCK += "[[package]]\nname = 'torch'\nversion = '1.0'\nsource = {registry = 'x'}\n"


@pytest.mark.parametrize("fits", [True, False])
def test_the_versions_of_a_lock_are_tried_first(tmp_path, monkeypatch, fits):
    """With torch as it is and without. A note says if they were left out."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "uv.lock").write_text(LOCK)
    (tmp_path / "constraints.txt").touch()
    locked, notes = str(tmp_path / "locked.txt"), []
    tried = []

    def run_pip(plan, command, *words, **more):
        tried.append(locked in words)
        if locked in words and not fits:
            raise FailedError("no lower==1.0")
        Path(words[words.index("--report") + 1]).write_text('{"install": []}')

    monkeypatch.setattr(installing, "run_pip", run_pip)

    assert installing._resolved(tmp_path, tmp_path, ["helper"], notes) == ([], [])
    assert tried == ([True] if fits else [True, True, False])
    assert Path(locked).read_text() == "lower==1.0\n"
    said = "the versions of uv.lock do not go together with what is here, so others were installed (no lower==1.0)"
    assert notes == ([] if fits else [said])


@pytest.mark.slow
def test_the_versions_of_a_lock(request_, wheels):
    """They count if they go together with what is here; if not, a note says so."""
    root = request_.options.package.folder
    make_wheel(wheels, "lower", "1.0")
    (root / "uv.lock").write_text(LOCK)
    found = provide(change(request_, install=Install(package="all")), print)

    assert found.versions["lower"] == "1.0"
    (root / "uv.lock").write_text(LOCK.replace("1.0", "0.5"))
    found = provide(change(request_, install=Install(package="all")), print)
    assert found.versions["lower"] == "2.0"
    assert any(note.startswith("the versions of uv.lock do not go together") for note in found.notes)


def test_a_stopped_installation_continues_where_it_was(request_, wheels, monkeypatch):
    """What was built stays, half of a package does not count, nothing stays in the system's temporary folder."""
    request = requirements(request_, "lower\n", "alone")
    root = request.options.package.folder
    built = root.parent / "built.txt"
    noting = f"def build_wheel(*words, **more):\n    open({str(built)!r}, 'a').write('built ')\n    return _build_wheel(*words, **more)\n"
    (root / "backend.py").write_text((root / "backend.py").read_text().replace("def build_wheel", "def _build_wheel") + noting)
    made = []

    def stopped(command, folder, temporary, log):
        code = run(command, folder, temporary, log)
        made.append((Path(command[-2]), folder.parent))
        raise KeyboardInterrupt(code)

    run = packages_module._run
    monkeypatch.setattr(packages_module, "_run", stopped)
    with pytest.raises(KeyboardInterrupt):
        provide(request, print)
    ((venv, part),) = made
    metadata = next(venv.glob("lib/python3*/site-packages/lower-2.0.dist-info"))
    (metadata / "INSTALLER").unlink()
    (metadata.parent / "lower.py").write_text("version = 'half of it'")
    monkeypatch.setattr(packages_module, "_run", run)
    found = provide(request, print)

    assert built.read_text() == "built "
    assert python(found, "import lower; print(lower.version)") == "2.0"
    assert not part.exists()


def test_what_the_package_skips_is_not_installed(request_):
    """Of what it needs and of what its tests want, in any spelling; each with a note, and in an environment of its own."""
    skipping = change(request_, install=Install(package="all", skipped=("Extra_Helper", "helper")))
    found = provide(skipping, print)

    assert found.versions == {"my-ops": "1.5"}
    assert [note.partition(" was left out")[0] for note in found.notes if "skip-requirements" in note] == ["helper>=1", "extra-helper"]
    assert make_plan(skipping).key != make_plan(change(request_, install=Install(package="all"))).key


def test_requirements_never_replace_torch(request_):
    """Lines for torch and its runtime are left out, and what wants another torch is installed all the same."""
    found = provide(requirements(request_, "torch==1.0\nnvidia-cublas-cu12\ntorch-user\n-e .\nlower # a comment\n"), print)

    assert found.versions == {"lower": "2.0", "torch-user": "1.0"}
    assert [note.partition(", present")[0] for note in found.notes] == [
        "'-e .' of the requirements was left out: --install installs the package itself",
        "the requirements wants torch==1.0",
        "torch-user 1.0 wants torch==1.0",
    ]


@pytest.mark.slow
def test_what_is_built_for_another_torch_is_removed(request_, wheels):
    """torchvision for CUDA cannot be imported beside torch's CPU build, and neither can libraries that find it."""
    # Older than any real release: a machine may have newer ones, or a limit on them.
    make_wheel(wheels, "torchvision", "0.0.1", "torch==1.0", code="raise RuntimeError('operator torchvision::nms does not exist')")
    make_wheel(wheels, "torchaudio", "0.0.1", "torch==1.0")
    found = provide(requirements(request_, "torchvision==0.0.1\ntorchaudio==0.0.1\n"), print)

    assert found.versions == {"torchaudio": "0.0.1"}
    removed = [note for note in found.notes if "was removed" in note]
    assert removed
    assert removed[0].startswith("torchvision was removed: it is built for another torch than ")
    assert "operator torchvision::nms does not exist" in removed[0]


def test_locked_requirements_are_installed_as_they_are(request_, wheels):
    """With `--require-hashes`, without what the lock does not name; a wrong hash is an error."""
    wheel = next(wheels.glob("helper-*.whl"))
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    found = provide(requirements(request_, f"helper==1.0 \\\n    --hash=sha256:{digest}\ntorch==1.0 --hash=sha256:{'0' * 64}\n"), print)

    assert found.versions == {"helper": "1.0"}
    with pytest.raises(InfrastructureError, match=r"HASHES|hash"):
        provide(requirements(request_, f"helper==1.0 --hash=sha256:{'1' * 64}\n"), print)


@pytest.mark.slow
def test_a_requirement_that_nobody_has(request_):
    """Three beats, with pip's last line and the log; nothing half-made is left to be used."""
    request = requirements(request_, "lower\nno-such-package-at-all\n")
    with pytest.raises(InfrastructureError) as raised:
        provide(request, print)

    assert raised.value.happened == (
        "cpu: the packages could not be installed: ERROR: No matching distribution found for no-such-package-at-all."
    )
    assert str(request.raw / LOG) in raised.value.remedy
    assert not venv_of(request, make_plan(request)).exists()
    assert [path.suffix for path in (request.raw.parent / "cache" / "warpwave" / "environments").iterdir()] == [".lock"]


def test_folders_that_need_the_same_share_an_environment(request_, tmp_path):
    """A folder's name counts only if the package in it is installed."""
    root = make_package(tmp_path / "other")
    other = ask(load_targets()["cpu"], root / "tests", tmp_path / "raw", root=root, build=request_.options.build)

    for mode, is_same in (("", True), ("alone", False)):
        keys = {make_plan(requirements(request, "lower\n", mode)).key for request in (request_, other)}
        assert (len(keys) == 1) is is_same


def test_the_key_follows_what_decides(request_):
    request = requirements(request_, "lower\n", "all")
    keys = [make_plan(request).key]
    root = request.options.package.folder
    (root / "my_ops" / "relu.py").write_text("# a kernel\n")
    assert make_plan(request).key == keys[0]
    for act in (
        lambda: (root / "pyproject.toml").write_text((root / "pyproject.toml").read_text() + "# edited\n"),
        lambda: (root / "my_ops" / "__init__.py").write_text("__version__ = '2'\n"),
        lambda: requirements(request, "lower==2.0\n"),
        lambda: make_wheel(request.options.build.wheelhouse, "another", "1.0"),
    ):
        act()
        keys.append(make_plan(request).key)
    keys.append(make_plan(change(request, install=Install(request.options.package.install.requirements, "alone"))).key)

    assert len(set(keys)) == len(keys)


def test_what_an_unpacked_wheel_needs_is_in_the_plan(request_):
    root = request_.options.package.folder
    (root / "pyproject.toml").unlink()
    (root / "my_ops-1.5.dist-info").mkdir()
    (root / "my_ops-1.5.dist-info" / "METADATA").write_text("Name: my-ops\nRequires-Dist: helper\n")

    assert b"helper" in make_plan(change(request_, install=Install(package="all"))).files["package/my_ops-1.5.dist-info/METADATA"]


def test_included_files_are_read(request_, tmp_path):
    """`-r` and `-c` in any spelling, relative to the file that has them; a missing one is named."""
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a.txt").write_text("one\n-r b.txt\n-c c.txt\n")
    (tmp_path / "more" / "b.txt").write_text("two\n--requirement=a.txt\n")
    (tmp_path / "more" / "c.txt").write_text("three<4\n")
    plan = make_plan(requirements(request_, "-rmore/a.txt\nfour \\\n  ==4\n"))

    assert (plan.files["requirements.txt"], plan.files["constraints.txt"]) == (b"one\ntwo\nfour    ==4\n", b"three<4\n")
    with pytest.raises(UsageError, match=r"gone\.txt"):
        make_plan(requirements(request_, "-r gone.txt\n"))


@pytest.mark.parametrize(
    ("files", "needs"),
    [
        ({"pyproject.toml": "[project]\nname='x'\ndependencies=['einops', 'ninja']"}, ["einops", "ninja"]),
        ({"setup.cfg": "[options]\ninstall_requires =\n    einops\n    ninja>=1\n"}, ["einops", "ninja>=1"]),
        ({"setup.py": "setup(install_requires=['einops'])"}, ["einops"]),
        ({"setup.py": "needs = ['einops', 'ninja']\nsetup(install_requires=needs)"}, ["einops", "ninja"]),
        ({"setup.py": "setup(install_requires=read())", "requirements.txt": "# these\neinops\n-r more.txt\n"}, ["einops"]),
        ({"setup.py": "setup(", "requirements.txt": ""}, []),
        ({"x-1.dist-info/METADATA": "Name: x\nRequires-Dist: einops>=0.7\nRequires-Dist: ninja\n\ntext\n"}, ["einops>=0.7", "ninja"]),
    ],
)
def test_what_a_package_declares_is_read_and_not_run(tmp_path, files, needs):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    assert declared(tmp_path) == needs


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("torchvision<=0.27.1,>=0.15", "torchvision"),
        ("torchaudio==2.0; python_version >= '3'", 'torchaudio; python_version >= "3"'),
        ("einops<1", "einops<1"),
        ("torchvision @ https://example.org/torchvision.whl", "torchvision @ https://example.org/torchvision.whl"),
        ("--no-deps", "--no-deps"),
    ],
)
def test_what_is_compiled_for_one_torch_is_taken_in_any_version(line, wanted):
    assert any_companion(line) == wanted


def test_markers_and_options_of_requirements():
    lines = [
        "--extra-index-url https://example.org/simple",
        "einops; python_version < '3'",
        "ninja; python_version > '3'",
        "a @ file:///a.whl",
    ]

    assert sort_out(lines, []) == (lines[:1], ["ninja; python_version > '3'", "a @ file:///a.whl"])


BUILD = "  error: subprocess-exited-with-error\n  \n  \u00d7 python setup.py egg_info did not run successfully.\n  │ exit code: 1\n"
AFTER = (
    "  note: This error originates from a subprocess.\nerror: metadata-generation-failed\n\n\u00d7 Encountered error while generating "
    "package metadata.\n╰─> See above for output.\n\nnote: This is an issue with the package mentioned above, not pip.\n"
    "hint: See above for details.\n"
)


@pytest.mark.parametrize(
    ("output", "last"),
    [
        ("ERROR: No matching distribution found for x\n", "ERROR: No matching distribution found for x"),
        (
            "  \u2502 RuntimeError: no nvcc\n  \u2570\u2500> [end of output]\nnote: This comes from pip\nERROR: Failed to build x\n",
            "RuntimeError: no nvcc",
        ),
        ("", "pip failed and said nothing"),
        (f"{BUILD}  ╰─> [1 lines of output]\n      rowc was not found\n      [end of output]\n{AFTER}", "rowc was not found"),
        (
            f"{BUILD}  ╰─> [2 lines of output]\n      looking for rowc\n      set ROWC and try again\n      [end of output]\n{AFTER}",
            "looking for rowc / set ROWC and try again",
        ),
        (f"{BUILD}  ╰─> [0 lines of output]\n      [end of output]\n{AFTER}", "its build ended with an error and printed nothing"),
        (
            f"{BUILD}  ╰─> [4 lines of output]\n      no rows here\n      Traceback (most recent call last):\n        File x\n"
            f"      subprocess.CalledProcessError: Command 'rowc' failed\n      [end of output]\n{AFTER}",
            "no rows here / subprocess.CalledProcessError: Command 'rowc' failed",
        ),
    ],
)
def test_the_line_that_says_most(output, last):
    assert last_words(output) == last


@pytest.mark.parametrize(
    ("printed", "last"),
    [
        (["FileNotFoundError: [Errno 2] No such file or directory: '/opt/rowc'"], "rows needs rowc to build"),
        (["error: command 'rowc' failed: No such file or directory"], "rows needs rowc to build"),
        (["OSError: ROW_HOME environment variable is not set. Set it."], "rows needs ROW_HOME to build"),
        (["a.c:1:10: fatal error: row.h: No such file", "error: command 'cc' failed with exit code 1"], "rows needs row.h to build"),
        (["a.c:9:1: error: expected ';'", "error: command 'cc' failed with exit code 1"], "a.c:9:1: error: expected ';'"),
    ],
)
def test_a_build_names_the_package_and_what_it_lacks(printed, last):
    lines = "".join(f"      {line}\n" for line in printed)
    output = (
        f"{BUILD}  ╰─> [{len(printed)} lines of output]\n{lines}      [end of output]\n{AFTER}  ERROR: Failed building wheel for rows\n"
    )

    assert last_words(output) == last


def test_two_runs_make_one_environment(request_):
    request = change(request_, install=Install(package="alone"))
    plan = make_plan(request)
    venv = venv_of(request, plan)
    venv.parent.mkdir(parents=True)
    holder = (
        "import fcntl, sys, time; f = open(sys.argv[1], 'ab'); fcntl.flock(f, fcntl.LOCK_EX); print('held', flush=True); time.sleep(1.5); "
        "import os; os.makedirs(sys.argv[2]); open(sys.argv[2] + '/warpwave.json', 'w').write(sys.argv[3])"
    )
    result = json.dumps({"packages": {"theirs": "1"}, "notes": []})
    command = [sys.executable, "-c", holder, f"{venv}.lock", str(venv), result]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        said: list[str] = []

        assert provide(request, said.append).versions == {"theirs": "1"}
        assert said == ["waiting for another run that installs the same packages"]


@pytest.mark.parametrize(
    ("name", "protected"),
    [
        *((name, True) for name in ("torch", "triton", "pytorch-triton-rocm", "triton-xpu", "pytest")),
        *((name, False) for name in ("triton-kernels", "conch-triton-kernels", "torchvision", "pytest-benchmark")),
    ],
)
def test_what_is_protected(name, protected):
    """torch and Triton by every vendor's name, and no other package that has a word of theirs in its name."""
    assert is_protected(name) is protected


# The environments in the cache folder: which are listed as unused, and which are removed.

DAY_S = 86400


@pytest.fixture
def make(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def made(name, days):
        venv = environments() / name
        (venv / "lib").mkdir(parents=True)
        (venv / "lib" / "big").write_bytes(b"x" * 5000)
        (venv / "warpwave.json").write_text("{}")
        then = time.time() - days * DAY_S
        os.utime(venv / "warpwave.json", (then, then))
        return venv

    return made


def test_only_old_ones_are_removed(make):
    old, new = make("old", 31), make("new", 29)

    assert [one.folder for one in unused(30)] == [old]
    assert old.is_dir()  # listing removes nothing
    (listed,) = unused(30, remove=True)
    assert listed.bytes == 5002
    assert not old.exists()
    assert new.is_dir()


def test_one_in_use_stays(make):
    venv = make("busy", 40)
    with venv.with_name("busy.used").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        assert unused(0, remove=True) == []
    assert [one.folder for one in unused(0)] == [venv]


def test_what_a_stopped_installation_left_is_removed(make):
    part = make("stopped.part", 0)
    with part.with_suffix(".lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert unused(0, remove=True) == []
    assert [one.folder for one in unused(0, remove=True)] == [part]
    assert not part.exists()


def test_the_command_lists_and_removes(make):
    venv = make("old", 31)
    env = {**os.environ, "DOCKER_HOST": "unix:///nothing/there"}

    listed = warpwave("clean", env=env)
    assert f"found: environment {venv} (unused for 31 days, 0 MiB)" in listed.stdout.replace("\n", "")
    assert "containers: not looked for" in listed.stdout
    assert venv.is_dir()
    removed = warpwave("clean", "--yes", env=env)
    assert removed.returncode == 0
    assert "removed: environment" in removed.stdout
    assert not venv.exists()
    assert "nothing to remove" in warpwave("clean", env=env).stdout


# A toolchain of the local engine: an environment with another Triton, beside the first one.

WHICH = """
import importlib.metadata, importlib.util
print(importlib.metadata.version("triton"), *(importlib.util.find_spec(name).origin for name in ("triton", "torch")))
"""


@pytest.fixture
def request__of_toolchain(tmp_path, monkeypatch):
    """A request on a leg whose Triton is in a folder of wheels."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "raw").mkdir()
    for version in ("3.9.0.post2", "3.9.0.post10"):
        wrap_triton(tmp_path / "wheels", version)
    known = load_toolchains()
    target = leg(load_targets()["cpu"], Toolchain(name="mine", triton="3.9.0.post2", index=str(tmp_path / "wheels")), known)
    return ask(target, tmp_path, tmp_path / "raw")


def seen(python: str) -> list[str]:
    return subprocess.run([python, "-c", WHICH], capture_output=True, text=True, check=True).stdout.split()


def test_a_toolchain_costs_its_triton_alone(request__of_toolchain):
    """Its Triton hides the one below; torch is the one below; the second time nothing is made."""
    said = []
    found, packages = provide_toolchain(request__of_toolchain, said.append)
    provide_toolchain(request__of_toolchain, said.append)
    version, triton, torch = seen(found.options.where.python)

    assert (version, packages.versions, len(said)) == ("3.9.0.post2", {"triton": "3.9.0.post2"}, 1)
    assert (triton.startswith(str(request__of_toolchain.raw.parent)), torch.startswith(str(request__of_toolchain.raw.parent))) == (
        True,
        False,
    )
    assert on_toolchain(request__of_toolchain).options.where.python == found.options.where.python


def test_the_build_of_an_index_is_used_though_its_version_is_here(request__of_toolchain, tmp_path):
    """Two builds of one version differ, and a page that compares this Python's Triton with itself finds nothing."""
    version = importlib.metadata.version("triton")
    wrap_triton(tmp_path / "wheels", version)
    mine = replace(request__of_toolchain.target.toolchain, triton=version)
    found, packages = provide_toolchain(change(request__of_toolchain, target=replace(request__of_toolchain.target, toolchain=mine)), print)

    assert packages.versions == {"triton": version}
    assert seen(found.options.where.python)[1].startswith(str(tmp_path))


def test_two_toolchains_stand_side_by_side(request__of_toolchain):
    """Each has its own folder, by a hash of what decides it. Variables alone, and a name, decide nothing."""
    other = replace(request__of_toolchain.target.toolchain, triton="3.9.0.post10")
    renamed = replace(request__of_toolchain.target.toolchain, name="other", environment={"A": "1"})
    pythons = [
        on_toolchain(change(request__of_toolchain, target=replace(request__of_toolchain.target, toolchain=one))).options.where.python
        for one in (other, renamed)
    ]

    assert on_toolchain(request__of_toolchain).options.where.python not in pythons[:1]
    assert on_toolchain(request__of_toolchain).options.where.python == pythons[1]
    variables = change(
        request__of_toolchain, target=replace(request__of_toolchain.target, toolchain=Toolchain(name="x", environment={"A": "1"}))
    )
    assert on_toolchain(variables).options.where.python is None


def test_a_release_that_nobody_has(request__of_toolchain):
    missing = replace(request__of_toolchain.target.toolchain, triton="1.2.3")
    with pytest.raises(InfrastructureError, match=r"triton==1\.2\.3"):
        provide_toolchain(change(request__of_toolchain, target=replace(request__of_toolchain.target, toolchain=missing)), print)


def test_releases_are_in_the_order_of_their_numbers(request__of_toolchain):
    assert releases(None, request__of_toolchain.raw.parent / "wheels") == ["3.9.0.post2", "3.9.0.post10"]


def test_an_image_of_a_toolchain(request__of_toolchain):
    known, cuda = load_toolchains(), load_targets()["cuda"]
    stack = Toolchain(name="x", triton="3.8.0", packages=("helper==1",), base_image="mine:1", torch="2.12.0", environment={"A": "1"})
    request = change(request__of_toolchain, target=leg(cuda, stack, known), build=Build())
    made = recipe(request)

    assert made.arguments.items() >= {"TRITON_VERSION": "3.8.0", "TOOLCHAIN": "triton==3.8.0 helper==1", "TORCH_VERSION": "2.12.0"}.items()
    assert (made.base, made.tag.partition(":")[0]) == ("mine:1", "warpwave/cuda")
    assert made.tag != recipe(change(request, target=leg(cuda, replace(stack, triton="3.9.0"), known))).tag
    assert request.target.environment["A"] == "1"
