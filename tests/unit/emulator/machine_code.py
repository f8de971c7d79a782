"""Code objects for tests: single instructions through LLVM's assembler, and Triton kernels through its compiler; and how to run them."""

import os
import struct
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import torch
import triton
from triton.backends.amd.compiler import assemble_amdgcn
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from warpwave.emulator import Execution, Launch, execute, load

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # Triton 3.9 warns where it is not set
WAVES = {"gfx90a": 64, "gfx942": 64, "gfx950": 64, "gfx1100": 32, "gfx1201": 32}

_ASSEMBLY = """
\t.amdgcn_target "amdgcn-amd-amdhsa--{arch}"
\t.amdhsa_code_object_version 5
\t.text
\t.globl k
\t.p2align 8
\t.type k,@function
k:
{body}
\ts_endpgm
.Lend:
\t.size k, .Lend-k
\t.rodata
\t.p2align 6
\t.amdhsa_kernel k
\t\t.amdhsa_group_segment_fixed_size 4096
\t\t.amdhsa_user_sgpr_count 2
\t\t.amdhsa_user_sgpr_kernarg_segment_ptr 1
\t\t.amdhsa_system_sgpr_workgroup_id_x 1
\t\t.amdhsa_next_free_vgpr {vgprs}
\t\t.amdhsa_next_free_sgpr 40
\t\t.amdhsa_float_denorm_mode_32 3
{more}
\t.end_amdhsa_kernel
\t.amdgpu_metadata
---
amdhsa.kernels:
  - .args: []
    .group_segment_fixed_size: 4096
    .kernarg_segment_align: 8
    .kernarg_segment_size: 16
    .max_flat_workgroup_size: 1024
    .name: k
    .private_segment_fixed_size: {private}
    .sgpr_count: 40
    .symbol: k.kd
    .vgpr_count: {vgprs}
    .wavefront_size: {wave}
amdhsa.target: amdgcn-amd-amdhsa--{arch}
amdhsa.version: [1, 2]
...
\t.end_amdgpu_metadata
"""


@cache
def assembled(arch: str, body: str, private: int = 0) -> bytes:
    """Assemble and link a kernel `k` of two pointers; LLVM encodes it, so that nothing here shares a table with the decoder.

    `private` is how many bytes of private memory each lane has.
    """
    cdna = WAVES[arch] == 64
    more = "\t\t.amdhsa_accum_offset 64" if cdna else "\t\t.amdhsa_wavefront_size32 1"
    return linked(_ASSEMBLY.format(arch=arch, body=body, wave=WAVES[arch], vgprs=128 if cdna else 64, more=more, private=private), arch)


def linked(source: str, arch: str) -> bytes:
    relocatable = assemble_amdgcn(source, arch, "")
    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder) / "k.o", Path(folder) / "k.so"
        before.write_bytes(relocatable)
        from triton._C.libtriton import amd

        amd.link_hsaco(str(before), str(after))
        return after.read_bytes()


def lanes(arch: str, code: str, rows: list[np.ndarray], results: int, setup: str = "") -> list[np.ndarray]:
    """Run `code` on rows of values, one value a lane: row n is in v(10+n), results are read from v40 on.

    Rows are uint32 of the same length, a multiple of the wave. Each workgroup is one wave; `setup` runs before the rows are loaded.
    """
    wave, count = WAVES[arch], len(rows[0])
    groups = count // wave
    into = np.ascontiguousarray(np.stack(rows).astype(np.uint32).reshape(len(rows), groups, wave).transpose(1, 0, 2))
    out = np.zeros((groups, results, wave), np.uint32)
    cdna = wave == 64
    load4, store4 = ("global_load_dword", "global_store_dword") if cdna else ("global_load_b32", "global_store_b32")
    loads, wait = ("s_load_dwordx4", "s_waitcnt 0") if cdna else ("s_load_b128", "s_nop 0")
    group = "ttmp9" if arch.startswith("gfx12") else "s2"
    body = [f"{loads} s[4:7], s[0:1], 0x0", wait, f"s_mul_i32 s8, {group}, {into.shape[1] * wave * 4}", "v_lshlrev_b32 v1, 2, v0"]
    body += ["v_mov_b32 v4, v1", f"s_mul_i32 s9, {group}, {results * wave * 4}", setup]
    body += ["s_add_u32 s4, s4, s8", "s_addc_u32 s5, s5, 0", "s_add_u32 s6, s6, s9", "s_addc_u32 s7, s7, 0"]
    body += [f"{load4} v{10 + n}, v1, s[4:5] offset:{n * wave * 4}" for n in range(len(rows))]
    body += [wait, code, *(f"{store4} v4, v{40 + n}, s[6:7] offset:{n * wave * 4}" for n in range(results))]
    kernel = load(assembled(arch, "\n".join("\t" + line for line in "\n".join(body).splitlines())))
    arguments = struct.pack("<QQ", into.ctypes.data, out.ctypes.data)
    execute(kernel, Launch((groups, 1, 1), wave, arguments, 4096, [(into.ctypes.data, into.nbytes), (out.ctypes.data, out.nbytes)]))
    return [out[:, n].reshape(-1) for n in range(results)]


_TYPES = {torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16", torch.float64: "*fp64", torch.int32: "*i32"}
_TYPES |= {torch.int64: "*i64", torch.int8: "*i8", torch.uint8: "*u8", torch.int16: "*i16", torch.bool: "*i1"}
_TYPES |= {
    torch.float8_e4m3fnuz: "*fp8e4b8",
    torch.float8_e5m2: "*fp8e5",
    torch.float8_e4m3fn: "*fp8e4nv",
    torch.float8_e5m2fnuz: "*fp8e5b16",
}


def compiled(function, arch: str, arguments: dict, constants: dict, **options):
    signature, attributes = {}, {}
    for n, name in enumerate(function.arg_names):
        if name in constants:
            signature[name] = "constexpr"
            continue
        value = arguments[name]
        signature[name] = _TYPES[value.dtype] if isinstance(value, torch.Tensor) else "fp32" if isinstance(value, float) else "i32"
        if isinstance(value, torch.Tensor) or (isinstance(value, int) and value % 16 == 0):
            attributes[(n,)] = [["tt.divisibility", 16]]
    places = {(function.arg_names.index(name),): value for name, value in constants.items()}
    source = ASTSource(function, signature, places, attributes)
    return triton.compile(source, target=GPUTarget("hip", arch, WAVES[arch]), options=options)


def pack(kernel, values: list) -> bytes:
    """Return the arguments of a launch: CPU tensors and numbers."""
    packed = bytearray(kernel.kernarg_bytes)
    for argument, value in zip(kernel.arguments, values, strict=False):
        number = value.data_ptr() if isinstance(value, torch.Tensor) else value
        layout = "<f" if isinstance(number, float) else {8: "<Q", 4: "<i"}[argument.size]
        struct.pack_into(layout, packed, argument.offset, number)
    return bytes(packed)


def run(function, arch: str, grid: tuple[int, ...], arguments: dict, constants: dict, limit: int | None = None, **options) -> Execution:
    made = compiled(function, arch, arguments, constants, **options)
    kernel = load(made.asm["hsaco"])
    values = [arguments[name] for name in function.arg_names if name not in constants] + [0, 0]
    packed = pack(kernel, values)
    buffers = [(value.data_ptr(), value.nbytes) for value in values if isinstance(value, torch.Tensor)]
    shape = (*grid, 1, 1)[:3]
    threads = made.metadata.num_warps * WAVES[arch]
    return execute(kernel, Launch(shape, threads, packed, made.metadata.shared, buffers), limit_instructions=limit)
