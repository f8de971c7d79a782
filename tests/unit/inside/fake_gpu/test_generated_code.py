"""Tests that read what torch.compile made: values are checked, and who looks at the code needs a card."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

from warpwave.collect import collect
from warpwave.records import NotRun, Stage, Verdict

READS = """
import pytest
import torch
from torch._inductor import metrics
from torch._inductor.utils import run_and_get_code, run_and_get_triton_code

def twice(x): return torch.relu(x) * 2

def result(wrong=0):
    x = torch.randn(5, device="cuda")
    found, sources = run_and_get_code(torch.compile(twice), x)
    torch.testing.assert_close(found, twice(x) + wrong)
    return sources

def test_value(): result()
def test_wrong_value(): assert len(result(wrong=1)) == 1
def test_count(): assert len(result()) == 1
def test_text():
    (text,) = result()
def test_joined(): assert "triton" in "".join(result())
def test_alone(): assert "def" in run_and_get_triton_code(torch.compile(twice), torch.ones(3, device="cuda"))
def test_metrics():
    metrics.reset()
    torch.compile(twice)(torch.ones(3, device="cuda"))
    assert metrics.generated_kernel_count == 1
"""


def test_who_reads_the_code_needs_a_card(run_inside, tmp_path):
    """Only a wrong value fails."""
    (tmp_path / "test_reads.py").write_text(READS)
    output = run_inside(tmp_path, Stage.TEST, benches=())
    ended = {case.id.partition("::")[2]: (case.verdict, case.not_run) for case in collect(output).cases}
    unread = (Verdict.NOT_RUN, NotRun.NOT_PRETENDED)

    assert ended == {
        "test_value": (Verdict.PASSED, None),
        "test_wrong_value": (Verdict.FAILED, None),
        **dict.fromkeys(("test_count", "test_text", "test_joined", "test_alone", "test_metrics"), unread),
    }, json.loads((output / "stages.json").read_text())
