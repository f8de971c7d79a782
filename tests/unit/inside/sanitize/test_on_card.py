"""What ConSan prints on a card, as findings. The lines were printed by an H200 with Triton 3.6."""

from __future__ import annotations

import pytest

from warpwave.inside.sanitize import on_card
from warpwave.records import Defect

SOURCE = """import triton


@triton.jit
def other(x):
    pass


@triton.jit
def copy_kernel(x):
    value = smem.load(layout)
"""
BY_CARD = "block: [0,0,2], thread: [0,0,0] Assertion `"
PENDING = "Accessing buffer with pending access. Pending access type: async_copy_global_to_shared"


@pytest.fixture
def kernel(tmp_path):
    path = tmp_path / "copies.py"
    path.write_text(SOURCE)
    return path


def test_each_line_with_an_access_that_is_not_ordered_is_a_race(kernel):
    """Each thread prints the assertion; its line, its function and its program are known."""
    line = f"{kernel}:11: unknown: {BY_CARD}{PENDING}` failed.\n"
    (row,) = on_card.findings(f"collected 2 items\n{line}{line}")

    assert (row.defect, row.function, row.line, row.program) == (Defect.RACE, "copy_kernel", 11, (0, 0, 2))
    assert row.text == "value = smem.load(layout)"
    assert row.sentence.startswith(f"race in copy_kernel at copies.py:11: shared memory: {PENDING}")


@pytest.mark.parametrize(
    ("text", "several"),
    [
        ("/gone.py:3: unknown: Device-side assertion `Buffer being accessed has outstanding reads' failed.", 1),
        (f"/gone.py:3: unknown: {BY_CARD}n must be even` failed.", 0),  # an assertion of the kernel's author
        ("AssertionError: pending access", 0),
    ],
)
def test_only_consans_assertions_count(text, several):
    """HIP prints them in another form."""
    assert len(on_card.findings(f"{text}\n")) == several


def test_a_test_is_given_what_was_printed_since_the_last_one(kernel, tmp_path, monkeypatch):
    """The card is asked to finish first: only then has it printed."""
    log = tmp_path / "log.txt"
    line = f"{kernel}:11: unknown: {BY_CARD}{PENDING}` failed.\n"
    log.write_text(line)
    asserted = on_card.Asserted(log)

    def synchronize():
        with open(log, "a") as file:
            file.write(line)
        raise RuntimeError("device-side assert")

    monkeypatch.setattr("torch.cuda.synchronize", synchronize)
    assert [row.line for row in asserted.take()] == [11]
    monkeypatch.setattr("torch.cuda.synchronize", lambda: None)
    assert asserted.take() == []
