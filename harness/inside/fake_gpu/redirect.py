"""Sends what asks for a GPU to another device, in torch's own calls."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from harness.inside.fake_gpu.assertions import answer, asks_for_data


class Redirect(torch.overrides.TorchFunctionMode):
    """Sends what asks for one of the types of device `kinds`, such as `cuda`, to the device `to`.

    With `claim`, tensors there say that they are on that device. With `package`, they say that they are on a device of the first of the
    kinds, to code below that folder only: for everyone else, a tensor on the CPU has to stay one.
    """

    def __init__(self, to: torch.device, kinds: Iterable[str], claim: torch.device | None = None, package: Path | None = None) -> None:
        super().__init__()
        self.to, self.kinds, self.claim, self.package = to, tuple(kinds), claim, str(package)
        # `torch.Tensor.is_cuda` and the like; torch does not have one for every type of device.
        self._is_claimed = getattr(torch.Tensor, f"is_{claim.type if claim else self.kinds[0]}", None)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if name == "__get__":
            return self._attribute(func, args)
        if name in self.kinds:
            return args[0].to(self.to)
        if self.claim is not None and is_on(self.to, args):
            if asks_for_data(name):
                return answer(name, sys._getframe(1))
            if name == "cpu":
                return args[0]
            if name == "to":
                # There is nothing to copy out, and what is made of it on the host is compared with nothing.
                args = tuple(self.to if str(value) == "cpu" else value for value in args)
                kwargs = {key: self.to if str(value) == "cpu" else value for key, value in kwargs.items()}
        if "device" in kwargs:
            kwargs["device"] = self._device(kwargs["device"])
        if name == "to":
            args = (args[0], *(self._device(value) for value in args[1:]))
        return func(*args, **kwargs)

    def _attribute(self, func: Any, args: Any) -> Any:
        owner = getattr(func, "__self__", None)
        if self.claim is None:
            asked_by_package = _asking_file().startswith(self.package)
            return True if owner is not None and owner is self._is_claimed and asked_by_package else func(*args)
        if func(*args) == self.to and owner is torch.Tensor.device:
            return self.claim
        if owner in (self._is_claimed, torch.Tensor.is_meta) and owner is not None and torch.Tensor.device.__get__(args[0]) == self.to:
            return owner is self._is_claimed
        return func(*args)

    def _device(self, device: Any) -> Any:
        named = isinstance(device, (str, torch.device)) and str(device).split(":")[0] in self.kinds
        return self.to if named or (isinstance(device, int) and not isinstance(device, bool)) else device


def is_on(device: torch.device, args: Any) -> bool:
    """Whether a method is called on a tensor of a device."""
    return bool(args) and isinstance(args[0], torch.Tensor) and torch.Tensor.device.__get__(args[0]) == device


def _asking_file() -> str:
    """Return the file of the code that reads an attribute of a tensor.

    The attributes of a vendor's extension are written in Python, so that frames of torch's lie between that code and `__torch_function__`.
    """
    frame = sys._getframe(3)
    while frame.f_back is not None and frame.f_code.co_filename in _BETWEEN:
        frame = frame.f_back
    return frame.f_code.co_filename


_BETWEEN = (torch.overrides.__file__, torch.utils.backend_registration.__file__)
