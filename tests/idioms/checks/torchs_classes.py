"""Test classes of torch's own suite, which packages of its authors use. Their tests get names that nobody wrote."""

import sys
import types
import unittest

import torch
from small_kernels import add

try:
    import expecttest  # noqa: F401
except ModuleNotFoundError:  # torch's classes derive from one of its classes, and need no more of it
    sys.modules["expecttest"] = types.SimpleNamespace(TestCase=unittest.TestCase)

from torch.testing._internal.common_device_type import dtypes, instantiate_device_type_tests
from torch.testing._internal.common_utils import TestCase, instantiate_parametrized_tests, parametrize

# torch's suite forbids its process to set flags of `torch.backends`, as other tests of this folder do.
torch.backends.disable_global_flags.__globals__["__allow_nonbracketed_mutation_flag"] = True


@instantiate_parametrized_tests
class Parametrized(TestCase):
    @parametrize("n", [100, 1000])
    def test_add(self, n):
        x = torch.randn(n, device="cuda")
        self.assertEqual(add(x, x), x + x)


class OnDevice(TestCase):
    @dtypes(torch.float32, torch.float16)
    def test_add(self, device, dtype):
        x = torch.testing.make_tensor((100,), device=device, dtype=dtype)
        self.assertEqual(add(x, x), x + x, atol=1e-3, rtol=1e-3)


instantiate_device_type_tests(OnDevice, globals(), only_for=("cuda",))
