"""mkdocs hooks: references written from the code, and links to files of the repository that a site does not have."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

from warpwave.config.targets import targets_schema

ROOT = Path(__file__).resolve().parents[1]
_GENERATED = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)
_HEADING = re.compile(r"^#(?=##+ )", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+[^)#]+)(#[^)]*)?\)")
_SCHEMAS = {
    "targets": targets_schema,
    "comparison": lambda: (ROOT / "harness" / "warpwave" / "schemas" / "comparison.schema.json").read_text(encoding="utf-8"),
}


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Fill in what is generated, and turn a link out of `docs/` into the name of the file, which has to exist."""
    folder = Path(page.file.abs_src_path).parent
    markdown = _GENERATED.sub(lambda found: describe(json.loads(_SCHEMAS[found[1]]())), markdown)
    if not re.search(r"^##? ", markdown, re.MULTILINE):  # a report as it was printed; the theme adds a title above its `###`
        markdown = _HEADING.sub("", markdown)
    return _LINK.sub(lambda link: _inside(link, folder), markdown)


def on_page_content(content: str, **_: Any) -> str:
    """Make the empty corner of a table a cell: a head without a name says nothing to a screen reader.

    mkdocs-click's tables print click's object for a missing default, `Sentinel.UNSET`. Such a page is refused: use `:style: plain`.
    """
    if "Sentinel.UNSET" in content:
        raise ValueError("a page prints Sentinel.UNSET, which is no default: use `:style: plain` with mkdocs-click")
    return re.sub(r"<th[^>]*></th>", "<td></td>", content)


def _inside(link: re.Match[str], folder: Path) -> str:
    path = (folder / link[2]).resolve()
    if path.is_relative_to(ROOT / "docs"):
        return link[0]
    if not path.exists():
        raise FileNotFoundError(f"{folder}: {link[0]} leads nowhere")
    return f"{link[1]} (`{path.relative_to(ROOT)}` in the repository)" if link[1].strip("`") != path.name else f"`{path.relative_to(ROOT)}`"


def describe(schema: dict[str, Any]) -> str:
    """A JSON schema as a page: the top level, then each definition, a table each."""
    definitions = schema.get("$defs", {})
    top = {key: value for key, value in schema.items() if key != "$defs"}
    return "\n".join(_table(name, body) for name, body in {schema.get("title", "Top level"): top, **definitions}.items())


def _table(name: str, body: dict[str, Any]) -> str:
    text = f"\n## {name.lstrip('_')}\n\n{_own(body.get('description', ''))}\n"
    if "enum" in body:
        return f"{text}\nOne of {', '.join(f'`{value}`' for value in body['enum'])}.\n"
    required = body.get("required", [])
    rows = [
        f"| `{key}` | {_kind(value)} | {'required' if key in required else _default(value)} |"
        for key, value in body.get("properties", {}).items()
    ]
    return "\n".join([text, "| key | type | default |", "|---|---|---|", *rows, ""]) if rows else text


def _kind(value: dict[str, Any]) -> str:
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2].lstrip("_")
        return f"[{name}](#{name.lower()})"
    if "anyOf" in value:
        return " or ".join(_kind(option) for option in value["anyOf"])
    if "const" in value or "enum" in value:
        return ", ".join(f"`{option}`" for option in value.get("enum", [value.get("const")]))
    if "allOf" in value:
        return _kind(value["allOf"][0])
    inner = value.get("items") or value.get("additionalProperties")
    if isinstance(inner, dict) and inner:
        return f"{'list' if value.get('type') == 'array' else 'mapping'} of {_kind(inner)}"
    return {"array": "list", "object": "mapping", "null": "none"}.get(value.get("type", ""), value.get("type", "anything"))


def _default(value: dict[str, Any]) -> str:
    return f"`{json.dumps(value['default'])}`" if "default" in value else "empty"


def _own(text: str) -> str:
    """A docstring's words: its paragraphs, with nothing in them that Markdown would take for HTML."""
    return html.escape(text, quote=False)
