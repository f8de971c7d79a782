"""What goes into the images is pinned by hash, from one index a package; what cannot be refreshed stays as it is, and is named."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

REPOSITORY = Path(__file__).parents[3]
DOCKER = REPOSITORY / "docker"
LOCKS = sorted((DOCKER / "locks").glob("*.txt"))
TARGETS = yaml.safe_load((DOCKER / "targets.yml").read_text())["targets"]
sys.path.append(str(REPOSITORY / "tools"))


import ast
import io
import json
from dataclasses import replace

import audit
import pins
from rich.console import Console
from synthetic import record, run, write_raw

from warpwave.compare import compare
from warpwave.render.html import render_html
from warpwave.render.markdown import render_markdown
from warpwave.render.terminal import render_terminal


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_every_line_of_a_lock_has_a_hash(path):
    """No line without one, no option (an index, a second one least of all), no address."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]

    assert lines
    assert [line for line in lines if not re.fullmatch(r"[a-z0-9._-]+==[\w.+!-]+( --hash=sha256:[0-9a-f]{64})+", line)] == []


@pytest.mark.parametrize("target", TARGETS)
def test_locks_are_of_the_versions_in_the_targets_file(target):
    """A version changed in one place only would be installed without hashes."""
    arguments = TARGETS[target]["image"]["build_args"]
    locks = TARGETS[target]["image"].get("locks", target)
    for path in (DOCKER / "locks").glob(f"{locks}-py*.txt"):
        name, version = ("torch", "TORCH_VERSION") if path.stem.endswith("-torch") else ("triton", "TRITON_VERSION")
        assert f"\n{name}=={arguments[version]} --hash=" in path.read_text(), path.name
    assert (DOCKER / "locks" / f"{locks}-py3.12.txt").exists()


def test_no_second_index_anywhere():
    """Whoever publishes the higher version in a second index wins, so there is none: in no script, workflow, setting or lock."""
    files = [*DOCKER.rglob("*"), *(REPOSITORY / ".github").rglob("*.yml"), REPOSITORY / "noxfile.py", REPOSITORY / "pyproject.toml"]
    named = [path.name for path in files if path.is_file() and "extra-index" in path.read_text()]

    assert named == []


def test_the_callers_second_index_is_not_asked():
    """Neither by a variable nor by a file of settings: its torch would be locked as the one of the index that was named."""
    given = {"PIP_EXTRA_INDEX_URL": "x", "PIP_FIND_LINKS": "y", "PIP_CERT": "z"}

    assert pins._alone(given, "https://torch.invalid") == {"PIP_CERT": "z", "PIP_CONFIG_FILE": os.devnull}


def test_a_lock_is_what_pip_would_install(tmp_path):
    """One file a target, Python and index; a machine with other versions is left out, not mixed in."""

    def ask(wanted, python, machine, index):
        version = "2" if machine == "aarch64" and index else "1"
        return {wanted[0].partition("==")[0]: (version, ("b" if machine == "aarch64" else "a") * 64)}

    missing = pins.update_locks({"cuda": TARGETS["cuda"]}, tmp_path, ask)
    found = {path.name: path.read_text().splitlines()[1:] for path in tmp_path.iterdir()}

    assert missing == []
    assert found["cuda-py3.12.txt"] == [f"triton==1 --hash=sha256:{'a' * 64} --hash=sha256:{'b' * 64}"]
    assert found["cuda-py3.12-torch.txt"] == [f"torch==1 --hash=sha256:{'a' * 64}"]


def test_an_index_that_does_not_answer_changes_nothing(tmp_path):
    """The lock of before is still there, and its name is told."""
    old = tmp_path / "cuda-py3.12.txt"
    old.write_text("old\n")

    missing = pins.update_locks({"cuda": TARGETS["cuda"]}, tmp_path, lambda *_: None)

    assert "cuda-py3.12.txt" in missing
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old\n"]


