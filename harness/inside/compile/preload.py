"""What every compile worker needs, imported once by the server that forks them; see `workers`.

torch's compiler is among it because asking for one of its settings imports it, and random meta tensors import its symbolic shapes.
"""

import contextlib
import gc
import importlib
import warnings

from harness.inside.process.workers import hash_triton

_NEEDED = (
    "torch",
    "torch._dynamo",
    "torch.fx.experimental.symbolic_shapes",
    "triton.experimental.gluon",
    "triton.testing",
    "harness.inside.compile.launches",
    "harness.inside.fake_gpu.driver",
)

# What forks runs a stage's module again as each worker's main one; that it was imported before is what this file is for.
warnings.filterwarnings("ignore", message=r"'harness\.inside\.\w+' found in sys\.modules", category=RuntimeWarning)
for _module in _NEEDED:
    with contextlib.suppress(ImportError):
        importlib.import_module(_module)
hash_triton()
# What is imported stays: a collector that walks over it in each worker finds nothing, and copies the pages that they share. And Triton's
# frontend makes so many short-lived objects that the collector would run all the time.
gc.collect()
gc.freeze()
gc.set_threshold(50_000)
