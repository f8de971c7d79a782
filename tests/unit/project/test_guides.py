"""What the guides show is written, checked and run, page by page, in an empty folder.

A fence with a `title` is a file, unless it is a console whose title says on which other machine its commands belong: those are not run. A
`diff` with a title changes that file. A console without a title is run, each line that starts with `$ `. Other lines of it are a part of
what the command before them prints; `exit code 1: …` says with which code it ends. Fences of YAML, TOML, JSON and Python have to parse.
"""

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import click
import command
import pytest
import yaml
from engine_requests import ask
from recorded import recorded
from slow_cases import slow_but

from warpwave.__main__ import cli
from warpwave.config.targets import load_targets
from warpwave.engines.docker.images import recipe

ROOT = Path(__file__).parents[3]
GUIDES = {path.stem: path for path in sorted((ROOT / "docs" / "guides").glob("*.md"))}
PAGES = {**GUIDES, **{name: ROOT / "docs" / f"{name}.md" for name in ("index", "tutorial", "report", "compare")}}
EVERY = {str(path.relative_to(ROOT)): path for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))}
FENCE = re.compile(r"^```(\w+)(?: title=\"([^\"]*)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What a report of the recorded run ends with.
RECORDED = json.loads((recorded() / "comparison.json").read_text())["exit_code"]
PARSERS = {"yaml": lambda text: list(yaml.safe_load_all(text)), "json": json.loads, "python": ast.parse}


@dataclass(frozen=True)
class Fence:
    language: str
    title: str
    text: str

    @property
    def commands(self) -> dict[str, list[str]]:
        """What is typed here, each with the lines that the page shows of its output."""
        if self.language != "console" or self.title:
            return {}
        typed = re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]
        return {line: shown for line, *shown in (part.splitlines() for part in typed)}

    def write(self, folder: Path) -> None:
        path = folder / self.title
        path.parent.mkdir(parents=True, exist_ok=True)
        text = self.text
        if self.language == "diff":
            before, after = ("".join(line[1:] for line in text.splitlines(True) if line[0] == sign) for sign in "-+")
            assert path.read_text().count(before) == 1, before
            text = path.read_text().replace(before, after)
        path.write_text(text)


def fences(path):
    return [Fence(language, title, text) for language, title, text in FENCE.findall(path.read_text())]


@pytest.fixture
def folder(tmp_path):
    work, programs = tmp_path / "work", tmp_path / "bin"
    work.mkdir()
    programs.mkdir()
    (programs / "warpwave").write_text(f'#!/bin/sh\nexec {command.shell_words()} "$@"\n')
    (programs / "warpwave").chmod(0o755)
    shutil.copytree(recorded(), work / "recorded")
    return work


def run(line, folder):
    variables = {"PATH": f"{folder.parent / 'bin'}:{os.environ['PATH']}", "DOCKER_HOST": f"unix://{folder}/no.sock", "COLUMNS": "200"}
    environment = {**os.environ, **variables}
    return subprocess.run(["bash", "-euc", line], cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


# These run whole packages, for seconds each. `.ci/run` runs the commands of README.
LONG = ("own-package", "index", "report", "tutorial")


@pytest.mark.parametrize("name", slow_but(PAGES, set(PAGES) - {*LONG}))
def test_a_guide_does_what_it_says(name, folder):
    blocks = fences(PAGES[name])
    if any("run" in line for block in blocks for line in block.commands):
        pytest.importorskip("triton", reason="the local engine needs torch and triton")
    for block in blocks:
        PARSERS.get(block.language, str)(block.text)
        if block.title and block.language != "console":
            block.write(folder)
        for line, shown in block.commands.items():
            done = run(line, folder)
            printed = done.stdout + done.stderr
            code = next((int(found[1]) for found in map(re.compile(r"exit code (\d+):").match, shown) if found), 0)
            assert done.returncode == (RECORDED if "report recorded" in line else code), f"{line}\n{printed}"
            assert [text for text in shown if text not in printed] == [], printed


def commands_of_ours(path):
    """`run cuda --aa` for each time a console of the page calls `warpwave`, wherever in a line."""
    lines = [line for block in fences(path) if block.language == "console" for line in block.text.splitlines() if line.startswith("$ ")]
    return [words for line in lines for words in re.findall(r"(?:^\$ |&& )(?:\w+=\S+ )*warpwave ([^#&|]+)", line)]


@pytest.mark.parametrize("name", EVERY)
def test_every_command_of_ours_exists(name):
    """On every page, those for another machine too: the command and each of its options are known."""
    for text in commands_of_ours(EVERY[name]):
        words, group = shlex.split(text), cli
        while isinstance(group, click.Group):
            group = group.get_command(None, words.pop(0))
        known = {option for parameter in group.params for option in (*parameter.opts, *parameter.secondary_opts)}
        assert [word for word in words if word.startswith("--") and word.partition("=")[0] not in known] == [], text


def test_the_third_vendor_is_data_that_can_be_built(tmp_path):
    """The entry is complete: a target, a Dockerfile beside it, a recipe with a hash, and no code for it anywhere."""
    for block in fences(GUIDES["third-vendor"]):
        if block.language in ("yaml", "dockerfile"):
            (tmp_path / Path(block.title).name).write_text(block.text)
    target = load_targets(tmp_path / "targets.yml")["xpu"]
    built = recipe(ask(target, tmp_path, tmp_path))

    assert target.architectures[0].torch_device == target.torch_devices[0] == "xpu"
    assert built.tag.startswith("warpwave/xpu:")
    assert built.arguments == {"TORCH_INDEX": "https://download.pytorch.org/whl/xpu"}
