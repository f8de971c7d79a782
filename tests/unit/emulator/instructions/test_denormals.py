"""Denormals: what flushes them always, what flushes them if the kernel's MODE says so, and what keeps them. numpy says what comes out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from machine_code import WAVES, lanes, run

COUNT, LEAST = 4096, np.float32(2.0**-126)
DRAWN = np.random.default_rng(11)


def small() -> np.ndarray:
    """Floats around the smallest normal one, half of them denormal, of both signs; zeros, infinities and ordinary numbers among them."""
    values = (DRAWN.standard_normal(COUNT) * 2.0 ** DRAWN.uniform(-140, -115, COUNT)).astype(np.float32)
    edges = np.array([0.0, -0.0, 1e-45, -1e-45, 2.0**-126, -(2.0**-126), 1.1754942e-38, 1.0, -3.0, np.inf, 2.0**126, 2.0**127], np.float32)
    return np.where(DRAWN.random(COUNT) < 1 / 8, DRAWN.choice(edges, COUNT), values)


def flushed(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < LEAST, np.copysign(np.float32(0), x), x).astype(np.float32)


A, B, C = small(), small(), small()
WIDE = {"sqrt": np.sqrt, "rcp": np.reciprocal, "rsq": lambda x: 1 / np.sqrt(x), "log": np.log2, "exp": np.exp2}


@pytest.mark.parametrize("arch", WAVES)
@pytest.mark.parametrize("name", WIDE)
def test_approximated_functions_flush_whatever_the_mode(name, arch):
    x = np.abs(A) if name != "exp" else np.linspace(-150, -120, COUNT, dtype=np.float32)
    (result,) = lanes(arch, f"v_{name}_f32 v40, v10", [x.view(np.uint32)], 1)
    with np.errstate(all="ignore"):
        expected = flushed(WIDE[name](flushed(x).astype(np.float64)).astype(np.float32))

    np.testing.assert_allclose(result.view(np.float32), expected, rtol=1.2e-7, atol=0)


with np.errstate(all="ignore"):
    MODES = {
        "v_add_f32 v40, v10, v11": (lambda a, b, c: a + b),
        "v_mul_f32 v40, v10, v11": (lambda a, b, c: a * b),
        "v_sub_f32 v40, v10, v11": (lambda a, b, c: a - b),
        "v_max_f32 v40, v10, v11": (lambda a, b, c: np.where(a == b, np.where(np.signbit(a), b, a), np.fmax(a, b))),
        "v_fma_f32 v40, v10, v11, v12": (lambda a, b, c: (a.astype(np.float64) * b + c).astype(np.float32)),
        "v_add_f32_e64 v40, -v10, |v11|": (lambda a, b, c: -a + np.abs(b)),
        "v_cmp_lt_f32 vcc, v10, v11\n v_cndmask_b32 v40, 0, 1.0, vcc": (lambda a, b, c: (a < b).astype(np.float32)),
    }


@pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])
@pytest.mark.parametrize("mode", range(4))
@pytest.mark.parametrize("text", MODES)
def test_arithmetic_flushes_as_mode_says(text, mode, arch):
    """Bit 0 keeps denormal sources, bit 1 denormal results."""
    if arch == "gfx1201":
        text = text.replace("vcc", "vcc_lo").replace("v_max_f32", "v_max_num_f32")
    set_mode = f"s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), {mode}\n "
    (result,) = lanes(arch, set_mode + text, [x.view(np.uint32) for x in (A, B, C)], 1)
    known = MODES[text.replace("vcc_lo", "vcc").replace("v_max_num_f32", "v_max_f32")]
    with np.errstate(all="ignore"):
        expected = known(*(x if mode & 1 else flushed(x) for x in (A, B, C)))
        expected = expected if mode & 2 else flushed(expected)

    number = ~np.isnan(expected)  # numpy's sums of infinities have NaNs of another sign
    np.testing.assert_array_equal(result[number], expected.astype(np.float32).view(np.uint32)[number])


def test_classes_and_moves_see_denormals_in_every_mode():
    text = (
        "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0\n v_cmp_class_f32 vcc, v10, v11\n v_cndmask_b32 v40, 0, 1, vcc\n v_mov_b32 v41, v10"
    )
    denormal = np.full(COUNT, 0x90, np.uint32)
    classes, moved = lanes("gfx942", text, [A.view(np.uint32), denormal], 2)

    np.testing.assert_array_equal(classes, (np.abs(A) < LEAST) & (A != 0))
    np.testing.assert_array_equal(moved, A.view(np.uint32))


@triton.jit
def arithmetic(x, y, total, product, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(total + i, a + b)
    tl.store(product + i, a * b)


@pytest.mark.parametrize("arch", WAVES)
@pytest.mark.parametrize("flush", [False, True])
def test_a_kernel_flushes_if_it_allows_it(flush, arch):
    x, y = torch.from_numpy(A[:1024].copy()), torch.from_numpy(B[:1024].copy())
    into = {"total": torch.zeros(1024), "product": torch.zeros(1024)}
    run(arithmetic, arch, (1,), {"x": x, "y": y, **into, "n": 1024}, {"BLOCK": 1024}, allow_flush_denorm=flush)
    of = flushed if flush else (lambda v: v)
    with np.errstate(all="ignore"):
        a, b = of(A[:1024]), of(B[:1024])

        np.testing.assert_array_equal(into["total"].numpy(), of(a + b))
        np.testing.assert_array_equal(into["product"].numpy(), of(a * b))


@triton.jit
def quotient(x, y, o, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(o + i, tl.div_rn(tl.load(x + i), tl.load(y + i)))


@pytest.mark.parametrize("arch", WAVES)
def test_an_exact_quotient_keeps_denormals_although_its_first_step_flushes(arch):
    x, y, o = torch.from_numpy(A[:1024].copy()), torch.from_numpy(B[:1024].copy()), torch.zeros(1024)
    run(quotient, arch, (1,), {"x": x, "y": y, "o": o}, {"BLOCK": 1024})
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(o.numpy(), A[:1024] / B[:1024])


@pytest.mark.parametrize(("kind", "denormal", "factor"), [("f16", 0x0200, 0x3C00), ("bf16", 0x0040, 0x7E80)])
@pytest.mark.parametrize(("arch", "keeps"), [("gfx90a", False), ("gfx942", True), ("gfx950", True)])
def test_only_the_matrix_unit_of_gfx90a_flushes_halves(arch, keeps, kind, denormal, factor):
    name = "v_mfma_f32_16x16x16_" + kind if arch != "gfx90a" else f"v_mfma_f32_16x16x16{kind}" + ("_1k" if kind == "bf16" else "")
    rows = [np.full(64, value << 16 | value, np.uint32) for value in (denormal, denormal, factor, factor)]
    result = lanes(arch, f"{name} v[40:43], v[10:11], v[12:13], 0\n s_nop 15", rows, 4)
    product = 2.0**-15 if kind == "f16" else 2.0**-127 * 2.0**126

    for row in result:
        np.testing.assert_array_equal(row.view(np.float32), np.float32(16 * product if keeps else 0))
