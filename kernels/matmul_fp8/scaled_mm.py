"""`scaled_mm`: the product of fp8 matrices and their scales."""

import torch

from kernels.configs import card, choose
from kernels.configs.matmul_fp8 import FNUZ, MATMUL_FP8, OCP
from kernels.contract import DTYPES
from kernels.dispatch import cdiv, custom_op
from kernels.launches.tape import repeatable
from kernels.matmul_fp8.launch import multiply

# Elements that share a scale, where scales are by block.
BLOCK = 128


@repeatable
def scaled_mm(
    input: torch.Tensor, other: torch.Tensor, scale_input: torch.Tensor, scale_other: torch.Tensor, out_dtype: torch.dtype = torch.bfloat16
) -> torch.Tensor:
    """Return `(input * scales) @ (other * scales)`, as `torch._scaled_mm` of a GPU that has fp8, without a gradient.

    On Hopper the matrix units keep about 14 bits of a sum of fp8 products. So they add 128 of them at most, and these sums are added in
    fp32. A result in fp32 of positive numbers is then off by 5e-4 on an H200 (relative Frobenius norm, 512 x 512, K = 512, 2048 and 16384),
    as much as PyTorch's without `use_fast_accum`. With it, PyTorch's is off by 5e-3 at K = 512, and by 0.25 at 16384.

    A scale of 1 x 128 elements and one of 128 x 128 are the blocks of DeepSeek-V3 (arXiv 2412.19437) and DeepGEMM. An operand that is not
    dense along K is copied. FNUZ encodings are those of AMD's CDNA 3. A card that can only convert an encoding multiplies fp16, which is
    exact as well; but CDNA 2 (gfx90a) takes e5m2's numbers below 2^-14 for zeros there.

    Args:
        input: (M, K) in fp8: e4m3fn, e5m2, e4m3fnuz or e5m2fnuz.
        other: (K, N) in fp8, of the same family of encodings.
        scale_input: fp32, (M, 1) for a scale a row, or (M, ceil(K / 128)) for one of each 128 elements of a row.
        scale_other: fp32, (1, N) for a scale a column, or (ceil(K / 128), ceil(N / 128)) for one of each 128 x 128 elements.
        out_dtype: bf16, fp16 or fp32.

    Raises:
        RuntimeError: shapes or devices do not match.
        NotImplementedError: a dtype is none of these, or the card can neither multiply nor convert it.
    """
    blocks = _checked(input, other, scale_input, scale_other, out_dtype)
    return _scaled_mm(input, other, scale_input, scale_other, blocks, out_dtype)


def _checked(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, out_dtype: torch.dtype) -> bool:
    """Refuse what does not fit. Return whether scales are by block."""
    if not any(a.dtype in family and b.dtype in family for family in (OCP, FNUZ)):
        raise NotImplementedError(
            f"scaled_mm got {a.dtype} and {b.dtype}. It multiplies fp8 of one family: e4m3fn and e5m2, or e4m3fnuz and e5m2fnuz. "
            "Convert one of them, or call matmul for wider numbers."
        )
    if out_dtype not in DTYPES:
        raise NotImplementedError(f"scaled_mm cannot write {out_dtype}. Its sums are fp32. Ask for bf16, fp16 or fp32, and convert that.")
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise RuntimeError(
            f"scaled_mm got operands of shape {tuple(a.shape)} and {tuple(b.shape)}. It takes matrices (M, K) and (K, N). "
            "Flatten batches of rows; transpose a weight with .t()."
        )
    if any(x.device != a.device for x in (b, scale_a, scale_b)):
        seen = ", ".join(str(x.device) for x in (a, b, scale_a, scale_b))
        raise RuntimeError(f"scaled_mm got tensors on {seen}. A kernel reads the memory of one device. Move them to {a.device}.")
    (m, k), n = a.shape, b.shape[1]
    by_row = ((m, 1), (1, n))
    by_block = ((m, cdiv(k, BLOCK)), (cdiv(k, BLOCK), cdiv(n, BLOCK)))
    given = (tuple(scale_a.shape), tuple(scale_b.shape))
    if given not in (by_row, by_block) or scale_a.dtype != torch.float32 or scale_b.dtype != torch.float32:
        raise RuntimeError(
            f"scaled_mm got scales of shape {given[0]} in {scale_a.dtype} and {given[1]} in {scale_b.dtype} for {m} x {k} times {k} x {n}. "
            f"Scales are fp32: by row of shape {by_row[0]} and {by_row[1]}, or by block of {BLOCK} of shape {by_block[0]} and "
            f"{by_block[1]}. "
            "Expand one scale for all to a row and a column."
        )
    return given != by_row


@custom_op("warpwave::scaled_mm", fake=lambda a, b, *options: a.new_empty((a.shape[0], b.shape[1]), dtype=options[-1]), repeats=True)
def _scaled_mm(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, blocks: bool, out_dtype: torch.dtype
) -> torch.Tensor:
    known = choose(MATMUL_FP8)  # asked here, because `torch.compile` cannot ask for the card
    if refused := {x.dtype for x in (a, b)} - {*known.native, *known.widened}:
        raise NotImplementedError(
            f"scaled_mm cannot multiply {', '.join(sorted(map(str, refused)))} on {card().name}. This card has no instructions for the "
            "encoding, and Triton no conversion. Convert the operands to bf16 and call matmul."
        )
    return multiply(a, b, scale_a, scale_b, blocks, out_dtype)
