"""A module beside the test, a data file beside the test, and a folder put on the path by hand."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))

from helpers_beside import negated


def test_a_module_beside_the_test():
    x = torch.randn(300, device="cuda")
    torch.testing.assert_close(negated(x), -x)


def test_a_data_file_beside_the_test():
    sizes = [int(word) for word in (Path(__file__).parent / "sizes.txt").read_text().split()]
    for n in sizes:
        x = torch.randn(n, device="cuda")
        torch.testing.assert_close(negated(x), -x)
