"""Launches that the driver of a card refuses: too many programs or threads, clusters too large, scratch memory from nobody."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

import command
import pytest

from warpwave.config.targets import load_targets
from warpwave.records import to_json

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")
import numpy as np
import triton
from triton.runtime import _allocation

from warpwave.inside.fake_gpu.emulated import EmulatedDriver
from warpwave.inside.fake_gpu.launches import LaunchRefusedError, check_grid, check_scratch
from warpwave.inside.fake_gpu.unknown import UnknownInt
from warpwave.inside.test.notes import raised_by_host

CARDS = {card.name: card for card in load_targets()["cpu"].architectures}
TALL = "`fill` cannot be launched on sm_90: its grid is (1, 65536, 1), the limit of y is 65535"


@pytest.mark.parametrize(
    ("name", "grid", "options", "said"),
    [
        ("sm_90", (1, 65535, 65535), {}, ""),
        ("sm_90", (1, 65536), {}, TALL),
        ("sm_90", (1, np.int64(65536)), {}, TALL),
        ("sm_80", (1, 1, 65536), {}, "the limit of z is 65535"),
        ("sm_100", (2**31 - 1,), {}, ""),
        ("sm_100", (2**31,), {}, "the limit of x is 2147483647"),
        ("sm_90", (2**30,), {"num_ctas": 2}, "the limit of x is 1073741823"),
        ("sm_90", (1,), {"num_ctas": 16}, ""),
        ("sm_90", (1,), {"num_ctas": 32}, "its clusters have 32 blocks, the limit is 16"),
        ("sm_90", (0, 70000), {}, ""),
        ("sm_90", (UnknownInt(), 70000), {}, "the limit of y is 65535"),
        ("sm_90", (UnknownInt(),), {}, ""),
        ("gfx942", (1, 70000, 70000), {}, ""),
        ("gfx942", (2**24 - 1,), {}, ""),
        ("gfx942", (2**24,), {}, "the limit of x is 16777215 with 256 threads a program"),
        ("gfx1201", (2**24,), {}, ""),
        ("gfx1201", (2**24,), {"num_warps": 8}, "the limit of x is 16777215"),
        ("sm_90", (132 * 16,), {"launch_cooperative_grid": True}, ""),
        ("sm_90", (132 * 16 + 1,), {"launch_cooperative_grid": True}, "at most 2112 blocks run at a time"),
        ("sm_90", (132 + 1,), {"launch_cooperative_grid": True, "shared": 200000}, "at most 132 blocks run at a time"),
    ],
)
def test_refuses_the_grids_that_a_driver_refuses(name, grid, options, said):
    """Up to its limits a grid is launched, and one without programs is launched nowhere."""
    metadata = SimpleNamespace(**{"num_warps": 4, **options})
    if not said:
        check_grid(CARDS[name], "fill", grid, metadata)
        return
    with pytest.raises(LaunchRefusedError) as caught:
        check_grid(CARDS[name], "fill", grid, metadata)
    assert said in str(caught.value)


@pytest.fixture
def allocators():
    before, profile = _allocation._allocator.get(), _allocation._profile_allocator.get()
    triton.set_allocator(_allocation.NullAllocator())
    yield
    triton.set_allocator(before)
    _allocation._profile_allocator.set(profile)


@pytest.mark.usefixtures("allocators")
def test_scratch_memory_needs_an_allocator_when_it_is_launched():
    """A profile has one of its own since Triton 3.9."""
    driver = SimpleNamespace(allocate_default_profile_scratch=lambda size, alignment, stream: None)
    copy, profiled = SimpleNamespace(global_scratch_size=256), SimpleNamespace(profile_scratch_size=64)
    check_scratch(CARDS["sm_90"], "add", SimpleNamespace(global_scratch_size=0), driver)
    with pytest.raises(LaunchRefusedError, match="`copy` cannot be launched on sm_90: it needs 256 bytes of scratch memory"):
        check_scratch(CARDS["sm_90"], "copy", copy, driver)
    if hasattr(_allocation, "has_profile_allocator"):
        check_scratch(CARDS["sm_90"], "copy", profiled, driver)
    triton.set_allocator(lambda size, alignment, stream: None)
    check_scratch(CARDS["sm_90"], "copy", copy, driver)


@pytest.mark.usefixtures("allocators")
def test_an_emulated_launch_is_checked_before_it_is_executed():
    metadata = SimpleNamespace(num_warps=4, global_scratch_size=0)
    driver = EmulatedDriver(SimpleNamespace(), None, CARDS["gfx942"], SimpleNamespace(type="cuda"))
    launch = driver.launcher_cls(SimpleNamespace(signature={}), metadata)
    rest = (0, SimpleNamespace(name="fill"), None, None, None, None)
    with pytest.raises(LaunchRefusedError, match="the limit of x is 16777215"):
        launch(2**24, 1, 1, *rest)
    launch(0, 1, 1, *rest)
    metadata.global_scratch_size = 256
    with pytest.raises(LaunchRefusedError, match="no allocator was set"):
        launch(0, 1, 1, *rest)


def test_a_refused_launch_is_no_fault_of_the_emulator():
    """A card refuses it, too, whatever the emulator has computed before. The place is the package's, not where warpwave raises."""
    account = SimpleNamespace(fault=None, launches=3, read=True)
    try:
        check_grid(CARDS["sm_90"], "fill", (1, 65536), SimpleNamespace(num_warps=4))
    except LaunchRefusedError as error:
        found = raised_by_host(error, account, Path(__file__).parents[4])
    assert "at tests/unit/inside/fake_gpu/test_launch_limits.py:" in found
    assert found.endswith("by the driver, before a launch")


