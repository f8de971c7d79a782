"""The interpreter from which the stages of a run are forked: `python -m warpwave.inside.process.warm`, started by the inside.

It imports what every stage needs. Triton is imported in the forks: it decides at its import whether it interprets. No code of the package
runs here, and no fork can look into this process. It adopts what a stage leaves behind, and ends it before that stage's end is told.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import socket

from warpwave.inside.process import forks, sealing

_NEEDED = ("torch", "pytest", "warpwave.inside.multi_gpu.share", "warpwave.inside.codegen.recorder")


def main() -> None:
    """Import, say so, and serve."""
    forks.die_with_parent()
    forks.shut()
    sealing.adopt()
    for module in _NEEDED:
        with contextlib.suppress(ImportError):  # the facts stage reports what is missing
            importlib.import_module(module)
    channel = socket.socket(fileno=int(os.environ.pop(forks.CHANNEL_VARIABLE)))
    channel.send(b".")
    forks.run(forks.serve(channel, sealing.end_orphans))


if __name__ == "__main__":
    main()
