"""What the emulator's checks find in a test, as rows: each defect of each line of a kernel once, with its first example."""

from __future__ import annotations

import dataclasses
import linecache
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Union

import torch

from harness.emulator import Access, Check, Found, Kernel, OutOfMemoryBounds
from harness.emulator.errors import Place
from harness.emulator.lines import first_line
from harness.records import Defect, Finding

_MOST = 50  # rows of one test
_DEFECTS = {
    Check.LDS_RACE: Defect.RACE,
    Check.GLOBAL_RACE: Defect.RACE,
    Check.LDS_UNWRITTEN: Defect.UNINITIALISED,
    Check.REGISTER_UNWRITTEN: Defect.UNINITIALISED,
    Check.USED_EARLY: Defect.EARLY,
    Check.LDS_USED_EARLY: Defect.EARLY,
    Check.OUT_OF_RANGE: Defect.OUT_OF_BOUNDS,
}
_LDS = "LDS"
_VERBS = {Access.LOAD: "loads from", Access.STORE: "stores to", Access.ATOMIC: "has an atomic on"}


@dataclass(frozen=True)
class Given:
    """A tensor that a launch was given, by the name of the argument."""

    name: str
    tensor: torch.Tensor

    def index(self, address: int) -> tuple[int, tuple[int, ...]]:
        """Return which element an address is in, flat from the first one on, and by dimension if the tensor is contiguous."""
        flat = (address - self.tensor.data_ptr()) // max(1, self.tensor.element_size())
        if not self.tensor.is_contiguous() or not 0 <= flat < self.tensor.numel():
            return flat, (flat,)
        indices, rest = [], flat
        for size in reversed(self.tensor.shape):
            rest, place = divmod(rest, size)
            indices.append(place)
        return flat, tuple(reversed(indices))


def given(signature: Iterable[tuple[str, Any]], values: Sequence[Any]) -> list[Given]:
    """Return the tensors among the values of a launch; one in a tensor descriptor has the descriptor's name."""
    return [each for (name, _), value in zip(signature, values, strict=False) for each in _given(name, value)]


def _given(name: str, value: Any) -> Iterator[Given]:
    if isinstance(value, torch.Tensor):
        yield Given(name, value)
    elif isinstance(value, tuple):
        for position, each in enumerate(value):
            yield from _given(f"{name}[{position}]", each)
    elif (base := getattr(value, "base", None)) is not None:  # a descriptor, a tensor under another type, or the one of the other
        yield from _given(name, base)


class Collected:
    """Collects what the launches of a test did wrong."""

    def __init__(self) -> None:
        self._rows: dict[tuple[object, ...], Finding] = {}

    def take(self) -> list[Finding]:
        """Return what was found, and forget it."""
        rows, self._rows = [*self._rows.values()], {}
        return rows

    def add(self, found: Iterable[Found], tensors: Sequence[Given], lds: int) -> None:
        """Add what one launch did wrong; `lds` is the LDS of a workgroup in bytes."""
        for one in found:
            self._keep(_row(one, tensors, lds))

    def outside(self, error: OutOfMemoryBounds, tensors: Sequence[Given], wavefront: int, threads: int) -> None:
        """Add an access outside of all tensors, which has ended its launch."""
        assert error.place is not None
        access = Access.STORE if " stored " in str(error) else Access.LOAD
        where = _Where("", (), 0, ()) if "outside of LDS" not in str(error) else _Where(_LDS, (), error.address, (error.address,))
        if near := _nearest(tensors, error.address) if not where.tensor else None:
            where = _Where(near.name, tuple(near.tensor.shape), *near.index(error.address))
        thread = error.wave * wavefront + error.lane
        self._keep(_finding(Defect.OUT_OF_BOUNDS, error.place, access, where, thread, threads, error.workgroup, f"wave {error.wave}", 1))

    def reordered(self, kernel: Kernel, found: Iterable[Different]) -> None:
        """Add elements that depend on the order of waves and workgroups. Which store is to blame is not known: the kernel is."""
        file, line = first_line(kernel)
        for one in found:
            values = f"{one.in_order:g} in order, {one.in_random_order:g} in a random order of waves and workgroups"
            where = _Where(one.tensor.name, tuple(one.tensor.tensor.shape), *one.tensor.index(one.address))
            place = Place(kernel.name, 0, "", f"{file}:{line}" if file else None, file)
            self._keep(_finding(Defect.ORDER, place, Access.STORE, where, 0, 1, (), values, one.count))

    def _keep(self, row: Finding) -> None:
        key = (row.defect, row.access, row.tensor, row.file, row.line, row.other.rpartition("; ")[2])
        if known := self._rows.get(key):
            self._rows[key] = dataclasses.replace(known, times=known.times + row.times)
        elif len(self._rows) < _MOST:
            self._rows[key] = row


