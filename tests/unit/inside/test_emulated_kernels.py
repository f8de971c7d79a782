"""Bundled kernels, emulated: their own tests judge what the machine code stored."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree

import pytest

from harness.config.targets import load_targets
from harness.records import Stage

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")
for needed in ("elftools", "msgpack", "tinygrad"):
    pytest.importorskip(needed, reason="the emulator's extra; `nox -s tests` installs it")

# Elementwise with a mask, a reduction, a product on matrix cores, and a kernel whose host code asks the card for its multiprocessors.
CHOSEN = "test_add[fp32-1] or test_add[bf16-98432] or test_softmax and fp32 and 781 or test_matmul and fp16"


@pytest.fixture(scope="module")
def stage(run_inside, data):
    """The cases of a few tests of add, softmax and matmul, with what each executed; and the report of the stage."""
    kernels = data.parents[1] / "kernels"
    card = load_targets()["gfx942-emulated"].emulate
    output = run_inside(kernels, Stage.TEST, interpret=False, emulate=card, benches=(), quick=True, pytest_args=("-k", CHOSEN))
    found = {}
    for case in ElementTree.parse(output / "test" / "junit.xml").getroot().iter("testcase"):
        bad = next((child.get("message") for child in case if child.tag in ("failure", "error", "skipped")), "")
        properties = {entry.get("name"): entry.get("value") for entry in case.iter("property")}
        found[f"{case.get('classname')}.{case.get('name')}"] = (bad, properties.get("emulated", ""))
    return found, json.loads((output / "stages.json").read_text())["reports"][1]


@pytest.mark.parametrize("kernel", ["add", "softmax", "matmul"])
def test_a_bundled_kernel_passes_its_own_tests(stage, kernel):
    """And they executed machine code: a test that launched nothing would show nothing."""
    found, _ = stage
    mine = {name: told for name, told in found.items() if name.startswith(f"{kernel}.")}

    assert mine
    assert {name: bad for name, (bad, _) in mine.items() if bad} == {}
    assert all("wave-instructions" in executed for _, executed in mine.values())
