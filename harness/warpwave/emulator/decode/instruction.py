"""A decoded instruction, as text for people and as a record for the C core (`struct instruction` of core/machine.h)."""

from __future__ import annotations

import importlib
import re
import struct
from dataclasses import dataclass, field
from functools import cache
from typing import Union

# enum operand_kind, operand_flag, instruction_flag and type of core/machine.h; a test holds them against the header.
NO_OPERAND, SGPR, ROW, CONSTANT, VCCZ, EXECZ, SCC = range(7)
NEGATE, ABSOLUTE, HIGH, NEGATE_HIGH, LOW_FROM_HIGH, HIGH_FROM_HIGH, SIGN_EXTEND = (1 << n for n in range(7))
CLAMP, LANE_SHUFFLE, SUBWORD, BOUND_ZERO, RETURNS, TO_LDS, OFFSET_LANE, INDEX_LANE, KEEP_OTHER_HALF, FETCH_INACTIVE, VOLATILE, FLUSHES = (
    1 << n for n in range(12)
)
WIDENED, ACQUIRES, RELEASES, COMPARED = 1 << 12, 1 << 13, 1 << 14, 1 << 15
NONE, B16, I16, F16, B32, I32, F32, B64, I64, F64, MASK, PKH, PKI, PKF, MIX, BF16 = range(16)
REGS = 32
HALF_TYPES = frozenset({B16, I16, F16, BF16})
WIDE_TYPES = frozenset({B64, I64, F64, PKF})
VCC, TTMP, NULL, M0, EXEC, ACC = 106, 108, 124, 125, 126, 256

_HEAD, _OPERANDS = struct.Struct("<Q8xIiHHBBBBB7x"), struct.Struct("<" + "HBBBB2xQ" * 6)
RECORD_BYTES = _HEAD.size + _OPERANDS.size


def words_of(kind: int, wavefront: int = 64) -> int:
    """Return how many registers an operand of this type takes."""
    if kind >= REGS:
        return kind - REGS
    return 2 if kind in WIDE_TYPES or (kind == MASK and wavefront == 64) else 1


@dataclass(frozen=True)
class Operand:
    """One operand: `index` of its first register (`ROW`s from 256 on are accumulation registers), or the bits of a constant."""

    kind: int = NO_OPERAND
    index: int = 0
    value: int = 0
    flags: int = 0
    select: int = 6
    words: int = 1
    text: str = ""


ABSENT = Operand()


@dataclass
class Instruction:
    """One instruction; fields have the names of `struct instruction`. `size` is in bytes, `operation` the index in the C table."""

    name: str
    size: int
    operation: Union[int, None] = None
    pc: int = 0
    imm: int = 0
    flags: int = 0
    shuffle: int = 0
    write_banks: int = 15
    write_rows: int = 15
    keep: int = 0
    scale: int = 0
    event: int = 0
    d: Operand = ABSENT
    e: Operand = ABSENT
    s: list[Operand] = field(default_factory=list)
    target: Union[int, None] = None  # of a branch: a pc
    second: Union[Instruction, None] = None  # the other half of a dual instruction; executed before this one if `swapped`
    swapped: bool = False
    shown: Union[list[str], None] = None  # operands in the assembler's order, where that is not the order of the fields
    modifiers: list[str] = field(default_factory=list)
    packed: bytes = b""  # the operands as C reads them, where many instructions are the same

    def record(self, operation: int) -> bytes:
        """Pack for the C core, with the number of the operation in its table."""
        head = (self.pc, self.imm, self.flags, self.shuffle, self.write_banks, self.write_rows, self.keep, self.scale, self.event)
        return _HEAD.pack(operation, *head) + (self.packed or self.packed_operands())

    def packed_operands(self) -> bytes:
        """Pack `d`, `e` and `s`."""
        operands = [self.d, self.e, *self.s, ABSENT, ABSENT, ABSENT, ABSENT][:6]
        return _OPERANDS.pack(*(value for o in operands for value in (o.index, o.kind, o.flags, o.select, o.words, o.value)))

    def __str__(self) -> str:
        operands = self.shown if self.shown is not None else [o.text for o in (self.d, self.e, *self.s) if o.text]
        text = " ".join(filter(None, [self.name, ", ".join(operands), *self.modifiers]))
        return f"{text} :: {self.second}" if self.second else text


# Mnemonics by opcode, from AMD's machine-readable descriptions (in the wheel of tinygrad, MIT), under the names of the C core.
#
# Newer architectures renamed many instructions whose meaning stayed: they share an operation here, and keep their own name in text.