def test_a_digest_is_written_below_its_image_and_refreshed_there(tmp_path):
    """Comments, order and everything else stay; the file is still one that loads."""
    file = tmp_path / "targets.yml"
    file.write_text((DOCKER / "targets.yml").read_text())

    for letter in "ab":
        assert pins.update_digests(file, lambda image, letter=letter: f"sha256:{letter * 64}") == []
        images = [target["image"] for target in yaml.safe_load(file.read_text())["targets"].values()]
        assert {image["digest"] for image in images} == {f"sha256:{letter * 64}"}
    assert re.sub(r" +digest: .*\n", "", file.read_text()) == re.sub(r" +digest: .*\n", "", (DOCKER / "targets.yml").read_text())


def test_a_registry_that_does_not_answer_changes_nothing(tmp_path):
    """Without an engine, as a user would run it: each image is named with the reason, and not a byte is written."""
    before = (DOCKER / "targets.yml").read_bytes()
    code = "import pins; print(pins.update_digests(pins.DOCKER / 'targets.yml'))"
    variables = {**os.environ, "DOCKER_HOST": f"unix://{tmp_path}/nowhere.sock", "PYTHONPATH": str(REPOSITORY / "tools")}
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)

    assert all(target["image"]["base"] in done.stdout for target in TARGETS.values())
    assert (DOCKER / "targets.yml").read_bytes() == before


FLAW = {"id": "X-1", "fix_versions": ["2"]}


@pytest.mark.parametrize(
    ("found", "code", "word"),
    [
        (None, audit.UNREACHABLE, "no advisories"),
        ([{"name": "a", "skip_reason": "not found"}], audit.UNREACHABLE, "no advisories"),
        ([{"name": "a", "version": "1", "vulns": []}, {"name": "b", "skip_reason": "x"}], 0, "1 of which nothing is known"),
        ([{"name": "a", "version": "1", "vulns": [FLAW]}], 1, "a 1: X-1, mended in 2"),
    ],
)
def test_nothing_heard_is_not_nothing_found(found, code, word):
    judged, lines = audit.judge(found)

    assert judged == code
    assert word in lines[0]


def test_the_host_is_locked_too(tmp_path):
    """What warpwave needs and what builds it, for the job whose token may write; an index that does not answer changes nothing."""
    asked = []
    path = tmp_path / "lock.txt"
    path.write_text("old\n")

    assert pins.update_host_lock(path, lambda *_: None) == [".github/lock.txt"]
    assert path.read_text() == "old\n"
    assert pins.update_host_lock(path, lambda wanted, *_: asked.append(wanted) or {"click": ("1", "a" * 64)}) == []
    assert path.read_text().endswith(f"click==1 --hash=sha256:{'a' * 64}\n")
    assert {"hatchling", "click>=8.1"} <= set(asked[0])


def test_what_is_not_pinned_is_named(tmp_path):
    """A base image without a digest, a lock that is missing or of another version, the host's lock, the devcontainer: each by name."""
    targets = {"cuda": {"image": {**TARGETS["cuda"]["image"], "digest": None}}}
    editor = tmp_path / "devcontainer.json"
    editor.write_text('{"image": "python:3.12"}')
    versions = targets["cuda"]["image"]["build_args"]
    (tmp_path / "cuda-py3.12.txt").write_text(f"#\ntriton=={versions['TRITON_VERSION']} --hash=sha256:{'a' * 64}\n")
    (tmp_path / "cuda-py3.11.txt").write_text(f"#\ntriton==0.1 --hash=sha256:{'a' * 64}\n")

    found = pins.unpinned(targets, tmp_path, tmp_path / "host.txt", editor)

    assert [sentence.partition(":")[0] for sentence in found] == [
        *("docker/targets.yml", "docker/locks/cuda-py3.12-torch.txt", "docker/locks/cuda-py3.11.txt"),
        *("docker/locks/cuda-py3.11-torch.txt", ".github/host.txt", ".devcontainer/devcontainer.json"),
    ]
    assert targets["cuda"]["image"]["base"] in found[0]


@pytest.mark.parametrize(("found", "code"), [([], 0), (["docker/x: no digest"], 1)])
def test_the_check_has_an_exit_code(found, code, monkeypatch, capsys):
    """0 if everything is pinned, 1 with a line for each thing that is not."""
    monkeypatch.setattr(pins, "unpinned", lambda *_: found)

    assert pins.main(["--check"]) == code
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("not pinned: ")] == [
        f"not pinned: {sentence}" for sentence in found
    ]


