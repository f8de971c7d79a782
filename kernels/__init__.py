"""Triton kernels with PyTorch's names, signatures and gradients, one folder per op. They import nothing from the harness.

from kernels.softmax import softmax
"""
