"""The interpreter from which the stages of a run are forked: `python -m warpwave.inside.process.warm [MODULE …]`.

The inside starts it, or an engine that keeps it for the next run. A fork of it imports modules more, for the stage that needs them.
It imports what every stage needs. Triton is imported in the forks: it decides at its import whether it interprets. No code of the package
runs here, and no fork can look into this process. It adopts what a stage leaves behind, and ends it before that stage's end is told.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
import sys

from warpwave.inside.process import forks, sealing
from warpwave.records import FORKS_VARIABLE

_NEEDED = ("torch", "pytest", "warpwave.inside.multi_gpu.share", "warpwave.inside.codegen.recorder")


def main() -> None:
    """Import, say so, and serve."""
    forks.die_with_parent()
    forks.shut()
    sealing.adopt()
    for module in (*_NEEDED, *sys.argv[1:]):
        with contextlib.suppress(ImportError):  # the facts stage reports what is missing
            importlib.import_module(module)
    _compare_without_dtensor()
    channel = socket.socket(fileno=int(os.environ.pop(FORKS_VARIABLE)))
    channel.send(b".")
    forks.run(forks.serve(channel, sealing.end_orphans))


def _compare_without_dtensor() -> None:
    """Keep torch's `assert_close` from importing DTensor, which takes 0.6 s in each process: where nobody else did, no tensor is one."""
    comparison = sys.modules.get("torch.testing._comparison")
    if plain := getattr(comparison, "_unwrap_dtensor_for_comparison", None):  # since torch 2.11
        comparison._unwrap_dtensor_for_comparison = lambda actual, expected: (  # type: ignore[union-attr]
            plain(actual, expected) if "torch.distributed.tensor" in sys.modules else (actual, expected)
        )


if __name__ == "__main__":
    main()
