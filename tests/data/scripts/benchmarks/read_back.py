"""Measures twice, and raises an error if the times that it reads back from JSON are in the wrong order."""

import json

import torch
import triton
from my_ops.relu import relu

x = torch.randn(1024, device="cuda")
times = json.loads(json.dumps([triton.testing.do_bench(lambda: relu(x)) for _ in range(2)]))
if times[0] >= times[1]:
    raise ValueError("it became no slower")
