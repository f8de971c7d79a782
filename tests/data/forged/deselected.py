"""A test is left out as pytest wants it done."""


def pytest_collection_modifyitems(config, items):
    config.hook.pytest_deselected(items=[item for item in items if item.name == "test_wrong"])
    items[:] = [item for item in items if item.name != "test_wrong"]
