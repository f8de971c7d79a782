"""Assembly of one vendor within a kernel: an approximation, packed conversions, predicates, several results; and the warps of a launch."""

import pytest
import torch
import triton
import triton.language as tl

pytestmark = pytest.mark.skipif(torch.version.hip is not None, reason="PTX")


@triton.jit
def exp2_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n, other=0)
    value = tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [value], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(y + at, value, mask=at < n)


def test_an_approximation():
    x = torch.randn(1000, device="cuda")
    y = torch.empty_like(x)
    exp2_kernel[(8,)](x, y, 1000, BLOCK=128)
    torch.testing.assert_close(y, torch.exp2(x))


@triton.jit
def pairs_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n, other=0)
    half = tl.inline_asm_elementwise(
        "{ .reg .b32 one; mov.b32 one, 0x3F803F80; fma.rn.bf16x2 $0, $1, $1, one; }",
        "=r,r",
        [value],
        dtype=tl.bfloat16,
        is_pure=True,
        pack=2,
    )
    tl.store(y + at, half, mask=at < n)


def test_two_elements_in_a_register():
    x = torch.randn(1000, device="cuda").to(torch.bfloat16)
    y = torch.empty_like(x)
    pairs_kernel[(8,)](x, y, 1000, BLOCK=128)
    torch.testing.assert_close(y, (x.double() * x.double() + 1).to(torch.bfloat16), rtol=0, atol=0)


@triton.jit
def bytes_kernel(x, y, z, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n, other=0)
    low, high = tl.inline_asm_elementwise(
        """
        {   // four bytes in, four words out, twice
            .reg .pred p;
            .reg .b32 b<2>;
            bfe.u32 $0, $8, 0, 8;
            bfe.u32 $1, $8, 8, 8;
            shr.b32 b0, $8, 16;
            and.b32 $2, b0, 255;
            prmt.b32 $3, $8, 0, 0x4443;
            setp.gt.u32 p, $0, 100;
            @p  add.u32 $4, $0, 1;
            @!p mov.b32 $4, 0;
            min.u32 $5, $1, 7;
            lop3.b32 $6, $2, 15, 0, 0x3C;
            mad.lo.u32 $7, $3, 3, 1;
        }
        """,
        "=&r,=&r,=&r,=&r,=&r,=&r,=&r,=&r,r",
        [value],
        dtype=(tl.int32, tl.int32),
        is_pure=True,
        pack=4,
    )
    tl.store(y + at, low, mask=at < n)
    tl.store(z + at, high, mask=at < n)


def test_four_elements_and_two_results():
    """Which elements share an instance is left open: only the first result is the same for each place in it."""
    x = torch.arange(1024, device="cuda").to(torch.uint8)
    y, z = (torch.empty(1024, dtype=torch.int32, device="cuda") for _ in range(2))
    bytes_kernel[(2,)](x, y, z, 1024, BLOCK=512)
    whole = x.to(torch.int32)
    assert torch.equal(y, whole)
    ways = torch.stack([torch.where(whole > 100, whole + 1, 0), whole.clamp(max=7), whole ^ 15, whole * 3 + 1])
    assert (z == ways).any(0).all()


@triton.jit
def warps_kernel(x):
    tl.store(x, tl.extra.cuda.num_warps())


@pytest.mark.parametrize("warps", [2, 8])
def test_the_warps_of_a_launch(warps):
    x = torch.zeros(1, dtype=torch.int32, device="cuda")
    warps_kernel[(1,)](x, num_warps=warps)
    assert x.item() == warps
