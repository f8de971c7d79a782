"""Objects of torch's that take a device, or make a tensor, past its own calls: a mode does not see them."""

from __future__ import annotations

import multiprocessing.context
import multiprocessing.popen_fork
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
import torch.distributed
import torch.multiprocessing.reductions
import torch.utils.checkpoint

from warpwave.inside.fake_gpu.host_side import (
    asked_by_torch,
    is_host,
    is_of_card,
    know,
    mark_storage,
    marked_as,
    put_on_card,
    put_on_host,
    unmarked,
)
from warpwave.inside.fake_gpu.redirect import Redirect, within
from warpwave.inside.fake_gpu.torch_device import Patch, generator_type

# Threads and processes that a package starts: they see the pretended card, too.


def processes() -> list[Patch]:
    """Return what forks where a package starts new processes (`mp.spawn`, pools), and lets them communicate as processes on the CPU do."""
    contexts: Any = multiprocessing.context
    found: list[Patch] = [
        # Private, and in each Python from 3.10 to 3.14; `run` is what subclasses replace.
        (threading.Thread, "_bootstrap_inner", within(threading.Thread._bootstrap_inner)),  # type: ignore[attr-defined]
        (contexts.SpawnProcess, "_Popen", staticmethod(_fork)),
        (contexts.SpawnProcess, "_after_fork", staticmethod(contexts.ForkProcess._after_fork)),
        (contexts.ForkServerProcess, "_Popen", staticmethod(_fork)),
        (ProcessPoolExecutor, "__init__", _started_at_once(ProcessPoolExecutor.__init__)),
    ]
    if torch.distributed.is_available() and torch.distributed.is_gloo_available():
        found.append((torch.distributed, "init_process_group", _on_the_host(torch.distributed.init_process_group)))
    return found


def _fork(process: Any) -> Any:
    """Start a process as a copy of this one. Threads of torch's pool do not live on in the copy."""
    run = process.run

    def alone() -> None:
        torch.set_num_threads(1)
        run()

    process.run = alone
    return multiprocessing.popen_fork.Popen(process)


def _started_at_once(begin: Callable[..., None]) -> Callable[..., None]:
    """Let a pool start its processes before its threads, which could hold locks that a fork copies."""

    def started(pool: Any, *args: Any, **kwargs: Any) -> None:
        begin(pool, *args, **kwargs)
        pool._safe_to_dynamically_spawn_children = False  # private; an older or newer Python may not read it

    return started


def _on_the_host(begin: Callable[..., Any]) -> Callable[..., Any]:
    """Begin a group whose library is the CPU's, whatever the package names: the tensors are there, or have no data."""

    def init_process_group(backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        kwargs.pop("device_id", None)
        return begin("gloo", *args, **kwargs)

    return init_process_group


# Tensors in pickles, in files of `torch.save`, and on their way to other processes: they come back to the card that they were on.
#
# torch writes the place of a tensor's storage. Here the storage is the host's, so it gets a mark before it is written, and when it is
# read.

_FIRST = 0  # torch's own functions for places have 10 and more


def saved(kinds: Iterable[str]) -> list[Patch]:
    """Return what keeps the place of tensors that are written, for a pretended device of these types."""
    named = tuple(kinds)
    torch.serialization.add_safe_globals([restored])  # for `weights_only`
    places: Any = torch.serialization._package_registry
    by_type: Any = ForkingPickler._extra_reducers  # type: ignore[attr-defined]
    reducers = {kind: _to_another_process(reduce) for kind, reduce in by_type.items() if issubclass(kind, torch.Tensor)}
    return [
        (torch.serialization, "_package_registry", [(_FIRST, _place, _arrived(named)), *places]),
        # torch's own functions: no mode sees them
        (torch.Tensor, "set_", _where_storage_is(torch.Tensor.set_)),
        (torch.Tensor, "__reduce_ex__", _with_place(torch.Tensor.__reduce_ex__)),
        (torch.nn.Parameter, "__reduce_ex__", _with_place(torch.nn.Parameter.__reduce_ex__)),
        (ForkingPickler, "_extra_reducers", {**by_type, **reducers}),
    ]


def _place(storage: Any) -> str | None:
    """Return the place of a storage that `torch.save` writes, if it is the card."""
    redirect = Redirect.current
    return str(redirect.claim) if redirect is not None and is_of_card(storage) else None


def _arrived(kinds: tuple[str, ...]) -> Callable[[Any, str], Any]:
    """Return what takes a storage that `torch.load` has read to the place that it names, if that is a card."""
    return lambda storage, place: mark_storage(storage) if place.partition(":")[0] in kinds else None


def _where_storage_is(take: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Let a tensor that takes a storage of the card be there, too: so `torch.load` makes one."""

    def taken(tensor: torch.Tensor, source: Any = None, *args: Any, **kwargs: Any) -> torch.Tensor:
        made = take(tensor, *(() if source is None else (source,)), *args, **kwargs)
        redirect = Redirect.current
        with torch._C.DisableTorchFunction():  # as within a mode
            return redirect.read(made) if redirect is not None and is_of_card(source) else made

    return taken


def restored(rebuild: Callable[..., torch.Tensor], args: Any, place: str, data: torch.Tensor | None = None) -> torch.Tensor:
    """Return a tensor whose storage tells nothing of its place: it has none of its own, or another process has sent it.

    Args:
        place: Where it was: the card's name, or `cpu`.
        data: What a tensor without data would hold, if that is known.
    """
    made, redirect = put_on_card(rebuild(*args)), Redirect.current
    if data is not None:
        know(made, data)
    with torch._C.DisableTorchFunction():
        return made if redirect is None else redirect.move(made, _asked_for(place))


def _asked_for(place: str) -> Any:
    """Return where `map_location` sends what was at a place. A function gets storages on the host, and most return them as they are."""
    asked = torch.serialization._serialization_tls.map_location
    return "cpu" if callable(asked) else torch._utils._get_restore_location(place)  # type: ignore[attr-defined]


def _with_place(reduce: Callable[..., Any]) -> Callable[..., Any]:
    """Write a tensor with its place, and without our marks: `map_location` may send it to another one."""

    def reduced(tensor: torch.Tensor, protocol: Any) -> Any:
        redirect = Redirect.current
        if redirect is None:
            return reduce(tensor, protocol)
        on_host, on_card = is_host(tensor), redirect.is_on_card(tensor)
        with unmarked(tensor), torch._C.DisableTorchFunction():  # torch asks for the real device
            found = reduce(tensor, protocol)
            if isinstance(tensor, torch.nn.Parameter):  # what is written next is its data
                if on_host:
                    put_on_host(found[1][0])
                return found
            return redirect.write(tensor, found, str(redirect.claim) if on_card else "cpu")

    return reduced


def _to_another_process(reduce: Callable[..., Any]) -> Callable[..., Any]:
    def reduced(tensor: torch.Tensor) -> Any:
        redirect = Redirect.current
        with torch._C.DisableTorchFunction():
            found = reduce(tensor)
        return (restored, (*found, str(redirect.claim))) if redirect is not None and redirect.is_on_card(tensor) else found

    return reduced


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
