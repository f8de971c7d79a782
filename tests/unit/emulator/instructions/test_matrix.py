"""Matrix instructions against dense products in numpy. Where elements lie is as AMD's matrix instruction calculator has it.

Values are small whole numbers where a type has them, so that sums are exact in any order.
"""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
import torch
from machine_code import WAVES, lanes

WAVES_RUN = 4
_DRAWN = np.random.default_rng(11)
_EIGHTS = {
    "fnuz": {"fp8": torch.float8_e4m3fnuz, "bf8": torch.float8_e5m2fnuz},
    "ocp": {"fp8": torch.float8_e4m3fn, "bf8": torch.float8_e5m2},
}


def drawn(kind: str, shape: tuple[int, ...], eights: str = "ocp") -> tuple[np.ndarray, np.ndarray]:
    """Return codes of random elements, and their values."""
    small = _DRAWN.integers(-6, 7, shape)
    if kind == "f16":
        return small.astype(np.float16).view(np.uint16).astype(np.uint32), small.astype(float)
    if kind == "bf16":
        return small.astype(np.float32).view(np.uint32) >> 16, small.astype(float)
    if kind in ("i8", "u8"):
        codes = _DRAWN.integers(0, 256, shape)
        return codes.astype(np.uint32), np.where((codes > 127) & (kind == "i8"), codes - 256, codes).astype(float)
    if kind in ("i4", "u4"):
        codes = _DRAWN.integers(0, 16, shape)
        return codes.astype(np.uint32), np.where((codes > 7) & (kind == "i4"), codes - 16, codes).astype(float)
    if kind in ("fp6", "bf6"):  # Open Compute Project: E2M3 and E3M2; the last exponent is like all others
        codes = _DRAWN.integers(0, 64, shape)
        fraction, bias = (8, 1) if kind == "fp6" else (4, 3)
        exponent, rest = codes % 32 // fraction, codes % fraction
        values = np.where(exponent > 0, (1 + rest / fraction) * 2.0 ** (exponent - bias), rest / fraction * 2.0 ** (1 - bias))
        return codes.astype(np.uint32), np.where(codes >= 32, -values, values)
    made = torch.from_numpy(small.astype(np.float32)).to(_EIGHTS[eights][kind])
    return made.view(torch.uint8).numpy().astype(np.uint32), small.astype(float)


