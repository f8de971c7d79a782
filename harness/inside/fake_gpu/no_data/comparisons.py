"""Comparisons of data that is not there hold: what is checked without a card is the code, not what it computes."""

from __future__ import annotations

import doctest
import unittest
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch.testing._comparison as torchs_own
import triton

from harness.inside.fake_gpu.host_side import is_meta, tensors_in
from harness.inside.fake_gpu.no_data.no_numbers import NoNumbers
from harness.inside.fake_gpu.no_data.unknown import UnknownFloat, UnknownInt, UnknownTruth, alike
from harness.inside.fake_gpu.torch_device import Patch

_NOT_THERE = (NoNumbers, UnknownFloat, UnknownInt, UnknownTruth)


def comparisons() -> list[Patch]:
    """Return what makes the comparisons of torch, Triton, NumPy and unittest hold."""
    return [
        (torch, "allclose", lambda *args, **kwargs: alike()),
        (torch, "equal", lambda *args, **kwargs: alike()),
        (doctest.OutputChecker, "check_output", lambda *args: True),
        (torch.testing, "assert_close", lambda *args, **kwargs: None),
        (torch.testing, "assert_allclose", lambda *args, **kwargs: None),
        (torch.autograd, "gradcheck", _differentiate),
        (torch.autograd, "gradgradcheck", _differentiate),
        (torch.library, "opcheck", lambda *args, **kwargs: {}),
        (triton.testing, "assert_close", lambda *args, **kwargs: None),
        # What the `assertEqual` of torch's own test classes asks, which packages of its authors use, too.
        (torchs_own, "not_close_error_metas", _passing(torchs_own.not_close_error_metas, [])),
        *_assertions(np.testing),
        *_assertions(unittest.TestCase),
    ]


def _assertions(owner: Any) -> Iterator[Patch]:
    for name in dir(owner):
        if name.startswith("assert") and callable(compare := getattr(owner, name)) and not name.startswith(("assertRaises", "assertWarns")):
            yield owner, name, _passing(compare)


def _passing(compare: Callable[..., Any], passed: Any = None) -> Callable[..., Any]:
    """Let an assertion pass where it would compare data that is not there. `passed` is what it returns then."""

    def check(*args: Any, **kwargs: Any) -> Any:
        without = any(isinstance(value, _NOT_THERE) for value in args)
        if without or any(is_meta(tensor) for tensor in tensors_in(args)):
            return passed
        return compare(*args, **kwargs)

    return check


def _differentiate(function: Callable[..., Any], inputs: Any, *args: Any, **kwargs: Any) -> bool:
    """Run a function and its backward once."""
    given = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
    for made in tensors_in(function(*given)):
        if made.requires_grad:
            made.sum().backward()  # type: ignore[no-untyped-call]
    return True
