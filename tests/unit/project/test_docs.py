"""Links lead somewhere, paths and quoted messages are in the code, and the reference of a targets file has every key."""

import ast
import importlib.util
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from warpwave.config.targets import targets_schema

torch = pytest.importorskip("torch")


ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
CODE = ROOT / "harness" / "warpwave"
TEXTS = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "reports/README.md")),
    *sorted(DOCS.rglob("*.md")),
    *sorted((ROOT / ".github").rglob("*.md")),
]
_spec = importlib.util.spec_from_file_location("hooks", DOCS / "hooks.py")
hooks = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(hooks)


def anchors(text):
    """The names by which a page's headings are linked."""
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


def wrong_links(path, text):
    """Each link to a file or heading that is not there, each test that no file has, and each path of code that is not there."""
    wrong = []
    for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)):
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        if "://" in link or link.startswith("mailto:"):
            continue
        made = target.suffix != ".md" or "reference" in target.parts  # the headings of a reference are made from a schema
        if not target.exists() or (anchor and not made and anchor not in anchors(target.read_text())):
            wrong.append(link)
    tests = {found.name for room in ("tests", "kernels") for found in (ROOT / room).rglob("test_*.py")}
    wrong += [name for name in re.findall(r"`(test_\w+\.py)`", text) if name not in tests]
    rooms = {found.name for found in CODE.iterdir()}
    for name in re.findall(r"`((?:harness/warpwave/)?(\w+)/[\w/]*(?:\.\w+)?)`", text):
        if (name[1] in rooms or name[0].startswith("harness/")) and not any((base / name[0]).exists() for base in (CODE, ROOT)):
            wrong.append(name[0])
    return wrong


def test_every_link_leads_somewhere():
    """To a file of this repository, to a heading of it where one is named, to a test, and to code."""
    assert {str(path.relative_to(ROOT)): wrong for path in TEXTS if (wrong := wrong_links(path, path.read_text()))} == {}
    planted = "[a](none.md) [b](README.md#none) `test_none.py` `inside/none.py` `harness/warpwave/none/`"
    assert wrong_links(ROOT / "README.md", planted) == [
        "none.md",
        "README.md#none",
        "test_none.py",
        "inside/none.py",
        "harness/warpwave/none/",
    ]


def test_every_key_of_a_targets_file_is_in_the_reference():
    page = SimpleNamespace(file=SimpleNamespace(abs_src_path=str(DOCS / "reference" / "targets.md")))
    text = hooks.on_page_markdown((DOCS / "reference" / "targets.md").read_text(), page)
    keys = {key for body in json.loads(targets_schema())["$defs"].values() for key in body.get("properties", {})}
    shipped = yaml.safe_load((ROOT / "docker" / "targets.yml").read_text())

    assert [key for key in keys if f"| `{key}` |" not in text] == []
    assert {key for target in shipped["targets"].values() for key in target} <= keys


def literals():
    """Every text in the code of warpwave; a value in an f-string is `…`."""
    for path in CODE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_every_message_of_the_troubleshooting_page_is_in_the_code():
    """A heading quotes messages of ours, with `…` for what differs. What stands behind `from` is another program's."""
    heads = re.findall(r"^### (.*)$", (DOCS / "troubleshooting.md").read_text(), re.MULTILINE)
    quoted = [message for head in heads for message in re.findall(r"`([^`]+)`", re.split(r"\b[Ff]rom\b", head)[0])]
    texts = set(literals())

    assert len(quoted) > 30
    wanted = {message: re.compile(".*".join(re.escape(part.strip()) for part in message.split("…"))) for message in quoted}
    assert [message for message, pattern in wanted.items() if not any(map(pattern.search, texts))] == []
