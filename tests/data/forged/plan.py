"""pytest sets up and tears down, and calls nothing."""


def pytest_configure(config):
    config.option.setuponly = True
