"""The host's service that prints for a kernel: `tl.device_print`, and what `tl.device_assert` says before it traps.

A wave takes a packet from a free stack, fills a slot for each active lane, puts the packet on a ready stack, and waits until the host
clears the packet's flag. Layout and order are those of the ROCm device libraries (`hostcall_impl.cl`, and printf's messages
of `services.cl`).
"""

from __future__ import annotations

import ctypes
import re
import struct
import threading
from collections.abc import Sequence
from types import TracebackType

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
            self._write(self._messages[name])
            self._messages[name] = []
        self._word(slot).value = head & ~1 & ((1 << _ID) - 1) | name << _ID

    def _write(self, words: Sequence[int]) -> None:
        text = formatted(words[1:])
        if words and words[0] & 1:
            self.complaints += text
        else:
            self.printed += text

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
