"""Security of the project as a whole: no shell, a cooldown for updates, what is given up is shown, a strict bill of materials."""

import ast
import io
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from rich.console import Console
from synthetic import record, run, write_raw

from warpwave.compare import compare
from warpwave.render.html import render_html
from warpwave.render.markdown import render_markdown
from warpwave.render.terminal import render_terminal

REPOSITORY = Path(__file__).parents[3]


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
    assert {part["purl"] for part in page["components"]} == {
        "pkg:pypi/rich@15.0",
        "pkg:deb/debian/libc6@2.36-9%2Bdeb12u1?arch=amd64",
    }
    sys.modules.pop("sbom")
