"""Conversions to and from floats of 8 and 4 bits: those of 8 bits by torch, which has both formats."""

# ruff: noqa: E501 - a statement is a line

from __future__ import annotations

import numpy as np
import torch
from statements.vector import brain

FORMATS = {
    ("fp8", "fnuz"): torch.float8_e4m3fnuz, ("bf8", "fnuz"): torch.float8_e5m2fnuz, ("fp8", "ocp"): torch.float8_e4m3fn,
    ("bf8", "ocp"): torch.float8_e5m2,
}  # fmt: skip
FOURS = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def read(dtype):
    """Return a function: the value of each byte as a float."""
    table = torch.arange(256, dtype=torch.uint8).view(dtype).to(torch.float32).numpy()
    return lambda code: table[code & 0xFF]


def write(dtype):
    """Return a function: the codes of two floats, one above the other."""

    def code(values):
        """What is too large is NaN where the format has no infinity; torch may have the largest instead."""
        codes = torch.from_numpy(np.ascontiguousarray(values, np.float32)).to(dtype).view(torch.uint8).numpy().astype(np.uint16)
        return np.where(np.abs(values) > 464, codes | 0x7F, codes) if dtype == torch.float8_e4m3fn else codes

    return lambda a, b: code(a) | code(b) << 8


def power(scale):
    """Return the power of two that a float's exponent means as a scale: not its sign, not its fraction. 255 is NaN, as OCP's E8M0 has it."""
    exponent = (scale.view(np.uint32) >> 23 & 0xFF).astype(int)
    return np.where(exponent == 255, np.nan, np.ldexp(1.0, exponent - 127))


def both(function):
    """Return a function: of each byte of a half, times a scale."""
    return lambda code, scale: np.stack(
        [(function(code >> 8 * n).astype(np.float64) * power(scale)).astype(np.float32) for n in range(2)], 1
    )


def fours(byte: int):
    def one(code, scale):
        return np.stack([(FOURS[code >> 8 * byte + 4 * n & 15].astype(np.float64) * power(scale)).astype(np.float32) for n in range(2)], 1)

    return one


def packed_brains(function):
    def one(code, scale):
        pair = function(code, scale).view(np.uint32)
        return brain(pair[:, 0]) | brain(pair[:, 1]) << 16

    return one


def divided(writer):
    return lambda a, b, scale: writer(*((x.astype(np.float64) / power(scale)).astype(np.float32) for x in (a, b)))


def divided_pair(writer):
    return lambda pair, scale: divided(writer)(pair[:, 0], pair[:, 1], scale)


EIGHT = {}
for (_eight, _format), _dtype in FORMATS.items():
    _read, _write = read(_dtype), write(_dtype)
    EIGHT |= {
        f"v_cvt_f32_{_eight} {_format}": ("f32", "u32", _read),
        f"v_cvt_pk_f32_{_eight} {_format}": ("2f32", "u16", lambda a, read=_read: np.stack([read(a), read(a >> 8)], 1)),
        f"v_cvt_pk_{_eight}_f32 {_format}": ("u16", "f32 f32", _write),
    }
    if _format == "ocp":
        EIGHT |= {f"v_cvt_scalef32_pk_{kind}_{_eight}": (f"2{kind}", "u16 f32", both(_read)) for kind in ("f32", "f16")}
        EIGHT[f"v_cvt_scalef32_pk_bf16_{_eight}"] = ("2bf16", "u16 f32", packed_brains(both(_read)))
        EIGHT |= {f"v_cvt_scalef32_pk_{_eight}_f32": ("u16", "f32 f32 f32", divided(_write))}
        EIGHT |= {f"v_cvt_scalef32_pk_{_eight}_{kind}": ("u16", f"2{kind} f32", divided_pair(_write)) for kind in ("f16", "bf16")}
EIGHT |= {f"v_cvt_scalef32_pk_{kind}_fp4 {byte}": (f"2{kind}", "u32 f32", fours(byte)) for kind in ("f32", "f16") for byte in range(4)}
EIGHT |= {f"v_cvt_scalef32_pk_bf16_fp4 {byte}": ("2bf16", "u32 f32", packed_brains(fours(byte))) for byte in range(4)}
