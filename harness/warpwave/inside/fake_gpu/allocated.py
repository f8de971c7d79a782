"""How much memory tensors take on a pretended card: a card's allocator counts, and packages compare what it counted.

The storage of a tensor on the card counts from the call of torch that first returns the tensor, until no such tensor is left. What torch's
own code makes and frees within a call is not seen, so a peak may be lower than on a card: a test that fails at such a number needs a card.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import torch

from warpwave.inside.fake_gpu.host_side import storage_of
from warpwave.inside.process.outcomes import Pretended

_BLOCK = 512  # bytes that an allocation is rounded up to
_SEGMENT = 2 << 20  # bytes that the allocator reserves at a time
_LARGE = 1 << 20  # bytes of a block that comes from the pool of large ones


class _Counter:
    """One number of the allocator: now, at most since a reset, and all that was ever added and taken away."""

    def __init__(self) -> None:
        self.current = self.peak = self.allocated = self.freed = 0

    def add(self, amount: int) -> None:
        self.current += amount
        if amount <= 0:
            self.freed -= amount
            return
        self.allocated += amount
        if self.current > self.peak:
            self.peak = self.current


class _Allocated:
    """What is allocated on the card: the storages of the tensors that are alive.

    Tensors are followed, not their storages: Triton's interpreter holds on to storages until Python collects garbage.
    """

    def __init__(self) -> None:
        self._tensors: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}  # by the tensor's identity; with its storage's address
        self._storages: dict[int, list[int]] = {}  # by address: bytes, and how many tensors have it
        self.bytes, self._blocks = defaultdict[str, _Counter](_Counter), defaultdict[str, _Counter](_Counter)  # by pool
        self.reserved = _Counter()

    def note(self, tensor: torch.Tensor) -> None:
        """Count the storage of a tensor on the card, unless it is counted."""
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):  # it wraps others, or only follows code
            return
        if (storage := storage_of(tensor)) is None:
            return
        if not isinstance(storage.nbytes(), int):  # a symbol: torch follows code, and nothing is allocated
            return
        size = -(-storage.nbytes() // _BLOCK) * _BLOCK
        identity, address = id(tensor), storage._cdata
        before = self._tensors.get(identity)
        if not size or (before is not None and before[1] == address):
            return
        self._tensors[identity] = weakref.ref(tensor, lambda _: self._release(self._tensors.pop(identity)[1])), address
        if before is not None:  # it has another storage than it had
            self._release(before[1])
        if address in self._storages:
            self._storages[address][1] += 1
        else:
            self._storages[address] = [size, 1]
            self._count(size, 1)

    def _release(self, address: int) -> None:
        entry = self._storages[address]
        entry[1] -= 1
        if not entry[1]:
            del self._storages[address]
            self._count(-entry[0], -1)

    def _count(self, size: int, blocks: int) -> None:
        for pool in ("all", "large_pool" if abs(size) > _LARGE else "small_pool"):
            self.bytes[pool].add(size)
            self._blocks[pool].add(blocks)
        if (missing := self.bytes["all"].current - self.reserved.current) > 0:
            self.reserved.add(-(-missing // _SEGMENT) * _SEGMENT)

    def give_back(self) -> None:
        """Give back what is reserved and not used."""
        self.reserved.add(-(-self.bytes["all"].current // _SEGMENT) * _SEGMENT - self.reserved.current)

    def _counters(self) -> list[_Counter]:
        return [*self.bytes.values(), *self._blocks.values(), self.reserved]

    def reset_peaks(self) -> None:
        """Let the largest number be the one of now."""
        for counter in self._counters():
            counter.peak = counter.current

    def reset_sums(self) -> None:
        """Forget all that was ever added and taken away."""
        for counter in self._counters():
            counter.allocated = counter.freed = 0

    def nested(self) -> dict[str, Any]:
        """Return what `torch.cuda.memory_stats_as_nested_dict` does."""
        pools = ("all", "large_pool", "small_pool")
        in_bytes, blocks = ({pool: dict(vars(counters[pool])) for pool in pools} for counters in (self.bytes, self._blocks))
        reserved, nothing = (dict.fromkeys(pools, vars(counter)) for counter in (self.reserved, _Counter()))
        return {
            **dict.fromkeys(("allocated_bytes", "active_bytes", "requested_bytes"), in_bytes),
            **dict.fromkeys(("allocation", "active"), blocks),
            "reserved_bytes": {pool: dict(counts) for pool, counts in reserved.items()},
            "segment": {pool: {key: value // _SEGMENT for key, value in counts.items()} for pool, counts in reserved.items()},
            **dict.fromkeys(("inactive_split_bytes", "inactive_split"), nothing),
            **dict.fromkeys(("num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free"), 0),
        }

    def flat(self) -> dict[str, int]:
        """Return what `torch.cuda.memory_stats` does: `allocated_bytes.all.peak` and its like. What is not counted is 0."""

        def leaves(name: str, value: Any) -> Iterator[tuple[str, int]]:
            if isinstance(value, dict):
                for key, inner in value.items():
                    yield from leaves(f"{name}.{key}", inner)
            else:
                yield name, value

        return defaultdict(int, (leaf for name, value in self.nested().items() for leaf in leaves(name, value)))


ALLOCATED = _Allocated()


def memory_answers(free: int, total: int) -> dict[str, object]:
    """Return what torch's module for the device, and `torch.accelerator`, answer about memory; a test that asks is noted.

    `free` are the bytes of the card that nobody else uses, `total` all of them.
    """

    def asked(name: str, answer: Callable[[], object]) -> Callable[..., object]:
        def answered(*args: object, **kwargs: object) -> object:
            Pretended.asked.add(name)
            return answer()

        return answered

    used, reserved = ALLOCATED.bytes["all"], ALLOCATED.reserved
    share = [1.0]
    numbers: dict[str, Callable[[], object]] = {
        "memory_allocated": lambda: used.current,
        "max_memory_allocated": lambda: used.peak,
        "memory_reserved memory_cached device_memory_used": lambda: reserved.current,
        "max_memory_reserved max_memory_cached": lambda: reserved.peak,
        "memory_stats": ALLOCATED.flat,
        "memory_stats_as_nested_dict": ALLOCATED.nested,
        "host_memory_stats host_memory_stats_as_nested_dict": lambda: defaultdict(int),
        "mem_get_info": lambda: (max(0, free - reserved.current), total),
        "memory_summary": lambda: f"allocated: {used.current} bytes now, {used.peak} at most; reserved: {reserved.current}",
    }
    others: dict[str, Callable[..., object]] = {
        "memory_snapshot": lambda *args, **kwargs: [],
        "_snapshot": lambda *args, **kwargs: {"segments": [], "device_traces": [[]]},
        "set_per_process_memory_fraction": lambda fraction, device=None: share.__setitem__(0, fraction),
        "get_per_process_memory_fraction": lambda device=None: share[0],
        "empty_cache": lambda *args, **kwargs: ALLOCATED.give_back(),
        "reset_peak_memory_stats reset_max_memory_allocated reset_max_memory_cached": lambda *args, **kwargs: ALLOCATED.reset_peaks(),
        "reset_accumulated_memory_stats": lambda *args, **kwargs: ALLOCATED.reset_sums(),
    }
    found = {name: asked(name, answer) for names, answer in numbers.items() for name in names.split()}
    return found | {name: answer for names, answer in others.items() for name in names.split()}
