"""The compile stage: every launch of an unmodified package, for every architecture, without a GPU."""

from __future__ import annotations

import json

import pytest

from harness.records import Stage

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

ARCHITECTURES = ["sm_80", "sm_90", "sm_100", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"]


@pytest.fixture(scope="module")
def rows(run_inside, data):
    """All rows of one run over the tutorial-style script."""
    output = run_inside(data / "scripted", Stage.COMPILE)
    return [json.loads(line) for line in (output / "compile" / "kernels.jsonl").read_text().splitlines()]


def test_every_launch_is_compiled_for_every_architecture(rows):
    """The plain kernel, and both configurations of the autotuned one, exist for all eight."""
    compiled = {(row["architecture"], row["function"], row["constants"].get("BLOCK")) for row in rows if row["verdict"] == "passed"}
    wanted = {("scale_kernel", 128), ("tuned_kernel", 256), ("tuned_kernel", 512)}

    assert compiled == {(architecture, *kernel) for architecture in ARCHITECTURES for kernel in wanted}


def test_binaries_are_read(rows):
    """Registers, spills, shared memory and access widths come out of each binary."""
    for row in rows:
        if row["verdict"] == "passed":
            assert row["registers"] > 0, row
            assert (row["spills"], row["stack_bytes"], row["shared_bytes"]) == (0, 0, 0), row
            assert row["load_bits"] in (32, 64, 128), row


def test_specialization_is_that_of_a_real_launch(rows):
    """Aligned pointers and sizes divisible by 16 give each thread one load of all its elements: four of them, or two in a wave of 64."""
    tuned = {row["architecture"]: row["load_bits"] for row in rows if row["constants"].get("BLOCK") == 512}

    assert tuned == {name: 64 if name.startswith("gfx9") else 128 for name in ARCHITECTURES}


def test_host_code_that_cannot_run_is_a_row(rows):
    """A provider that raises is `not-run` with its reason, once a point and architecture."""
    broken = [row for row in rows if row["verdict"] == "not-run"]

    assert len(broken) == 6 * len(ARCHITECTURES)
    assert {row["reason"] for row in broken} == {"ValueError: this provider is broken on purpose"}
