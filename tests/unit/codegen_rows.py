"""Compiled kernels that are made up, and every way in which they can change."""

from __future__ import annotations

import dataclasses

from synthetic import compiled, run

from warpwave.compare.changed_codegen import Concern, bundle
from warpwave.records import Verdict


def row(architecture="sy_90", **more):
    """A kernel that was compiled and read in full."""
    told = {
        "binary_hash": "a",
        "binary_bytes": 10_000,
        "stack_bytes": 0,
        "load_widths": (64, 128),
        "store_widths": (128,),
        "instructions": {},
        "programs": 8,
        "resident_warps": 32,
        "occupancy": 0.5,
        "limited_by": ("registers",),
    }
    return compiled(architecture, **{**told, "binary_hash": "b" if more else "a", **more})


BASE = row(signature={"x": "*fp32", "n": "i32", "B": "constexpr"}, constants={"B": 1024, "E": True}, num_warps=4, num_stages=2)


def other(**more):
    """The same configuration, but for what is given."""
    return dataclasses.replace(BASE, **more)


def products(**counts):
    """Matrix instructions by name, with `__` for a dot."""
    named = {name.replace("__", "."): count for name, count in counts.items()}
    return {"instructions": named, "matrix": tuple(sorted(named))}


FAILED = {
    "verdict": Verdict.FAILED,
    "reason": "out of LDS",
    "registers": None,
    "binary_bytes": None,
    "instructions": None,
    "occupancy": None,
    "shared_bytes": None,
}


WGMMA, MMA, FLOAT = {"wgmma__m64n64k16__bf16": 4}, {"mma__sync__m16n8k16__bf16": 16}, {"v_mfma_f32_32x32x8_f16": 4}


def side(*rows, folder="runs/x", **more):
    return bundle(folder, [run(compiled=tuple(rows), **more)])


MOVES = {
    "it does not compile any more": (Concern.VERDICT, {}, FAILED),
    "its matrix instructions are gone": (Concern.MATRIX, products(**WGMMA), products()),
    "they are of an earlier generation": (Concern.MATRIX, products(**WGMMA), products(**MMA)),
    "one of two kinds of them is gone": (Concern.MATRIX, products(**FLOAT, v_mfma_f32_32x32x8_bf16=2), products(**FLOAT)),
    "registers are spilled": (Concern.SPILLS, {}, {"spills": 3, "stack_bytes": 16}),
    "private memory is used": (Concern.SPILLS, {}, {"stack_bytes": 64}),
    "fewer programs fit": (Concern.OCCUPANCY, {}, {"programs": 4, "resident_warps": 16, "occupancy": 0.25}),
    "loads are narrower": (Concern.ACCESS, {}, {"load_widths": (32,)}),
    "stores are narrower": (Concern.ACCESS, {}, {"store_widths": (16, 32)}),
    "it does not copy asynchronously any more": (Concern.ACCESS, {"instructions": {"cp.async.cg": 4}}, {}),
    "it needs more registers": (Concern.REGISTERS, {}, {"registers": 35}),
    "it needs more shared memory": (Concern.SHARED, {}, {"shared_bytes": 16385}),
    "its binary is larger": (Concern.SIZE, {}, {"binary_bytes": 10_501}),
}
