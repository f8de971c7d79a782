"""What the emulator's checks find in a test, as rows: each defect of each line of a kernel once, with its first example."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import re
import struct
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Union

import torch

from warpwave.emulator import Access, Check, Found, Kernel, OutOfMemoryBounds, Pair
from warpwave.emulator.code_object import first_line
from warpwave.emulator.errors import Place
from warpwave.inside.codegen.undefined import Followed
from warpwave.inside.fake_gpu.host_side import named_in
from warpwave.inside.process.outcomes import statement
from warpwave.records import Defect, Finding

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


@dataclass(frozen=True, eq=False)
class Given:
    """A tensor that a launch was given, by the name of the argument."""

    name: str
    tensor: torch.Tensor

    @functools.cached_property
    def storage(self) -> tuple[int, int]:
        """Address and size in bytes of its storage; (0, 0) if it has none, as a sparse tensor or one of torch's compiler."""
        try:
            storage = self.tensor.untyped_storage()
            return storage.data_ptr(), storage.nbytes()
        except (NotImplementedError, RuntimeError):
            return 0, 0

    def index(self, address: int) -> tuple[int, tuple[int, ...]]:
        """Return the index of an address: flat in the tensor's shape, and by dimension.

        Beyond the tensor, the first dimension runs on, as indices of C do.
        """
        shape, strides = self.tensor.shape, self.tensor.stride()
        offset = (address - self.tensor.data_ptr()) // max(1, self.tensor.element_size())
        if not shape:
            return offset, (offset,)
        left, indices = offset, [0] * len(shape)
        by_stride = sorted(range(len(shape)), key=lambda axis: (-strides[axis], axis))
        for axis in by_stride:
            if strides[axis] > 0 and shape[axis] > 1:
                indices[axis], left = divmod(left, strides[axis])
        if left or all(size == 1 for size in shape):
            indices[by_stride[-1]] += left
        flat = 0
        for axis, size in enumerate(shape):
            flat = flat * size + indices[axis]
        return flat, tuple(indices)

    def distance(self, address: int) -> int:
        """Return how far an address is from the storage in bytes; 0 inside."""
        start, size = self.storage
        return max(start - address, address - start - size + 1, 0)

    def beyond(self, address: int, size: int) -> str:
        """Say what the index of an access of `size` bytes does not: only the first ones may be inside, or a stride may be 0."""
        inside, strides = sum(self.storage) - address, self.tensor.stride()
        words = [f"bytes {inside} to {size - 1} of its {size} are outside"] if 0 < inside < size else []
        if any(stride == 0 and length > 1 for stride, length in zip(strides, self.tensor.shape, strict=True)):
            words.append(f"the tensor has strides {list(strides)} and {self.storage[1]} bytes")
        return "; ".join(words)


def nearest(tensors: Sequence[Given], address: int) -> Union[Given, None]:
    """Return the tensor whose storage an address is in, or the one that ends or begins closest to it."""
    return min(tensors, key=lambda one: one.distance(address), default=None)


def at(tensor: Union[Given, None], address: int) -> dict[str, Any]:
    """Return the fields of a `Finding` that say which element of which tensor an address is in."""
    if tensor is None:
        return {}
    index, indices = tensor.index(address)
    return {"tensor": tensor.name, "shape": tuple(tensor.tensor.shape), "index": index, "indices": indices}


def finding(**known: Any) -> Finding:
    """Return a finding with the fields that are `known`. The plugin of the stage adds the test and the row of the report."""
    unknown = {"tensor": "", "shape": (), "index": 0, "indices": (), "lane": 0, "lanes": 1, "block": (), "program": ()}
    return Finding(case="", kernel="", **{**unknown, **known})


def given(signature: Iterable[tuple[str, Any]], values: Sequence[Any]) -> list[Given]:
    """Return the tensors among the values of a launch; one in a tensor descriptor has the descriptor's name."""
    named = (each for (name, _), value in zip(signature, values, strict=False) for each in named_in(name, value))
    return [Given(name, tensor) for name, tensor in named if isinstance(tensor, torch.Tensor)]


