"""The gate `lds_waits` reads control flow: small kernels in AMD assembly, each with an access in flight at a barrier or with none."""

import textwrap

import pytest

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

import dataclasses
import re

from synthetic import compiled

from warpwave.compare.changed_codegen import Concern, deltas
from warpwave.inside.codegen.barriers import acquired_alone, lds_in_flight, published_early
from warpwave.inside.codegen.order import never_waited, order_of

HEAD = '.file 1 "/kernels" "k.py"\n'
# Code behind HEAD, an instruction or a label after each slash; `@3` puts it in line 3.
FAULTY = {
    "a read": "@3 ds_read_b32 v1, v0 / @4 s_barrier / ds_write_b32 v0, v2 / s_waitcnt lgkmcnt(0) / s_endpgm",
    "a write that another wave reads": "@3 ds_write_b32 v0, v2 / @4 s_barrier / ds_read_b32 v1, v0 / s_waitcnt lgkmcnt(0) / s_endpgm",
    "a wait for too few": (
        "@3 ds_read_b32 v1, v0 / ds_read_b32 v2, v0 / s_waitcnt lgkmcnt(1) / @4 s_barrier / ds_write_b32 v0, v2 / s_endpgm"
    ),
    "scalar loads share the counter, and may come first": (
        "@3 ds_read_b32 v1, v0 / s_load_dword s1, s[2:3], 0x0 / s_waitcnt lgkmcnt(1) / @4 s_barrier / ds_write_b32 v0, v2 / s_endpgm"
    ),
    "only one of two paths waits": (
        "@3 ds_read_b32 v1, v0 / s_cbranch_scc1 .LBB0_2 / s_waitcnt lgkmcnt(0) / .LBB0_2: / @4 s_barrier / ds_write_b32 v0, v2 / s_endpgm"
    ),
    "in a loop, from the turn before": (
        ".LBB0_1: / @4 s_barrier / ds_write_b32 v0, v2 / s_waitcnt lgkmcnt(0) / @3 ds_read_b32 v1, v0 / s_cbranch_scc1 .LBB0_1 / s_endpgm"
    ),
    "no write behind the barrier, but half of the waves are a barrier ahead": (
        "s_cbranch_execz .LBB0_1 / s_barrier / .LBB0_1: / @3 ds_read_b32 v1, v0 / @4 s_barrier / s_waitcnt lgkmcnt(0) / "
        "s_barrier / ds_write_b32 v0, v2 / s_waitcnt lgkmcnt(0) / s_endpgm"
    ),
    "split barriers: what counts is when others may pass": (
        "@3 ds_load_b32 v1, v0 / @4 s_barrier_signal -1 / s_wait_dscnt 0x0 / s_barrier_wait -1 / ds_store_b32 v0, v2 / s_endpgm"
    ),
    "a load that goes straight to LDS overtakes": (
        "@3 ds_read_b32 v1, v0 / @4 s_barrier / buffer_load_dword v3, s[4:7], 0 offen lds / s_waitcnt lgkmcnt(0) / s_endpgm"
    ),
}
RIGHT = {
    "a wait before the barrier": "ds_read_b32 v1, v0 / s_waitcnt lgkmcnt(0) / s_barrier / ds_write_b32 v0, v2 / s_endpgm",
    "a branch carries the state that it has, not that of the block's end": (
        "s_cbranch_scc1 .LBB0_2 / ds_read_b32 v1, v0 / .LBB0_1: / s_waitcnt lgkmcnt(0) / s_endpgm / .LBB0_2: / s_barrier / "
        "ds_write_b32 v0, v2 / s_endpgm"
    ),
    "nobody writes behind the barrier before the wait": (
        "ds_read_b32 v1, v0 / s_barrier / s_waitcnt lgkmcnt(0) / s_barrier / ds_write_b32 v0, v2 / s_endpgm"
    ),
    "gfx12 has a counter for LDS": (
        "ds_load_b32 v1, v0 / s_wait_dscnt 0x0 / s_barrier_signal -1 / s_barrier_wait -1 / ds_store_b32 v0, v2 / s_endpgm"
    ),
    "gfx12 waits for two counters at once": (
        "ds_load_b32 v1, v0 / s_wait_loadcnt_dscnt 0x300 / s_barrier_signal -1 / s_barrier_wait -1 / ds_store_b32 v0, v2 / s_endpgm"
    ),
    "a permutation between lanes touches no memory": "ds_bpermute_b32 v1, v0, v2 / s_barrier / ds_write_b32 v0, v2 / s_endpgm",
    "a wait for memory alone is none for LDS, but there is nothing to wait for": (
        "global_load_dword v1, v0, s[0:1] / s_waitcnt vmcnt(0) / s_barrier / ds_write_b32 v0, v1 / s_waitcnt lgkmcnt(0) / s_endpgm"
    ),
    "a store to global memory in flight is normal": (
        "ds_read_b32 v1, v0 / s_waitcnt lgkmcnt(0) / global_store_dword v0, v1, s[0:1] / s_barrier / ds_write_b32 v0, v1 / s_endpgm"
    ),
}


