"""What honest packages do with pytest's hooks."""

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if call.excinfo is not None and call.excinfo.errisinstance(MemoryError):
        report.outcome, report.longrepr = "skipped", (str(item.path), 1, "Skipped: this machine has too little memory")
    item.stash.setdefault(pytest.StashKey(), report)
    return report


@pytest.fixture
def resource():
    yield 1


@pytest.fixture(scope="session", autouse=True)
def prepared():
    yield
