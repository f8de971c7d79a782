"""What every compile worker needs, imported once by the server that forks them; see `workers`.

torch's compiler is among it because asking for one of its settings imports it, and random meta tensors import its symbolic shapes.
"""

import contextlib
import importlib

for _module in ("torch", "torch._dynamo", "torch.fx.experimental.symbolic_shapes", "triton.testing", "harness.inside.pretend"):
    with contextlib.suppress(ImportError):
        importlib.import_module(_module)
# The hash of all of Triton is in the key of everything that it caches, and is made once a process.
with contextlib.suppress(ImportError, AttributeError):
    importlib.import_module("triton.runtime.cache").triton_key()
