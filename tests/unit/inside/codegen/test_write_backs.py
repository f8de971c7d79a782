"""The gate `release_waits` reads AMD assembly: what publishes data must wait for the cache that writes it back."""

from __future__ import annotations

import textwrap

import pytest

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

from warpwave.inside.codegen.barriers import published_early

HEAD = '.file 1 "/kernels" "k.py"\n.loc 1 7 0\n'
STORED = "global_store_dword v0, v1, s[4:5]\ns_waitcnt vmcnt(0)\n"
UNWAITED = "buffer_wbl2 sc1\nglobal_atomic_add v1, v1, v2, s[2:3] sc0"
FAULTY = {
    "an atomic": (
        "buffer_wbl2 sc1\nglobal_atomic_add v1, v1, v2, s[2:3] sc0",
        "global_atomic_add of k.py:7 before the wait for buffer_wbl2",
    ),
    "a store": ("buffer_wbl2 sc0 sc1\nv_mov_b32 v1, 0\nglobal_store_dword v0, v1, s[4:5]", "global_store_dword of k.py:7"),
    "a barrier": ("buffer_wbl2 sc1\ns_barrier", "s_barrier of k.py:7"),
    "a wait for LDS only": (
        "buffer_wbl2 sc1\ns_waitcnt lgkmcnt(0)\nbuffer_atomic_cmpswap v[0:1], v2, s[0:3], 0 offen",
        "buffer_atomic_cmpswap",
    ),
    "a wait for all but one": ("buffer_wbl2 sc1\ns_waitcnt vmcnt(1)\nflat_atomic_add v[0:1], v2", "flat_atomic_add"),
    "behind a label": ("buffer_wbl2 sc1\n.LBB0_2:\nglobal_atomic_add v1, v1, v2, s[2:3]", "global_atomic_add"),
    "RDNA 4": ("global_wb scope:SCOPE_DEV\ns_wait_loadcnt 0x0\nglobal_atomic_add_u32 v0, v1, s[0:1]", "before the wait for global_wb"),
}
RIGHT = {
    "a wait": "buffer_wbl2 sc1\ns_waitcnt vmcnt(0)\nglobal_atomic_add v1, v1, v2, s[2:3] sc0",
    "a wait for several": "buffer_wbl2 sc1\ns_waitcnt vmcnt(0) lgkmcnt(0)\ns_barrier",
    "a wait for all": "buffer_wbl2 sc1\ns_waitcnt 0\ns_barrier",
    "RDNA 4": "global_wb scope:SCOPE_DEV\ns_wait_storecnt 0x0\nglobal_atomic_add_u32 v0, v1, s[0:1]",
    "nothing is published": "buffer_wbl2 sc1\nglobal_load_dword v0, v1, s[0:1]\ns_endpgm\nglobal_atomic_add v1, v1, v2, s[2:3]",
    "no write-back": "s_waitcnt lgkmcnt(0)\nglobal_atomic_add v1, v1, v2, s[2:3] sc0",
}  # fmt: skip


def assembly(code):
    return textwrap.indent(HEAD + code, "\t").replace("\t.LBB", ".LBB")


@pytest.mark.parametrize("name", FAULTY)
def test_what_publishes_too_early_is_named_with_its_line(name):
    """Atomics, stores and barriers, whatever lies between."""
    code, told = FAULTY[name]
    (found,) = published_early(assembly(STORED + code))

    assert told in found


@pytest.mark.parametrize("name", RIGHT)
def test_a_release_that_waits_is_not_blamed(name):
    """The wait that the kind of card has, alone or with others."""
    assert published_early(assembly(STORED + RIGHT[name])) == ()


NOTHING_STORED = {
    "loads only": f"global_load_dword v0, v1, s[0:1]\ns_waitcnt vmcnt(0)\n{UNWAITED}",
    "atomics only": f"{UNWAITED}\ns_waitcnt vmcnt(0)\nbuffer_inv sc1\n{UNWAITED}",
    "stored afterwards": f"{UNWAITED}\n{STORED}s_endpgm",
    "stored on the other path": f"s_cbranch_scc1 .LBB0_2\n{STORED}s_endpgm\n.LBB0_2:\n{UNWAITED}",
    "spilled": f"scratch_store_dword off, v1, off\n{UNWAITED}",
    "written back already": f"{STORED}buffer_wbl2 sc1\ns_waitcnt vmcnt(0)\n{UNWAITED}",
}


@pytest.mark.parametrize("name", NOTHING_STORED)
def test_what_stored_nothing_need_not_wait(name):
    """Nothing is in the cache that another program could read too early."""
    assert published_early(assembly(NOTHING_STORED[name])) == ()


@pytest.mark.parametrize(
    "code",
    [
        f"s_cbranch_execz .LBB0_2\n{STORED}.LBB0_2:\ns_barrier\n{UNWAITED}",
        f".LBB0_2:\n{UNWAITED}\ns_waitcnt vmcnt(0)\n{STORED}s_cbranch_scc1 .LBB0_2",
        f"s_swappc_b64 s[30:31], s[2:3]\n{UNWAITED}",
    ],
    ids=["in a branch", "in a loop", "in a function"],
)
def test_a_store_on_any_path_before_is_to_be_waited_for(code):
    """Another wave may have taken the path with the store."""
    (found,) = published_early(assembly(code))

    assert "global_atomic_add" in found
