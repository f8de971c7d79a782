"""Everything a compile worker needs, imported once by the server that forks the workers; see `workers`.

torch's compiler is included because reading one of its settings imports it, and random meta tensors import its symbolic shapes.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import warnings

from warpwave.inside.process.workers import hash_triton

_NEEDED = (
    "torch",
    "torch._dynamo",
    "torch.fx.experimental.symbolic_shapes",
    "triton.experimental.gluon",
    "triton.testing",
    "warpwave.inside.compile.launches",
    "warpwave.inside.fake_gpu.card",
)

# The fork server runs a stage's module again as each worker's main module. It was imported before, on purpose, so hide the warning.
warnings.filterwarnings("ignore", message=r"'warpwave\.inside\.\w+' found in sys\.modules", category=RuntimeWarning)
for _module in _NEEDED:
    with contextlib.suppress(ImportError):
        importlib.import_module(_module)
hash_triton()
# Imported objects stay. A collector that scans them in each worker finds nothing, and copies the pages that workers share. Triton's
# frontend also creates so many short-lived objects that the collector would run all the time.
gc.collect()
gc.freeze()
gc.set_threshold(50_000)
