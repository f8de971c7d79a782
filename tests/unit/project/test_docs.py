"""The documentation's generated parts, its links, and the files and tests that it names. (`nox -s docs` follows the other links.)"""

from __future__ import annotations

import ast
import importlib.util
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from harness.config.targets import targets_schema

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
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


TEXTS = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "reports/README.md")),
    *sorted(DOCS.rglob("*.md")),
    *sorted((ROOT / ".github").rglob("*.md")),
]
ROOMS = ("harness", "tests", "tools", "kernels", "docker", "docs", "starter", "reports", ".github", ".ci")
FILES = [path.relative_to(ROOT).as_posix() for room in ROOMS for path in (ROOT / room).rglob("*") if "__pycache__" not in path.parts]
FILES += [path.name for path in ROOT.iterdir()]
# A module that a hostile package leaves behind, and a name that every package of Python has.
NO_FILES = {"json.py", "__init__.py"}


def wrong_names(text):
    """Each name of a Python file in backticks that no file's path ends with, and each path from the root that leads nowhere."""
    bare = {name for name in re.findall(r"`([\w./-]+\.py)\b", text) if name not in NO_FILES}
    wrong = {name for name in bare if not any(f"/{path}".endswith(f"/{name}") for path in FILES)}
    rooted = re.findall(r"(?<![\w./-])((?:harness|tests|tools)/[\w./-]*(?:\.\w+|/))", text)
    return sorted(wrong | {path for path in rooted if not (ROOT / path).exists()})


def wrong_tests(text):
    """Each `test_x.py::test_y` of which the file, or the function in it, does not exist."""
    wrong = []
    for file, name in re.findall(r"(test_\w+\.py)::(\w+)", text):
        trees = [ast.parse((ROOT / path).read_text()) for path in FILES if path.endswith(f"/{file}")]
        if name not in {node.name for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)}:
            wrong.append(f"{file}::{name}")
    return wrong


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_and_test_that_a_text_names_exists(path):
    """A module or a test that was moved or renamed fails here until every text follows."""
    # The table of strangers is generated, and names their files.
    text = re.sub(r"<!-- begin: .*?<!-- end: ", "", path.read_text(), flags=re.DOTALL)

    assert wrong_names(text) + wrong_tests(text) == []


def test_a_name_that_leads_nowhere_is_found():
    """Or the test above could not fail."""
    text = "`harness/no/such.py` `such.py` tests/unit/nowhere/ `outline.py` `test_docs.py::test_no_such` harness/render/"

    assert wrong_names(text) == ["harness/no/such.py", "such.py", "tests/unit/nowhere/"]
    assert wrong_tests(text) == ["test_docs.py::test_no_such"]


def test_every_room_is_on_the_page_of_the_architecture():
    """A folder of the harness that the page does not name cannot be found by its name."""
    page = (DOCS / "architecture.md").read_text()
    rooms = {path.parent.relative_to(ROOT / "harness").as_posix() for path in (ROOT / "harness").rglob("*/__init__.py")}

    assert sorted(room for room in rooms if f"`{room}/`" not in page) == []


RIDDLES = re.compile(r"\b(mend(s|ed|ing)?|whoever|somebody|unless told|is told|are told)\b", re.IGNORECASE)


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_text_goes_back_to_words_that_readers_stumble_over(path):
    """The plain words are in CONTRIBUTING.md, whose left column shows what they replace."""
    text = path.read_text().partition("## Write plain English")[0]

    assert [line for line in text.splitlines() if RIDDLES.search(line)] == []


def test_the_glossary_has_each_word_once():
    """One word, one meaning; and the words that a report marks numbers with are among them."""
    words = re.findall(r"^\| ([^|]+?) \|", (DOCS / "architecture.md").read_text().partition("## Glossary")[2], re.MULTILINE)

    assert len(words) == len(set(words))
    assert {"card", "target", "point", "case", "verdict", "weak", "noisy", "late", "refused", "bundle", "raw folder"} <= set(words)


def test_the_changelog_has_one_line_a_change():
    """An entry that needs a second line is a paragraph: it has a reason that belongs into the docs, or is two changes."""
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    entries = [line for line in lines if line.startswith("- ")]

    assert [line for line in lines if line.startswith(" ") or len(line) > 140] == []
    assert len(set(entries)) == len(entries) > 300
