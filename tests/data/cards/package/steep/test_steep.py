"""A test that kills its process between two that pass."""

import os


def test_before():
    pass


def test_fails():
    assert False


def test_dies():
    os.abort()


def test_after():
    pass
