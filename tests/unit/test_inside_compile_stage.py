"""The compile stage: every launch of an unmodified package, for every architecture, without a GPU."""

from __future__ import annotations

import json

import pytest

from harness.records import Stage
from harness.targets import load_targets

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


@pytest.fixture(scope="module")
def limits(run_inside, data):
    """Rows of kernels past the limits of a card, by architecture and provider."""
    cards = tuple(card for card in load_targets()["cpu"].architectures if card.name in ("sm_90", "gfx942"))
    output = run_inside(data / "limits", Stage.COMPILE, architectures=cards)
    rows = [json.loads(line) for line in (output / "compile" / "kernels.jsonl").read_text().splitlines()]
    report = json.loads((output / "stages.json").read_text())["reports"][1]
    return {(row["architecture"], row["origin"].split("[")[1].rstrip("]")): row for row in rows}, report


def test_what_compiles_and_cannot_be_launched_has_failed(limits):
    """The compiler checks neither the threads of a block nor its shared memory; a wave of 64 and 64 KiB make the difference."""
    rows, _ = limits

    assert rows["sm_90", "32 warps"]["verdict"] == "passed"
    assert (rows["gfx942", "32 warps"]["verdict"], "2048 threads" in rows["gfx942", "32 warps"]["reason"]) == ("failed", True)
    assert rows["sm_90", "shared memory"]["verdict"] == "passed"
    assert rows["gfx942", "shared memory"]["verdict"] == "failed"
    assert "gfx942 has 65536" in rows["gfx942", "shared memory"]["reason"]


def test_a_kernel_that_does_not_compile_is_one_row_and_the_next_one_follows(limits):
    """On both architectures, with the compiler's first line, and without a second row for the point."""
    rows, report = limits

    for architecture in ("sm_90", "gfx942"):
        assert rows[architecture, "broken"]["verdict"] == "failed"
        assert "power of 2" in rows[architecture, "broken"]["reason"], rows[architecture, "broken"]
        assert rows[architecture, "after"]["verdict"] == "passed"
    assert report["verdict"] == "failed"
    assert report["counts"] == {"passed": 4, "failed": 4}


def test_matrix_instructions_are_named(limits):
    """The product uses each vendor's matrix unit."""
    rows, _ = limits

    assert any("mma" in name for name in rows["sm_90", "shared memory"]["matrix"])
    assert any(name.startswith("v_mfma") for name in rows["gfx942", "shared memory"]["matrix"])


def test_launches_behind_registered_ops_are_seen(run_inside, data):
    """A custom op's forward, its registered backward, and what `torch.compile` is given, in a package that imports itself by name."""
    cards = tuple(card for card in load_targets()["cpu"].architectures if card.name == "gfx942")
    output = run_inside(data / "packaged", Stage.COMPILE, architectures=cards)
    rows = [json.loads(line) for line in (output / "compile" / "kernels.jsonl").read_text().splitlines()]

    seen = {(row["origin"], row["constants"].get("BLOCK")) for row in rows if row["verdict"] == "passed"}
    assert seen == {
        ("scale/n=4096 [eager]", 128),
        ("scale/n=4096 [eager]", 256),
        ("scale/n=4096 [compiled]", 512),
        ("scale/n=4096 [compiled]", 1024),
    }