class Collected:
    """Collects what the launches of a test did wrong: each defect of each line once, with its first example.

    `not_checked` says what could not be told of them, until it is cleared.
    """

    def __init__(self) -> None:
        self.not_checked: dict[str, None] = {}
        self._rows: dict[tuple[object, ...], Finding] = {}

    def take(self) -> list[Finding]:
        """Return what was found, and forget it."""
        rows, self._rows = [*self._rows.values()], {}
        return rows

    def add(self, found: Iterable[Found], tensors: Sequence[Given], lds: int) -> None:
        """Add what one launch did wrong; `lds` is the LDS of a workgroup in bytes."""
        for one in found:
            self.keep(_row(one, tensors, lds))

    def outside(self, error: OutOfMemoryBounds, tensors: Sequence[Given], wavefront: int, threads: int) -> None:
        """Add an access outside of all tensors, which has ended its launch."""
        assert error.place is not None
        access, said = Access.STORE if " stored " in str(error) else Access.LOAD, ""
        if "outside of LDS" in str(error):
            where: dict[str, Any] = {"tensor": _LDS, "index": error.address, "indices": (error.address,)}
        else:
            near = nearest(tensors, error.address)
            where, said = at(near, error.address), near.beyond(error.address, error.size) if near else ""
        other = f"wave {error.wave}" + (f"; {said}" if said else "")
        where |= {"lane": error.wave * wavefront + error.lane, "block": (threads,), "program": error.workgroup}
        self.keep(_finding(Defect.OUT_OF_BOUNDS, error.place, access, other, 1, where))

    def raced(self, races: Iterable[Race], tensors: Sequence[Given]) -> None:
        """Add accesses whose order decides a result."""
        for race in races:
            self.keep(_row(race.pair.found, tensors, 0, decided(race.different)))

    def reordered(self, kernel: Kernel, found: Iterable[Different], suspects: Sequence[Found]) -> None:
        """Add elements that depend on the order of waves and workgroups.

        `suspects` are accesses that nothing orders. Without any, the store that is to blame is not known: the kernel is.
        """
        file, line = first_line(kernel)
        # Of two lines, one example.
        suspects = [*{frozenset((one.place.line, one.other.line)): one for one in suspects if one.other}.values()]
        places = [suspect.place for suspect in suspects] or [Place(kernel.name, 0, "", f"{file}:{line}" if file else None, file)]
        others = [f"; nothing orders it and {one.other.line or one.other.instruction}" for one in suspects if one.other] or [""]
        for one in found:
            values = f"{one.in_order:g} in order, {one.in_random_order:g} in a random order of waves and workgroups"
            for place, other in zip(places, others, strict=True):
                where = at(one.tensor, one.address)
                self.keep(_finding(Defect.ORDER, place, Access.STORE, values + other, one.count, where))

    def undefined(self, followed: Followed) -> None:
        """Add the masked loads of a launch whose undefined lanes reach something."""
        for one in followed.found:
            self.keep(one.finding)
        if followed.not_checked:
            self.not_checked[followed.not_checked] = None

    def keep(self, row: Finding) -> None:
        """Keep one defect, or count it."""
        key = (row.defect, row.access, row.function, row.tensor, row.file, row.line, row.other.rpartition("; ")[2])
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
class Race:
    """A pair whose order decides a result: the first element that differs, or None if the other order does not end well."""

    pair: Pair
    different: Union[Different, None]


def decided(different: Union[Different, None], then: str = "in the other order") -> str:
    """Say which element comes out differently, and how."""
    if different is None:
        return f"{then} the launch does not end well"
    index = different.tensor.index(different.address)[1]
    element = f"{different.tensor.name}[{', '.join(map(str, index))}]"
    return f"{element} is {different.in_order:g}, {then} {different.in_random_order:g}"


