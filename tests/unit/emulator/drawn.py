"""What instructions are given in the tests: random words and floats, thousands of lanes, and helpers that say what comes out."""

from __future__ import annotations

import numpy as np

COUNT = 4096
DRAWN = np.random.default_rng(7)
EDGES = np.array([0, 1, 2, 31, 32, 63, 64, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFE, 0xFFFFFFFF, 0x3C00, 0x7C00, 0x7E00, 0xFC00, 0x8000, 0x3F800000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x00800000, 0x007FFFFF], np.uint64).astype(np.uint32)  # fmt: skip


def words() -> np.ndarray:
    """Random words, a quarter of them edges."""
    drawn = DRAWN.integers(0, 2**32, COUNT, dtype=np.uint64).astype(np.uint32)
    return np.where(DRAWN.random(COUNT) < 0.25, DRAWN.choice(EDGES, COUNT), drawn)


def floats(lowest: float = -30, highest: float = 30) -> np.ndarray:
    """Random floats over many binades, a sixteenth of them zeros, infinities and denormals, as bits; no NaN."""
    values = (DRAWN.standard_normal(COUNT) * 2.0 ** DRAWN.uniform(lowest, highest, COUNT)).astype(np.float32)
    edges = np.array([0.0, -0.0, np.inf, -np.inf, 1e-45, -1e-40, 1.1754944e-38, 3.4028235e38, 1.0, 0.5], np.float32)
    return np.where(DRAWN.random(COUNT) < 1 / 16, DRAWN.choice(edges, COUNT), values).view(np.uint32)


A, B, C = words(), words(), words()
FA, FB, FC = floats(), floats(), floats()
I, J, K = A.view(np.int32), B.view(np.int32), C.view(np.int32)  # noqa: E741
X, Y, Z = A.astype(object), B.astype(object), C.astype(object)  # Python's integers: no width, no wrap


def bits(values) -> np.ndarray:
    return np.array([int(value) & 0xFFFFFFFF for value in values], np.uint64).astype(np.uint32)


def flushed(x: np.ndarray) -> np.ndarray:
    """Denormals as zeros of their sign; test_denormals.py says what flushes them."""
    return np.where(np.abs(x) < np.float32(2.0**-126), np.copysign(np.float32(0), x), x)


def each(function, *columns) -> np.ndarray:
    return bits([function(*row) for row in zip(*(column.tolist() for column in columns))])


def field(value: int, start: int, width: int) -> int:
    return value >> start & (1 << width) - 1


def signed(value: int, width: int) -> int:
    return value - (1 << width) if width and value >> (width - 1) & 1 else value


def pick(high: int, low: int, selectors: int) -> int:
    """v_perm_b32, byte by byte."""
    data, result = low.to_bytes(4, "little") + high.to_bytes(4, "little"), []
    for selector in selectors.to_bytes(4, "little"):
        if selector < 8:
            result.append(data[selector])
        elif selector < 12:
            result.append(0xFF if data[(selector - 8) * 2 + 1] & 0x80 else 0)
        else:
            result.append(0 if selector == 12 else 0xFF)
    return int.from_bytes(bytes(result), "little")


def f32(x: np.ndarray) -> np.ndarray:
    return x.view(np.float32)


H = [np.where(DRAWN.random(COUNT) < 0.1, DRAWN.choice(np.array([0, 0x8000, 1, 0x3FF, 0x400, 0x7BFF, 0x3C00], np.uint16), COUNT), (DRAWN.standard_normal(COUNT) * 2.0 ** DRAWN.uniform(-12, 8, COUNT)).astype(np.float16).view(np.uint16)).astype(np.uint32) for _ in range(3)]  # fmt: skip
HA, HB, HC = (x.astype(np.uint16).view(np.float16) for x in H)
