"""Lines that are none, and half a line, in the journal."""

import os


def pytest_runtest_logfinish(nodeid):
    with open(os.environ["WARPWAVE_JOURNAL"], "ab") as journal:
        journal.write(b"\xff\xfe nothing\n" + b"[" * 100_000 + b"\n" + b'{"event": "finish", "id": ["test_forged.py"]}\n{"event": 7}\n')
        journal.write(b'{"event": "finish", "id": "test_forged.py::test_wrong", "outcome": "splendid"}\n')
        journal.write(b'{"event": "finish", "id": "test_forged.py::test_more", "outcome": "passed", "seconds": NaN}\n')


def pytest_sessionfinish():
    with open(os.environ["WARPWAVE_JOURNAL"], "ab") as journal:
        journal.write(b'{"event": "fin')