def packed(codes: np.ndarray, bits: int) -> list[np.ndarray]:
    """Put the elements of each lane side by side; return a row of words for each register."""
    count = codes.shape[-1]
    wholes = [sum(int(code) << bits * n for n, code in enumerate(lane)) for lane in codes.reshape(-1, count)]
    return [
        np.array([whole >> 32 * n & 0xFFFFFFFF for whole in wholes], np.uint64).astype(np.uint32) for n in range(max(1, count * bits // 32))
    ]


def run(arch: str, name: str, a: list, b: list, start: list[int], index: np.ndarray | None, modifiers: str = ""):
    """Execute one instruction: A, B, D that starts as a word for each register, and the indices of a sparse A or D itself as C."""
    rows = [*a, *b, *([index] if index is not None else [])]
    first, second, last = itertools.accumulate([10, len(a), len(b)])
    pair = lambda base, count: f"v[{base}:{base + count - 1}]" if count > 1 else f"v{base}"  # noqa: E731
    target = pair(40, len(start))
    moves = "\n ".join(f"v_mov_b32 v{40 + n}, {word:#x}" for n, word in enumerate(start))
    source = f"v{last}" if index is not None else target
    spaced = "s_nop 15\n " if WAVES[arch] == 64 else ""
    code = f"{moves}\n {spaced}{name} {target}, {pair(first, len(a))}, {pair(second, len(b))}, {source} {modifiers}\n {spaced}"
    return lanes(arch, code.replace("s_nop 15\n", "s_nop 7\n s_nop 7\n"), rows, len(start))


def by_wave(rows: list[np.ndarray], wave: int) -> np.ndarray:
    return np.stack(rows).reshape(len(rows), -1, wave).transpose(1, 2, 0)


def in_lanes(start: np.ndarray, wave: int) -> np.ndarray:
    """Return `[wave, lane, register]` of registers that hold the same in all lanes."""
    return np.broadcast_to(start, (1, wave, len(start)))


def dense_of_sparse(values: np.ndarray, index: np.ndarray, m: int, k: int) -> np.ndarray:
    """Return A[wave, i, k] from what its lanes keep: `values[wave, lane, n]`, and two bits of `index[wave, lane]` for each."""
    waves, count, kept = values.shape
    made = np.zeros((waves, m, k))
    for lane in range(min(count, k // (2 * kept) * m)):
        for n in range(kept):
            place = 2 * kept * (lane // m) + n // 2 * 4 + (index[:, lane] >> 2 * n & 3)
            np.add.at(made, (np.arange(waves), lane % m, place), values[:, lane, n])
    return made


def dense(values: np.ndarray, m: int, k: int) -> np.ndarray:
    """Return B[wave, k, j] of lanes that hold neighbours in k."""
    per_lane = values.shape[2]
    return np.stack([values[:, m * (at // per_lane) : m * (at // per_lane) + m, at % per_lane] for at in range(k)], axis=1)


def result_cdna(rows: np.ndarray, m: int) -> np.ndarray:
    """Return D[wave, i, j] from `rows[wave, lane, register]`."""
    made = np.zeros((len(rows), m, m))
    for i, j in itertools.product(range(m), range(m)):
        made[:, i, j] = rows[:, (32 * (i // 4)) % 64 + j, 4 * (i // 8) + i % 4] if m == 32 else rows[:, 16 * (i // 4) + j, i % 4]
    return made


def result_rdna4(rows: np.ndarray) -> np.ndarray:
    return np.stack([rows[:, 16 * (i // 8) : 16 * (i // 8) + 16, i % 8] for i in range(16)], axis=1)


def again_is_slow(cases):
    """Mark what an earlier architecture has, too; eight bits are of other formats there, and other shapes hold those."""
    first = {case[1:]: case for case in reversed(cases)}
    return [case if first[case[1:]] == case else pytest.param(*case, marks=pytest.mark.slow) for case in cases]


SMFMAC = [(arch, f"{m}x{m}x{k}", kind) for arch in ("gfx942", "gfx950") for m, k in ((16, 32), (32, 16)) for kind in ("f16", "bf16")]
SMFMAC += [
    (arch, f"{m}x{m}x{k}", kind) for arch in ("gfx942", "gfx950") for m, k in ((16, 64), (32, 32)) for kind in ("i8", "fp8_bf8", "bf8_fp8")
]
SMFMAC += [("gfx950", f"{m}x{m}x{k}", kind) for m, k in ((16, 64), (32, 32)) for kind in ("f16", "bf16")]
SMFMAC += [("gfx950", f"{m}x{m}x{k}", kind) for m, k in ((16, 128), (32, 64)) for kind in ("i8", "fp8_fp8", "bf8_bf8")]

BITS = {"f16": 16, "bf16": 16, "i8": 8, "u8": 8, "i4": 4, "u4": 4, "fp8": 8, "bf8": 8, "fp6": 6, "bf6": 6}


@pytest.mark.parametrize(("arch", "shape", "kind"), again_is_slow(SMFMAC), ids=str)
def test_sparse_products_of_cdna(arch, shape, kind):
    m, k = int(shape.split("x")[0]), int(shape.split("x")[2])
    left, right = kind.split("_") if "_" in kind else (kind, kind)
    per_lane, eights = k * m // 64, "fnuz" if arch == "gfx942" else "ocp"
    (a, a_values), (b, b_values) = drawn(left, (WAVES_RUN, 64, per_lane // 2), eights), drawn(right, (WAVES_RUN, 64, per_lane), eights)
    index = _DRAWN.integers(0, 2**32, (WAVES_RUN, 64))
    whole = kind == "i8"
    start = _DRAWN.integers(-9, 9, m * m // 64)
    words = (start.astype(np.int32) if whole else start.astype(np.float32)).view(np.uint32).tolist()
    sets = 32 // per_lane
    for abid, cbsz in ((0, 0), (sets - 1, 0), (sets - 1, 1)):
        name = f"v_smfmac_{'i32' if whole else 'f32'}_{shape}_{kind}"
        modifiers = f"cbsz:{cbsz} abid:{abid}" if abid or cbsz else ""
        found = run(arch, name, packed(a, BITS[left]), packed(b, BITS[right]), words, index.reshape(-1).astype(np.uint32), modifiers)
        found = [row.view(np.int32 if whole else np.float32) for row in found]
        sparse = dense_of_sparse(a_values, index >> (0 if cbsz else abid * per_lane), m, k)
        expected = result_cdna(in_lanes(start, 64), m) + sparse @ dense(b_values, m, k)

        np.testing.assert_array_equal(result_cdna(by_wave(found, 64), m), expected)


def test_a_sparse_product_leaves_out_what_a_lacks():
    """No product is made of a value of B that no value of A stands for, so that an infinity there does not become a NaN."""
    one, infinite = np.uint32(0x3C003C00), np.uint32(0x7C007C00)
    rows = [np.full(64, word, np.uint32) for word in (one, one, np.uint32(0x3C00), infinite, np.uint32(0x3C00), infinite)]
    index = np.zeros(64, np.uint32)  # both values are the first of their four
    found = run("gfx942", "v_smfmac_f32_16x16x32_f16", rows[:2], rows[2:], [0] * 4, index)

    assert all((row.view(np.float32) == 16).all() for row in found)


SWMMAC = [("f16", "32", "f32"), ("bf16", "32", "f32"), ("f16", "32", "f16"), ("bf16", "32", "bf16")]
SWMMAC += [("iu8", "32", "i32"), ("iu4", "32", "i32"), ("iu4", "64", "i32")]
SWMMAC += [("fp8_bf8", "32", "f32"), ("bf8_fp8", "32", "f32")]
SWMMAC += [pytest.param(kind, "32", "f32", marks=pytest.mark.slow) for kind in ("fp8_fp8", "bf8_bf8")]


@pytest.mark.parametrize(("kind", "k", "into"), SWMMAC, ids=str)
def test_sparse_products_of_rdna4(kind, k, into):
    check_rdna4(f"v_swmmac_{into}_16x16x{k}_{kind}", kind, int(k), into, sparse=True)


@pytest.mark.parametrize(("kind", "k"), [pytest.param("iu4", 16, marks=pytest.mark.slow), ("iu4", 32), ("iu8", 16)])
def test_integer_products_of_rdna4(kind, k):
    check_rdna4(f"v_wmma_i32_16x16x{k}_{kind}", kind, k, "i32", sparse=False)


def check_rdna4(name: str, kind: str, k: int, into: str, sparse: bool) -> None:
    left, right = kind.split("_") if "_" in kind else (kind, kind)
    for which in range(4 if "iu" in kind else 1):
        signs = which & 1, which >> 1
        if "iu" in kind:
            left, right = (("i" if sign else "u") + kind[2:] for sign in signs)
        per_lane = k // 2
        (a, a_values), (b, b_values) = (
            drawn(left, (WAVES_RUN, 32, per_lane // (2 if sparse else 1))),
            drawn(right, (WAVES_RUN, 32, per_lane)),
        )
        index = _DRAWN.integers(0, 2**32, (WAVES_RUN, 32))
        start = _DRAWN.integers(-9, 9, 8)
        if into in ("i32", "f32"):
            words = start.astype(np.int32 if into == "i32" else np.float32).view(np.uint32).tolist()
        else:
            halves = start.astype(np.float16).view(np.uint16) if into == "f16" else start.astype(np.float32).view(np.uint32) >> 16
            words = [low | high << 16 for low, high in zip(halves[::2].tolist(), halves[1::2].tolist(), strict=True)]
        second = sparse and k == 32
        modifiers = ("index_key:1 " if second else "") + (f"neg_lo:[{signs[0]},{signs[1]},0]" if which else "")
        given = index.reshape(-1).astype(np.uint32) if sparse else None
        found = run("gfx1201", name, packed(a, BITS[left]), packed(b, BITS[right]), words, given, modifiers)
        if into in ("f16", "bf16"):
            wide = [half for row in found for half in (row & 0xFFFF, row >> 16)]
            found = [
                (row.astype(np.uint16).view(np.float16) if into == "f16" else (row << 16).astype(np.uint32).view(np.float32))
                for row in wide
            ]
        else:
            found = [row.view(np.int32 if into == "i32" else np.float32) for row in found]
        left_values = dense_of_sparse(a_values, index >> (16 if second else 0), 16, k) if sparse else dense(a_values, 16, k).swapaxes(1, 2)
        product = left_values @ dense(b_values, 16, k)
        expected = result_rdna4(in_lanes(start, 32)) + product

        np.testing.assert_allclose(
            result_rdna4(by_wave(found, 32)).astype(float), expected, rtol=2**-8 if into == "bf16" else 2**-10 if into == "f16" else 0
        )


def test_four_bits_of_rdna3_in_both_halves():
    codes, values = drawn("i4", (WAVES_RUN, 16, 16))
    more, others = drawn("u4", (WAVES_RUN, 16, 16))
    twice = [np.concatenate([x, x], axis=1) for x in (codes, more)]
    found = run("gfx1100", "v_wmma_i32_16x16x16_iu4", packed(twice[0], 4), packed(twice[1], 4), [0] * 8, None, "neg_lo:[1,0,0]")
    rows = by_wave([row.view(np.int32) for row in found], 32)
    result = np.stack([rows[:, 16 * (i % 2) : 16 * (i % 2) + 16, i // 2] for i in range(16)], axis=1)

    np.testing.assert_array_equal(result, values @ others.swapaxes(1, 2))


def test_an_integer_product_saturates():
    a = [np.full(32, 0x7F7F7F7F, np.uint32)] * 2
    for clamp, expected in (("clamp", 0x7FFFFFFF), ("", (0x7FFFFFF0 + 16 * 127 * 127) % 2**32)):
        found = run("gfx1201", "v_wmma_i32_16x16x16_iu8", a, a, [0x7FFFFFF0] * 8, None, f"neg_lo:[1,1,0] {clamp}")

        assert all((row == expected).all() for row in found)


def test_halves_are_negated_one_by_one():
    """neg_lo is for the first of each two, neg_hi for the second; of C, they negate and make absolute."""
    (a, x), (b, y) = drawn("f16", (1, 32, 8)), drawn("f16", (1, 32, 8))
    start = _DRAWN.integers(-9, 9, 8)
    words = start.astype(np.float32).view(np.uint32).tolist()
    found = run("gfx1201", "v_wmma_f32_16x16x16_f16", packed(a, 16), packed(b, 16), words, None, "neg_lo:[1,0,1] neg_hi:[0,1,1]")
    odd = np.arange(16) % 2 == 1
    left = dense(x, 16, 16).swapaxes(1, 2) * np.where(odd, 1, -1)
    right = dense(y, 16, 16) * np.where(odd, -1, 1)[:, None]

    result = result_rdna4(by_wave([row.view(np.float32) for row in found], 32))
    np.testing.assert_array_equal(result, left @ right - np.abs(result_rdna4(in_lanes(start, 32))))


FORMATS = {"fp8": 0, "bf8": 1, "fp6": 2, "bf6": 3}


@pytest.mark.parametrize(("left", "right"), [("fp6", "fp6"), ("bf6", "fp6"), ("fp6", "bf6"), ("bf6", "bf6")])
@pytest.mark.parametrize("shape", ["16x16x128", "32x32x64"])
def test_products_of_six_bits(shape, left, right):
    m, k = map(int, re.match(r"(\d+)x\d+x(\d+)", shape).groups())
    (a, x), (b, y) = drawn(left, (WAVES_RUN, 64, 32)), drawn(right, (WAVES_RUN, 64, 32))
    modifiers = f"cbsz:{FORMATS[left]} blgp:{FORMATS[right]}"
    found = run("gfx950", f"v_mfma_f32_{shape}_f8f6f4", packed(a, 6), packed(b, 6), [0] * (m * m // 64), None, modifiers)
    expected = dense(x, m, k).swapaxes(1, 2) @ dense(y, m, k)

    np.testing.assert_allclose(result_cdna(by_wave([row.view(np.float32) for row in found], 64), m), expected, rtol=1e-6)