# Opcodes of gfx90a that later tables lack, or gave to other instructions.
_GFX90A = {("MFMA", opcode): name for opcode, name in {
    84: "v_mfma_i32_32x32x8_i8", 85: "v_mfma_i32_16x16x16_i8", 99: "v_mfma_f32_32x32x4_2b_bf16", 100: "v_mfma_f32_16x16x4_4b_bf16",
    101: "v_mfma_f32_4x4x4_16b_bf16", 102: "v_mfma_f32_32x32x8_bf16", 103: "v_mfma_f32_16x16x16_bf16", 104: "v_mfma_f32_32x32x2_2b_bf16",
    105: "v_mfma_f32_16x16x2_4b_bf16", 107: "v_mfma_f32_4x4x2_16b_bf16", 108: "v_mfma_f32_32x32x4_bf16", 109: "v_mfma_f32_16x16x8_bf16",
}.items()} | {
    ("VOP2", 22): "v_mac_f32", ("VOP2", 23): "v_madmk_f32", ("VOP2", 24): "v_madak_f32", ("VOP3", 278): "v_mac_f32",
    ("VOP3", 448): "v_mad_legacy_f32", ("VOP3", 449): "v_mad_f32", ("MUBUF", 62): "buffer_wbinvl1", ("MUBUF", 63): "buffer_wbinvl1_vol",
}  # fmt: skip


@cache
def mnemonics(family: str, encoding: str) -> dict[int, str]:
    """Return the mnemonics of one encoding ("VOP3") of a family ("cdna", "rdna3", "rdna4"), in lower case."""
    module = importlib.import_module(f"tinygrad.runtime.autogen.amd.{family}.enum")
    return {entry.value: re.sub(r"_e(32|64)$", "", entry.name.lower()) for entry in getattr(module, encoding + "Op", ())}


def mnemonic(architecture: str, family: str, encoding: str, opcode: int) -> str | None:
    """Return the mnemonic of an opcode; None if the architecture has none. Packed and matrix instructions of CDNA share their opcodes."""
    own = _GFX90A.get((encoding, opcode)) if architecture == "gfx90a" else None
    return own or mnemonics(family, "VOP3P" if encoding == "MFMA" else encoding).get(opcode)


