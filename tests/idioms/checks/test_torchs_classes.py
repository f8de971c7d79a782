"""Test classes of torch's own suite: `torch.testing._internal`."""

import unittest

import pytest
import torchs_classes


@pytest.mark.parametrize("name", ["Parametrized", "OnDeviceCUDA"])
def test_a_class_of_torchs_suite(name):
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(getattr(torchs_classes, name)).run(result)
    assert result.testsRun == 2
    assert [text.splitlines()[-1] for _, text in (*result.errors, *result.failures)] == []
