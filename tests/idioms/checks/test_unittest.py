"""unittest's classes, as pytest runs them."""

import unittest

import torch
from small_kernels import add, scale


def is_close(x, y):
    if (x - y).abs().max() > 1e-3:
        print("not close")
        return False
    return True


class AddTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.device = "cuda"

    def setUp(self):
        torch.manual_seed(0)
        self.x = torch.randn(300, device=self.device)

    def tearDown(self):
        torch.cuda.empty_cache()

    def test_it_adds(self):
        self.assertTrue(torch.allclose(add(self.x, self.x), 2 * self.x))

    def test_a_helper_that_returns_its_verdict(self):
        self.assertTrue(is_close(add(self.x, self.x), 2 * self.x))
        self.assertFalse(not is_close(scale(self.x, 2.0), 2 * self.x))

    def test_sub_tests(self):
        for factor in (1.0, 2.0):
            with self.subTest(factor=factor):
                torch.testing.assert_close(scale(self.x, factor), factor * self.x)

    def test_numbers(self):
        out = scale(torch.ones_like(self.x), 2.0)
        self.assertEqual(out.shape, self.x.shape)
        self.assertEqual(out[0].item(), 2.0)
        self.assertAlmostEqual(out.mean().item(), 2.0, places=5)
        self.assertLess((out - 2).abs().max().item(), 1e-5)

    @unittest.skipUnless(torch.cuda.is_available(), "needs a GPU")
    def test_skip_unless(self):
        self.assertTrue(torch.equal(scale(self.x, 1.0), self.x))
