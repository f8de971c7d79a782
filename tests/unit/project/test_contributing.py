"""What contributors' tools read agrees with the project: hooks with `nox -s lint`, templates with GitHub's schemas, editors with ruff."""

from __future__ import annotations

import ast
import configparser
import json
import re
import sys
from pathlib import Path

import pytest
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
FORMS = sorted(path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")


def lint_calls():
    """The commands of `nox -s lint`, as far as they are written out."""
    body = next(node for node in ast.parse((ROOT / "noxfile.py").read_text()).body if getattr(node, "name", "") == "lint")
    runs = [node for node in ast.walk(body) if isinstance(node, ast.Call) and ast.unparse(node.func) == "session.run"]
    return [[argument.value for argument in run.args if isinstance(argument, ast.Constant)] for run in runs]


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


def test_every_linter_of_the_lint_session_is_a_hook():
    """With the same arguments, but for `.`: a hook gets the files of the commit."""
    entries = [hook["entry"].split() for hook in HOOKS.values()]
    for call in lint_calls():
        words = [word for word in call if word != "--check" and (word != "." or call[0] == "zizmor")]
        if words[0] == "check-jsonschema":
            continue
        assert [entry for entry in entries if [word for word in entry if word != "--force-exclude"] == words], call
    schemas = set(re.findall(r'"((?:github-workflows|github-actions|dependabot))"', (ROOT / "noxfile.py").read_text()))
    assert {entry[-1] for entry in entries if entry[0] == "check-jsonschema"} == {f"vendor.{schema}" for schema in schemas}


@pytest.mark.parametrize(
    ("message", "good"),
    [
        ("Name the fix", True),
        ("Name the fix\n\nThe reason.\n", True),
        ("Name the fix\n# Please enter the commit message\n", True),
        ("x" * 72, True),
        ("x" * 73, False),
        ("Name the fix\nThe reason.\n", False),
        ("Name the fix\n\n" + "x" * 100, True),
    ],
)
def test_a_commit_has_a_short_subject(message, good):
    """pre-commit refuses a message in which this pattern is found."""
    hook = HOOKS["commit-subject"]

    assert hook["args"] == ["--multiline"]
    assert (re.search(hook["entry"], message, re.MULTILINE | re.DOTALL) is None) == good


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_an_issue_form_is_one(path):
    """GitHub shows no form that lacks one of these."""
    form = yaml.safe_load(path.read_text())
    asked = [entry for entry in form["body"] if entry["type"] != "markdown"]

    assert {"name", "description", "body"} <= set(form)
    assert {entry["type"] for entry in form["body"]} <= {"markdown", "textarea", "input", "dropdown", "checkboxes"}
    assert len({entry["id"] for entry in asked}) == len(asked)
    assert all(entry["attributes"]["label"] for entry in asked)


def test_nobody_is_invented():
    """An owner of files is the documented placeholder until the repository names somebody."""
    text = (ROOT / ".github" / "CODEOWNERS").read_text()
    owned = [line.split() for line in text.splitlines() if line and not line.startswith("#")]

    assert {owner for _, *owners in owned for owner in owners} == {"@OWNER/maintainers"}
    assert "`@OWNER/maintainers` is a placeholder" in text
    assert [path for path, *_ in owned if path != "*" and not (ROOT / path.strip("/")).exists()] == []


def test_editors_and_containers_agree_with_the_project():
    """The line length is ruff's, the Python of the devcontainer one that the project takes."""
    editor = configparser.ConfigParser()
    editor.read_string("[root]\n" + (ROOT / ".editorconfig").read_text())
    text = (ROOT / ".devcontainer" / "devcontainer.json").read_text()
    container = json.loads("\n".join(line for line in text.splitlines() if not line.startswith("//")))

    assert editor["*"]["max_line_length"] == str(PROJECT["tool"]["ruff"]["line-length"])
    assert re.search(r"python:3\.1[0-9]-", container["image"])
