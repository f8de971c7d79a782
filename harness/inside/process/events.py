"""Progress from a stage to the host: one JSON object per line, on a pipe that user code does not know.

What kernels and tests print goes to `<stage>/log.txt`, and the harness ignores it.
"""

from __future__ import annotations

import json
import os

PIPE_VARIABLE = "WARPWAVE_EVENTS"


def emit(event: str, **fields: object) -> None:
    """Send an event to the host; do nothing if nobody listens."""
    pipe = os.environ.get(PIPE_VARIABLE)
    if pipe is None:
        return
    line = json.dumps({"event": event, **fields}, ensure_ascii=False) + "\n"
    try:
        os.write(int(pipe), line.encode("utf-8", "replace"))
    except OSError:
        os.environ.pop(PIPE_VARIABLE, None)  # the listener is gone, but results matter more than progress