def _row(one: Found, tensors: Sequence[Given], lds: int, decided: str = "") -> Finding:
    if one.register:
        where: dict[str, Any] = {"tensor": f"register {one.register}"}
    elif one.check in (Check.GLOBAL_RACE, Check.OUT_OF_RANGE):
        where = at(nearest(tensors, one.address), one.address)
    else:
        where = {"tensor": _LDS, "shape": (lds,), "index": one.address, "indices": (one.address,)}
    where |= {"lane": one.thread, "block": (one.threads,), "program": one.workgroup}
    return _finding(_DEFECTS[one.check], one.place, one.access, _other(one, decided), one.times, where)


def _finding(defect: Defect, place: Place, access: Access, other: str, times: int, where: dict[str, Any]) -> Finding:
    """Return a row; `where` has what is known of the tensor, the index, the lane, the block and the program."""
    file, line = place.file, int(place.line.rpartition(":")[2]) if place.line else 0
    return finding(
        function=place.kernel,
        defect=defect,
        access=access.name.lower(),
        file=file,
        line=line,
        text=statement(file, line) if file else place.instruction,
        other=other,
        times=times,
        **{"block": (1,), **where},
    )


def _other(one: Found, decided: str = "") -> str:
    """Return `wave 1, lane 3, `ds_read_b32 v1, v2`; wave 0 stores to it, and nothing orders the two; line 12: …`.

    `decided` is what the order decides, where that was tried.
    """
    here = f"wave {one.wave}, lane {one.lane}, {one.place.instruction}"
    if one.check is Check.USED_EARLY:
        return f"{here}; the load of this register was not waited for"
    if one.check is Check.OUT_OF_RANGE:
        return f"{here}; a card leaves it out, and a load gives 0"
    if one.other is None:
        return f"{here}; nothing wrote it"
    if (one.other, one.other_wave, one.other_workgroup) == (one.place, one.wave, one.workgroup):
        return f"{here}; another lane of it stores another value there"
    is_one = one.workgroup == one.other_workgroup
    flies = "its wave had not waited for that" if is_one else "the atomics between the two do not release and acquire"
    who = f"wave {one.other_wave}" + ("" if is_one else f" of program {one.other_workgroup}")
    why = flies if one.in_flight else "nothing orders the two"
    if decided:
        why += f": {decided}"
    verb = _VERBS[one.other_access]
    return f"{here}; {who} {verb} it, and {why}; {one.other.line or ''} {one.other.instruction}".strip()


# The host's service that prints for a kernel: `tl.device_print`, and what `tl.device_assert` says before it traps.
#
# A wave takes a packet from a free stack, fills a slot for each active lane, puts the packet on a ready stack, and waits until the host
# clears the packet's flag. Layout and order are those of the ROCm device libraries (`hostcall_impl.cl`, and printf's messages
# of `services.cl`).

_MOST_PACKETS = 1 << 14
_SLOTS, _SLOT = 64, 64  # lanes of a wave, bytes of a lane's slot
# A buffer: addresses of headers, payloads and a signal, the tops of the free and the ready stack, the mask of an index.
_BUFFER, _SIGNAL = 0, 64
_HEADERS = 128
_HEADER = 24  # next, mask of active lanes, service, flag
_FREE, _READY, _FLAG = 24, 32, 20
_BEGIN, _END, _LENGTH, _ID = 0, 1, 5, 8  # bits of a message's first word
_POLL_S = 0.0001
_DIRECTIVE = re.compile(r"%(?:%|([-+ #0]*\d*(?:\.\d+)?)(hh|h|ll|l|j|z|t|L)?([diouxXeEfFgGaAcsp]))")


