"""Real kernels, emulated: their own tests judge what the machine code stored."""

import json
import xml.etree.ElementTree as ElementTree

import pytest

from warpwave.config.targets import load_targets
from warpwave.records import Stage

pytestmark = pytest.mark.slow

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")
for needed in ("elftools", "msgpack", "tinygrad"):
    pytest.importorskip(needed, reason="the emulator's extra; `nox -s tests` installs it")

# A mask, a reduction along rows, a product on matrix cores with its edges masked.
CHOSEN = {
    "add": "test_add[fp32-1] or test_add[bf16-98432]",
    "softmax": "test_any_dimension[softmax",
    "matmul": "test_matrices[fp16-33x50-50x70] or test_matrices[fp16-64x64-64x64]",
}
PRINTS = """\
import torch
import triton
import triton.language as tl


@triton.jit
def shout(x, out):
    lane = tl.arange(0, 64)
    value = tl.load(x + lane)
    tl.device_print("value", value)
    tl.store(out + lane, value)


def test_print(capsys):
    x = torch.arange(64, device="cuda", dtype=torch.int32) - 32
    shout[(2,)](x, torch.empty_like(x), num_warps=1)
    found = set(capsys.readouterr().out.splitlines())
    assert found == {f"pid ({program}, 0, 0) idx ({lane:2}) value: {lane - 32}" for program in range(2) for lane in range(64)}


def test_a_table_of_addresses():
    parts = [torch.full((64,), value, device="cuda", dtype=torch.int32) for value in (3, 4)]
    table = torch.tensor([part.data_ptr() for part in parts], device="cuda", dtype=torch.int64)
    out = torch.zeros(64, device="cuda", dtype=torch.int32)
    gather[(1,)](table, out, num_warps=1)
    assert out.tolist() == [7] * 64


@triton.jit
def gather(table, out):
    lane = tl.arange(0, 64)
    total = tl.zeros((64,), tl.int32)
    for part in range(2):
        total += tl.load(tl.load(table + part).to(tl.pointer_type(tl.int32)) + lane)
    tl.store(out + lane, total)


def test_a_missing_mask():
    x = torch.zeros(60, device="cuda", dtype=torch.int32)
    shout_nothing[(1,)](x, num_warps=1)


def test_an_assertion():
    x = torch.ones(64, device="cuda", dtype=torch.int32)
    positive[(1,)](x, num_warps=1, debug=True)
    x[7] = -1
    positive[(1,)](x, num_warps=1, debug=True)


@triton.jit
def positive(x):
    tl.device_assert(tl.load(x + tl.arange(0, 64)) > 0, "not positive")


@triton.jit
def shout_nothing(x):
    tl.store(x + tl.arange(0, 64), 1)
"""
ENDLESS = """\
import torch
import triton
import triton.language as tl


@triton.jit
def endless(x):
    while tl.load(x, volatile=True) == 0:
        pass


def test_endless():
    endless[(1,)](torch.zeros(1, device="cuda", dtype=torch.int32), num_warps=1)
"""


@pytest.fixture(scope="module")
def emulated(run_inside):
    """Run a package's tests. Returns message and property of each test, by its name, and the report of the stage."""

    def run(package, *pytest_args, **options):
        card = load_targets()["gfx942-emulated"].emulate
        output = run_inside(package, Stage.TEST, interpret=False, emulate=card, benches=(), pytest_args=pytest_args, **options)
        found = {}
        for case in ElementTree.parse(output / "test" / "junit.xml").getroot().iter("testcase"):
            bad = next((child.get("message") for child in case if child.tag in ("failure", "error", "skipped")), "")
            properties = {entry.get("name"): entry.get("value") for entry in case.iter("property")}
            found[f"{case.get('classname')}.{case.get('name')}"] = (bad, properties.get("emulated", ""))
        return found, json.loads((output / "stages.json").read_text())["reports"][1]

    return run


@pytest.fixture(scope="module")
def bundled(emulated, data):
    """A few tests of three of the bundled kernels."""
    return emulated(data.parents[1] / "kernels", "-k", " or ".join(CHOSEN.values()))[0]


@pytest.mark.parametrize("kernel", CHOSEN)
def test_a_bundled_kernel_passes_its_own_tests(bundled, kernel):
    """And they executed machine code: a test that launched nothing would show nothing."""
    mine = {name: told for name, told in bundled.items() if name.startswith(f"{kernel}.")}

    assert mine
    assert {name: bad for name, (bad, _) in mine.items() if bad} == {}
    assert all("wave-instructions" in executed for _, executed in mine.values())


def test_what_a_kernel_prints_and_reads_through_addresses(emulated, tmp_path):
    """One line for each element; a failed assertion, and a store behind a tensor, end the launch with the line of the kernel."""
    (tmp_path / "test_prints.py").write_text(PRINTS)
    found, _ = emulated(tmp_path)

    assert found["test_prints.test_print"][0] == ""
    assert found["test_prints.test_a_table_of_addresses"][0] == ""
    assert "device assertion failed: 'not positive'" in found["test_prints.test_an_assertion"][0]
    assert "kernel shout_nothing" in found["test_prints.test_a_missing_mask"][0]
    assert "test_prints.py:" in found["test_prints.test_a_missing_mask"][0]


def test_an_endless_kernel_ends_by_its_time_with_its_figure(emulated, tmp_path):
    """Before the supervisor would kill the process, which could not say how far it came."""
    (tmp_path / "test_endless.py").write_text(ENDLESS)
    found, report = emulated(tmp_path, test_s=40.0)

    assert "; the test executed " in found["test_endless.test_endless"][0]
    assert report["counts"] == {"timeout": 1}
