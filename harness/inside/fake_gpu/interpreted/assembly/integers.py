"""Instructions on whole numbers and on bits. Source: the PTX ISA 8.7, sections 9.7.1, 9.7.7 and 9.7.9."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from harness.inside.fake_gpu.interpreted.assembly.numbers import Array, Bits, cut, read

# Of two operands; the type is that of the instruction.
ARITHMETIC: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "min": np.minimum,
    "max": np.maximum,
    "neg": np.negative,
    "abs": np.abs,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.bitwise_not,
    "cnot": lambda x: (x == 0).astype(np.uint64),
}


def divided(name: str, x: Array, y: Array) -> Array:
    """Return the quotient towards zero, or its remainder. PTX leaves a division by zero open: here it is 0."""
    safe = np.where(y == 0, 1, y)
    size = np.abs(x) // np.abs(safe)
    quotient = np.where((x < 0) != (safe < 0), -size.astype(np.int64), size.astype(np.int64)) if x.dtype == np.int64 else x // safe
    result = quotient if name == "div" else x - quotient * safe
    return np.where(y == 0, 0, result).astype(x.dtype)


def product(x: Bits, y: Bits, kind: str, half: str) -> Array:
    """Return the low or high half of a product, or all of it (`wide`), as Python computes it."""
    count = int(kind[1:])
    full = read(x, kind).astype(object) * read(y, kind).astype(object)
    wanted = full >> count if half == "hi" else full
    return (wanted % (1 << 64)).astype(np.uint64)


def shifted(name: str, x: Array, amount: Bits, kind: str) -> Array:
    """Shift; by more than the width, nothing is left, or of a signed number its sign."""
    most = int(kind[1:])
    by = np.minimum(cut(amount, 32), np.uint64(most))
    if name == "shr" and kind[0] == "s":
        return x >> np.minimum(by, np.uint64(63)).astype(np.int64)
    near = np.minimum(by, np.uint64(63))
    moved = x << near if name == "shl" else x >> near
    return np.where(by >= most, np.uint64(0), moved)


def funnel(low: Bits, high: Bits, amount: Bits, left: bool, wraps: bool) -> Bits:
    """Shift two registers of 32 bits as one, and return the upper (left) or lower word."""
    by = amount & np.uint64(31) if wraps else np.minimum(cut(amount, 32), np.uint64(32))
    both = high << np.uint64(32) | low
    moved = both << by if left else both >> by
    return cut(moved >> np.uint64(32) if left else moved, 32)


def permuted(low: Bits, high: Bits, selector: Bits) -> Bits:
    """Choose four of eight bytes (`prmt`, without a mode). The highest bit of a selector asks for the byte's sign in all bits."""
    both, result = high << np.uint64(32) | low, np.zeros_like(low)
    for n in range(4):
        chosen = selector >> np.uint64(4 * n)
        byte = both >> (chosen & np.uint64(7)) * np.uint64(8) & np.uint64(0xFF)
        signs = np.where(byte & np.uint64(0x80), np.uint64(0xFF), np.uint64(0))
        result |= np.where(chosen & np.uint64(8), signs, byte) << np.uint64(8 * n)
    return result


def logic(a: Bits, b: Bits, c: Bits, table: int) -> Bits:
    """Return `lop3`: bit n of the table is the result where a, b and c have the bits of n, a the highest."""
    result = np.zeros_like(a)
    for n in range(8):
        if table >> n & 1:
            result |= (a if n & 4 else ~a) & (b if n & 2 else ~b) & (c if n & 1 else ~c)
    return cut(result, 32)


def extracted(x: Bits, at: Bits, length: Bits, kind: str) -> Bits:
    """Return `bfe`: bits from `at` on, with the sign of the field's highest bit above them if the type is signed."""
    count = int(kind[1:])
    at, length = np.minimum(at & np.uint64(255), np.uint64(count)), length & np.uint64(255)
    top = np.minimum(at + length - np.uint64(1), np.uint64(count - 1))
    negative = (length > 0) & ((x >> top & np.uint64(1)) == 1)
    length = np.minimum(length, np.uint64(count) - at)  # there are no more bits
    mask = (np.uint64(1) << np.minimum(length, np.uint64(63))) - np.uint64(1)
    mask = np.where(length >= 64, ~np.uint64(0), mask)
    field = x >> np.minimum(at, np.uint64(63)) & mask
    if kind[0] != "s":
        return field
    return cut(np.where(negative, field | ~mask, field), count)


def inserted(x: Bits, into: Bits, at: Bits, length: Bits, count: int) -> Bits:
    """Return `bfi`: the low bits of one number in another."""
    at, length = at & np.uint64(255), np.minimum(length & np.uint64(255), np.uint64(count))
    mask = np.where(length >= 64, ~np.uint64(0), (np.uint64(1) << np.minimum(length, np.uint64(63))) - np.uint64(1))
    near = np.minimum(at, np.uint64(63))
    moved = np.where(at >= count, np.uint64(0), mask << near)
    return cut(into & ~moved | x << near & moved, count)


def counted(name: str, x: Bits, count: int) -> Bits:
    """Return `popc`, `clz` or `brev` of numbers of `count` bits."""
    bits = x[..., None] >> np.arange(count, dtype=np.uint64) & np.uint64(1)
    if name == "popc":
        return bits.sum(-1).astype(np.uint64)
    if name == "clz":
        return (count - np.where(bits == 1, np.arange(1, count + 1), 0).max(-1)).astype(np.uint64)
    return (bits << np.arange(count - 1, -1, -1).astype(np.uint64)).sum(-1).astype(np.uint64)
