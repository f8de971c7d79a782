"""A launch that is bound (kernels/launches/bound.py) gives the driver what Triton's own gives it. The driver here only notes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import command

REPO = Path(__file__).parents[4]
SCRIPT = """
import json, sys
import torch, triton
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.compiler.compiler import LazyDict
from triton.runtime.jit import JITFunction

LAUNCHED = []

class Noting(DriverBase):
    utils = property(lambda self: self)

    def __init__(self, target): self.target = target
    @classmethod
    def is_active(cls): return True
    def map_python_to_cpp_type(self, ty): return ty
    def get_current_target(self): return self.target
    def get_current_device(self): return 0
    def get_current_stream(self, device=0): return 7
    def get_active_torch_device(self): return torch.device("cpu")
    def get_benchmarker(self): return None
    def get_device_properties(self, device): return {"multiprocessor_count": 132, "max_shared_mem": 232448}
    def load_binary(self, name, kernel, shared, device): return 1, 11, 0, 0, 1024
    def unload_module(self, module): pass
    def launcher_cls(self, src, metadata): return lambda *args: LAUNCHED.append(args)

target = GPUTarget("cuda", 90, 32) if sys.argv[1] == "sm_90" else GPUTarget("hip", sys.argv[1], 64)
triton.runtime.driver.set_active(Noting(target))
from kernels.launches.bound import Bound, descriptors
from kernels.gelu.gelu import gelu_kernel

bound = Bound(gelu_kernel, (4,), {"TANH": True, "BLOCK_SIZE": 1024, "num_warps": 4})
own, watched = JITFunction.run, []
x, y = torch.randn(4096), torch.randn(4096)
bound(x, x, 4096)
bound(y, x, 4096)
JITFunction.run = lambda *args, **kwargs: watched.append(1) or own(*args, **kwargs)
bound(y, x, 4096)
JITFunction.run = own
first, second, third = LAUNCHED
print(json.dumps({
    "runs": bound._run is not None,
    "as_triton": [a is b or a == b or type(a) is type(b) is LazyDict for a, b in zip(second, third) if not isinstance(a, torch.Tensor)],
    "tensors": [[t is y for t in args if isinstance(t, torch.Tensor)] for args in LAUNCHED],
    "lengths": [len(args) for args in LAUNCHED],
    "watched": len(watched),
    "constants": [args[-2:] for args in LAUNCHED],
}))
"""


def launches(architecture: str) -> dict:
    run = command.python("-c", SCRIPT, architecture, kind="compiler", env={**os.environ, "PYTHONPATH": str(REPO)})
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def test_a_compiled_kernel_gets_what_triton_gives_it():
    found = launches("sm_90")
    assert found["runs"]
    assert all(found["as_triton"])
    assert len(set(found["lengths"])) == 1
    assert found["tensors"] == [[False, False], [True, False], [True, False]]
    assert found["constants"] == [[True, 1024]] * 3
    assert found["watched"] == 1  # a tool that replaces launches of Triton sees each one


def test_no_launch_is_bound_on_amd():
    found = launches("gfx942")
    assert not found["runs"]
    assert found["watched"] == 1
    assert len(found["lengths"]) == 3
