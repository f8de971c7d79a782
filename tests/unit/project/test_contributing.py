"""The linters of the pre-commit hooks have the versions of `nox -s lint`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import yaml

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LINTERS = {re.split(r"[=<>]", wanted)[0]: wanted for wanted in PROJECT["dependency-groups"]["lint"]}
CONFIG = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
HOOKS = {hook["id"]: hook for repository in CONFIG["repos"] for hook in repository["hooks"]}


def test_hooks_have_the_versions_of_the_lint_session():
    """Every package of a hook is spelt as in pyproject.toml; another version would disagree with CI about a line."""
    wanted = {*PROJECT["dependency-groups"]["lint"], *PROJECT["project"]["dependencies"]}
    given = [package for hook in HOOKS.values() for package in hook.get("additional_dependencies", ())]

    assert given
    assert [package for package in given if package not in wanted] == []
    assert set(HOOKS["mypy"]["additional_dependencies"]) == {
        *PROJECT["project"]["dependencies"],
        *(LINTERS[name] for name in ("mypy", "types-docker", "types-PyYAML", "pytest")),
    }
