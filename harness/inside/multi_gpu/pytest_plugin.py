"""The pytest plugin of a card's worker where several cards share the tests: it runs the files that it claims, one after the other.

Loaded with `-p harness.inside.multi_gpu.pytest_plugin`, beside the plugin of the test stage. Every worker collects everything. One of them
runs a file, so that fixtures of a module are set up once. The file with the most tests comes first, so that only short ones are left.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.inside.multi_gpu.claims import given_up
from harness.inside.multi_gpu.share import done_by_all, ledger_here
from harness.inside.process.journal import Journal


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """pytest's own loop, over what is claimed instead of over everything; nothing of it where only collecting was asked for."""
    if session.config.option.collectonly:
        return None
    found = _claimed(session.items)
    item = next(found, None)
    while item is not None:
        # Looked up before the item runs: pytest keeps the fixtures that the next one needs.
        following = next(found, None)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        item = following
    return True


def _claimed(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """The items of each file that this card gets, until no card has anything left to do."""
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
