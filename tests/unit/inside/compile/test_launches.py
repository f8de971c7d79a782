"""Launches of a package's tests, captured without a GPU and without data."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from slow_cases import slow_but

from warpwave.config.targets import load_targets
from warpwave.records import Job, Stage, dump

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

BOTH = ("sm_90", "gfx942")


@pytest.fixture(scope="module")
def rows(run_inside, data):
    """All rows of one run over tests that launch in every way there is."""
    cards = tuple(card for card in load_targets()["cpu"].architectures if card.name in BOTH)
    output = run_inside(data / "launching", Stage.COMPILE, architectures=cards, benches=("bench_*.py",))
    return [json.loads(line) for line in (output / "compile" / "kernels.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("function", "configurations"),
    [
        ("double_kernel", 3),  # two lengths, one of them divisible by 16, and the one that was warmed up
        ("first_kernel", 1),  # behind assertions on data that is not there
        ("second_kernel", 1),  # in a backward
        ("tuned_kernel", 2),
        ("guessed_kernel", 2),
        ("described_kernel", 1),
        ("describing_kernel", 1),
        ("gluon_kernel", 1),
    ],
)
def test_every_way_to_launch_is_seen(rows, function, configurations):
    """Each kernel, in each of its configurations, for a card of either vendor."""
    seen = Counter(row["architecture"] for row in rows if row["function"] == function and row["verdict"] == "passed")
    assert seen == dict.fromkeys(BOTH, configurations), [row for row in rows if row["function"] == function]


def test_a_package_sees_the_vendor_of_the_card(rows):
    """Host code that asks which vendor's torch it runs on takes the way of the pretended card's."""
    blocks = {row["architecture"]: row["constants"]["BLOCK"] for row in rows if row["function"] == "vendor_kernel"}
    assert blocks == {"sm_90": 256, "gfx942": 512}


def test_what_was_not_run_says_why(rows):
    """Data that decides, a skip and a module that does not import: a row each for each card, none missing and none more."""
    left_out = {(row["verdict"], row["not_run"], row["origin"].rpartition("::")[2], row["reason"]) for row in rows if row["not_run"]}
    data = next(reason for _, why, _, reason in left_out if why == "decided-by-data")

    assert left_out == {
        ("not-run", "decided-by-data", "test_the_data_decides", data),
        ("not-run", "skipped", "test_skipped", "Skipped: needs two GPUs"),
        ("error", "import-failed", "test_unimportable.py", "ModuleNotFoundError: No module named 'no_such_module'"),
    }
    assert "depends on the data of a tensor" in data
    assert Counter(row["architecture"] for row in rows if row["not_run"]) == dict.fromkeys(BOTH, 3)


def test_rows_name_their_test(rows):
    """The origin is pytest's own name for the test, so that it can be run alone."""
    origins = {row["origin"] for row in rows if row["function"] == "tuned_kernel"}
    assert origins == {"test_launching.py::test_autotuned"}


def _writing_to(folder: Path) -> list[str]:
    """Processes whose output goes below a folder, as the workers' does."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            target = str((process / "fd" / "1").readlink())
        except OSError:
            continue
        if target.startswith(str(folder)):
            found.append(process.name)
    return found


@pytest.mark.parametrize("number", slow_but([signal.SIGINT, signal.SIGKILL], [signal.SIGKILL]))
def test_a_stage_that_is_stopped_leaves_no_worker(tmp_path, data, number):
    """Neither Ctrl-C, which no thread hears, nor a kill leaves a compiler running."""
    cards = load_targets()["cpu"].architectures
    (tmp_path / "compile").mkdir()
    dump(Job("run-1", "cpu", (Stage.COMPILE,), str(data / "launching"), str(tmp_path), architectures=cards), tmp_path / "job.json")
    variables = {"PYTHONPATH": str(Path(__file__).parents[4]), "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "warpwave.inside.compile.stage", str(tmp_path / "job.json")]
    stage = subprocess.Popen(command, env={**os.environ, **variables}, start_new_session=True, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (tmp_path / "compile" / "kernels.jsonl").exists():
        assert stage.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert _writing_to(tmp_path)
    os.killpg(stage.pid, number)
    stage.wait(60)
    deadline = time.monotonic() + 3  # what is left alone works on for many times as long
    while _writing_to(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.1)
    rows = [json.loads(line) for line in (tmp_path / "compile" / "kernels.jsonl").read_text().splitlines()]
    left = [row for row in rows if row["not_run"] != "stopped"]

    assert _writing_to(tmp_path) == []
    assert len(left) < len(cards) * 12
