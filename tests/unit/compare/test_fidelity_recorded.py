"""The code of the compile stage against launches recorded on an H100 (Triton 3.6.0, sweeps of the whole package)."""

from __future__ import annotations

import json
from pathlib import Path

import command
import pytest
from recorded import recorded

from warpwave.collect.untrusted import read_lines
from warpwave.compare.codegen import held_against
from warpwave.compare.model import Likeness
from warpwave.records import CompiledKernel

REPO = Path(__file__).parents[3]
RECORDED = recorded() / "raw" / "cuda"


def rows(folder, name):
    return read_lines(folder, name, CompiledKernel)[0]


def test_the_lane_made_what_the_card_ran():
    """Byte for byte: every launch of the sweeps has the same binary, with the same registers, Liger's among them."""
    launched, compiled = rows(RECORDED, "bench/kernels.jsonl"), rows(RECORDED, "compile/kernels.jsonl")
    ours = [row for row in launched if not row.origin.endswith("[liger]")]
    assert (len(launched), len(ours)) == (301, 232)
    assert held_against(launched, compiled) == (301, ())


@pytest.mark.slow
def test_the_lane_still_asks_for_what_the_card_ran(tmp_path):
    """Today's compile stage gives the same inputs to the compiler:

    signature, constants, alignment, warps and stages. Binaries differ by Triton.
    """
    kernels = ("add", "dropout", "gelu")
    (tmp_path / "targets.yml").write_text(json.dumps({"targets": {"cpu": {"architectures": ["sm_90"]}}}), encoding="utf-8")
    words = ["run", "cpu", "--targets", str(tmp_path / "targets.yml"), "--stage", "compile", "--quiet"]
    words += [part for kernel in kernels for part in ("--bench", f"bench_{kernel}.py")]
    command.warpwave(*words, "--out", tmp_path / "out", cwd=REPO)
    launched = [row for row in rows(RECORDED, "bench/kernels.jsonl") if row.kernel in kernels]
    equal, deviations = held_against(launched, rows(tmp_path / "out" / "raw" / "cpu", "compile/kernels.jsonl"))
    assert equal + len(deviations) == 8
    assert {deviation.likeness for deviation in deviations} <= {Likeness.ANOTHER_BINARY}