@dataclass(frozen=True)
class Different:
    """Elements of a tensor that came out differently: the `address` of the first one, its values, and how many there are."""

    tensor: Given
    address: int
    count: int
    in_order: float
    in_random_order: float


@dataclass(frozen=True)
class _Where:
    tensor: str
    shape: tuple[int, ...]
    index: int
    indices: tuple[int, ...]


def _row(one: Found, tensors: Sequence[Given], lds: int) -> Finding:
    if one.register:
        where = _Where(f"register {one.register}", (), 0, ())
    elif one.check in (Check.GLOBAL_RACE, Check.OUT_OF_RANGE):
        near = _nearest(tensors, one.address)
        where = _Where(near.name, tuple(near.tensor.shape), *near.index(one.address)) if near else _Where("", (), 0, ())
    else:
        where = _Where(_LDS, (lds,), one.address, (one.address,))
    return _finding(_DEFECTS[one.check], one.place, one.access, where, one.thread, one.threads, one.workgroup, _other(one), one.times)


def _finding(
    defect: Defect,
    place: Place,
    access: Access,
    where: _Where,
    thread: int,
    threads: int,
    program: tuple[int, ...],
    other: str,
    times: int,
) -> Finding:
    file, line = place.file, int(place.line.rpartition(":")[2]) if place.line else 0
    return Finding(
        case="",
        kernel="",
        function=place.kernel,
        defect=defect,
        access=access.name.lower(),
        tensor=where.tensor,
        shape=where.shape,
        index=where.index,
        indices=where.indices,
        lane=thread,
        lanes=1,
        block=(threads,),
        program=program,
        file=file,
        line=line,
        text=linecache.getline(file, line).strip() if file else place.instruction,
        other=other,
        times=times,
    )


def _other(one: Found) -> str:
    """Return `wave 1, lane 3, `ds_read_b32 v1, v2`; wave 0 stores to it, and nothing orders the two; line 12: …`."""
    here = f"wave {one.wave}, lane {one.lane}, {one.place.instruction}"
    if one.check is Check.USED_EARLY:
        return f"{here}; the load of this register was not waited for"
    if one.check is Check.OUT_OF_RANGE:
        return f"{here}; a card leaves it out, and a load gives 0"
    if one.other is None:
        return f"{here}; nothing wrote it"
    if (one.other, one.other_wave, one.other_workgroup) == (one.place, one.wave, one.workgroup):
        return f"{here}; another lane of it stores another value there"
    who = f"wave {one.other_wave}" if one.check is not Check.GLOBAL_RACE else f"program {one.other_workgroup}"
    why = "its wave had not waited for that" if one.in_flight else "nothing orders the two"
    verb = _VERBS[one.other_access]
    return f"{here}; {who} {verb} it, and {why}; {one.other.line or ''} {one.other.instruction}".strip()


def _nearest(tensors: Sequence[Given], address: int) -> Union[Given, None]:
    """Return the tensor whose storage an address is in, or the one that ends or begins closest to it."""

    def distance(one: Given) -> int:
        storage = one.tensor.untyped_storage()
        start, end = storage.data_ptr(), storage.data_ptr() + storage.nbytes()
        return int(max(start - address, address - end + 1, 0))

    return min(tensors, key=distance, default=None)
