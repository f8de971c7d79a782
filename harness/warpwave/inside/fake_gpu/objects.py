"""Objects of torch's that take a device, or make a tensor, past its own calls: a mode does not see them."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing.popen_fork
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.multiprocessing.reductions

from warpwave.inside.fake_gpu import host_side as marks
from warpwave.inside.fake_gpu.redirect import Redirect

# Threads and processes that a package starts: they see the pretended card, too.


def fork(process: Any) -> Any:
    """Start a process as a copy of this one. Threads of torch's pool do not live on in the copy, and what it prints is not pytest's."""
    run = process.run

    def alone() -> None:
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__  # a new Python has its own
        torch.set_num_threads(1)
        run()

    process.run = alone
    return multiprocessing.popen_fork.Popen(process)


def started_at_once(begin: Callable[..., None], pool: Any, *args: Any, **kwargs: Any) -> None:
    """Let a pool start its processes before its threads, which could hold locks that a fork copies."""
    begin(pool, *args, **kwargs)
    pool._safe_to_dynamically_spawn_children = False  # private; an older or newer Python may not read it


def on_the_host(begin: Callable[..., Any], backend: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Begin a group whose library is the CPU's, whatever the package names: the tensors are there, or have no data."""
    kwargs.pop("device_id", None)
    return begin("gloo", *args, **kwargs)


# Tensors in pickles, in files of `torch.save`, and on their way to other processes: they come back to the card that they were on.
#
# torch writes the place of a tensor's storage. Here the storage is the host's, so it gets a mark before it is written, and when it is
# read.


def places(kinds: Sequence[str], torchs_own: list[Any]) -> list[Any]:
    """Return torch's functions for places of storages, with those for a card of these types first: torch's own have 10 and more."""

    def written(storage: Any) -> str | None:
        return str(Redirect.current.claim) if Redirect.current is not None and marks.is_of_card(storage) else None

    def read(storage: Any, place: str) -> Any:
        return marks.mark_storage(storage) if place.partition(":")[0] in kinds else None

    return [(0, written, read), *torchs_own]


def where_storage_is(
    take: Callable[..., torch.Tensor], tensor: torch.Tensor, source: Any = None, *args: Any, **kwargs: Any
) -> torch.Tensor:
    """Let a tensor that takes a storage of the card be there, too: so `torch.load` makes one."""
    made = take(tensor, *(() if source is None else (source,)), *args, **kwargs)
    redirect = Redirect.current
    with torch._C.DisableTorchFunction():  # as within a mode
        return redirect.read(made) if redirect is not None and marks.is_of_card(source) else made


def restored(rebuild: Callable[..., torch.Tensor], args: Any, place: str, data: torch.Tensor | None = None) -> torch.Tensor:
    """Return a tensor whose storage tells nothing of its place: it has none of its own, or another process has sent it.

    It was at `place`, the card's name or `cpu`; `data` is what a tensor without data would hold, if that is known.
    """
    made, redirect = marks.put(rebuild(*args), None), Redirect.current
    if data is not None:
        marks.know(made, data)
    if redirect is None:
        return made
    # A function as `map_location` gets storages on the host, and most return them as they are.
    asked = torch.serialization._serialization_tls.map_location
    with torch._C.DisableTorchFunction():
        return redirect.move(made, "cpu" if callable(asked) else torch._utils._get_restore_location(place))  # type: ignore[attr-defined]


def with_place(reduce: Callable[..., Any], tensor: torch.Tensor, protocol: Any) -> Any:
    """Write a tensor with its place, and without our marks: `map_location` may send it to another one."""
    redirect = Redirect.current
    if redirect is None:
        return reduce(tensor, protocol)
    on_host, on_card = marks.is_host(tensor), redirect.is_on_card(tensor)
    with marks.unmarked(tensor), torch._C.DisableTorchFunction():  # torch asks for the real device
        found = reduce(tensor, protocol)
        if isinstance(tensor, torch.nn.Parameter):  # what is written next is its data
            if on_host:
                marks.put_on_host(found[1][0])
            return found
        return redirect.write(tensor, found, str(redirect.claim) if on_card else "cpu")


