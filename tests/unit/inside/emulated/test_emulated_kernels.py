"""Real kernels, emulated: their own tests judge what the machine code stored."""

import json
import math
import re
import struct
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import expressions
import pytest

from warpwave.config.targets import load_targets
from warpwave.emulator import Check, Launch, execute, load
from warpwave.records import Stage

torch = pytest.importorskip("torch", reason="the inside needs torch and triton; `nox -s tests` installs them")
for needed in ("elftools", "msgpack", "tinygrad"):
    pytest.importorskip(needed, reason="the emulator's extra; `nox -s tests` installs it")

ROOT = Path(__file__).parents[3]
sys.path[:0] = [str(ROOT / "planted"), str(ROOT / "unit" / "emulator")]

import gluon_kernels
import triton
from machine_code import linked
from triton.backends.compiler import GPUTarget
from triton.experimental.gluon._runtime import GluonASTSource

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
    return emulated(data.parents[1] / "kernels", "-k", " or ".join(CHOSEN.values()))[0]


@pytest.mark.slow
@pytest.mark.parametrize("kernel", CHOSEN)
def test_a_bundled_kernel_passes_its_own_tests(bundled, kernel):
    """And they executed machine code: a test that launched nothing would show nothing."""
    mine = {name: told for name, told in bundled.items() if name.startswith(f"{kernel}.")}

    assert mine
    assert {name: bad for name, (bad, _) in mine.items() if bad} == {}
    assert all("wave-instructions" in executed for _, executed in mine.values())


@pytest.mark.slow
def test_what_a_kernel_prints_and_reads_through_addresses(emulated, tmp_path):
    """One line for each element; a failed assertion, and a store behind a tensor, end the launch with the line of the kernel."""
    (tmp_path / "test_prints.py").write_text(PRINTS)
    found, _ = emulated(tmp_path)

    assert found["test_prints.test_print"][0] == ""
    assert found["test_prints.test_a_table_of_addresses"][0] == ""
    assert "device assertion failed: 'not positive'" in found["test_prints.test_an_assertion"][0]
    assert "kernel shout_nothing" in found["test_prints.test_a_missing_mask"][0]
    assert "test_prints.py:" in found["test_prints.test_a_missing_mask"][0]


@pytest.mark.slow
def test_an_endless_kernel_ends_by_its_time_with_its_figure(emulated, tmp_path):
    """Before the supervisor would kill the process, which could not say how far it came."""
    (tmp_path / "test_endless.py").write_text(ENDLESS)
    found, report = emulated(tmp_path, test_s=40.0)

    assert "; the test executed " in found["test_endless.test_endless"][0]
    assert report["counts"] == {"timeout": 1}


# What Triton's interpreter computes here, and what the machine code of an AMD card does: the same, for each expression of a kernel.


NEAR = 2e-6  # what functions such as tl.exp may differ by, relatively


@pytest.fixture(scope="module")
def found(run_inside, tmp_path_factory):
    """The numbers by expression, of the interpreter and of the emulated card."""
    both = []
    for options in ({}, {"interpret": False, "emulate": load_targets()["gfx942-emulated"].emulate}):
        package = tmp_path_factory.mktemp("expressions") / "package"
        expressions.write(package)
        run_inside(package, Stage.TEST, benches=(), test_s=300.0, **options)
        both.append(json.loads((package / "found.json").read_text()))
    return both


def is_same(one, other):
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return (one == other and math.copysign(1, one) == math.copysign(1, other)) or 0 < abs(one - other) <= NEAR * abs(other) < math.inf


@pytest.mark.slow
def test_both_compute_the_same(found):
    interpreted, executed = found
    differing = {}
    for name, numbers in executed.items():
        wrong = [
            (place, interpreted[name][place], other) for place, other in enumerate(numbers) if not is_same(interpreted[name][place], other)
        ]
        if wrong:
            differing[name] = wrong[:3]

    assert len(executed) == len(interpreted) == len(expressions.cases()) > 500
    assert differing == {}


# Faults planted in Gluon kernels, which no interpreter runs: the emulator's checks find each, and blame no twin.


FOUND = {
    "no_wait": Check.LDS_USED_EARLY,
    "one_wait_too_few": Check.LDS_USED_EARLY,
    "never_written": Check.LDS_UNWRITTEN,
    "two_lanes": Check.GLOBAL_RACE,
}


