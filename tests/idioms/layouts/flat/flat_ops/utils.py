"""What the files share, the device included, which is decided at import."""

import torch
import triton

DEVICE = triton.runtime.driver.active.get_active_torch_device()
HAS_LARGE_BLOCKS = torch.cuda.is_available() and torch.cuda.get_device_capability()[0] >= 8


def cdiv(a, b):
    return (a + b - 1) // b


def block_size():
    return 512 if HAS_LARGE_BLOCKS else 256
