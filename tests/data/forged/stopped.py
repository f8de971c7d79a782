"""The package stops pytest before the test that would fail."""


def pytest_runtest_logfinish(nodeid):
    if nodeid.endswith("test_right"):
        stopping.shouldstop = "enough"


def pytest_sessionstart(session):
    global stopping
    stopping = session
