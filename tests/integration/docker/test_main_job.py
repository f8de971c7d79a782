"""The whole line against a real engine, as a user types it: image, container, three kinds of results, one comparison."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest

from warpwave.records import Exit


@pytest.fixture
def warpwave(tmp_path, wheelhouse, engine):
    """Run the command with the real engine, the base image and the wheels of these tests."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "warpwave", "run", "cpu", "--engine", "docker", "--out", str(tmp_path / "out"), *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "COLUMNS": "200"})

    return run


@pytest.fixture
def offline(wheelhouse) -> list[str]:
    """What builds the image without any network."""
    return ["--base-image", os.environ["WARPWAVE_BASE_IMAGE"], "--wheelhouse", str(wheelhouse)]


def test_a_strangers_package_goes_through_the_whole_line(warpwave, offline, built, data, tmp_path):
    """A script with a hard-coded device, untouched: compiled for eight cards, merged; all of it the caller's afterwards."""
    done = warpwave("--kernels", str(data / "scripted"), "--bench", "*.py", *offline)
    out = tmp_path / "out"
    comparison = json.loads((out / "comparison.json").read_text())
    record = json.loads((out / "raw" / "cpu" / "run.json").read_text())
    target = comparison["targets"][0]

    assert done.returncode == 0, done.stdout + done.stderr
    assert (target["verdict"], target["tests"], target["compiled"]["passed"]) == ("passed", {}, 32)
    assert record["environment"]["options"]["cap_drop"] == ["ALL"]
    assert record["environment"]["options"]["network"] == "none"
    assert Exit(**record["exit"]) == Exit(0, record["exit"]["seconds"])
    assert {path.stat().st_uid for path in out.rglob("*")} == {os.getuid()}
    assert int(ElementTree.parse(out / "junit.xml").getroot().get("tests")) > 32


def test_deaths_are_named_in_a_container_too(warpwave, offline, built, data, tmp_path):
    """A segmentation fault in there costs one test, and the exit code says that tests failed."""
    done = warpwave("--kernels", str(data / "deaths"), "--stage", "test", "--test-timeout", "4", *offline)
    cases = ElementTree.parse(tmp_path / "out" / "raw" / "cpu" / "test" / "junit.xml").getroot().iter("testcase")
    outcomes = {case.get("name"): [child.get("type") for child in case if child.tag in ("failure", "error")] for case in cases}

    assert done.returncode == 1, done.stdout + done.stderr
    assert outcomes["test_segfault"] == ["crashed"]
    assert outcomes["test_hang_in_c"] == ["timeout"]
    assert outcomes["test_after"] == []


def test_a_missing_base_image_is_three_beats(warpwave, wheelhouse, data, tmp_path):
    """What is missing, why it could not be had, and the two options that help; exit code 3, and a comparison that says so."""
    done = warpwave("--kernels", str(data / "scripted"), "--base-image", "nowhere.invalid/base:1", "--wheelhouse", str(wheelhouse))
    record = json.loads((tmp_path / "out" / "raw" / "cpu" / "run.json").read_text())

    assert done.returncode == 3
    assert "Traceback" not in done.stdout + done.stderr
    assert record["verdict"] == "infra"
    assert "nowhere.invalid/base:1" in record["reason"]
    assert "--base-image" in record["hint"]
