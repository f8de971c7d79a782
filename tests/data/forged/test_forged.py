"""The tests of every package here: one of them fails. What stands beside it as conftest.py wants it to pass."""


def test_right():
    pass


def test_wrong():
    assert 1 == 2, "one is not two"


def test_last():
    pass
