"""As journal_written.py, with all that a worker would have said."""

import json
import os

names = [f"test_forged.py::{name}" for name in ("test_right", "test_wrong", "test_last")]
with open(os.environ["WARPWAVE_JOURNAL"], "a") as journal:
    journal.write(json.dumps({"event": "collected", "ids": names, "found": 3}) + "\n")
    for name in names:
        for event in ("start", "finish"):
            told = {"event": event, "id": name, "outcome": "passed", "message": "", "detail": "", "seconds": 0.0}
            journal.write(json.dumps(told) + "\n")
    journal.write('{"event": "end"}\n')
os._exit(0)
