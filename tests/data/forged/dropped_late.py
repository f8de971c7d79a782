"""A test is left out after it was announced."""

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session):
    session.items[:] = [item for item in session.items if item.name != "test_wrong"]
