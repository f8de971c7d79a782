"""The gate `lds_waits` reads control flow: small kernels in AMD assembly, each with an access in flight at a barrier or with none."""

from __future__ import annotations

import textwrap

import pytest

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

from warpwave.inside.codegen.barriers import lds_in_flight

HEAD = '.file 1 "/kernels" "k.py"\n'
# What a fault is, as code behind HEAD. Places come from .loc.
FAULTY = {
    "a read": """
        .loc 1 3 0
        ds_read_b32 v1, v0
        .loc 1 4 0
        s_barrier
        ds_write_b32 v0, v2
        s_waitcnt lgkmcnt(0)
        s_endpgm
    """,
    "a write that another wave reads": """
        .loc 1 3 0
        ds_write_b32 v0, v2
        .loc 1 4 0
        s_barrier
        ds_read_b32 v1, v0
        s_waitcnt lgkmcnt(0)
        s_endpgm
    """,
    "a wait for too few": """
        .loc 1 3 0
        ds_read_b32 v1, v0
        ds_read_b32 v2, v0
        s_waitcnt lgkmcnt(1)
        .loc 1 4 0
        s_barrier
        ds_write_b32 v0, v2
        s_endpgm
    """,
    "scalar loads share the counter, and may come first": """
        .loc 1 3 0
        ds_read_b32 v1, v0
        s_load_dword s1, s[2:3], 0x0
        s_waitcnt lgkmcnt(1)
        .loc 1 4 0
        s_barrier
        ds_write_b32 v0, v2
        s_endpgm
    """,
    "only one of two paths waits": """
        .loc 1 3 0
        ds_read_b32 v1, v0
        s_cbranch_scc1 .LBB0_2
        s_waitcnt lgkmcnt(0)
        .LBB0_2:
        .loc 1 4 0
        s_barrier
        ds_write_b32 v0, v2
        s_endpgm
    """,
    "in a loop, from the turn before": """
        .LBB0_1:
        .loc 1 4 0
        s_barrier
        ds_write_b32 v0, v2
        s_waitcnt lgkmcnt(0)
        .loc 1 3 0
        ds_read_b32 v1, v0
        s_cbranch_scc1 .LBB0_1
        s_endpgm
    """,
    "no write behind the barrier, but half of the waves are a barrier ahead": """
        s_cbranch_execz .LBB0_1
        s_barrier
        .LBB0_1:
        .loc 1 3 0
        ds_read_b32 v1, v0
        .loc 1 4 0
        s_barrier
        s_waitcnt lgkmcnt(0)
        s_barrier
        ds_write_b32 v0, v2
        s_waitcnt lgkmcnt(0)
        s_endpgm
    """,
    "split barriers: what counts is when others may pass": """
        .loc 1 3 0
        ds_load_b32 v1, v0
        .loc 1 4 0
        s_barrier_signal -1
        s_wait_dscnt 0x0
        s_barrier_wait -1
        ds_store_b32 v0, v2
        s_endpgm
    """,
    "a load that goes straight to LDS overtakes": """
        .loc 1 3 0
        ds_read_b32 v1, v0
        .loc 1 4 0
        s_barrier
        buffer_load_dword v3, s[4:7], 0 offen lds
        s_waitcnt lgkmcnt(0)
        s_endpgm
    """,
}
RIGHT = {
    "a wait before the barrier": """
        ds_read_b32 v1, v0
        s_waitcnt lgkmcnt(0)
        s_barrier
        ds_write_b32 v0, v2
        s_endpgm
    """,
    "a branch carries the state that it has, not that of the block's end": """
        s_cbranch_scc1 .LBB0_2
        ds_read_b32 v1, v0
        .LBB0_1:
        s_waitcnt lgkmcnt(0)
        s_endpgm
        .LBB0_2:
        s_barrier
        ds_write_b32 v0, v2
        s_endpgm
    """,
    "nobody writes behind the barrier before the wait": """
        ds_read_b32 v1, v0
        s_barrier
        s_waitcnt lgkmcnt(0)
        s_barrier
        ds_write_b32 v0, v2
        s_endpgm
    """,
    "gfx12 has a counter for LDS": """
        ds_load_b32 v1, v0
        s_wait_dscnt 0x0
        s_barrier_signal -1
        s_barrier_wait -1
        ds_store_b32 v0, v2
        s_endpgm
    """,
    "gfx12 waits for two counters at once": """
        ds_load_b32 v1, v0
        s_wait_loadcnt_dscnt 0x300
        s_barrier_signal -1
        s_barrier_wait -1
        ds_store_b32 v0, v2
        s_endpgm
    """,
    "a permutation between lanes touches no memory": """
        ds_bpermute_b32 v1, v0, v2
        s_barrier
        ds_write_b32 v0, v2
        s_endpgm
    """,
    "a wait for memory alone is none for LDS, but there is nothing to wait for": """
        global_load_dword v1, v0, s[0:1]
        s_waitcnt vmcnt(0)
        s_barrier
        ds_write_b32 v0, v1
        s_waitcnt lgkmcnt(0)
        s_endpgm
    """,
    "a store to global memory in flight is normal": """
        ds_read_b32 v1, v0
        s_waitcnt lgkmcnt(0)
        global_store_dword v0, v1, s[0:1]
        s_barrier
        ds_write_b32 v0, v1
        s_endpgm
    """,
}


def assembly(code: str) -> str:
    """Labels at the margin, instructions behind a tab, as a compiler prints them."""
    lines = [line if line.endswith(":") else f"\t{line}" for line in textwrap.dedent(code).strip().splitlines()]
    return "\t" + HEAD + "k:\n" + "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", FAULTY)
def test_an_access_in_flight_is_found_with_its_line(name):
    """The line of the access, and that of the barrier."""
    (found,) = lds_in_flight(assembly(FAULTY[name]))

    noun = "write" if name.startswith("a write") else "read"
    assert found == f"1 LDS {noun} of k.py:3 in flight at the barrier of k.py:4"


@pytest.mark.parametrize("name", RIGHT)
def test_right_code_is_not_reported(name):
    """What looks alike, and is allowed."""
    assert lds_in_flight(assembly(RIGHT[name])) == ()


def test_many_accesses_are_counted():
    """Each instruction once, whatever the number of paths to it."""
    reads = "".join(f"ds_read_b32 v{number}, v0\n" for number in range(48))

    assert lds_in_flight(assembly(reads + "s_barrier\nds_write_b32 v0, v2\ns_endpgm")) == (
        "48 LDS reads in flight at the barrier of line 51 of the assembly",
    )
