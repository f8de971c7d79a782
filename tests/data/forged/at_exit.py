"""After the last word there is one more."""

import atexit
import json
import os


@atexit.register
def more():
    told = {"id": "test_forged.py::test_wrong", "outcome": "passed", "message": "", "detail": "", "seconds": 0.0}
    with open(os.environ["WARPWAVE_JOURNAL"], "a") as journal:
        for event in ("start", "finish", "end"):
            journal.write(json.dumps({"event": event, **told}) + "\n")
