"""The reporter is sent away."""


def pytest_collection(session):
    session.config.pluginmanager.unregister(name="warpwave-reporter")
