"""A hook says that it has called the test function, and has not."""


def pytest_pyfunc_call(pyfuncitem):
    return True
