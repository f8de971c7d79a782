"""A measurement that ends its process, and one behind it."""

import os
import sys

import torch
import triton
from my_ops.relu import relu

x = torch.randn(1024, device="cuda")
for name, call in (("before", lambda: relu(x)), ("dies", lambda: os._exit(9)), ("behind", lambda: relu(x))):
    print(name, triton.testing.do_bench(call, return_mode="median"), file=sys.stderr)
