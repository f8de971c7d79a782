"""All sorts of tests, none of them forged."""

import functools
import subprocess
import sys
import unittest
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


def keep(function):
    @functools.wraps(function)
    def wrapper(*arguments, **options):
        return function(*arguments, **options)

    return wrapper


def unless_rich(function):
    @functools.wraps(function)
    def wrapper(*arguments, **options):
        return None

    return wrapper


def test_plain():
    pass


@pytest.mark.parametrize("n", [1, 2, 3])
def test_parametrized(n, resource):
    assert n > 0


@keep
def test_decorated(resource):
    assert resource


@unless_rich
def test_left_early():
    raise AssertionError


@mock.patch("os.getcwd", return_value="here")
def test_mocked(getcwd):
    import os

    assert os.getcwd() == "here"


@settings(max_examples=3, database=None)
@given(st.integers())
def test_given(n):
    assert n == n


@pytest.mark.xfail(reason="known")
def test_expected_failure():
    assert False


@pytest.mark.xfail(reason="known")
def test_unexpected_pass():
    pass


def test_skips_itself():
    pytest.skip("not here")


def test_out_of_memory():
    raise MemoryError


def test_patches_for_itself(monkeypatch):
    import json
    import os

    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.testing, "assert_close", lambda *arguments: None)
    monkeypatch.setattr(json, "dumps", lambda *arguments, **options: "")
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def test_other_process():
    subprocess.run([sys.executable, "-c", "pass"], check=True)


def test_profiles():
    import cProfile

    with cProfile.Profile() as profile:
        sum(range(10))
    assert profile.getstats()


def test_properties(record_property):
    record_property("max_abs_err", 0.5)


test_partial = functools.partial(test_plain)
test_lambda = lambda: None


class TestClass:
    def test_method(self):
        pass

    @staticmethod
    def test_static():
        pass

    @classmethod
    def test_class(cls):
        pass


class TestUnit(unittest.TestCase):
    def test_unit(self):
        with self.subTest("one"):
            self.assertTrue(True)

    @unittest.expectedFailure
    def test_unit_expected(self):
        self.fail()

    @unittest.skip("not now")
    def test_unit_skipped(self):
        pass
