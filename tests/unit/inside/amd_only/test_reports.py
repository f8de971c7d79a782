"""Small kernels with what public reports are about (tests/data/reports): which target says what of each."""

import json

import command
import pytest

REFUSED, TUNED, RACE, LANES = "cannot be launched on sm_90", "autotuning changed `x`", "race in ", "undefined-lanes in softmax_backward"
SAID = {
    "triton_10924": ("", RACE),
    "triton_1097": ("", RACE),
    "flaggems_3716": (LANES, LANES),
    "sglang_27074": ("", ""),  # right, as its maintainers said
    "triton_10448": ("", ""),
    "fla_172": (REFUSED, ""),
    "triton_580": (REFUSED, ""),
    "triton_6547": (TUNED, TUNED),
    "triton_9230": ("half with START=0", "half with START=0"),
    "triton_8908": ("", ""),  # missed: one run has no compile time to compare with
}


@pytest.mark.slow
def test_each_report_is_found_where_the_page_says_so(data, tmp_path):
    targets = ("cpu", "gfx942-emulated")
    done = command.warpwave("run", *targets, "--kernels", data / "reports", "--stage", "test", "--quiet", "--out", tmp_path / "out")
    comparison = json.loads((tmp_path / "out" / "comparison.json").read_text())
    found = {
        row["id"].removeprefix("test_reports.py::test_"): {cell["target"]: cell["result"]["message"] for cell in row["cells"]}
        for row in comparison["tests"]
    }

    assert done.returncode == 1, done.stderr
    assert found.keys() == SAID.keys()
    for name, words in SAID.items():
        for target, said in zip(targets, words, strict=True):
            message = found[name][target]
            assert said in message and bool(said) == bool(message), (name, target, message)  # noqa: PT018 - one thing
