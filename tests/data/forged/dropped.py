"""A test is left out without a word."""


def pytest_collection_modifyitems(items):
    items[:] = [item for item in items if item.name != "test_wrong"]
