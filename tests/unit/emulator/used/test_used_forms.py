"""Every instruction that compiled kernels use, card by card, against a second statement of its meaning: without one, the test fails."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from held import CONTROL, PRODUCTS, used, wrong_on
from machine_code import WAVES
from slow_cases import slow_but

sys.path.append(str(Path(__file__).parents[1] / "instructions"))
from test_matrix import BITS, WAVES_RUN, by_wave, check_rdna4, dense, drawn, in_lanes, packed, result_cdna, run


def stated_by(form: str) -> str:
    """Return which test holds a form."""
    if form.startswith(PRODUCTS):
        return "test_every_used_product_is_one"
    return "test_used_control" if form.startswith(CONTROL) else "test_every_used_form_does_what_is_stated"


@pytest.mark.parametrize("arch", slow_but(WAVES, ["gfx1201"]))
def test_every_used_form_does_what_is_stated(arch):
    assert wrong_on(arch, used(arch)) == []


@pytest.mark.parametrize("arch", slow_but(WAVES, ["gfx1201"]))
def test_every_used_product_is_one(arch):
    """Small whole numbers, whose sums are exact in any order; where elements lie is as AMD's calculator has it."""
    names = sorted({one.split()[0] for one in used(arch) if one.startswith(PRODUCTS)})
    assert names
    for name in names:
        into, m, k, kind = re.fullmatch(r"v_(?:mfma|wmma)_(\w32)_(\d+)x\d+x(\d+)_?(f32|f16|bf16)(?:_1k)?", name).groups()
        if arch == "gfx1201":
            check_rdna4(name, kind, int(k), into, sparse=False)
        else:
            (rdna3 if arch == "gfx1100" else cdna)(arch, name, int(m), int(k), kind)


def cdna(arch: str, name: str, m: int, k: int, kind: str) -> None:
    def operand() -> tuple[list[np.ndarray], np.ndarray]:
        if kind == "f32":
            values = np.random.default_rng(5).integers(-9, 9, (WAVES_RUN, 64, 1)).astype(np.float32)
            return [values.reshape(-1).view(np.uint32)], values.astype(float)
        codes, values = drawn(kind, (WAVES_RUN, 64, k * m // 64))
        return packed(codes, BITS[kind]), values

    (a, x), (b, y) = operand(), operand()
    start = np.arange(m * m // 64) - 5
    found = run(arch, name, a, b, start.astype(np.float32).view(np.uint32).tolist(), None)
    expected = result_cdna(in_lanes(start, 64), m) + dense(x, m, k).swapaxes(1, 2) @ dense(y, m, k)

    np.testing.assert_array_equal(result_cdna(by_wave([row.view(np.float32) for row in found], 64), m), expected, err_msg=name)


def rdna3(arch: str, name: str, m: int, k: int, kind: str) -> None:
    """Both halves of a wave hold A and B; the result has its even rows in the one and its odd rows in the other."""
    (a, x), (b, y) = (drawn(kind, (WAVES_RUN, 16, 16)) for _ in range(2))
    given = [packed(np.concatenate([one, one], axis=1), 16) for one in (a, b)]
    start = np.arange(8) - 3
    found = run(arch, name, *given, start.astype(np.float32).view(np.uint32).tolist(), None)
    rows = by_wave([row.view(np.float32) for row in found], 32)
    result = np.stack([rows[:, 16 * (i % 2) : 16 * (i % 2) + 16, i // 2] for i in range(16)], axis=1)

    np.testing.assert_array_equal(result, start[np.arange(16) // 2][None, :, None] + x @ y.swapaxes(1, 2), err_msg=name)