def test_hooks_have_the_versions_of_the_lint_session():
    """Every package of a pre-commit hook is spelt as in pyproject.toml; another version would disagree with CI about a line."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    needed, linters = project["project"]["dependencies"], project["dependency-groups"]["lint"]
    config = yaml.safe_load((REPOSITORY / ".pre-commit-config.yaml").read_text())
    hooks = {hook["id"]: hook.get("additional_dependencies", ()) for repository in config["repos"] for hook in repository["hooks"]}
    given = [package for packages in hooks.values() for package in packages]
    typed = [wanted for wanted in linters if re.split(r"[=<>]", wanted)[0] in ("mypy", "types-docker", "types-PyYAML", "pytest")]

    assert given
    assert [package for package in given if package not in (*linters, *needed)] == []
    assert len(typed) == 4
    assert set(hooks["mypy"]) == {*needed, *typed}


# Security of the project as a whole: no shell, a cooldown for updates, what is given up is shown, a strict bill of materials.


def test_no_shell_is_started():
    texts = [path.read_text() for path in (REPOSITORY / "harness").rglob("*.py")]
    words = re.compile(r"shell|system|popen|getoutput|getstatusoutput")  # without one of them, there is nothing to find
    calls = [node for text in texts if words.search(text) for node in ast.walk(ast.parse(text))]
    named = {keyword.arg for node in calls if isinstance(node, ast.Call) for keyword in node.keywords}
    attributes = {f"{node.value.id}.{node.attr}" for node in calls if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)}

    assert calls
    assert "shell" not in named
    assert not attributes & {"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"}


def test_updates_have_a_cooldown():
    updates = yaml.safe_load((REPOSITORY / ".github" / "dependabot.yml").read_text())["updates"]

    assert {entry["package-ecosystem"] for entry in updates} >= {"github-actions", "pip"}
    assert min(entry["cooldown"]["default-days"] for entry in updates) >= 7


def test_what_is_given_up_is_said_and_shown(tmp_path, monkeypatch, capsys):
    """On standard error when the run starts; afterwards in the terminal, the Markdown and the page."""
    from warpwave import __main__ as cli
    from warpwave.options import RunOptions

    weak = record(environment=replace(record().environment, weakened=("seccomp=unconfined",)))

    def pretend(target, settings: RunOptions, *_):
        assert settings.build.weaken == ("seccomp=unconfined",)
        write_raw(settings.where.out / "raw" / target.name, run(record=weak))
        return weak

    monkeypatch.setattr("warpwave.run.run_target", pretend)
    cli._run_cli(["run", "cpu", "--weaken", "seccomp=unconfined", "--out", str(tmp_path), "--kernels", str(tmp_path)])
    said = capsys.readouterr()
    comparison = compare([run(record=weak)])
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(render_terminal(comparison))

    assert "cpu: protections given up: seccomp=unconfined" in said.err
    assert "seccomp=unconfined" in said.out
    for text in (console.export_text(), render_markdown(comparison), render_html(comparison)):
        assert "protections given up" in text
        assert "seccomp=unconfined" in text


def test_a_bill_of_materials_is_strict_cyclonedx(monkeypatch):
    """Packages of Python and of the distribution, by their purl; the subject is not among its own parts."""
    pytest.importorskip("cyclonedx", reason="only `nox -s sbom` needs it")
    monkeypatch.syspath_prepend(str(REPOSITORY / "tools"))
    import sbom
    from cyclonedx.model.component import Component, ComponentType

    subject = Component(name="warpwave", version="1", type=ComponentType.APPLICATION, bom_ref="warpwave")
    found = [["pypi", "rich", "15.0", "MIT"], ["pypi", "warpwave", "1", ""], ["deb", "libc6", "2.36-9+deb12u1", "amd64"]]
    page = json.loads(sbom.bom(subject, found))

    assert page["bomFormat"] == "CycloneDX"
    assert page["metadata"]["component"]["name"] == "warpwave"
    assert {part["purl"] for part in page["components"]} == {"pkg:pypi/rich@15.0", "pkg:deb/debian/libc6@2.36-9%2Bdeb12u1?arch=amd64"}
    sys.modules.pop("sbom")
