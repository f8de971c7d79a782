"""Objects of torch's that take a device, or make a tensor, past its own calls: a mode does not see them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.utils.checkpoint

from harness.inside.fake_gpu.generators import generator_type
from harness.inside.fake_gpu.host_side import asked_by_torch, marked_as, put_on_host
from harness.inside.fake_gpu.objects.processes import processes
from harness.inside.fake_gpu.objects.saved import saved
from harness.inside.fake_gpu.redirect import Redirect
from harness.inside.fake_gpu.torch_device import Patch

# torch's names of tensor types, such as `torch.cuda.FloatTensor`.
_TYPES = {
    "Float": torch.float32,
    "Double": torch.float64,
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "Int": torch.int32,
    "Long": torch.int64,
    "Short": torch.int16,
    "Char": torch.int8,
    "Byte": torch.uint8,
    "Bool": torch.bool,
}


def objects(kinds: Iterable[str]) -> list[Patch]:
    """Return what makes generators, parameters, arrays, files, threads and processes work with a pretended device of these types."""
    named = tuple(kinds)
    parameter = torch.nn.Parameter.__new__
    return [
        (torch, "Generator", generator_type(named)),
        (torch.nn.Parameter, "__new__", staticmethod(_keeping_side(parameter))),
        (torch.Tensor, "_make_wrapper_subclass", staticmethod(_wrapping(torch.Tensor._make_wrapper_subclass))),
        *((torch, name, _from_host(getattr(torch, name))) for name in ("from_numpy", "frombuffer")),
        (torch, "range", _made_there(torch.range)),
        (torch.nested, "nested_tensor", _made_there(torch.nested.nested_tensor)),
        # torch looks at the type of the stream before any mode sees the call.
        (torch.Tensor, "record_stream", lambda tensor, stream: None),
        *saved(named),
        *_recomputing(),
        *processes(),
        *(_tensor_type(kind, name, dtype) for kind in named if hasattr(torch, kind) for name, dtype in _TYPES.items()),
    ]


def _tensor_type(kind: str, name: str, dtype: torch.dtype) -> Patch:
    """Return a stand-in for a type such as `torch.cuda.FloatTensor`: its argument is a shape, or the numbers themselves."""

    class AnyTensor(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, torch.Tensor) and instance.dtype is dtype and instance.device.type == kind

        def __call__(cls, *given: Any) -> torch.Tensor:
            if len(given) == 1 and isinstance(given[0], (list, tuple)) and not isinstance(given[0], torch.Size):
                return torch.tensor(given[0], dtype=dtype, device=kind)
            return torch.empty(*given or (0,), dtype=dtype, device=kind)

    made = AnyTensor(f"{name}Tensor", (), {"__module__": f"torch.{kind}", "dtype": dtype, "card_type": f"torch.{kind}.{name}Tensor"})
    return getattr(torch, kind), made.__name__, made


def _keeping_side(make: Callable[..., Any]) -> Callable[..., Any]:
    def parameter(cls: Any, data: Any = None, *args: Any, **kwargs: Any) -> Any:
        made = make(cls, data, *args, **kwargs)
        return marked_as([data], made) if isinstance(data, torch.Tensor) else made

    return parameter


def _wrapping(make: Callable[..., Any]) -> Callable[..., Any]:
    """Put a package's tensor of tensors where they are: torch makes it before any mode sees the call, and asks the driver later."""

    def wrapped(cls: Any, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        redirect = Redirect.current
        if device is None or redirect is None or asked_by_torch():
            return make(cls, *args, **({} if device is None else {"device": device}), **kwargs)
        if redirect.is_gpu(device):
            return make(cls, *args, device=redirect.to, **kwargs)
        return put_on_host(make(cls, *args, device=device, **kwargs))

    return wrapped


def _from_host(make: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: put_on_host(make(*args, **kwargs))


def _made_there(make: Callable[..., Any]) -> Callable[..., Any]:
    """Make on the CPU what torch makes before any mode sees the call, and move it to where it is wanted."""

    def made(*args: Any, device: Any = None, **kwargs: Any) -> Any:
        return make(*args, device="cpu", **kwargs).to(torch.get_default_device() if device is None else device)

    return made


def _recomputing() -> list[Patch]:
    """Return what lets a checkpoint compare the tensors that it computes again where they really are.

    It asks for the device of the first ones within a call of torch, where no mode answers, and of the second ones outside.
    """
    checks = getattr(torch.utils.checkpoint, "_allowed_determinism_checks_to_fns", {})

    def as_it_is(extract: Callable[..., Any]) -> Callable[..., Any]:
        def extracted(tensor: torch.Tensor) -> Any:
            with torch._C.DisableTorchFunction():
                return extract(tensor)

        return extracted

    found = {name: as_it_is(extract) for name, extract in checks.items()}
    return [(torch.utils.checkpoint, "_allowed_determinism_checks_to_fns", found)] if found else []
