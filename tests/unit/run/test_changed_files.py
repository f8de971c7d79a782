"""Which tests a change touches: by imports as the sources say, by conftest.py files and settings above, by data that a module names."""

import shutil
import subprocess
from pathlib import Path

import pytest

from warpwave.run.choice import ImportGraph, changed_files, python_files, touched
from warpwave.run.target import commit_of

FILES = {
    "src/ops/__init__.py": "from .add import add",
    "src/ops/add.py": "",
    "src/ops/mul.py": "from . import utils\nfrom ..ops import add",
    "src/ops/utils.py": "",
    "src/ops/lazy.py": "def f():\n    import importlib\n    return importlib.import_module('.utils', __package__)",
    "src/ops/deep/__init__.py": "",
    "src/ops/deep/norm.py": "TABLE = open('table.json')",
    "src/ops/deep/table.json": "{}",
    "src/ops/deep/other.bin": "",
    "src/alone.py": "",
    "src/broken.py": "def (",
    "tests/conftest.py": "pytest_plugins = ['plugged']\nimport helpers",
    "tests/helpers.py": "",
    "tests/plugged.py": "",
    "tests/test_top.py": "import ops",
    "tests/test_mul.py": "from ops.mul import mul",
    "tests/test_lazy.py": "import ops.lazy as lazy",
    "tests/unit/conftest.py": "",
    "tests/unit/test_norm.py": "import ops.deep.norm, helpers",
    "tests/unit/test_star.py": "from alone import *",
    "tests/unit/test_hack.py": "import sys; sys.path.append('../../tools')\nimport measure",
    "tests/unit/pytest.ini": "[pytest]",
    "tests/test_plain.py": "import os, torch.nn",
    "clash.py": "",
    "tests/clash.py": "",
    "tests/test_clash.py": "import clash",
    "tools/measure.py": "",
    "bench_mul.py": "from ops import mul",
    ".venv/site.py": "",
    "build/copy.py": "",
    "README.md": "",
    "pyproject.toml": "",
}
ALL = ["mul", "top", "lazy", "norm", "star", "hack", "plain", "clash"]
# What has changed → the tests that it touches; `bench` is the benchmark.
TOUCHED = {
    "src/ops/add.py": ["mul", "top", "lazy", "norm", "bench"],  # `import ops.x` runs `ops/__init__.py`, which imports it
    "src/ops/mul.py": ["mul", "bench"],
    "src/ops/utils.py": ["mul", "lazy", "bench"],
    "src/ops/deep/norm.py": ["norm"],
    "src/ops/deep/__init__.py": ["norm"],
    "src/ops/deep/table.json": ["norm"],  # a module names it
    "src/ops/deep/other.bin": ["norm"],  # nobody names it: whatever is beside it
    "src/ops/new.txt": ["mul", "top", "lazy", "norm", "bench"],
    "src/alone.py": ["star"],
    "src/broken.py": [],
    "src/deleted.py": [],
    "clash.py": ["clash"],  # which of the two it is depends on the order of the path
    "tests/clash.py": ["clash"],
    "tests/helpers.py": ALL,
    "tests/plugged.py": ALL,
    "tests/conftest.py": ALL,
    "tests/unit/conftest.py": ["norm", "star", "hack"],
    "tests/unit/pytest.ini": ["norm", "star", "hack"],
    "tests/unit/test_norm.py": ["norm"],
    "tools/measure.py": ["hack"],
    "pyproject.toml": [*ALL, "bench"],
    "requirements-test.txt": [*ALL, "bench"],
    "bench_mul.py": ["bench"],
    "README.md": [],
    ".github/workflows/x.yml": [],
}


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A package with its modules in src/, tests in two folders and one bench."""
    root = tmp_path_factory.mktemp("package")
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def _wanted(root):
    return [path for path in python_files(root) if path.rpartition("/")[2].startswith(("test_", "bench_"))]


@pytest.mark.parametrize("changed", TOUCHED)
def test_a_change_touches_what_needs_it(package, changed):
    graph = ImportGraph(package, {*python_files(package), changed} if changed.endswith(".py") else python_files(package), (".", "src"))
    found = touched(graph, _wanted(package), [changed])
    names = ["bench" if path == "bench_mul.py" else path.rpartition("test_")[2].removesuffix(".py") for path in found.reasons]

    assert sorted(names) == sorted(TOUCHED[changed])
    assert found.without_effect == (() if names else (changed,))


def test_a_deleted_module_touches_those_that_still_import_it(package):
    """They fail now."""
    (package / "tests" / "test_gone.py").write_text("from ops import gone")
    graph = ImportGraph(package, {*python_files(package), "src/ops/gone.py"}, (".", "src"))
    found = touched(graph, _wanted(package), ["src/ops/gone.py"])
    (package / "tests" / "test_gone.py").unlink()

    assert found.reasons == {"tests/test_gone.py": "needs src/ops/gone.py"}


def test_reasons_name_what_has_changed(package):
    graph = ImportGraph(package, python_files(package), (".", "src"))
    changed = ["src/alone.py", "tests/test_mul.py", "src/ops/deep/table.json", "tests/unit/pytest.ini"]

    assert touched(graph, _wanted(package), changed).reasons == {
        "tests/test_mul.py": "it has changed",
        "tests/unit/test_hack.py": "tests/unit/pytest.ini governs it",
        "tests/unit/test_norm.py": "src/ops/deep/norm.py, which it needs, may read src/ops/deep/table.json",
        "tests/unit/test_star.py": "needs src/alone.py",
    }


# git asks about a stranger's folder and starts nothing that the folder names.


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    root.mkdir()
    (root / "test_one.py").write_text("def test_one(): pass\n")
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one"]):
        subprocess.run(["git", *words], cwd=root, check=True)
    return root


@pytest.mark.parametrize("key", ["core.fsmonitor", "filter.x.clean", "filter.x.process"])
def test_no_program_of_the_settings_runs(repository: Path, tmp_path: Path, key: str):
    subprocess.run(["git", "config", key, f"touch {tmp_path}/marker; cat"], cwd=repository, check=True)
    (repository / ".gitattributes").write_text("*.py filter=x\n")
    (repository / "test_one.py").write_text("def test_two(): pass\n")

    assert commit_of(repository).endswith("+")
    assert not (tmp_path / "marker").exists()


def test_a_bare_repository_inside_has_no_commit(repository: Path):
    package = repository / "package"
    shutil.copytree(repository / ".git", package)

    assert commit_of(package) == ""
    assert commit_of(repository) != ""


def git(*words: str, at: Path) -> None:
    subprocess.run(["git", "-c", "protocol.file.allow=always", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=at, check=True)


def test_a_bare_repository_that_points_to_another_has_no_commit(repository: Path):
    """`commondir` says where its objects and settings are."""
    package = repository / "package"
    package.mkdir()
    shutil.copy(repository / ".git" / "HEAD", package)
    (package / "commondir").write_text("../.git\n")

    assert commit_of(package) == ""


def test_work_trees_and_submodules_of_ones_own_have_their_commit(repository: Path, tmp_path: Path):
    git("worktree", "add", "-q", str(tmp_path / "tree"), at=repository)
    git("init", "-q", "outer", at=tmp_path)
    git("submodule", "--quiet", "add", str(repository), "sub", at=tmp_path / "outer")

    assert commit_of(tmp_path / "tree") == commit_of(repository) != ""
    assert commit_of(tmp_path / "outer" / "sub") == commit_of(repository)


@pytest.mark.parametrize("how", ["file", "file of a work tree", "file inside", "link", "commondir", "linked objects"])
def test_what_leads_to_a_repository_elsewhere_has_no_commit(repository: Path, tmp_path: Path, how: str):
    """A package that came as an archive can have it. The commit would be that of a private repository, or its settings the stranger's."""
    package = tmp_path / "package"
    package.mkdir()
    dot = package / ".git"
    if how == "file":
        dot.write_text(f"gitdir: {repository / '.git'}\n")
    elif how == "file of a work tree":
        git("worktree", "add", "-q", str(tmp_path / "tree"), at=repository)
        dot.write_text(f"gitdir: {repository / '.git/worktrees/tree'}\n")
    elif how == "file inside":
        shutil.copytree(repository / ".git", package / "x" / ".git" / "modules" / "y")
        git("config", "--file", str(package / "x/.git/modules/y/config"), "core.worktree", str(package), at=package)
        dot.write_text("gitdir: x/.git/modules/y\n")
    elif how == "link":
        dot.symlink_to(repository / ".git")
    else:
        shutil.copytree(repository / ".git", dot)
        shutil.rmtree(dot / "objects")
        if how == "commondir":
            (dot / "commondir").write_text(f"{repository / '.git'}\n")
        else:
            (dot / "objects").symlink_to(repository / ".git" / "objects")

    assert commit_of(package) == ""


