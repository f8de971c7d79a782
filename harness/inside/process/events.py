"""Progress from a stage to the host, beside the log: one JSON object a line, on a pipe that user code does not know of.

What kernels and tests print goes to `<stage>/log.txt` and means nothing to the harness.
"""

from __future__ import annotations

import json
import os

PIPE_VARIABLE = "WARPWAVE_EVENTS"


def emit(event: str, **fields: object) -> None:
    """Tell the host something; silently nothing when nobody listens."""
    pipe = os.environ.get(PIPE_VARIABLE)
    if pipe is None:
        return
    line = json.dumps({"event": event, **fields}, ensure_ascii=False) + "\n"
    try:
        os.write(int(pipe), line.encode("utf-8", "replace"))
    except OSError:
        os.environ.pop(PIPE_VARIABLE, None)  # the listener is gone: results matter more than progress
