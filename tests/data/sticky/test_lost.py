import pytest


def test_before(wait):
    wait()


def test_fails(wait):
    raise AssertionError("one is not two")


def test_under_way(lose, wait):
    lose()
    wait()


@pytest.mark.parametrize("n", range(5))
def test_after(n, wait):
    wait()
