"""The gate `release_waits` also reads RDNA assembly: what one wave acquires for others, they must see."""

from __future__ import annotations

import textwrap

import pytest

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

from warpwave.inside.codegen.barriers import acquired_alone

RDNA3 = "global_atomic_add_u32 v2, v1, v1, s[8:9] glc\ns_waitcnt vmcnt(0)\nbuffer_gl1_inv\nbuffer_gl0_inv\n"
RDNA4 = "global_atomic_or_b32 v2, v1, v1, s[8:9] th:TH_ATOMIC_RETURN scope:SCOPE_DEV\ns_wait_loadcnt 0x0\nglobal_inv scope:SCOPE_DEV\n"
HANDED_ON = "s_cbranch_execz .LBB0_2\n{}ds_store_b32 v1, v2\n.LBB0_2:\ns_waitcnt lgkmcnt(0)\n"
OF_RDNA3, OF_RDNA4 = HANDED_ON.format(RDNA3), HANDED_ON.format(RDNA4)
LOAD = "ds_load_b32 v2, v1\nbuffer_load_b64 v[0:1], v2, s[0:3], 0 offen\n"
LOOP = "s_branch .LBB0_2\n.LBB0_1:\n" + RDNA3 + ".LBB0_2:\nds_store_b32 v1, v2\ns_barrier\ns_cbranch_vccnz .LBB0_1\n" + LOAD
FAULTY = {
    "RDNA 3": (OF_RDNA3 + "s_barrier\n" + LOAD, "buffer_load_b64 of k.py:7 behind a barrier, without buffer_gl0_inv"),
    "RDNA 4": (
        OF_RDNA4 + "s_barrier_signal -1\ns_barrier_wait -1\n" + LOAD,
        "buffer_load_b64 of k.py:7 behind a barrier, without global_inv",
    ),
    "in a loop": (LOOP, "buffer_load_b64"),
}
RIGHT = {
    "RDNA 3": OF_RDNA3 + "s_barrier\nbuffer_gl0_inv\n" + LOAD,
    "RDNA 4": OF_RDNA4 + "s_barrier_signal -1\ns_barrier_wait -1\nglobal_inv scope:SCOPE_SE\n" + LOAD,
    "a load past the cache": OF_RDNA3 + "s_barrier\nbuffer_load_b64 v[0:1], v2, s[0:3], 0 offen glc",
    "nothing is handed on": RDNA3 + "s_barrier\n" + LOAD,
    "no load behind the barrier": OF_RDNA3 + "s_barrier\ns_endpgm\n" + LOAD,
    "a relaxed atomic": "global_atomic_add_u32 v2, v1, v1, s[8:9] glc\nds_store_b32 v1, v2\ns_barrier\n" + LOAD,
    "CDNA, whose waves share the cache": "buffer_inv sc1\nds_write_b32 v1, v2\ns_barrier\nbuffer_load_dword v0, v2, s[0:3], 0 offen",
}


def assembly(code):
    return textwrap.indent('.file 1 "/kernels" "k.py"\n.loc 1 7 0\n' + code, "\t").replace("\t.LBB", ".LBB")


@pytest.mark.parametrize("name", FAULTY)
def test_a_load_of_what_another_wave_acquired_is_named_with_its_line(name):
    """Behind the barrier, whichever way the code goes."""
    code, told = FAULTY[name]
    (found,) = acquired_alone(assembly(code))

    assert told in found


@pytest.mark.parametrize("name", RIGHT)
def test_waves_that_empty_their_cache_are_not_blamed(name):
    """Nor code in which no wave goes on with what another one acquired."""
    assert acquired_alone(assembly(RIGHT[name])) == ()
