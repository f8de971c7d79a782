"""A careless test forks, and its child goes on with the tests; in the child nothing fails."""

import os

import pytest

parent = os.getpid()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    if pyfuncitem.name == "test_right":
        child = os.fork()
        if child:
            os.waitpid(child, 0)
    if os.getpid() != parent:
        try:
            yield
        except AssertionError:
            pass
        return True
    return (yield)
