"""Products of the card's vendor by the handle that Triton brings, as its tutorials compare their kernels with them."""

import pytest
import torch
import triton
from small_kernels import add

if triton.runtime.driver.active.get_current_target().backend == "cuda":
    from triton._C.libtriton import nvidia

    handle = nvidia.cublas.CublasLt(torch.empty(32 << 20, device="cuda", dtype=torch.uint8))
else:
    from triton._C.libtriton import amd

    handle = amd.hipblas.HipblasLt(torch.empty(32 << 20, device="cuda", dtype=torch.uint8))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_product(dtype, device):
    a, b = (torch.randn(rows, 64, device=device, dtype=dtype) for rows in (128, 256))
    c = torch.empty(128, 256, device=device, dtype=dtype)
    handle.matmul(a, b, c)
    torch.testing.assert_close(add(c, c), 2 * (a @ b.T), atol=2e-2, rtol=2e-2)


def test_a_product_and_a_sum(device):
    a, b = (torch.randn(rows, 64, device=device, dtype=torch.float16) for rows in (128, 256))
    c = torch.randn(128, 256, device=device, dtype=torch.float16)
    d = torch.empty_like(c)
    handle.gemm(a, b, c, d, 1.0, 0.5)
    torch.testing.assert_close(add(d, d), 2 * (a @ b.T) + c, atol=4e-2, rtol=2e-2)
