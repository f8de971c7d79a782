"""A test is never collected."""


def pytest_pycollect_makeitem(name):
    return [] if name == "test_wrong" else None
