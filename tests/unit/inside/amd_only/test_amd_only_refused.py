"""Public faults of Triton on AMD that the compile stage finds: what some releases do not compile, and what the gates read in assembly.

docs/amd-only-faults.md. `WARPWAVE_TRITONS` names a folder with releases, as in test_amd_only_values.py.
"""

import re

import pytest
from test_amd_only_values import RELEASES, compiled

from warpwave.inside.codegen.barriers import acquired_alone, published_early

pytestmark = pytest.mark.slow  # as there

# Kernel and architecture, the releases that do not compile it, and what they say.
REFUSED = {
    ("exchange-all-i32", "gfx942"): (RELEASES[:1], "'llvm.extractvalue' op Type mismatch"),  # triton-lang/triton#8867
    ("exchange-one-fp32", "gfx1100"): (RELEASES[:2], "must be signless integer or LLVM pointer type, but got 'f32'"),  # #9116
    ("fp8e5-by-fp8e4nv", "gfx1201"): (RELEASES[:2], "Unsupported conversion from 'f8E5M2' to 'f8E4M3FN'"),  # #9581
    ("add-some-fp16", "gfx942"): (RELEASES[1:2], "Cannot select: .*BUFFER_ATOMIC_FADD"),  # #9142
    ("choose", "gfx942"): (RELEASES[1:2], "expected then fat ptr canNarrow"),  # #9541
    ("choose-by-row", "gfx942"): (RELEASES[1:3], "Assertion"),  # #10381
    ("bf16-fp8e4b8", "gfx1100"): (RELEASES[:3], "Cannot select: intrinsic %llvm.amdgcn.cvt.pk.fp8.f32"),  # #10458
    ("checked-product", "gfx942"): (RELEASES[:2], "'tt.assert' op pipeliner doesn't know how to predicate this op"),  # ROCm/triton#937
    ("largest-fp64", "gfx942"): (RELEASES[1:3], "could not find LLVM intrinsic: .*buffer.atomic.max"),  # #10340
}
CASES = [(*which, version) for which, (have_it, _) in REFUSED.items() for version in [*have_it, "3.9.0"]]


@pytest.mark.parametrize(("name", "architecture", "version"), CASES, ids=["-".join(case) for case in CASES])
def test_a_kernel_that_some_releases_refuse(name, architecture, version, tmp_path):
    """A user's run reports the kernel as failed, or as crashed where the compiler ends the process."""
    have_it, told = REFUSED[name, architecture]
    done = compiled(name, architecture, version, tmp_path)

    assert (done.returncode != 0) == (version in have_it)
    if version in have_it:
        assert re.search(told, done.stderr)


@pytest.mark.parametrize("architecture", ["gfx942", "gfx950"])
@pytest.mark.parametrize("version", RELEASES)
def test_a_counter_of_programs_has_no_data_to_wait_for(version, architecture, tmp_path):
    """llvm/llvm-project#178316 leaves out a wait here, which harms nobody: nothing is stored before the atomic."""
    assert compiled("count", architecture, version, tmp_path).returncode == 0

    assert published_early((tmp_path / "kernel.s").read_text()) == ()


@pytest.mark.parametrize("architecture", ["gfx1100", "gfx1201"])
@pytest.mark.parametrize("version", RELEASES)
def test_waves_behind_a_barrier_read_what_one_acquired(version, architecture, tmp_path):
    """triton-lang/triton#11289: waves on the other compute unit keep their cache. A wait for a flag that another program sets."""
    assert compiled("wait-for", architecture, version, tmp_path).returncode == 0

    found = acquired_alone((tmp_path / "kernel.s").read_text())
    cache = "buffer_gl0_inv" if architecture == "gfx1100" else "global_inv"
    told = (f"buffer_load_b64 of loops_and_memory.py:46 behind a barrier, without {cache}: another wave acquired",)
    assert found == (told if version == "3.8.0" else ())
