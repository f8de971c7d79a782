"""The pytest plugin of a worker if several GPUs share the tests: it claims test files and runs them one after the other.

Loaded with `-p harness.inside.multi_gpu.pytest_plugin`, beside the plugin of the test stage. Every worker collects everything. A single
worker runs a file, so that module fixtures are set up once. Files with most tests come first, so that only short ones remain at the end.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.inside.multi_gpu.claims import given_up
from harness.inside.multi_gpu.share import done_by_all, ledger_here
from harness.inside.process.journal import Journal


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run pytest's own loop over the claimed items. With --collect-only, do nothing."""
    if session.config.option.collectonly:
        return None
    found = _claimed(session.items)
    item = next(found, None)
    while item is not None:
        # Look it up before the item runs: pytest keeps the fixtures that the next item needs.
        following = next(found, None)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        item = following
    return True


def _claimed(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """Yield the items of each file that this GPU gets, until all work is done."""
    journal = Journal.from_environment()
    ledger, done = ledger_here(), done_by_all(journal.path)
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)
    order = sorted(files, key=lambda file: (-len(files[file]), file))
    while (file := ledger.next(order, {}, lambda: journal.write("waiting"))) is not None:
        if ledger.inherited:
            done = done_by_all(journal.path)
        yield from (item for item in files[file] if item.nodeid not in done and not given_up(ledger, journal, item.nodeid))
        ledger.finish(file)