def reducers(of_type: dict[type, Callable[..., Any]]) -> dict[type, Callable[..., Any]]:
    """Return what sends tensors to other processes, with their place."""

    def with_card(reduce: Callable[..., Any]) -> Callable[..., Any]:
        def reduced(tensor: torch.Tensor) -> Any:
            redirect = Redirect.current
            with torch._C.DisableTorchFunction():
                found = reduce(tensor)
            return (restored, (*found, str(redirect.claim))) if redirect is not None and redirect.is_on_card(tensor) else found

        return reduced

    return {kind: with_card(reduce) for kind, reduce in of_type.items() if issubclass(kind, torch.Tensor)}


# torch's names of tensor types, such as `torch.cuda.FloatTensor`.
_OLD_NAMES = {"Float": torch.float32, "Double": torch.float64, "Half": torch.float16, "BFloat16": torch.bfloat16, "Int": torch.int32}
_OLD_NAMES |= {"Long": torch.int64, "Short": torch.int16, "Char": torch.int8, "Byte": torch.uint8, "Bool": torch.bool}


def old_types(kinds: Sequence[str]) -> Iterator[tuple[Any, str, type]]:
    """Yield module, name and stand-in of each."""
    for kind in kinds:
        for name, dtype in _OLD_NAMES.items() if hasattr(torch, kind) else ():
            yield getattr(torch, kind), f"{name}Tensor", _tensor_type(kind, name, dtype)


def _tensor_type(kind: str, name: str, dtype: torch.dtype) -> type:
    """Return a stand-in for a type such as `torch.cuda.FloatTensor`: its argument is a shape, or the numbers themselves."""

    class AnyTensor(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, torch.Tensor) and instance.dtype is dtype and instance.device.type == kind

        def __call__(cls, *given: Any) -> torch.Tensor:
            if len(given) == 1 and isinstance(given[0], (list, tuple)) and not isinstance(given[0], torch.Size):
                return torch.tensor(given[0], dtype=dtype, device=kind)
            return torch.empty(*given or (0,), dtype=dtype, device=kind)

    return AnyTensor(f"{name}Tensor", (), {"__module__": f"torch.{kind}", "dtype": dtype, "card_type": f"torch.{kind}.{name}Tensor"})


def keeping_side(make: Callable[..., Any], cls: Any, data: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Make a parameter where its data are."""
    made = make(cls, data, *args, **kwargs)
    return marks.marked_as([data], made) if isinstance(data, torch.Tensor) else made


def wrapping(make: Callable[..., Any], cls: Any, *args: Any, device: Any = None, **kwargs: Any) -> Any:
    """Put a package's tensor of tensors where they are: torch makes it before any mode sees the call, and asks the driver later."""
    redirect = Redirect.current
    if device is None or redirect is None or marks.asked_by_torch():
        return make(cls, *args, **({} if device is None else {"device": device}), **kwargs)
    if redirect.is_gpu(device):
        return make(cls, *args, device=redirect.to, **kwargs)
    return marks.put_on_host(make(cls, *args, device=device, **kwargs))


def from_host(make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Make a tensor on the host."""
    redirect = Redirect.current
    with redirect.of_host() if redirect else contextlib.nullcontext():
        return marks.put_on_host(make(*args, **kwargs))


def made_there(make: Callable[..., Any], *args: Any, device: Any = None, **kwargs: Any) -> Any:
    """Make on the CPU what torch makes before any mode sees the call, and move it to where it is wanted."""
    return make(*args, device="cpu", **kwargs).to(torch.get_default_device() if device is None else device)


def as_they_are(checks: dict[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """Let checkpoints compare the real devices of tensors: the first ones are asked within a call of torch, the second ones outside."""

    def checked(check: Callable[..., Any], tensor: torch.Tensor) -> Any:
        with torch._C.DisableTorchFunction():
            return check(tensor)

    return {name: functools.partial(checked, check) for name, check in checks.items()}
