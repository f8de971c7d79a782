"""NumPy arrays of tensors that have no data."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from harness.inside.fake_gpu.host_side import is_meta, known
from harness.inside.fake_gpu.no_data.unknown import UnknownFloat, UnknownInt, UnknownTruth, decide, unknown, unknown_list, whole

_HOLDS = ("allclose", "array_equal", "array_equiv")


class NoNumbers(np.ndarray):
    """An array of zeros of which nobody knows that. What is calculated with it is such an array, too."""

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func.__name__ in _HOLDS:
            return True
        return _covered(super().__array_function__(func, types, args, kwargs))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        plain = [value.view(np.ndarray) if isinstance(value, NoNumbers) else value for value in inputs]
        kwargs = {key: _plain_out(value) if key == "out" else value for key, value in kwargs.items()}
        return _covered(getattr(ufunc, method)(*plain, **kwargs))

    def __getitem__(self, index: Any) -> Any:
        return _covered(super().__getitem__(index))  # a single number would be zero

    def __bool__(self) -> bool:
        return decide()

    def __int__(self) -> int:
        return whole()

    __index__ = __int__

    def __float__(self) -> float:
        return float(whole())

    def item(self, *args: Any) -> Any:
        """Return an unknown number."""
        return unknown(dtype_of(self))

    def tolist(self) -> Any:
        """Return unknown numbers."""
        return unknown_list(torch.empty(self.shape, dtype=dtype_of(self), device="meta"))


def no_numbers(tensor: torch.Tensor) -> NoNumbers:
    """Return what `numpy()` gives of a tensor without data."""
    zeros: NoNumbers = torch.zeros(tensor.shape, dtype=tensor.dtype, device="cpu").numpy().view(NoNumbers)
    return zeros


def covering(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let NumPy make an array without numbers of one, of a tensor without data, or of a list that has such. It would make zeros of them."""

    @functools.wraps(function)
    def make(*args: Any, **kwargs: Any) -> Any:
        made = function(*args, **kwargs)
        return _covered(made) if args and _lacks_numbers(args[0]) else made

    return make


def _lacks_numbers(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_lacks_numbers, value))
    if isinstance(value, torch.Tensor):
        return is_meta(value) and known(value) is None
    return isinstance(value, (NoNumbers, UnknownFloat, UnknownInt, UnknownTruth))


def _covered(result: Any) -> Any:
    return np.asarray(result).view(NoNumbers) if isinstance(result, (np.ndarray, np.generic)) else result


def _plain_out(out: Any) -> Any:
    return tuple(value.view(np.ndarray) if isinstance(value, NoNumbers) else value for value in out)


def dtype_of(array: np.ndarray) -> torch.dtype:
    """Return the dtype of a tensor of such an array."""
    return torch.from_numpy(np.zeros(1, array.dtype)).dtype
