"""Public faults of Triton on AMD that warpwave's emulator finds without a card: docs/amd-only-faults.md.

Each kernel is compiled by the release that has the fault, in a process of its own, and executed here. `WARPWAVE_TRITONS` names a folder
with releases; the tests of a release that is neither there nor installed are skipped.
"""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import command
import pytest

triton = pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")
torch = pytest.importorskip("torch", reason="the inside needs torch and triton; `nox -s tests` installs them")
for needed in ("elftools", "msgpack", "tinygrad"):
    pytest.importorskip(needed, reason="the emulator's extra; `nox -s tests` installs it")

from harness.emulator import Access, Check, Launch, execute, load  # noqa: E402 - after what it needs

SCRIPT = Path(__file__).parents[2] / "amd_only" / "values.py"
HAVE_IT = ["3.5.1", "3.6.0", "3.7.1", "3.8.0"]


def executed(name: str, architecture: str, version: str, folder: Path, values: list) -> list:
    """Compile one of the kernels with a release, and execute one program of it; return what the checks find."""
    release = Path(os.environ.get("WARPWAVE_TRITONS", "")) / version
    if triton.__version__ != version and not ("WARPWAVE_TRITONS" in os.environ and release.is_dir()):
        pytest.skip(f"Triton {version} is not in $WARPWAVE_TRITONS")
    path = {} if triton.__version__ == version else {"PYTHONPATH": str(release)}
    environment = {**os.environ, "TRITON_CACHE_DIR": str(folder), **path}
    binary = folder / "kernel"
    done = command.python(SCRIPT, name, architecture, binary, env=environment, kind="stages" if path else "compiler")
    assert done.returncode == 0, done.stderr
    kernel, needed, found = load(binary.read_bytes()), json.loads((folder / "kernel.json").read_text()), []
    assert needed["triton"] == version
    packed = bytearray(kernel.kernarg_bytes)
    for argument, value in zip(kernel.arguments, [*values, 0, 0], strict=False):
        number = value.data_ptr() if isinstance(value, torch.Tensor) else value
        struct.pack_into({8: "<Q", 4: "<i"}[argument.size], packed, argument.offset, number)
    buffers = [(value.data_ptr(), value.nbytes) for value in values if isinstance(value, torch.Tensor)]
    execute(kernel, Launch((1, 1, 1), needed["threads"], bytes(packed), needed["lds"], buffers), findings=found)
    return found


@pytest.mark.parametrize("version", [*HAVE_IT[1:], "3.9.0"])
def test_reads_that_a_barrier_does_not_complete(version, tmp_path):
    """triton-lang/triton#11696. Executed in order the result is right: only the check sees it. 3.9.0 waits in time."""
    a, b, c = torch.randn(128, 192), torch.randn(192, 128), torch.zeros(128, 128)
    found = executed("pingpong", "gfx942", version, tmp_path, [a, b, c, 128, 192])

    torch.testing.assert_close(c, a @ b, rtol=1e-4, atol=1e-3)
    if version == "3.9.0":
        assert found == []
    else:
        assert {(one.check, one.access, one.other_access, one.in_flight) for one in found} == {
            (Check.LDS_RACE, Access.STORE, Access.LOAD, True)
        }
        assert {one.place.line for one in found} == {one.other.line for one in found} == {"pingpong.py:27"}


@pytest.mark.parametrize("version", [*HAVE_IT, "3.9.0"])
@pytest.mark.parametrize("architecture", ["gfx90a", "gfx950", "gfx1201"])
def test_nan_of_eight_bits(architecture, version, tmp_path):
    """triton-lang/triton#10745: the only NaN of a format without -0 becomes -0."""
    codes, out = torch.arange(256, dtype=torch.int32).to(torch.uint8), torch.zeros(256, dtype=torch.float16)
    executed("fp8e4b8-fp16", architecture, version, tmp_path, [codes, out])
    expected = codes.view(torch.float8_e4m3fnuz).half()

    wrong = (out.view(torch.int16) != expected.view(torch.int16)) & ~(out.isnan() & expected.isnan())
    assert wrong.nonzero().flatten().tolist() == ([] if version == "3.9.0" else [0x80])


@pytest.mark.parametrize("version", [*HAVE_IT, "3.9.0"])
def test_nan_of_ten_fraction_bits(version, tmp_path):
    """triton-lang/triton#11783: where the matrix unit cuts off the low bits of a NaN, infinity is left. 3.9.0 has it, too."""
    a, b, out = torch.eye(32), torch.eye(32), torch.zeros(32, 32)
    a.view(torch.int32)[3, 3] = 0x7F800001
    executed("tf32-nan", "gfx942", version, tmp_path, [a, b, out])

    assert out[3, 3] == float("inf")  # NaN on another card


@pytest.mark.parametrize("version", [*HAVE_IT, "3.9.0"])
def test_products_of_bfloat16_are_rounded(version, tmp_path):
    """triton-lang/triton#11217: computed with an instruction that cuts off."""
    x, y, out = torch.randn(4096).bfloat16(), torch.randn(4096).bfloat16(), torch.zeros(4096).bfloat16()
    executed("bf16-product", "gfx1201", version, tmp_path, [x, y, out])
    cut_off = ((x.float() * y.float()).view(torch.int32) & -65536).view(torch.float32).bfloat16()

    assert torch.equal(out, x * y if version in ("3.5.1", "3.9.0") else cut_off)
