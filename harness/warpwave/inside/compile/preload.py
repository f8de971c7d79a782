"""Everything a compile worker needs, imported once by the server that forks the workers; see `workers`.

torch's compiler is included because reading one of its settings imports it, and random meta tensors import its symbolic shapes.
"""

from __future__ import annotations

import contextlib
import gc
import importlib

from warpwave.inside.process.workers import hash_triton

_NEEDED = (
    "torch",
    "torch._dynamo",
    "torch.fx.experimental.symbolic_shapes",
    "triton.experimental.gluon",
    "triton.testing",
    "warpwave.inside.compile.launches",
    "warpwave.inside.fake_gpu.card",
    "warpwave.inside.fake_gpu.lanes",
    "warpwave.inside.scripts.hooks",
)

for _module in _NEEDED:
    with contextlib.suppress(ImportError):
        importlib.import_module(_module)
hash_triton()
# Triton's frontend creates so many short-lived objects that the collector would run all the time.
gc.set_threshold(50_000)