INTERPRETED = """
import json, sys, torch, triton, triton.language as tl
from warpwave.inside.fake_gpu.interpreter import interpreted_device
from warpwave.records import Architecture
interpreted_device(Architecture.restore(json.loads(sys.argv[1])), ["cuda"])

@triton.jit
def fill(out):
    tl.store(out + tl.program_id(2), 1.0)

out = torch.zeros(4, device="cuda")
said = []
for grid, options in (
    ((1, 1, 4), {}), ((1, 70000, 0), {}), (lambda meta: [1, 70000], {}), ((1, 1, 65536), {}), ((1,), {"num_warps": 64}),
    ((1,), {"num_ctas": 32}),
):
    try:
        fill[grid](out, **options)
        said.append("nothing")
    except RuntimeError as error:
        said.append(str(error))
    except triton.runtime.errors.OutOfResources as error:
        said.append(str(error))
tuned = triton.autotune([triton.Config({}, num_warps=64), triton.Config({}, num_warps=4)], key=[])(fill)
tuned[(1, 1, 4)](out)
print(json.dumps([said, out.tolist()]))
"""


def test_the_interpreter_refuses_what_the_pretended_card_does(tmp_path):
    """An autotuner leaves out a configuration with more threads than the card has, as it does on the card."""
    (tmp_path / "kernels.py").write_text(INTERPRETED)
    done = command.python(tmp_path / "kernels.py", to_json(CARDS["sm_90"]), env={**os.environ, "TRITON_INTERPRET": "1"})

    assert done.returncode == 0, done.stderr
    (right, empty, tall, deep, wide, clustered), out = json.loads(done.stdout.splitlines()[-1])
    assert (right, empty, out) == ("nothing", "nothing", [1.0] * 4)
    assert tall == "`fill` cannot be launched on sm_90: its grid is (1, 70000, 1), the limit of y is 65535"
    assert deep.endswith("its grid is (1, 1, 65536), the limit of z is 65535")
    assert "threads" in wide
    assert "2048" in wide
    assert "32 blocks" in clustered
