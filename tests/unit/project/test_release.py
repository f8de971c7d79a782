"""What is released: a source distribution, the wheel that is built from it, and that wheel in a Python of its own.

(`nox -s release` does the same with the dependencies from an index; here they are those of the tests.)
"""

import email
import json
import os
import re
import shutil
import site
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("hatchling", reason="the wheel's build back-end; `nox -s tests` installs it")

import command
import yaml
from recorded import ARCHIVE, recorded
from runner import PYTHON, Runner

import warpwave
from warpwave import starter
from warpwave.__main__ import _run_cli
from warpwave.starter import starter_files

sys.path.append(str(Path(__file__).parents[3] / "tools"))
from pack import pack

ROOT = Path(__file__).parents[3]


def call(*command, cwd, **variables):
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    kept |= {"COLUMNS": "200", "DOCKER_HOST": f"unix://{cwd}/no.sock", **variables}
    return subprocess.run([str(word) for word in command], cwd=cwd, env=kept, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from an unpacked source distribution as an index would have it."""
    folder = tmp_path_factory.mktemp("release")
    made = call(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=ROOT)
    assert made.returncode == 0, made.stderr
    assert call("tar", "-xzf", next(folder.glob("*.tar.gz")), cwd=folder).returncode == 0
    source = next(path for path in folder.iterdir() if path.is_dir())
    made = call(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=source)
    assert made.returncode == 0, made.stderr
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def program(wheel, tmp_path_factory):
    """`warpwave` as a clean Python has it: the wheel is installed there, and dependencies are looked up where the tests have theirs."""
    folder = tmp_path_factory.mktemp("clean")
    assert call(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder).returncode == 0
    python = folder / "bin" / "python"
    packages = call(python, "-c", "import site; print(site.getsitepackages()[0])", cwd=folder).stdout.strip()
    done = call(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=folder)
    assert done.returncode == 0, done.stderr
    Path(packages, "theirs.pth").write_text("\n".join(f"import site; site.addsitedir({path!r})" for path in site.getsitepackages()))
    where = call(python, "-c", "import warpwave; print(warpwave.__file__)", cwd=folder).stdout.strip()
    assert where.startswith(packages), where
    return folder / "bin" / "warpwave"


def test_the_wheel_has_the_harness_and_nothing_beside_it(wheel):
    """With the data that it needs at work, and the mark that it is typed; no kernels, no tests, nothing of this folder."""
    names = zipfile.ZipFile(wheel).namelist()
    told = email.message_from_bytes(zipfile.ZipFile(wheel).read(next(name for name in names if name.endswith("/METADATA"))))

    assert {name.split("/")[0] for name in names} == {"warpwave", f"warpwave-{warpwave.__version__}.dist-info"}
    assert {
        *("warpwave/py.typed", "warpwave/docker/targets.yml", "warpwave/docker/install.sh", "warpwave/schemas/comparison.schema.json"),
        *("warpwave/starter/.github/workflows/kernels.yml", "warpwave/starter/kernels/scale/scale.py"),
    } <= set(names)
    assert {str(path.relative_to(ROOT / "harness")) for path in (ROOT / "harness").rglob("*.py")} <= set(names)
    assert [name for name in names if "__pycache__" in name] == []
    assert (told["Name"], told["Version"], told["License-Expression"]) == ("warpwave", warpwave.__version__, "Apache-2.0")
    assert set(told.get_all("Provides-Extra")) == {"emulator", "png"}
    entries = zipfile.ZipFile(wheel).read(next(name for name in names if name.endswith("/entry_points.txt"))).decode()
    assert "[pytest11]\nwarpwave = warpwave.pytest_entry" in entries
    assert "warpwave = warpwave.__main__:main" in entries


def test_its_addresses_are_those_of_the_repository(wheel, tmp_path):
    """A build in a workflow names them, also the wheel that is built from its source distribution; a build from nowhere names none."""
    named = {"GITHUB_SERVER_URL": "https://code.example", "GITHUB_REPOSITORY": "them/warpwave"}
    assert call(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", tmp_path, cwd=ROOT, **named).returncode == 0
    assert call("tar", "-xzf", next(tmp_path.glob("*.tar.gz")), cwd=tmp_path).returncode == 0
    source = next(path for path in tmp_path.iterdir() if path.is_dir())
    nowhere = {"GITHUB_SERVER_URL": "", "GITHUB_REPOSITORY": "", "GIT_DIR": str(tmp_path / "none")}
    assert call(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path, cwd=source, **nowhere).returncode == 0
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as archive:
        told = email.message_from_bytes(archive.read(next(name for name in archive.namelist() if name.endswith("/METADATA"))))

    assert "Repository, https://code.example/them/warpwave" in told.get_all("Project-URL")
    assert "Issues, https://code.example/them/warpwave/issues" in told.get_all("Project-URL")


PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")


def interpreter(version: str) -> str:
    """The path of a Python of that version which works, or nothing. pyenv and uv have theirs in folders of their own."""
    kept = [
        *Path.home().glob(f".pyenv/versions/{version}.*/bin/python"),
        *Path.home().glob(f".local/share/uv/python/*-{version}.*/bin/python"),
    ]
    for found in (shutil.which(f"python{version}"), *map(str, kept)):
        if found and subprocess.run([found, "-c", "import venv, ensurepip"], capture_output=True, check=False).returncode == 0:
            return found
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("version", PYTHONS)
def test_the_wheel_works_where_nothing_is(wheel, tmp_path, version):
    if not (python := interpreter(version)):
        pytest.skip(f"there is no Python {version} here")
    assert call(python, "-m", "venv", tmp_path / "empty", cwd=tmp_path).returncode == 0
    done = call(tmp_path / "empty" / "bin" / "python", "-m", "pip", "install", "--quiet", wheel, cwd=tmp_path)
    if done.returncode and "No matching distribution" in done.stderr:
        pytest.skip("no package index has what it needs")
    program = tmp_path / "empty" / "bin" / "warpwave"

    assert done.returncode == 0, done.stderr
    assert call(program, "--version", cwd=tmp_path).stdout == f"warpwave, version {warpwave.__version__}\n"
    assert "gfx942 (MI300X)" in call(program, "list", cwd=tmp_path).stdout
    assert call(program, "run", "--help", cwd=tmp_path).returncode == 0


def test_a_tag_publishes_what_was_tried():
    """With the identity of the workflow, no token, and an attestation; every Python that the metadata names is tried first."""
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    jobs = workflow["jobs"]
    classified = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())

    assert workflow["permissions"] == {}
    assert jobs["publish"]["permissions"] == {"id-token": "write", "attestations": "write"}
    assert (jobs["publish"]["needs"], jobs["smoke"]["needs"], jobs["publish"]["environment"]) == ("smoke", "build", "pypi")
    assert jobs["smoke"]["strategy"]["matrix"]["python"] == list(PYTHONS) == classified
    assert "secrets." not in (ROOT / ".github" / "workflows" / "release.yml").read_text()
    used = [step.get("uses", "").partition("@")[0] for step in jobs["publish"]["steps"]]
    assert used == ["actions/download-artifact", "actions/attest-build-provenance", "pypa/gh-action-pypi-publish"]


@pytest.mark.slow
def test_it_runs_where_it_is_installed(program, tmp_path):
    """Outside of the repository: its version, its targets, its doctor, and what `init` writes."""
    told = json.loads(call(program, "doctor", "--json", cwd=tmp_path).stdout)
    written = call(program, "init", "--from", f"git+https://code.example/them/warpwave@{'5e' * 20}", cwd=tmp_path)

    assert call(program, "--version", cwd=tmp_path).stdout == f"warpwave, version {warpwave.__version__}\n"
    assert "gfx942" in call(program, "list", cwd=tmp_path).stdout
    assert told["findings"]
    assert (written.returncode, (tmp_path / ".github" / "workflows" / "kernels.yml").is_file()) == (0, True), written.stderr


@pytest.mark.slow
def test_the_shell_completes_commands_and_targets(program, tmp_path):
    """As the reference says: the shell asks the program itself."""
    script = call(program, cwd=tmp_path, _WARPWAVE_COMPLETE="bash_source").stdout
    commands = call(program, cwd=tmp_path, _WARPWAVE_COMPLETE="bash_complete", COMP_WORDS="warpwave co", COMP_CWORD="1").stdout
    targets = call(program, cwd=tmp_path, _WARPWAVE_COMPLETE="bash_complete", COMP_WORDS="warpwave run c", COMP_CWORD="2").stdout

    assert "complete -o nosort -F" in script
    assert "plain,codegen" in commands
    assert {"plain,cpu", "plain,cuda"} <= set(targets.split())
    assert "_WARPWAVE_COMPLETE=bash_source warpwave" in (ROOT / "docs" / "reference" / "cli.md").read_text()


# `warpwave init`: what it writes is linted, passes its own tests, and goes through the harness.

SOURCE = "git+https://code.example/them/warpwave@" + "5e" * 20


def run(folder, module, *words, **variables):
    environment = {**os.environ, "DOCKER_HOST": f"unix://{folder}/no.sock", "COLUMNS": "200", **variables}
    return command.python("-m", module, *words, cwd=folder, env=environment)


@pytest.fixture
def repository(tmp_path):
    done = run(tmp_path, "warpwave", "init", "--from", SOURCE)
    assert done.returncode == 0, done.stderr
    return tmp_path


def test_an_empty_repository_gets_all_of_it(repository):
    written = {str(path.relative_to(repository)) for path in repository.rglob("*") if path.is_file()}

    assert written == set(map(str, starter_files()))
    assert {
        *("kernels/scale/scale.py", "kernels/scale/test_scale.py", "kernels/scale/bench_scale.py", ".github/workflows/kernels.yml"),
    } < written


def test_nothing_is_overwritten_and_nothing_else_written(tmp_path):
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "pyproject.toml").write_text("mine")
    done = run(tmp_path, "warpwave", "init")

    assert (done.returncode, "kernels/pyproject.toml is already in" in done.stderr) == (2, True)
    assert [path.read_text() for path in tmp_path.rglob("*") if path.is_file()] == ["mine"]


def test_what_it_writes_is_clean(repository):
    """Its Python by ruff's defaults at its own width, its workflow by what looks at ours."""
    pytest.importorskip("ruff")
    for arguments in (["check"], ["format", "--check"]):
        done = run(repository, "ruff", *arguments, "--isolated", "--line-length", "140", ".")
        assert done.returncode == 0, done.stdout
    if zizmor := shutil.which("zizmor"):
        done = subprocess.run([zizmor, "--offline", "--persona=auditor", "."], cwd=repository, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


def test_what_it_writes_passes_its_own_tests(repository):
    pytest.importorskip("triton", reason="the kernel needs torch and triton; `nox -s tests` installs them")
    done = run(repository / "kernels", "pytest", "-q", TRITON_INTERPRET="1")

    assert done.returncode == 0, done.stdout
    assert "6 passed" in done.stdout


@pytest.mark.slow
def test_what_it_writes_goes_through_the_harness(repository):
    """Tests and generated code, its gates included; and the gate bites: a kernel that loads four bytes a time breaks it."""
    pytest.importorskip("triton", reason="the local engine needs torch and triton")
    arguments = ["run", "cpu", "--quick", "--budget", "10m", "--targets", str(ROOT / ".ci" / "targets.yml")]
    done = run(repository, "warpwave", *arguments, "--out", "good")
    kernel = repository / "kernels" / "scale" / "scale.py"
    kernel.write_text(kernel.read_text().replace("x_ptr + offsets", "x_ptr + offsets * 3"))
    broken = run(repository, "warpwave", *arguments, "--stage", "compile", "--out", "bad")

    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((repository / "good" / "comparison.json").read_text())["targets"][0]["tests"] == {"passed": 6}
    assert broken.returncode == 1, broken.stdout


@pytest.mark.slow
def test_its_workflow_does_what_it_says(repository, tmp_path):
    """Step by step, on a machine whose `python3 -m venv` is a stub and whose engine is this Python."""
    pytest.importorskip("triton", reason="the local engine needs torch and triton")
    quick = f"OPTIONS='--quick --budget 10m --targets {ROOT}/.ci/targets.yml'"
    local = f'{quick} exec {command.shell_words()} "$@"'
    digests = {"hashFiles('.github/workflows/kernels.yml')": "0123", "hashFiles('kernels/**')": "4567"}
    values = {
        "github.run_attempt": 1,
        "matrix.target": "cpu",
        "runner.temp": tmp_path / "machine" / "_temp",
        **digests,
        "github.event_name == 'push' && steps.cache.outputs.cache-hit != 'true'": True,
        "steps.cache.outputs.cache-primary-key": "warpwave-cpu-0123-4567",
    }
    (tmp_path / "artifacts").mkdir()
    machine = Runner(tmp_path / "machine", tmp_path / "artifacts", values, {"warpwave": local, "python3": PYTHON})
    machine.sources = {repository / "kernels", repository / ".github"}
    job = yaml.safe_load((repository / ".github" / "workflows" / "kernels.yml").read_text())["jobs"]["cpu"]
    assert job["strategy"]["matrix"]["target"] == ["cpu", "gfx942-emulated"]
    ran = machine.run(job["steps"], job["env"])

    assert ran["status"] == "success", ran["log"]
    assert "cpu passed 6 tests" in ran["summary"]
    assert (tmp_path / "artifacts" / "raw-cpu-1" / "comparison.html").is_file()


def test_without_an_address_there_is_no_workflow(tmp_path, monkeypatch, capsys):
    """A guessed name could be anyone's package. A second `init` adds the workflow, and keeps what is there."""
    monkeypatch.setattr(starter, "requirement", lambda: None)

    assert _run_cli(["init", str(tmp_path)]) == 0
    assert not (tmp_path / ".github").exists()
    assert "--from git+https://" in capsys.readouterr().out
    assert _run_cli(["init", str(tmp_path), "--from", SOURCE]) == 0
    assert SOURCE in (tmp_path / ".github" / "workflows" / "kernels.yml").read_text()


@pytest.mark.parametrize(
    "source", ["", "warpwave", "warpwave==0.1.0", "WarpWave[emulator]>=1", "--index-url=x", "warpwave\n- run: x", "${{ secrets.X }}"]
)
def test_a_requirement_that_is_none_is_refused(tmp_path, source):
    assert (_run_cli(["init", str(tmp_path), "--from", source]), list(tmp_path.iterdir())) == (2, [])
    assert _run_cli(["init", str(tmp_path), "--from", """a"}, run: x # '"""]) == 0
    steps = yaml.safe_load((tmp_path / ".github" / "workflows" / "kernels.yml").read_text())["jobs"]["cpu"]["steps"]
    assert [step["env"] for step in steps if "env" in step] == [{"WARPWAVE": """a"}, run: x # '"""}]


REACHED = f"git+https://code.example/them/warpwave@{'5e' * 20}"


@pytest.mark.parametrize(
    ("url", "commit", "named"),
    [
        ("https://code.example/them/warpwave.git", "5e" * 20, REACHED),
        ("https://user:secret@code.example/them/warpwave?token=secret#x", "5e" * 20, REACHED),
        ("git@code.example:them/warpwave.git", "5e" * 20, REACHED),
        ("ssh://git@code.example/them/warpwave", "5e" * 20, REACHED),
        ("file:///home/me/warpwave", "5e" * 20, None),
        ("/home/me/warpwave", "5e" * 20, None),
        ("https://code.example/them/warpwave", "main", None),
        ("", "", None),
    ],
)
def test_a_workflow_installs_what_wrote_it(url, commit, named):
    assert starter._named(url, commit) == named


@pytest.mark.parametrize(
    ("noted", "named"),
    [
        (None, None),
        ('{"url": "file:///tmp/warpwave.whl", "archive_info": {}}', None),
        ('{"url": "https://code.example/them/warpwave", "vcs_info": {"vcs": "git", "commit_id": "%s"}}' % ("5e" * 20), REACHED),
        ("[", None),
    ],
    ids=["index", "wheel", "repository", "broken"],
)
def test_what_pip_noted_says_where_it_is_from(monkeypatch, noted, named):
    """A wheel that somebody built is nobody else's."""
    monkeypatch.setattr(starter.metadata, "distribution", lambda name: SimpleNamespace(read_text=lambda file: noted))

    assert starter._as_installed() == named


# The recorded run is small in a clone, and packed so that anybody can check it.


REPOSITORY = Path(__file__).parents[3]


def test_the_recorded_run_takes_at_most_two_megabytes():
    """Every clone carries it."""
    files = [path for path in (REPOSITORY / "reports").rglob("*") if path.is_file() and "runs" not in path.relative_to(REPOSITORY).parts]

    assert sum(path.stat().st_size for path in files) <= 2_000_000
    assert sorted(path.name for path in ARCHIVE.parent.iterdir()) == ["comparison.html", "recorded.tar.xz"]


def test_the_same_files_give_the_same_archive(tmp_path):
    """Another machine, time, mode and order of the files change nothing; journals and logs are left out."""
    archives = []
    for name, order in (("one", 1), ("two", -1)):
        folder = tmp_path / name
        for path in ("comparison.json", "raw/a/run.json", "raw/a/bench/journal.jsonl", "raw/a/log.txt", "plots/a.svg", "raws/b")[::order]:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(path)
            os.utime(folder / path, (order + 9, order + 9))
            (folder / path).chmod(0o600 if order == 1 else 0o755)
        archives.append(tmp_path / f"{name}.tar.xz")
        assert pack(folder, archives[-1], ["raw", "comparison.json"]) == ["comparison.json", "raw/a/run.json"]
        assert pack(folder, folder / "all.tar.xz") == ["comparison.json", "plots/a.svg", "raw/a/run.json", "raws/b"]
        assert pack(folder, folder / "all.tar.xz") == ["comparison.json", "plots/a.svg", "raw/a/run.json", "raws/b"]

    assert archives[0].read_bytes() == archives[1].read_bytes()


def test_the_archive_holds_what_pack_would_pack(tmp_path):
    """Nothing was added by hand: the same names, contents, modes and times."""
    pack(recorded(), tmp_path / "again.tar.xz", ["raw", "comparison.json"])
    entries = []
    for path in (ARCHIVE, tmp_path / "again.tar.xz"):
        with tarfile.open(path) as packed:
            entries.append([(entry.name, entry.mode, entry.mtime, entry.uid, packed.extractfile(entry).read()) for entry in packed])

    assert entries[0] == entries[1]