class Printer:
    """Serves one launch of `waves` waves while it runs. `buffer` is address and size of the memory that it shares with the kernel."""

    def __init__(self, waves: int) -> None:
        packets = 1 << max(1, (min(waves, _MOST_PACKETS) - 1).bit_length())  # one for each wave that may wait at a time
        self._mask = packets - 1
        self._payloads = (_HEADERS + _HEADER * packets + 63) // 64 * 64
        self._memory = (ctypes.c_uint64 * ((self._payloads + _SLOTS * _SLOT * packets) // 8))()
        self._base = ctypes.addressof(self._memory)
        self.buffer = (self._base, ctypes.sizeof(self._memory))
        self.printed, self.complaints = "", ""  # what kernels write to standard output and to standard error
        self._messages: dict[int, list[int]] = {}
        self._seen, self._over = 0, threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        addresses = (self._base + _HEADERS, self._base + self._payloads, self._base + _SIGNAL)
        # The bits above an index count how often its packet was used, so that no pointer comes twice.
        ctypes.memmove(self._base, struct.pack("<QQQQQQ", *addresses, packets | self._mask, 0, self._mask), 48)
        for index in range(1, packets):
            self._word(_HEADERS + _HEADER * index).value = packets | (index - 1)

    def __enter__(self) -> Printer:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def _serve(self) -> None:
        while not self._over.wait(_POLL_S):
            self._answer()
        self._answer()

    def _answer(self) -> None:
        """Answer the packets that came since the last look. The stack is only read, because a kernel may push to it at any time."""
        top = packet = self._word(_READY).value
        waiting = []
        while packet != self._seen:
            waiting.append(packet & self._mask)
            packet = self._word(_HEADERS + _HEADER * waiting[-1]).value
        self._seen = top
        for index in reversed(waiting):
            header = _HEADERS + _HEADER * index
            active = self._word(header + 8).value
            for lane in range(_SLOTS):
                if active >> lane & 1:
                    self._message(self._payloads + _SLOT * (_SLOTS * index + lane))
            ctypes.c_uint32.from_address(self._base + header + _FLAG).value = 0

    def _message(self, slot: int) -> None:
        """Take a part of a lane's message; the first word says which message, and is the answer, too."""
        words = struct.unpack("<8Q", ctypes.string_at(self._base + slot, _SLOT))
        head = words[0]
        name = len(self._messages) + 1 if head >> _BEGIN & 1 else head >> _ID
        self._messages.setdefault(name, []).extend(words[1 : 1 + (head >> _LENGTH & 7)])
        if head >> _END & 1:
            kind, *text = self._messages[name] or [0]
            if kind & 1:
                self.complaints += formatted(text)
            else:
                self.printed += formatted(text)
            self._messages[name] = []
        self._word(slot).value = head & ~1 & ((1 << _ID) - 1) | name << _ID

    def _word(self, offset: int) -> ctypes.c_uint64:
        return ctypes.c_uint64.from_address(self._base + offset)


def formatted(words: Sequence[int]) -> str:
    """Return what C's printf makes of a message: a format, padded with zeros to whole words, and a word for each argument."""
    data = struct.pack(f"<{len(words)}Q", *words)
    place = 0

    def text() -> str:
        nonlocal place
        end = data.find(b"\0", place)
        found = data[place : end if end >= 0 else len(data)]
        place += (len(found) + 8) // 8 * 8
        return found.decode("utf-8", "replace")

    def argument(found: re.Match[str]) -> str:
        nonlocal place
        flags, width, kind = found[1], found[2] or "", found[3]
        if kind is None:
            return "%"
        if kind == "s":
            return f"%{flags}s" % text()
        raw = data[place : place + 8].ljust(8, b"\0")
        place += 8
        if kind in "eEfFgGaA":
            (real,) = struct.unpack("<d", raw)
            return str(real.hex()) if kind in "aA" else f"%{flags}{kind}" % real
        wide = width in ("l", "ll", "j", "z", "t") or kind == "p"
        number = int.from_bytes(raw[: 8 if wide else 4], "little", signed=kind in "di")
        return f"{number:#x}" if kind == "p" else chr(number & 0xFF) if kind == "c" else f"%{flags}{'d' if kind == 'u' else kind}" % number

    return _DIRECTIVE.sub(argument, text())