def compiled(function, fault):
    attributes = {(n,): [["tt.divisibility", 16], ["tt.pointer_range", 32]] for n in (0, 1)}
    source = GluonASTSource(function, {"x": "*fp32", "out": "*fp32", "FAULT": "constexpr"}, {(2,): fault}, attributes)
    return triton.compile(source, target=GPUTarget("hip", "gfx950", 64), options={"num_warps": 4})


def found_by_checks(binary, shared):
    """Execute one program; return what is found, and the result."""
    kernel, findings, x, out = load(binary), [], torch.arange(512, dtype=torch.float32), torch.zeros(512)
    packed = bytearray(kernel.kernarg_bytes)
    struct.pack_into("<QQ", packed, 0, x.data_ptr(), out.data_ptr())
    buffers = [(tensor.data_ptr(), tensor.nbytes) for tensor in (x, out)]
    execute(kernel, Launch((1, 1, 1), 256, bytes(packed), shared, buffers), findings=findings)
    return findings, out


@pytest.mark.parametrize("function", gluon_kernels.KERNELS, ids=lambda function: function.__name__)
def test_a_fault_is_found_and_its_twin_is_not_blamed(function):
    wrong, right = (compiled(function, fault) for fault in (True, False))
    findings, _ = found_by_checks(wrong.asm["hsaco"], wrong.metadata.shared)

    assert {one.check for one in findings} == {FOUND[function.__name__]}
    assert all(one.place.line.startswith("gluon_kernels.py:") for one in findings)
    assert found_by_checks(right.asm["hsaco"], right.metadata.shared)[0] == []


def test_each_barrier_that_is_missing_is_found():
    """Two waves that exchange rows through LDS: what Gluon puts there is needed, and without it there is a race."""
    made = compiled(gluon_kernels.exchanged, False)
    text = made.asm["amdgcn"]
    barriers = [*re.finditer(r"^\ts_barrier\b.*\n", text, re.MULTILINE)]
    findings, out = found_by_checks(made.asm["hsaco"], made.metadata.shared)

    assert findings == []
    assert torch.equal(out[:256], torch.arange(256) * 2.0 + 256)
    assert len(barriers) >= 3
    for barrier in barriers:
        findings, _ = found_by_checks(linked(text[: barrier.start()] + text[barrier.end() :], "gfx950"), made.metadata.shared)
        assert Check.LDS_RACE in {one.check for one in findings}


@pytest.mark.parametrize(("pattern", "few"), [(r"^\ts_barrier\b.*\n", 4), (r"^\ts_waitcnt\b.*\n", 9)], ids=["barrier", "wait"])
def test_each_barrier_and_wait_of_two_buffers_that_is_missing_is_found(pattern, few):
    """One buffer is filled while the other is read: each barrier and each wait that the compiler puts there is needed."""
    made = compiled(gluon_kernels.two_buffers, False)
    text = made.asm["amdgcn"]
    findings, out = found_by_checks(made.asm["hsaco"], made.metadata.shared)
    rows = torch.arange(512.0).view(2, 256)

    assert findings == []
    assert torch.equal(out[:256], rows[0] * 3 + rows[1] + 3)
    places = [*re.finditer(pattern, text, re.MULTILINE)]
    assert len(places) >= few
    for place in places:
        findings, _ = found_by_checks(linked(text[: place.start()] + text[place.end() :], "gfx950"), made.metadata.shared)
        assert {one.check for one in findings} & {Check.LDS_RACE, Check.USED_EARLY}


def test_allocations_that_overlap_are_found():
    made = compiled(gluon_kernels.two_allocations, False)
    text = made.asm["amdgcn"]
    assert found_by_checks(made.asm["hsaco"], made.metadata.shared)[0] == []
    moved = re.sub(r"(ds_read\w+ .*offset:)1024\b", r"\g<1>512", re.sub(r"(ds_write2st64_b32 .*offset1:)4\b", r"\g<1>2", text))
    assert moved.count("offset1:2") == moved.count("offset:512") == 1
    findings, _ = found_by_checks(linked(moved, "gfx950"), made.metadata.shared)

    assert Check.LDS_RACE in {one.check for one in findings}