_SIZES = {"b8": "byte", "b16": "short", "b32": "dword", "b64": "dwordx2", "b96": "dwordx3", "b128": "dwordx4", "b256": "dwordx8"}
_SIZES |= {"b512": "dwordx16", "u8": "ubyte", "i8": "sbyte", "u16": "ushort", "i16": "sshort"}
_MEMORY = re.compile(r"^(s_buffer|s|global|flat|scratch|buffer)_(load|store)_(?:(d16_hi|d16)_)?([bui]\d+)$")
_ATOMIC = re.compile(r"^(global|flat|buffer)_atomic_(\w+?)_([bui])(32|64)$")
_RENAMED = {
    "v_mad_mix_f32": "v_fma_mix_f32", "v_mad_mixlo_f16": "v_fma_mixlo_f16", "v_mad_mixhi_f16": "v_fma_mixhi_f16",
    "v_accvgpr_read": "v_accvgpr_read_b32", "v_accvgpr_write": "v_accvgpr_write_b32",
    "v_add_nc_u32": "v_add_u32", "v_sub_nc_u32": "v_sub_u32", "v_subrev_nc_u32": "v_subrev_u32", "v_add_nc_i32": "v_add_i32",
    "v_sub_nc_i32": "v_sub_i32", "v_add_nc_u16": "v_add_u16", "v_sub_nc_u16": "v_sub_u16", "v_add_nc_i16": "v_add_i16",
    "v_sub_nc_i16": "v_sub_i16", "v_add_co_ci_u32": "v_addc_co_u32", "v_sub_co_ci_u32": "v_subb_co_u32",
    "v_subrev_co_ci_u32": "v_subbrev_co_u32", "v_clz_i32_u32": "v_ffbh_u32", "v_ctz_i32_b32": "v_ffbl_b32", "v_cls_i32": "v_ffbh_i32",
    "v_max_num_f32": "v_max_f32", "v_min_num_f32": "v_min_f32", "v_max_num_f16": "v_max_f16", "v_min_num_f16": "v_min_f16",
    "v_max_num_f64": "v_max_f64", "v_min_num_f64": "v_min_f64", "v_max3_num_f32": "v_max3_f32", "v_min3_num_f32": "v_min3_f32",
    "v_max3_num_f16": "v_max3_f16", "v_min3_num_f16": "v_min3_f16", "v_med3_num_f32": "v_med3_f32", "v_med3_num_f16": "v_med3_f16",
    "v_minmax_num_f32": "v_minmax_f32", "v_maxmin_num_f32": "v_maxmin_f32", "v_pk_max_num_f16": "v_pk_max_f16",
    "v_pk_min_num_f16": "v_pk_min_f16", "v_mul_dx9_zero_f32": "v_mul_legacy_f32", "v_cvt_pk_rtz_f16_f32": "v_cvt_pkrtz_f16_f32",
    "v_cvt_floor_i32_f32": "v_cvt_flr_i32_f32", "v_cvt_nearest_i32_f32": "v_cvt_rpi_i32_f32",
    "s_and_not1_b32": "s_andn2_b32", "s_and_not1_b64": "s_andn2_b64", "s_or_not1_b32": "s_orn2_b32", "s_or_not1_b64": "s_orn2_b64",
    "s_and_not1_saveexec_b32": "s_andn2_saveexec_b32", "s_or_not1_saveexec_b32": "s_orn2_saveexec_b32",
    "s_and_not0_saveexec_b32": "s_andn1_saveexec_b32", "s_or_not0_saveexec_b32": "s_orn1_saveexec_b32",
    "s_ctz_i32_b32": "s_ff1_i32_b32", "s_ctz_i32_b64": "s_ff1_i32_b64", "s_clz_i32_u32": "s_flbit_i32_b32",
    "s_clz_i32_u64": "s_flbit_i32_b64", "s_cls_i32": "s_flbit_i32", "s_cls_i32_i64": "s_flbit_i32_i64",
    "s_add_co_u32": "s_add_u32", "s_sub_co_u32": "s_sub_u32", "s_add_co_i32": "s_add_i32", "s_sub_co_i32": "s_sub_i32",
    "s_add_co_ci_u32": "s_addc_u32", "s_sub_co_ci_u32": "s_subb_u32", "s_addk_co_i32": "s_addk_i32", "s_add_nc_u64": "s_add_u64",
    "s_sub_nc_u64": "s_sub_u64", "ds_wrxchg_rtn_b32": "ds_wrxchg_rtn_b32", "ds_storexchg_rtn_b32": "ds_wrxchg_rtn_b32",
    "ds_storexchg_rtn_b64": "ds_wrxchg_rtn_b64", "ds_min_num_f32": "ds_min_f32", "ds_max_num_f32": "ds_max_f32",
    "ds_min_num_rtn_f32": "ds_min_rtn_f32", "ds_max_num_rtn_f32": "ds_max_rtn_f32", "ds_load_u16_d16": "ds_read_u16_d16",
    "v_mad_legacy_u16": "v_mad_u16", "v_mad_legacy_i16": "v_mad_i16",
    "v_dot2acc_f32_f16": "v_dot2c_f32_f16", "v_dot2acc_f32_bf16": "v_dot2c_f32_bf16", "s_max_f32": "s_max_num_f32",
    "s_min_f32": "s_min_num_f32", "s_max_f16": "s_max_num_f16", "s_min_f16": "s_min_num_f16", "v_minmax_num_f16": "v_minmax_f16",
    "v_maxmin_num_f16": "v_maxmin_f16", "v_mad_co_u64_u32": "v_mad_u64_u32", "v_mad_co_i64_i32": "v_mad_i64_i32",
}  # fmt: skip
_RENAMED |= {f"v_{name}_t_f{bits}": f"v_{name}_tru_f{bits}" for name in ("cmp", "cmpx") for bits in (16, 32, 64)}
_ATOMIC_NAMES = {("min", "i"): "smin", ("max", "i"): "smax", ("min", "u"): "umin", ("max", "u"): "umax"}


@cache
def operation_name(mnemonic: str) -> str:
    """Return the name of the C core's operation for a mnemonic."""
    mnemonic = mnemonic.replace("v_dual_", "v_")
    if found := _MEMORY.match(mnemonic):
        where, what, half, size = found.groups()
        if half and size == "b16":
            return f"{where}_{what}_short_{half}"
        return f"{where}_{what}_{_SIZES.get(size, size)}" + (f"_{half}" if half else "")
    if found := _ATOMIC.match(mnemonic):
        where, what, kind, bits = found.groups()
        what = _ATOMIC_NAMES.get((what, kind), what)
        return f"{where}_atomic_{what}" + ("_x2" if bits == "64" else "")
    if mnemonic.startswith(("global_atomic_", "flat_atomic_", "buffer_atomic_")):
        return re.sub(r"_(min|max)_num_f", r"_\1_f", mnemonic)
    if mnemonic.startswith("ds_"):
        name = mnemonic.replace("ds_load_", "ds_read_").replace("ds_store_", "ds_write_")
        name = re.sub(r"ds_(read|write)_2addr_stride64_", r"ds_\g<1>2st64_", name)
        return _RENAMED.get(mnemonic, re.sub(r"ds_(read|write)_2addr_", r"ds_\g<1>2_", name))
    return _RENAMED.get(mnemonic, mnemonic)