def assembly(code: str) -> str:
    """Labels at the margin, instructions behind a tab, as a compiler prints them."""
    lines = re.sub(r"@(\d+) ", r".loc 1 \1 0 / ", code).split(" / ")
    return "\t" + HEAD + "k:\n" + "\n".join(line if line.endswith(":") else f"\t{line}" for line in lines) + "\n"


@pytest.mark.parametrize("name", FAULTY)
def test_an_access_in_flight_is_found_with_its_line(name):
    (found,) = lds_in_flight(assembly(FAULTY[name]))

    noun = "write" if name.startswith("a write") else "read"
    assert found == f"1 LDS {noun} of k.py:3 in flight at the barrier of k.py:4"


@pytest.mark.parametrize("name", RIGHT)
def test_right_code_is_not_reported(name):
    assert lds_in_flight(assembly(RIGHT[name])) == ()


# The gate `release_waits` also reads RDNA assembly: what one wave acquires for others, they must see.

RDNA3 = "global_atomic_add_u32 v2, v1, v1, s[8:9] glc\ns_waitcnt vmcnt(0)\nbuffer_gl1_inv\nbuffer_gl0_inv\n"
RDNA4 = "global_atomic_or_b32 v2, v1, v1, s[8:9] th:TH_ATOMIC_RETURN scope:SCOPE_DEV\ns_wait_loadcnt 0x0\nglobal_inv scope:SCOPE_DEV\n"
HANDED_ON = "s_cbranch_execz .LBB0_2\n{}ds_store_b32 v1, v2\n.LBB0_2:\ns_waitcnt lgkmcnt(0)\n"
OF_RDNA3, OF_RDNA4 = HANDED_ON.format(RDNA3), HANDED_ON.format(RDNA4)
LOAD = "ds_load_b32 v2, v1\nbuffer_load_b64 v[0:1], v2, s[0:3], 0 offen\n"
LOOP = "s_branch .LBB0_2\n.LBB0_1:\n" + RDNA3 + ".LBB0_2:\nds_store_b32 v1, v2\ns_barrier\ns_cbranch_vccnz .LBB0_1\n" + LOAD
FAULTY_ACQUIRES = {
    "RDNA 3": (OF_RDNA3 + "s_barrier\n" + LOAD, "buffer_load_b64 of k.py:7 behind a barrier, without buffer_gl0_inv"),
    "RDNA 4": (
        OF_RDNA4 + "s_barrier_signal -1\ns_barrier_wait -1\n" + LOAD,
        "buffer_load_b64 of k.py:7 behind a barrier, without global_inv",
    ),
    "in a loop": (LOOP, "buffer_load_b64"),
}
RIGHT_ACQUIRES = {
    "RDNA 3": OF_RDNA3 + "s_barrier\nbuffer_gl0_inv\n" + LOAD,
    "RDNA 4": OF_RDNA4 + "s_barrier_signal -1\ns_barrier_wait -1\nglobal_inv scope:SCOPE_SE\n" + LOAD,
    "a load past the cache": OF_RDNA3 + "s_barrier\nbuffer_load_b64 v[0:1], v2, s[0:3], 0 offen glc",
    "nothing is handed on": RDNA3 + "s_barrier\n" + LOAD,
    "no load behind the barrier": OF_RDNA3 + "s_barrier\ns_endpgm\n" + LOAD,
    "a relaxed atomic": "global_atomic_add_u32 v2, v1, v1, s[8:9] glc\nds_store_b32 v1, v2\ns_barrier\n" + LOAD,
    "CDNA, whose waves share the cache": "buffer_inv sc1\nds_write_b32 v1, v2\ns_barrier\nbuffer_load_dword v0, v2, s[0:3], 0 offen",
}


def assembly_of_acquires(code):
    return textwrap.indent('.file 1 "/kernels" "k.py"\n.loc 1 7 0\n' + code, "\t").replace("\t.LBB", ".LBB")


