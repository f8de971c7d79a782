"""The results are written before pytest begins, and then the process ends."""

import json
import os

with open(os.environ["WARPWAVE_JOURNAL"], "a") as journal:
    for name in ("test_right", "test_wrong", "test_last"):
        for event in ("start", "finish"):
            told = {"event": event, "id": f"test_forged.py::{name}", "outcome": "passed", "message": "", "detail": "", "seconds": 0.0}
            journal.write(json.dumps(told) + "\n")
    journal.write('{"event": "end"}\n')
os._exit(0)
