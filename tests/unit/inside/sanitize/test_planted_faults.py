"""Five faults are planted in a package; the lane without a GPU finds each of them where it is, and nothing beside them."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree

import command
import pytest

pytestmark = pytest.mark.slow

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

# What is launched → architecture → what is said of it; where nothing is, it passes.
FAULTS = {
    "spill": {"sm_90": "spills: "},
    "shared memory": {"gfx942": "bytes of shared memory, gfx942 has 65536"},
    "threads": {"gfx942": "32 warps of 64 are 2048 threads"},
    "unaligned": {"sm_90": "load_bits: ", "gfx942": "load_bits: "},
    "one vendor": {"gfx942": ""},
}
SOUND = ("sound", "aligned", "after")


def test_five_planted_faults_are_found(data, tmp_path):
    """As rows with the reason, and as failed cases of junit.xml; the kernels beside and behind them pass on both."""
    (tmp_path / "two.yml").write_text("targets: {cpu: {architectures: [sm_90, gfx942]}}\n")
    arguments = [
        "--kernels",
        data / "planted",
        "--targets",
        tmp_path / "two.yml",
        "--out",
        tmp_path / "out",
        "--stage",
        "compile",
        "--gates",
        "strict",
        "--quiet",
    ]
    done = command.warpwave("run", "cpu", *arguments)
    told = [json.loads(line) for line in (tmp_path / "out/raw/cpu/compile/kernels.jsonl").read_text().splitlines()]
    rows = {(row["origin"].split("[")[1].rstrip("]"), row["architecture"]): row for row in told}
    cases = ElementTree.parse(tmp_path / "out" / "junit.xml").iter("testcase")

    assert len(rows) == len(told) == 2 * (len(FAULTS) + len(SOUND)), done.stderr
    faults = {key: row["reason"] for key, row in rows.items() if row["verdict"] != "passed"}
    assert set(faults) == {(what, architecture) for what, found in FAULTS.items() for architecture in found}
    for what, found in FAULTS.items():
        for architecture, reason in found.items():
            assert reason in faults[what, architecture]
    assert len([case for case in cases if case.find("failure") is not None or case.find("error") is not None]) == len(faults)
