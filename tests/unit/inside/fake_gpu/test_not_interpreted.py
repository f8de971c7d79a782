"""What Triton's interpreter runs nothing of: a test that launches it must not pass."""

from __future__ import annotations

import pytest

from warpwave.collect.cases import read_cases
from warpwave.records import Stage, Verdict

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

TESTS = """
import unittest

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def store_one(x, N: gl.constexpr):
    at = gl.arange(0, N, layout=gl.BlockedLayout([1], [32], [4], [0]))
    gl.store(x + at, 1.0)


def test_a_launch_that_nothing_is_asked_of():
    store_one[(1,)](torch.zeros(128, device="cuda"), N=128)


def test_one_whose_result_is_wrong_without_it():
    x = torch.zeros(128, device="cuda")
    store_one[(1,)](x, N=128)
    assert x.sum() == 128


def test_no_launch():
    assert isinstance(store_one, triton.JITFunction) and store_one.is_gluon()


class Written(unittest.TestCase):
    def test_a_launch_of_unittest(self):
        store_one[(1,)](torch.zeros(128, device="cuda"), N=128)

    def test_its_own_failure(self):
        self.assertEqual(1, 2)

    @unittest.expectedFailure
    def test_one_that_is_expected(self):
        self.assertEqual(1, 2)
"""


def test_a_gluon_kernel_is_not_interpreted(run_inside, tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "test_gluon.py").write_text(TESTS)
    output = run_inside(tmp_path / "package", Stage.TEST, benches=())
    cases = {case.id.rpartition("::")[2]: case for case in read_cases(output, "test/junit.xml")}

    assert {name: case.not_run and case.not_run.value for name, case in cases.items()} == {
        "test_a_launch_that_nothing_is_asked_of": "not-pretended",
        "test_one_whose_result_is_wrong_without_it": "not-pretended",
        "test_no_launch": None,
        "test_a_launch_of_unittest": "not-pretended",
        "test_its_own_failure": None,
        "test_one_that_is_expected": None,
    }
    assert cases["test_its_own_failure"].verdict is Verdict.FAILED
    assert cases["test_one_that_is_expected"].verdict is Verdict.XFAILED
    assert "store_one is a Gluon kernel" in cases["test_a_launch_that_nothing_is_asked_of"].message
