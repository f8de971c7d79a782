"""Operand codes: registers, inline constants and literals, by the type that the operation reads."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace

from warpwave.emulator.decode import instruction as isa
from warpwave.emulator.decode.instruction import Instruction, Operand, mnemonic, operation_name, words_of
from warpwave.emulator.library import Operation

LITERAL, SDWA, DPP = 255, 249, 250
_FLOATS = {240: 0.5, 241: -0.5, 242: 1.0, 243: -1.0, 244: 2.0, 245: -2.0, 246: 4.0, 247: -4.0, 248: 0.15915494309189535}
# Bases of the flat apertures, the high halves of addresses that no pointer of this process has (core/memory.c).
_APERTURES = {235: ("src_shared_base", 1 << 48), 236: ("src_shared_limit", (1 << 48) + 0xFFFFFFFF)}
_APERTURES |= {237: ("src_private_base", 2 << 48), 238: ("src_private_limit", (2 << 48) + 0xFFFFFFFF)}


def signed(value: int, bits: int) -> int:
    """Return a field of so many bits as a signed number."""
    return value - (1 << bits) if value >> (bits - 1) & 1 else value


def register_text(letter: str, index: int, words: int) -> str:
    """Return a register or a range of them as an assembler writes it."""
    return f"{letter}{index}" if words == 1 else f"{letter}[{index}:{index + words - 1}]"


def row(index: int, kind: int, accumulator: bool = False) -> Operand:
    """Return a vector register operand."""
    words = words_of(kind)
    if not 0 <= index <= 256 - words:
        raise ValueError(f"vector register {index} of {words}")
    return Operand(
        isa.ROW, index + (isa.ACC if accumulator else 0), words=words, text=register_text("a" if accumulator else "v", index, words)
    )


def _float_bits(number: float, kind: int) -> int:
    if kind in (isa.F64, isa.B64, isa.I64):
        return int.from_bytes(struct.pack("<d", number), "little")
    single = int.from_bytes(struct.pack("<f", number), "little")
    if kind == isa.BF16:
        return single >> 16
    return int.from_bytes(struct.pack("<e", number), "little") if kind in isa.HALF_TYPES or kind == isa.PKH else single


def _literal_bits(literal: int, kind: int) -> int:
    if kind == isa.F64:
        return literal << 32
    return literal | 0xFFFFFFFF << 32 if kind == isa.I64 and literal >> 31 else literal


def with_flags(operand: Operand, flags: int) -> Operand:
    """Return the operand with source modifiers."""
    return replace(operand, flags=operand.flags | flags) if flags else operand


def take_both_halves(one: Instruction, kinds: tuple[int, int, int, int]) -> None:
    """Where an encoding has no op_sel, a packed operand gives its low half to the low result and its high half to the high one."""
    for n, kind in enumerate(kinds[: len(one.s)]):
        if kind in (isa.PKH, isa.PKI, isa.PKF):
            one.s[n] = with_flags(one.s[n], isa.HIGH_FROM_HIGH)


def half(operand: Operand, is_high: bool) -> Operand:
    """Return a 16-bit half of a register, with its name since RDNA3: v1.l, v1.h."""
    name, flags = register_text("v", operand.index, 1), operand.flags | (4 if is_high else 0)
    text = operand.text.replace(register_text("v", operand.index + 128, 1), name) if is_high else operand.text
    return replace(operand, flags=flags, text=text.replace(name, f"{name}.{'h' if is_high else 'l'}"))


# What every encoding's decoder needs: the words at hand, the tables, and the C core's types.

_UNKNOWN = Operation(-1, "", isa.B32, 0, (isa.B32, isa.B32, isa.B32, 0))
_UNKNOWN_WIDE = Operation(-1, "", isa.B64, 0, (isa.B64, isa.B64, isa.B64, 0))


@dataclass
class Context:
    """One place in the code, with what operand codes mean there: RDNA exchanged m0 and null."""

    code: bytes
    architecture: str
    family: str
    wavefront: int
    operations: dict[str, Operation]
    pc: int = 0
    word: int = 0
    types_of: dict[str, Operation] = field(default_factory=dict)

    def move(self, pc: int) -> None:
        """Go to the instruction at `pc`."""
        self.pc = pc
        self.word = self.word_at(0)

    def word_at(self, n: int) -> int:
        """Return the `n`th word from here; 0 behind the end."""
        at = self.pc + 4 * n
        return int(struct.unpack_from("<I", self.code, at)[0]) if at + 4 <= len(self.code) else 0

    def begin(self, encoding: str, opcode: int, size: int = 4) -> Instruction:
        """Begin an instruction: its mnemonic, and its operation if the core has it."""
        if (name := mnemonic(self.architecture, self.family, encoding, opcode)) is None:
            raise ValueError(f"{encoding} opcode {opcode}")
        operation = operation_name(name)
        if operation.startswith(("v_wmma", "v_swmmac")):
            operation += f"_r{self.family[-1]}"
        elif "fp8" in operation or "bf8" in operation:
            operation += "_fnuz" if self.architecture == "gfx942" else "_ocp"  # which 8-bit floats the architecture has
        found = self.operations.get(operation)
        one = Instruction(name, size, pc=self.pc, operation=found.number if found else None)
        self.types_of[name] = found or (_UNKNOWN_WIDE if name.endswith("64") else _UNKNOWN)
        return one

    def vary(self, one: Instruction, suffix: str) -> None:
        """Exchange an operation for a variant of it that the instruction's modifiers ask for; there may be none."""
        self.types_of[one.name] = found = self.operations.get(f"{operation_name(one.name)}_{suffix}", _UNKNOWN)
        one.operation = found.number if found.number >= 0 else None

    def saturate(self, one: Instruction) -> None:
        """Exchange an integer operation for the one that clamps; there may be none."""
        found = self.operations.get(self.types(one).name + "_clamp")
        one.operation = found.number if found else None
        one.flags &= ~isa.CLAMP

    def types(self, one: Instruction) -> Operation:
        """Return what the instruction's operation writes and reads; a guess by its name if the core has it not."""
        return self.types_of[one.name]

    def next_word(self, one: Instruction) -> int:
        """Return the word behind the instruction, and count it to it."""
        one.size += 4
        return self.word_at(one.size // 4 - 1)

    def literal(self, one: Instruction) -> int:
        """Return the literal behind the instruction, and count it to it, once."""
        if one.size in (4, 8) and not getattr(one, "_has_literal", False):
            one.size += 4
            one._has_literal = True  # type: ignore[attr-defined]
        return self.word_at(one.size // 4 - 1)

    def scalar(self, code: int, kind: int) -> Operand:
        """Return a scalar register operand; `code` is below 128."""
        words = words_of(kind, self.wavefront)
        index = code
        if code in (124, 125):
            index = isa.M0 if self.family == "cdna" else code
            return Operand(isa.SGPR, index, words=1, text="m0" if index == isa.M0 else "null")
        if index + words > 128:
            raise ValueError(f"register {code} has no {words} words")
        return Operand(isa.SGPR, index, words=words, text=self._scalar_text(code, words))

    def _scalar_text(self, code: int, words: int) -> str:
        pairs = {106: "vcc", 126: "exec"} | ({102: "flat_scratch", 104: "xnack_mask"} if self.family == "cdna" else {})
        if code in pairs and words == 2:
            return pairs[code]
        if code & ~1 in pairs and words == 1:
            return pairs[code & ~1] + ("_hi" if code & 1 else "_lo")
        if isa.TTMP <= code < isa.NULL:
            return register_text("ttmp", code - isa.TTMP, words)
        return register_text("s", code, words)

    def operand(self, code: int, kind: int, literal: int = 0) -> Operand:
        """Return any source operand by its 8- or 9-bit code."""
        if code >= 256:
            return row(code - 256, kind)
        if code < 128:
            return self.scalar(code, kind)
        if code <= 208:
            number = code - 128 if code <= 192 else 192 - code
            return Operand(
                isa.CONSTANT, value=number & (2**64 - 1 if kind in isa.WIDE_TYPES or kind == isa.MASK else 2**32 - 1), text=str(number)
            )
        if code in _FLOATS:
            text = "0.15915494" + ("309189532" if kind in (isa.F64, isa.B64, isa.I64) else "") if code == 248 else str(_FLOATS[code])
            return Operand(isa.CONSTANT, value=_float_bits(_FLOATS[code], kind), text=text)
        if code in _APERTURES:
            text, value = _APERTURES[code]
            return Operand(isa.CONSTANT, value=value if kind in isa.WIDE_TYPES else value >> 32, text=text)
        if code in (251, 252, 253):
            names = {251: (isa.VCCZ, "src_vccz"), 252: (isa.EXECZ, "src_execz"), 253: (isa.SCC, "src_scc")}
            return Operand(names[code][0], text=names[code][1])
        if code == LITERAL:
            return Operand(isa.CONSTANT, value=_literal_bits(literal, kind), text=f"{literal:#x}")
        raise ValueError(f"operand code {code}")

    def source(self, one: Instruction, code: int, kind: int) -> Operand:
        """Return a source operand, with its literal if it has one."""
        return self.operand(code, kind, self.literal(one) if code == LITERAL else 0)


# What an instruction is to the counters that a wave waits for: which one it adds to, and which ones a wait waits for.

# enum event of core/checks/checks.h
NO_EVENT, LDS, SCALAR, LOAD, STORE, FLAT, LOAD_TO_LDS, WAIT, STORE_AMONG_LOADS = range(9)
_NO_WAIT = 127


def set_event(at: Context, one: Instruction) -> None:
    """Set the event of an instruction; of a wait, set `imm` to what may stay in flight: loads, LDS, stores, scalar loads, a byte each."""
    name = one.name
    if name.startswith(("s_waitcnt", "s_wait_")):
        if (waited := _waits(at.family, name, one.imm)) is not None:
            one.event, one.imm = WAIT, sum(min(n, _NO_WAIT) << 8 * place for place, n in enumerate(waited))
    elif name.startswith("ds_") and name != "ds_nop":
        one.event = LDS
    elif name.startswith(("s_load", "s_buffer_load", "s_memtime", "s_memrealtime")):
        one.event = SCALAR
    elif name.startswith(("global_load", "buffer_load", "scratch_load")):
        one.event = LOAD_TO_LDS if one.flags & isa.TO_LDS else LOAD
        one.flags |= isa.VOLATILE if _is_volatile(at) else 0
    elif name.startswith("flat_"):
        one.event = FLAT
    elif name.startswith(("global_store", "buffer_store", "scratch_store", "global_atomic", "buffer_atomic")):
        one.event = LOAD if one.flags & isa.RETURNS else STORE_AMONG_LOADS if at.family == "cdna" else STORE
        one.flags |= 0 if at.architecture.startswith(("gfx94", "gfx95")) else isa.RELEASES
    elif name == "buffer_wbl2":
        one.flags |= isa.RELEASES if at.word >> 15 & 1 else 0  # sc1: for all programs
    elif name in ("buffer_gl1_inv", "buffer_wbinvl1", "buffer_wbinvl1_vol"):
        one.flags |= isa.ACQUIRES
    elif (name == "buffer_inv" and at.word >> 15 & 1) or (name == "global_inv" and at.word_at(1) >> 18 & 3 >= 2):
        one.flags |= isa.ACQUIRES  # sc1; the scope of a device, or wider


def _waits(family: str, name: str, imm: int) -> tuple[int, int, int, int] | None:
    """Return how many loads, LDS accesses, stores and scalar loads may be left in flight; None if it waits for none of them."""
    none = _NO_WAIT
    if name == "s_waitcnt":
        if family == "cdna":  # vmcnt 3:0 and 15:14, lgkmcnt 11:8
            loads, lds = imm & 15 | imm >> 10 & 0x30, imm >> 8 & 15
            return loads if loads < 63 else none, lds if lds < 15 else none, none, lds
        loads, lds = imm >> 10 & 63, imm >> 4 & 63  # RDNA3
        return loads if loads < 63 else none, lds if lds < 63 else none, none, lds
    return {
        "s_waitcnt_vscnt": (none, none, imm, none),
        "s_waitcnt_vmcnt": (imm, none, none, none),
        "s_waitcnt_lgkmcnt": (none, imm, none, imm),
        "s_wait_storecnt": (none, none, imm, none),
        "s_wait_loadcnt": (imm, none, none, none),
        "s_wait_dscnt": (none, imm, none, none),
        "s_wait_kmcnt": (none, none, none, imm),
        "s_wait_loadcnt_dscnt": (imm >> 8 & 63, imm & 63, none, none),
        "s_wait_storecnt_dscnt": (none, imm & 63, imm >> 8 & 63, none),
        "s_wait_idle": (0, 0, 0, 0),
    }.get(name)


def _is_volatile(at: Context) -> bool:
    """Return whether a load goes past all caches, as those do with which kernels wait for others."""
    word, is_flat = at.word, at.word >> 26 == 0b110111
    if at.family == "rdna4":
        return at.word_at(1) >> 18 & 3 == 3  # scope
    if at.family == "rdna3":
        return word >> 13 & 3 == 3  # dlc, glc
    first = word >> (16 if is_flat else 14) & 1
    if at.architecture == "gfx90a":
        return first == 1
    return first == 1 and word >> (25 if is_flat else 15) & 1 == 1
