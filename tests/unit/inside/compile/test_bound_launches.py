"""A launch that is bound (kernels/launches/bound.py) gives the driver what Triton's own gives it. The driver here only notes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import command
import pytest

REPO = Path(__file__).parents[4]
DRIVER = """
import json, sys
import torch, triton
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.compiler.compiler import LazyDict
from triton.runtime.jit import JITFunction

LAUNCHED, STREAM = [], [7]

class Launcher:
    global_scratch_size = profile_scratch_size = 0

    def __init__(self, together):
        self.together, self.launch = together, lambda *args: LAUNCHED.append(args)
    def __call__(self, x, y, z, stream, function, *args):
        if args[2]: args[2](args[1])  # a hook
        # As in Triton's own for NVIDIA: up to 3.6, the kernel's arguments come one by one.
        rest = (*args[:4], args[4:]) if self.together else args
        self.launch(x, y, z, stream, function, *rest)

class Noting(DriverBase):
    utils = property(lambda self: self)

    def __init__(self, target): self.target = target
    @classmethod
    def is_active(cls): return True
    def map_python_to_cpp_type(self, ty): return ty
    def get_current_target(self): return self.target
    def get_current_device(self): return 0
    def get_current_stream(self, device=0): return STREAM[0]
    def get_active_torch_device(self): return torch.device("cpu")
    def get_benchmarker(self): return None
    def get_device_properties(self, device): return {"multiprocessor_count": 132, "max_shared_mem": 232448}
    def load_binary(self, name, kernel, shared, device): return 1, 11, 0, 0, 1024
    def unload_module(self, module): pass
    def launcher_cls(self, src, metadata):
        return Launcher(sys.argv[2] == "together") if len(sys.argv) > 2 else lambda *args: LAUNCHED.append(args)

target = GPUTarget("cuda", 90, 32) if sys.argv[1] == "sm_90" else GPUTarget("hip", sys.argv[1], 64)
triton.runtime.driver.set_active(Noting(target))
"""
SCRIPT = """
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


PLAYED = """
from kernels.gelu import gelu
from kernels.launches import note, tape
tape.possible, note.current_device = True, lambda: -1
found = []

class Counting(note.Tape):
    def __init__(self, *args):
        super().__init__(*args)
        own = self.play
        self.play = lambda *args: found.append(own(*args)) or found[-1]

note.Tape = tape.Tape = Counting

def call(x):
    found.clear()
    out = gelu(x)
    x_, y_, z_, stream, function, *_, given = LAUNCHED[-1] if sys.argv[2] == "together" else (*LAUNCHED[-1][:9], LAUNCHED[-1][9:])
    addresses = [each.data_ptr() if isinstance(each, torch.Tensor) else each for each in given]
    return [bool(found) and found[0] is not None, stream, addresses[:2] == [x.data_ptr(), out.data_ptr()], list(addresses[2:])]

whole = torch.randn(4097)
calls = {"first": [call(whole[:4096]) for _ in range(3)], "moved": call(torch.randn(4096)), "odd": [call(whole[1:]) for _ in range(3)]}
STREAM[0] = 8
calls["stream"] = call(whole[:4096])
triton.knobs.runtime.launch_enter_hook.add(lambda data: calls.setdefault("hook", []).append(1))
calls["watched"] = call(whole[:4096])
print(json.dumps({**calls, "launches": len(LAUNCHED)}))
"""


def launches(architecture: str, script: str = SCRIPT, *more: str) -> dict:
    run = command.python("-c", DRIVER + script, architecture, *more, kind="compiler", env={**os.environ, "PYTHONPATH": str(REPO)})
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


@pytest.mark.parametrize("arguments", ["together", "apart"])
def test_a_call_that_was_made_before_is_played(arguments):
    found = launches("sm_90", PLAYED, arguments)
    rest = [4096, False, 1024]
    assert found["first"] == [[False, 7, True, rest], [False, 7, True, rest], [True, 7, True, rest]]
    assert found["moved"] == [True, 7, True, rest]
    # Memory that starts elsewhere needs another binary.
    assert [played for played, *_ in found["odd"]] == [False, False, True]
    assert found["stream"] == [True, 8, True, rest]
    assert found["watched"] == [False, 8, True, rest]
    assert found["hook"] == [1]
    assert found["launches"] == 9
