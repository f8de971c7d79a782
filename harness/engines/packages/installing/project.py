"""What a package's own files say of it, without running them."""

from __future__ import annotations

import ast
import configparser
import re
import sysconfig
import zipfile
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

from .requirements import in_extra, name_of

_EXTRAS = ("test", "tests", "testing", "dev")
_TOOLS = re.compile(
    r"pytest-(xdist|cov|forked|randomly|rerunfailures)|pre-commit|ruff|black|isort|flake8.*|pylint|mypy.*|pyright|yapf|autopep8|coverage|codecov|"
    r"nox|tox.*|build|twine|wheel|setuptools.*|pip.*|uv|hatch.*|poetry.*|sphinx.*|furo|mkdocs.*|jupyter.*|notebook|ipython|ipykernel|bump.*|"
    r"clang-format|cmake.*|ninja|vllm|deepspeed|.*flash-attn.*|causal-conv1d|wandb|gpustat"
)


def is_installable(tree: Path) -> bool:
    """Return whether there is something to install: a build script, or settings of a build."""
    if (tree / "setup.py").is_file():
        return True
    project = read_toml(tree / "pyproject.toml")
    return bool(project.get("project") or project.get("build-system") or project.get("tool", {}).get("poetry")) or "metadata" in read_ini(
        tree
    )


def declared(tree: Path) -> list[str]:
    """Return what a package's files say that it needs, without running them."""
    project = read_toml(tree / "pyproject.toml").get("project", {})
    if isinstance(project.get("dependencies"), list):
        return [str(line) for line in project["dependencies"]]
    if lines := read_ini(tree).get("options", {}).get("install_requires", "").split("\n"):
        found = [line.strip() for line in lines if line.strip()]
        if found:
            return found
    return _of_setup(tree / "setup.py") or listed(tree / "requirements.txt")


def _of_setup(script: Path) -> list[str]:
    """Return the `install_requires` of a setup.py, if it is a list, or the name of one, that can be read without running it."""
    try:
        module = ast.parse(script.read_text(encoding="utf-8", errors="replace"))
    except (OSError, SyntaxError, ValueError):
        return []
    named = {
        node.targets[0].id: node.value
        for node in ast.walk(module)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for node in ast.walk(module):
        if isinstance(node, ast.keyword) and node.arg == "install_requires":
            value = named.get(node.value.id, node.value) if isinstance(node.value, ast.Name) else node.value
            entries = value.elts if isinstance(value, (ast.List, ast.Tuple)) else []
            return [entry.value for entry in entries if isinstance(entry, ast.Constant) and isinstance(entry.value, str)]
    return []


def listed(file: Path) -> list[str]:
    """Return the packages in a requirements file; nothing if it is missing."""
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if file.is_file() else []
    found = [re.sub(r"(^|\s)#.*", "", line).strip() for line in lines]
    return [line for line in found if line and not line.startswith("-") and name_of(line)]


def wheel_requires(wheel: Path) -> list[str]:
    """Return what a wheel's metadata says that it needs."""
    with zipfile.ZipFile(wheel) as archive:
        file = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return HeaderParser().parsestr(archive.read(file).decode("utf-8", "replace")).get_all("Requires-Dist") or []


def helpers_of(tree: Path, wheel: Path | None) -> list[str]:
    """Return what the package's tests may need: its extras and groups for tests and development, without linters and other tools."""
    found = [line for line in wheel_requires(wheel) if "extra" in line] if wheel else []
    lines = [alone for line in found for name in _EXTRAS if (alone := in_extra(line, name))]
    project = read_toml(tree / "pyproject.toml")
    if not wheel:
        extras = project.get("project", {}).get("optional-dependencies", {})
        lines += [str(line) for name in _EXTRAS for line in extras.get(name, ())]
    groups = project.get("dependency-groups", {})
    lines += [line for name in _EXTRAS for line in groups.get(name, ()) if isinstance(line, str)]
    return [line for line in dict.fromkeys(lines) if not _TOOLS.fullmatch(name_of(line))]


def leave_metadata(tree: Path, name: str, version: str) -> None:
    """Write the name and version of a package that could not be built, because packages ask for their own version."""
    project = read_toml(tree / "pyproject.toml").get("project", {})
    name = name or project.get("name")
    if isinstance(name, str):
        found = project.get("version") or version or "0"
        folder = Path(sysconfig.get_paths()["purelib"], f"{re.sub('[-_.]+', '_', name)}-{found}.dist-info")
        folder.mkdir(exist_ok=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {found}\n")
        (folder / "INSTALLER").write_text("warpwave\n")
        (folder / "RECORD").write_text("")


def read_toml(file: Path) -> dict[str, Any]:
    """Return a TOML file as tables; empty if it is missing or is not valid."""
    try:
        import tomllib
    except ImportError:  # Python 3.10
        from pip._vendor import tomli as tomllib  # type: ignore[no-redef,import-not-found,unused-ignore]
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def read_ini(tree: Path) -> dict[str, dict[str, str]]:
    """Return the sections of a package's `setup.cfg`; empty if it is missing or is not valid."""
    parser = configparser.ConfigParser(interpolation=None, strict=False, allow_no_value=True)
    try:
        parser.read_string((tree / "setup.cfg").read_text(encoding="utf-8"))
    except (OSError, ValueError, configparser.Error):
        return {}
    return {section: {key: value or "" for key, value in parser[section].items()} for section in parser.sections()}
