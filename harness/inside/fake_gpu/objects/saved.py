"""Tensors in pickles, in files of `torch.save`, and on their way to other processes: they come back to the card that they were on.

torch writes the place of a tensor's storage. Here the storage is the host's, so it gets a mark before it is written, and when it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
import torch.multiprocessing.reductions

from harness.inside.fake_gpu.host_side import is_host, is_of_card, know, mark_storage, put_on_card, put_on_host, unmarked
from harness.inside.fake_gpu.redirect import Redirect
from harness.inside.fake_gpu.torch_device import Patch

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
