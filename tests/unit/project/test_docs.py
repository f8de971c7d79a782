"""The documentation's generated parts, and its links into the repository. (`nox -s docs` builds the site and follows the others.)"""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from harness.targets import targets_schema

DOCS = Path(__file__).parents[3] / "docs"
_spec = importlib.util.spec_from_file_location("hooks", DOCS / "hooks.py")
hooks = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(hooks)


def rendered(name):
    page = SimpleNamespace(file=SimpleNamespace(abs_src_path=str(DOCS / name)))
    return hooks.on_page_markdown((DOCS / name).read_text(), page)


def test_every_key_of_a_targets_file_is_in_the_reference():
    """Those in use, those of every type, and what each type is for."""
    page = rendered("reference/targets.md")
    schema = json.loads(targets_schema())
    keys = {key for body in schema["$defs"].values() for key in body.get("properties", {})}
    shipped = yaml.safe_load((DOCS.parent / "docker" / "targets.yml").read_text())

    assert [key for key in keys if f"| `{key}` |" not in page] == []
    assert {key for target in shipped["targets"].values() for key in target} <= keys
    assert "Patterns" in page or "glob patterns" in page
    assert "<!-- generated" not in page


def test_every_type_that_a_table_points_to_is_on_the_page():
    """No anchor of a reference leads nowhere."""
    for name in ("reference/targets.md", "reference/comparison.md"):
        page = rendered(name)
        heads = {head.lower() for head in re.findall(r"^## (\w+)$", page, re.MULTILINE)}

        assert heads
        assert set(re.findall(r"\]\(#(\w+)\)", page)) <= heads


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.md")), ids=lambda path: str(path.relative_to(DOCS)))
def test_a_link_into_the_repository_names_a_file(path):
    """A site has only `docs/`, so the link becomes the file's name; one that leads nowhere is an error."""
    page = rendered(str(path.relative_to(DOCS)))

    assert re.findall(r"\]\(\.\./(?:\.\./)?harness", page) == []


def test_a_link_that_leads_nowhere_is_an_error():
    """Or the test above could not fail."""
    page = SimpleNamespace(file=SimpleNamespace(abs_src_path=str(DOCS / "x.md")))
    with pytest.raises(FileNotFoundError, match="nowhere"):
        hooks.on_page_markdown("[x](../harness/no_such.py)", page)


def test_every_page_is_in_the_navigation():
    """A page that nobody finds is none."""
    text = (DOCS.parent / "mkdocs.yml").read_text()
    named = set(re.findall(r": ([\w/-]+\.md)$", text, re.MULTILINE))

    assert named == {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}


def test_every_link_of_the_readme_leads_somewhere():
    """To a file of this repository, and to a heading of it where one is named."""
    text = (DOCS.parent / "README.md").read_text()
    links = [link.partition("#") for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    wrong = [path for path, _, _ in links if not (DOCS.parent / path).exists()]
    for path, _, anchor in links:
        heads = re.findall(r"^#+ (.+)$", (DOCS.parent / path).read_text(), re.MULTILINE) if anchor else []
        names = {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}
        wrong += [f"{path}#{anchor}"] if anchor and anchor not in names else []

    assert len(links) > 10
    assert wrong == []
