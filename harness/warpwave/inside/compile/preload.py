"""Everything a compile worker needs, imported once by the server that forks the workers; see `workers`."""

from __future__ import annotations

import contextlib
import gc
import importlib
import sys
from types import FunctionType

from warpwave.inside.process.workers import hash_triton

_NEEDED = (
    "torch",
    "torch.fx.experimental.symbolic_shapes",  # random meta tensors import it
    "torch._refs",  # as do operations on them
    "triton.experimental.gluon",
    "triton.testing",
    "warpwave.inside.compile.launches",
    "warpwave.inside.fake_gpu.card",
    "warpwave.inside.fake_gpu.lanes",
    "warpwave.inside.scripts.hooks",
)


def _call_without_compiler() -> None:
    """Let functions that torch's compiler must not trace be called without importing it, which takes 1 s: nothing is traced here."""
    code = sys.modules["torch"]._disable_dynamo(lambda: None).__code__
    place = code.co_freevars.index("fn")
    gc.unfreeze()  # what this was forked from has frozen torch; the server freezes all again
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__code__ is code:
            function = each.__closure__[place].cell_contents  # type: ignore[index]
            function.__dynamo_disable = function  # what torch keeps behind the first call


for _module in _NEEDED:
    with contextlib.suppress(ImportError):
        importlib.import_module(_module)
if "torch._dynamo" not in sys.modules:
    with contextlib.suppress(Exception):
        _call_without_compiler()
    with contextlib.suppress(Exception):  # a torch that imports it all the same does so here, once
        sys.modules["torch"].rand(1, device="meta") * 2
hash_triton()
# Triton's frontend creates so many short-lived objects that the collector would run all the time.
gc.set_threshold(50_000)
