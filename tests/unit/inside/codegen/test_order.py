"""What orders accesses to shared memory: PTX as compilers write it, with each barrier, fence and wait taken away in turn."""

import dataclasses
import re

import pytest

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

from synthetic import compiled

from warpwave.compare.changed_codegen import Concern, deltas
from warpwave.inside.codegen.order import never_waited, order_of

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
