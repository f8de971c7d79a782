"""Generators of random numbers on a pretended card: the numbers are the host's, the state is a card's.

A card's state has 16 bytes, a seed and an offset. Packages read both from it, and write it back with a larger offset, so that a kernel
draws numbers of its own (`tl.rand(seed, …)`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

import torch

from harness.inside.fake_gpu.host_side import is_meta, put_on_host

_STEP = 4  # a card's offset counts in fours
_BYTES = 16
_MOST_STATES = 1024
_Generator: Any = torch.Generator


class _States:
    """Which state of a generator on the host stands for a seed and an offset."""

    def __init__(self, host: Any) -> None:
        self.host = host
        self.known: OrderedDict[tuple[int, int], Any] = OrderedDict()
        self.begin(host.initial_seed())

    def begin(self, seed: int) -> None:
        """Start at a seed that the host's generator has just been given."""
        self.place, self.last, self.host_seed = (_signed(seed), 0), self.host.get_state(), self.host.initial_seed()

    def save(self) -> tuple[int, int]:
        """Return the seed and the offset of now. What was drawn since the last call moves the offset."""
        now = self.host.get_state()
        if self.host.initial_seed() != self.host_seed:
            self.begin(self.host.initial_seed())
        elif now.numpy().tobytes() != self.last.numpy().tobytes():  # `torch.equal` has no answer without data
            self.place, self.last = (self.place[0], self.place[1] + _STEP), now
        self.known[self.place] = self.last
        while len(self.known) > _MOST_STATES:
            self.known.popitem(last=False)
        return self.place

    def restore(self, place: tuple[int, int]) -> None:
        """Go on from a seed and an offset: where the numbers after them were drawn before, the same come again."""
        known = self.known.get(place)
        if known is None:
            self.host.manual_seed(hash(place) if place[1] else place[0])
        else:
            self.host.set_state(known)
        self.place, self.last, self.host_seed = place, self.host.get_state(), self.host.initial_seed()


class _Own:
    """A generator's methods as torch has them."""

    def __init__(self, generator: Any) -> None:
        self.generator = generator

    def __getattr__(self, name: str) -> Any:
        return getattr(_Generator, name).__get__(self.generator)


class CardGenerator(_Generator):  # type: ignore[misc]
    """A generator that says that it is on a card. With `host`, the numbers are that one's: the card's default generator."""

    def __new__(cls, device: torch.device, host: Any = None) -> Any:  # noqa: D102
        return super().__new__(cls)

    def __init__(self, device: torch.device, host: Any = None) -> None:
        self.asked, self.is_default, self.host = device, host is not None, host or _Own(self)
        with torch._C.DisableTorchFunction():
            self.states = _States(self.host)

    @property
    def device(self) -> torch.device:  # noqa: D102
        return self.asked

    def manual_seed(self, seed: int) -> Any:  # noqa: D102
        self.host.manual_seed(int(seed))
        self.states.begin(int(seed))
        return self

    def seed(self) -> int:  # noqa: D102
        self.states.begin(self.host.seed())
        return self.initial_seed()

    def initial_seed(self) -> int:  # noqa: D102
        return self._place()[0] % (1 << 64)

    def get_state(self) -> torch.Tensor:
        """Return the 16 bytes, on the host."""
        seed, offset = self._place()
        with torch._C.DisableTorchFunction():
            return put_on_host(torch.tensor([seed, offset], dtype=torch.int64, device="cpu").view(torch.uint8))

    def set_state(self, state: torch.Tensor) -> Any:
        """Continue from the 16 bytes that `get_state` returned."""
        with torch._C.DisableTorchFunction():
            if is_meta(state) or state.dtype is not torch.uint8:
                raise TypeError("RNG state must be a torch.ByteTensor")
            if state.numel() != _BYTES:
                raise RuntimeError("RNG state is wrong size")
            seed, offset = state.contiguous().view(torch.int64).tolist()
            self.states.restore((seed, offset))
        return self

    def get_offset(self) -> int:  # noqa: D102
        return self._place()[1]

    def set_offset(self, offset: int) -> None:  # noqa: D102
        with torch._C.DisableTorchFunction():
            self.states.restore((self.states.save()[0], int(offset)))

    def clone_state(self) -> Any:  # noqa: D102
        return CardGenerator(self.asked).set_state(self.get_state())

    graphsafe_get_state, graphsafe_set_state = clone_state, lambda self, other: self.set_state(other.get_state())

    def _place(self) -> tuple[int, int]:
        with torch._C.DisableTorchFunction():
            return self.states.save()


def generator_type(kinds: Iterable[str]) -> type:
    """Return what stands in for `torch.Generator`, where devices of these types are pretended."""
    named = tuple(kinds)

    class AnyGenerator(type(_Generator)):  # type: ignore[misc]
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, _Generator)

    class Generator(_Generator, metaclass=AnyGenerator):  # type: ignore[misc]
        """torch's generator on the host, or one of the pretended card."""

        def __new__(cls, device: Any = "cpu") -> Any:
            kind, _, index = str(device).partition(":")
            if kind in named or isinstance(device, int):
                return CardGenerator(torch.device(kind if kind in named else named[0], int(index or 0)))
            return _Generator(device)

    return Generator


def of_host(options: dict[str, Any]) -> None:
    """Take the card's default generator out of the arguments of a call of torch: its numbers are those of torch's own default."""
    if getattr(options.get("generator"), "is_default", False):
        options["generator"] = None


def advance(generator: Any) -> None:
    """Move a generator on, where numbers are asked for that are not drawn."""
    if generator is not None:
        with torch._C.DisableTorchFunction():
            torch.empty(1, device="cpu").uniform_(generator=generator)


def _signed(seed: int) -> int:
    return (seed + (1 << 63)) % (1 << 64) - (1 << 63)