@pytest.mark.parametrize("how", ["include", "conditional include", "settings of the work tree", "alternates"])
def test_settings_from_elsewhere_start_nothing_either(repository: Path, tmp_path: Path, how: str):
    program = f"touch {tmp_path}/marker; cat"
    settings = f'[core]\n fsmonitor = "{program}"\n[filter "x"]\n clean = "{program}"\n process = "{program}"\n required = true\n'
    (tmp_path / "settings").write_text(settings)
    if how == "include":
        git("config", "include.path", str(tmp_path / "settings"), at=repository)
    elif how == "conditional include":
        git("config", f"includeIf.gitdir:{repository}/.path", str(tmp_path / "settings"), at=repository)
    elif how == "settings of the work tree":
        git("config", "extensions.worktreeConfig", "true", at=repository)
        (repository / ".git" / "config.worktree").write_text(settings)
    else:
        (repository / ".git" / "objects").rename(tmp_path / "objects")
        (repository / ".git" / "objects" / "info").mkdir(parents=True)
        (repository / ".git" / "objects" / "info" / "alternates").write_text(f"{tmp_path / 'objects'}\n")
        git("config", "core.alternateRefsCommand", program, at=repository)
    (repository / ".gitattributes").write_text("*.py filter=x\n")
    (repository / "test_one.py").write_text("def test_two(): pass\n")

    assert commit_of(repository).endswith("+")
    assert not (tmp_path / "marker").exists()


def test_a_change_asks_no_submodule(repository: Path, tmp_path: Path):
    """Its settings say what runs when git looks into it, and `.gitmodules` could ask git to look."""
    git("init", "-q", "outer", at=tmp_path)
    outer = tmp_path / "outer"
    git("submodule", "--quiet", "add", str(repository), "sub", at=outer)
    git("config", "--file", ".gitmodules", "submodule.sub.ignore", "none", at=outer)
    git("add", ".", at=outer)
    git("commit", "-qm", "one", at=outer)
    git("config", "core.fsmonitor", f"touch {tmp_path}/marker; cat", at=outer / "sub")
    (outer / "sub" / "test_one.py").write_text("def test_two(): pass\n")

    assert changed_files(outer, "HEAD").files == ()
    assert not commit_of(outer).endswith("+")
    assert not (tmp_path / "marker").exists()
