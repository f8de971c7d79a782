"""Build the package. If that fails, as without a GPU's toolkit, find out at least what it needs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from .calls import FailedError, run_pip
from .project import declared, is_installable, leave_metadata, listed, read_toml, wheel_requires
from .requirements import is_protected, name_of

_BUILD_LIMIT_S = 1800
_DESCRIBE_LIMIT_S = 300


def build(plan: Path, about: dict[str, Any], scratch: Path, locked: bool, notes: list[str]) -> tuple[Path | None, list[str]]:
    """Build the package's wheel from the copy. Return it with what it needs; without a wheel, with what the package says that it needs."""
    tree, name = plan / "package", about["name"]
    if not is_installable(tree):
        notes.append(f"{name} has no project file, so nothing of it was installed; its modules are imported from its folder")
        return None, listed(tree / "requirements.txt")
    variables: dict[str, str] = {}
    try:
        if about["left_out"]:
            raise FailedError(about["left_out"])
        variables = _tools(plan, tree, scratch / "tools", about["version"], locked)
        wheel = _wheel(plan, tree, scratch / "wheel", variables)
        return wheel, wheel_requires(wheel)
    except FailedError as error:
        found = _described(plan, tree, scratch / "described.json", variables)
        needed = found["requires_dist"] or declared(tree)
        then = (
            "its declared dependencies are installed"
            if needed
            else "it declares no dependency that can be read: name what it needs with --with or --requirements"
        )
        notes.append(f"{name} could not be built ({error}); its Python files are used from its folder, and {then}")
        leave_metadata(tree, found["name"], found["version"] or about["version"])
        return None, needed


def _tools(plan: Path, tree: Path, tools: Path, version: str, locked: bool) -> dict[str, str]:
    """Install what the build needs, and return its variables.

    Without pip's isolation, which would download another torch for a package that needs torch to be built.
    """
    requires = read_toml(tree / "pyproject.toml").get("build-system", {}).get("requires", ["setuptools>=40.8", "wheel"])
    wanted = [line for line in requires if not is_protected(name_of(line))]
    if wanted and not locked:  # a locked installation takes nothing that is not locked
        run_pip(plan, "install", "--target", str(tools), *wanted)
    path = f"{tools}{os.pathsep}{tree}"  # some builds import their own helpers
    more = {"PYTHONPATH": path, "PATH": f"{tools}/bin{os.pathsep}{os.environ.get('PATH', '')}"}
    return more | (dict.fromkeys(("SETUPTOOLS_SCM_PRETEND_VERSION", "PBR_VERSION"), version) if version else {})


def _wheel(plan: Path, tree: Path, out: Path, variables: dict[str, str]) -> Path:
    words = ["--no-deps", "--no-build-isolation", "--wheel-dir", str(out), str(tree)]
    run_pip(plan, "wheel", *words, limit_s=_BUILD_LIMIT_S, **variables)
    found = sorted(out.glob("*.whl"))
    if not found:
        raise FailedError("the build made no wheel")
    return found[0]


def _described(plan: Path, tree: Path, report: Path, variables: dict[str, str]) -> dict[str, Any]:
    """Return what the build script says of the package where it builds nothing: many compute their dependencies. Empty if it fails, too."""
    metadata: dict[str, Any] = {}
    if variables:
        words = ["--dry-run", "--quiet", "--no-deps", "--no-build-isolation", "--report", str(report), str(tree)]
        try:
            run_pip(plan, "install", *words, limit_s=_DESCRIBE_LIMIT_S, **variables)
            metadata = json.loads(report.read_text())["install"][0]["metadata"]
        except (FailedError, OSError, ValueError, LookupError):
            metadata = {}
    return {"name": "", "version": "", "requires_dist": [], **metadata}