@pytest.mark.parametrize("name", FAULTY_ACQUIRES)
def test_a_load_of_what_another_wave_acquired_is_named_with_its_line(name):
    code, told = FAULTY_ACQUIRES[name]
    (found,) = acquired_alone(assembly_of_acquires(code))

    assert told in found


@pytest.mark.parametrize("name", RIGHT_ACQUIRES)
def test_waves_that_empty_their_cache_are_not_blamed(name):
    assert acquired_alone(assembly_of_acquires(RIGHT_ACQUIRES[name])) == ()


# The gate `release_waits` reads AMD assembly: what publishes data must wait for the cache that writes it back.

HEAD_WRITE_BACKS = '.file 1 "/kernels" "k.py"\n.loc 1 7 0\n'
STORED = "global_store_dword v0, v1, s[4:5]\ns_waitcnt vmcnt(0)\n"
UNWAITED = "buffer_wbl2 sc1\nglobal_atomic_add v1, v1, v2, s[2:3] sc0"
FAULTY_WRITE_BACKS = {
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
RIGHT_WRITE_BACKS = {
    "a wait": "buffer_wbl2 sc1\ns_waitcnt vmcnt(0)\nglobal_atomic_add v1, v1, v2, s[2:3] sc0",
    "a wait for several": "buffer_wbl2 sc1\ns_waitcnt vmcnt(0) lgkmcnt(0)\ns_barrier",
    "a wait for all": "buffer_wbl2 sc1\ns_waitcnt 0\ns_barrier",
    "RDNA 4": "global_wb scope:SCOPE_DEV\ns_wait_storecnt 0x0\nglobal_atomic_add_u32 v0, v1, s[0:1]",
    "nothing is published": "buffer_wbl2 sc1\nglobal_load_dword v0, v1, s[0:1]\ns_endpgm\nglobal_atomic_add v1, v1, v2, s[2:3]",
    "no write-back": "s_waitcnt lgkmcnt(0)\nglobal_atomic_add v1, v1, v2, s[2:3] sc0",
}  # fmt: skip


def assembly_of_write_backs(code):
    return textwrap.indent(HEAD_WRITE_BACKS + code, "\t").replace("\t.LBB", ".LBB")


@pytest.mark.parametrize("name", FAULTY_WRITE_BACKS)
def test_what_publishes_too_early_is_named_with_its_line(name):
    code, told = FAULTY_WRITE_BACKS[name]
    (found,) = published_early(assembly_of_write_backs(STORED + code))

    assert told in found


@pytest.mark.parametrize("name", RIGHT_WRITE_BACKS)
def test_a_release_that_waits_is_not_blamed(name):
    assert published_early(assembly_of_write_backs(STORED + RIGHT_WRITE_BACKS[name])) == ()


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
    assert published_early(assembly_of_write_backs(NOTHING_STORED[name])) == ()


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
    (found,) = published_early(assembly_of_write_backs(code))

    assert "global_atomic_add" in found


# What orders accesses to shared memory: PTX as compilers write it, with each barrier, fence and wait taken away in turn.


PIPELINE = """
	.loc	1 3 5
	cp.async.cg.shared.global [ %r10 + 0 ], [ %rd22 + 0 ], 0x10, %r11;
	cp.async.commit_group;
$L__BB0_2:
	.loc	1 5 9
	cp.async.wait_group 	0;
	bar.sync 	0;
	ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [%r5];
	mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%r1}, {%r2}, {%r3}, {%r4};
	bar.sync 	0;
	.loc	2 90 1, function_name $L__info_string0, inlined_at 1 7 9
	@%p1 cp.async.cg.shared.global [ %r10 + 0 ], [ %rd22 + 0 ], 0x10, %r11;
	cp.async.commit_group;
	@%p10 bra 	$L__BB0_2;
	.loc	1 9 5
	cp.async.wait_group 	0;
	bar.sync 	0;
	st.shared.v4.b32 	[%r846], {%r852, %r853, %r854, %r855};
	bar.sync 	0;
	.loc	1 10 5
	ld.shared.v4.b32 	{%r788, %r789, %r790, %r791}, [%r848];
	ret;
	.file	1 "/kernels/k.py"
	.file	2 "/kernels/helpers.py"
"""
HOPPER = """
	.loc	1 3 5
	@%p1 mbarrier.init.shared::cta.b64 [%r1], 1;
	bar.sync 	0;
	@%p2 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 16384;
	@%p2 cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [%r2], [%rd1, {%r3, %r4}], [%r1];
$L__BB0_1:
	mbarrier.try_wait.parity.shared::cta.b64 complete, [%r1], %r9;
	.loc	1 5 9
	wgmma.fence.sync.aligned;
	wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%r5}, %rd3, %rd4, 0, 1, 1, 0, 0;
	wgmma.commit_group.sync.aligned;
	wgmma.wait_group.sync.aligned 	0;
	@%p10 bra 	$L__BB0_1;
	.loc	1 9 5
	st.shared.v4.b32 	[%r846], {%r852, %r853, %r854, %r855};
	fence.proxy.async.shared::cta;
	bar.sync 	0;
	@%p3 cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {%r3, %r4}], [%r2];
	cp.async.bulk.commit_group;
	cp.async.bulk.wait_group.read 	0;
	ret;
	.file	1 "/kernels/k.py"
"""
ORDERS = re.compile(
    r"\s+(?:@%p2 )?(bar\.sync|fence|mbarrier\.try_wait|mbarrier\.arrive|wgmma\.(?:fence|commit|wait)|cp\.async\.(?:bulk\.)?(?:commit|wait))"
)
PLACES = [
    pytest.param(code, at, found[1], id=f"{name} {found[1]} {at}")
    for name, code in (("pipeline", PIPELINE), ("hopper", HOPPER))
    for at, line in enumerate(code.splitlines())
    if (found := ORDERS.match(line))
]


def without(code, at):
    lines = code.splitlines(keepends=True)
    return "".join(lines[:at] + lines[at + 1 :])


@pytest.mark.parametrize(("code", "at", "name"), PLACES)
def test_what_orders_no_more_is_named_with_the_accesses_on_both_sides(code, at, name):
    before, after = (dataclasses.replace(compiled(), order=order_of(text)) for text in (code, without(code, at)))
    (found,) = [delta for delta in deltas(before, after) if delta.concern is Concern.ORDER]

    assert found.what.startswith(name)
    assert (found.before, found.after) == ("1", "0")


def test_accesses_have_the_lines_of_the_source():
    """For an inlined function that is where it is called; neighbours alike are one."""
    first = "copy-in@3 cp.async.commit_group@3 cp.async.wait_group:0@5 bar.sync@5 load@5 bar.sync@5 copy-in@7"
    assert order_of(PIPELINE).startswith(first)


def test_amd_assembly_is_read_alike():
    assembly = "\tds_write_b32 v0, v1\n\ts_waitcnt lgkmcnt(0)\n\ts_barrier\n\tds_read_b32 v1, v0\n\ts_endpgm\n"
    assert order_of(assembly) == "store@ s_barrier@ load@"


@pytest.mark.parametrize(
    ("store", "barrier", "load"),
    [
        ("@%p1 st.global.v2.b32 [ %rd1 + 0 ], { %r1, %r2 };", "bar.sync \t0;", "ld.global.b32 \t%r3, [%rd2];"),
        ("buffer_store_dwordx2 v[0:1], v2, s[4:7], 0 offen", "s_barrier", "global_load_dword v3, v1, s[6:7]"),
    ],
)
def test_without_shared_memory_a_barrier_is_for_global_memory(store, barrier, load):
    code = f"\t.loc\t1 3 5\n\t{store}\n\t{barrier}\n\t.loc\t1 5 5\n\t{load}\n"
    before, after = (dataclasses.replace(compiled(), order=order_of(text)) for text in (code, without(code, 2)))

    (found,) = [delta.what for delta in deltas(before, after) if delta.concern is Concern.ORDER]
    assert found == f"{barrier.split()[0]} between the store of line 3 and the load of line 5"
    assert order_of(code + "\tds_write_b32 v0, v1\n") == f"global-store@3 {barrier.split()[0]}@3 global-load@5 store@5"


PUBLISHED = {
    "gfx942": (
        "buffer_store_dword v0, v1, s[0:3], 0 offen / s_waitcnt vmcnt(0) / buffer_wbl2 sc1 / s_waitcnt vmcnt(0) / "
        "global_atomic_swap v0, v1, s[4:5] sc1 / buffer_inv sc1 / s_endpgm"
    ),
    "gfx1100": (
        "global_store_b32 v0, v1, s[0:1] / s_waitcnt_vscnt null, 0x0 / global_atomic_add_u32 v1, v0, s[0:1] glc / buffer_gl1_inv / "
        "buffer_gl0_inv / s_endpgm"
    ),
    "gfx1201": (
        "global_store_b32 v0, v1, s[0:1] / global_wb scope:SCOPE_DEV / global_atomic_add_u32 v1, v0, s[0:1] / "
        "global_inv scope:SCOPE_DEV / s_endpgm"
    ),
}


@pytest.mark.parametrize("card", PUBLISHED)
def test_a_lost_write_back_or_invalidation_of_a_cache_is_named(card):
    code = assembly(PUBLISHED[card])
    for at, line in enumerate(code.splitlines()):
        if re.search(r"_(?:wbl2|wb|inv)\b", line):
            before, after = (dataclasses.replace(compiled(), order=order_of(text)) for text in (code, without(code, at)))
            (found,) = [delta for delta in deltas(before, after) if delta.concern is Concern.ORDER]
            scope = "" if card == "gfx1100" else ".agent"
            assert found.what.startswith(f"{line.split()[0]}{scope} between the ")


def test_an_atomic_that_orders_no_more_is_named():
    """PTX has it in the name of the atomic."""
    code = "\tst.global.b32 [%rd1], %r1;\n\tatom.global.gpu.acq_rel.add.u32 %r2, [%rd2], %r3;\n"
    before, after = (dataclasses.replace(compiled(), order=order_of(text)) for text in (code, code.replace("acq_rel", "relaxed")))
    (found,) = [delta for delta in deltas(before, after) if delta.concern is Concern.ORDER]
    assert found.what.startswith("acq_rel.gpu between the store")


@pytest.mark.parametrize(
    ("wide", "narrow", "word"),
    [
        ("atom.global.gpu.acq_rel.add.u32 %r2, [%rd2], %r3", "atom.global.cta.acq_rel.add.u32 %r2, [%rd2], %r3", "acq_rel.gpu"),
        ("membar.sys", "membar.gl", "membar.sys"),
        ("fence.acq_rel.gpu", "fence.acq_rel.cta", "fence.gpu"),
        ("global_inv scope:SCOPE_DEV", "global_inv scope:SCOPE_SE", "global_inv.agent"),
        ("global_inv scope:SCOPE_SE", "global_inv", "global_inv.workgroup"),
        ("buffer_wbl2 sc0 sc1", "buffer_wbl2 sc1", "buffer_wbl2.system"),
    ],
)
def test_what_orders_for_fewer_is_named(wide, narrow, word):
    """For all that see the memory, the threads of the card, or of one program; not that it orders for more, nor what earlier runs wrote."""
    around = "\tst.global.b32 [%rd1], %r1;\n\tIT;\n\tld.global.b32 %r1, [%rd1];\n"
    two, one = (dataclasses.replace(compiled(), order=order_of(around.replace("IT", text))) for text in (wide, narrow))
    earlier = dataclasses.replace(two, order=two.order.replace(word, word.partition(".")[0]))
    (found,) = [delta for delta in deltas(two, one) if delta.concern is Concern.ORDER]

    assert found.what.startswith(f"{word} between ")
    assert [delta for each in (one, earlier) for delta in deltas(each, two) if delta.concern is Concern.ORDER] == []


ALONE = {
    ("wgmma.fence.sync.aligned", HOPPER): "wgmma of k.py:5 without wgmma.fence before it",
    ("wgmma.wait_group.sync.aligned", HOPPER): "wgmma of k.py:5 never waited for: no wgmma.wait_group 0 behind it",
    ("wgmma.commit_group.sync.aligned", HOPPER): "wgmma of k.py:5 waited for at k.py:5 without wgmma.commit_group",
}


@pytest.mark.parametrize(("what", "code"), ALONE, ids=lambda value: value if len(value) < 40 else "")
def test_products_that_nothing_waits_for_are_wrong_without_a_comparison(what, code):
    at = next(at for at, line in enumerate(code.splitlines()) if line.strip().startswith(what))

    assert never_waited(code) == ()
    assert ALONE[what, code] in never_waited(without(code, at))


def test_copies_that_nothing_waits_for_are_wrong_without_a_comparison():
    lines = PIPELINE.splitlines()
    barrier = next(at for at, line in enumerate(lines) if "bar.sync" in line)

    assert never_waited(PIPELINE) == ()
    assert never_waited(PIPELINE.replace("cp.async.wait_group", "//")) == (
        "cp.async of k.py:3 never waited for: there is no cp.async.wait_group",
    )
    (found,) = never_waited(without(PIPELINE, barrier))
    assert found == "read of shared memory at k.py:5 behind the cp.async.wait_group of k.py:5 without a barrier"
