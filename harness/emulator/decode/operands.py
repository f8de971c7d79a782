"""Operand codes: registers, inline constants and literals, by the type that the operation reads."""

from __future__ import annotations

import struct
from dataclasses import replace

from harness.emulator.decode.instruction import (
    ACC,
    B64,
    BF16,
    CONSTANT,
    EXECZ,
    F16,
    F64,
    HALF_TYPES,
    HIGH_FROM_HIGH,
    I64,
    M0,
    MASK,
    NULL,
    PKF,
    PKH,
    PKI,
    ROW,
    SCC,
    SGPR,
    TTMP,
    VCCZ,
    WIDE_TYPES,
    Instruction,
    Operand,
    words_of,
)

LITERAL, SDWA, DPP = 255, 249, 250
_FLOATS = {240: 0.5, 241: -0.5, 242: 1.0, 243: -1.0, 244: 2.0, 245: -2.0, 246: 4.0, 247: -4.0, 248: 0.15915494309189535}
# Bases of the flat apertures, the high halves of addresses that no pointer of this process has (core/memory.c).
_APERTURES = {235: ("src_shared_base", 1 << 48), 236: ("src_shared_limit", (1 << 48) + 0xFFFFFFFF)}
_APERTURES |= {237: ("src_private_base", 2 << 48), 238: ("src_private_limit", (2 << 48) + 0xFFFFFFFF)}


def register_text(letter: str, index: int, words: int) -> str:
    """Return a register or a range of them as an assembler writes it."""
    return f"{letter}{index}" if words == 1 else f"{letter}[{index}:{index + words - 1}]"


def row(index: int, kind: int, accumulator: bool = False) -> Operand:
    """Return a vector register operand."""
    words = words_of(kind)
    if not 0 <= index <= 256 - words:
        raise ValueError(f"vector register {index} of {words}")
    return Operand(ROW, index + (ACC if accumulator else 0), words=words, text=register_text("a" if accumulator else "v", index, words))


class Registers:
    """What operand codes mean on one architecture: RDNA exchanged m0 and null; halves of 16-bit registers have names since RDNA3."""

    def __init__(self, wavefront: int, is_rdna: bool) -> None:
        self.wavefront, self.is_rdna = wavefront, is_rdna

    def scalar(self, code: int, kind: int) -> Operand:
        """Return a scalar register operand; `code` is below 128."""
        words = words_of(kind, self.wavefront)
        index = code
        if code in (124, 125):
            index = code if self.is_rdna else M0
            return Operand(SGPR, index, words=1, text="m0" if index == M0 else "null")
        if index + words > 128:
            raise ValueError(f"register {code} has no {words} words")
        return Operand(SGPR, index, words=words, text=self._scalar_text(code, words))

    def _scalar_text(self, code: int, words: int) -> str:
        pairs = {106: "vcc", 126: "exec"} if self.is_rdna else {102: "flat_scratch", 104: "xnack_mask", 106: "vcc", 126: "exec"}
        if code in pairs and words == 2:
            return pairs[code]
        if code & ~1 in pairs and words == 1:
            return pairs[code & ~1] + ("_hi" if code & 1 else "_lo")
        if TTMP <= code < NULL:
            return register_text("ttmp", code - TTMP, words)
        return register_text("s", code, words)

    def source(self, code: int, kind: int, literal: int = 0) -> Operand:
        """Return any source operand by its 8- or 9-bit code."""
        if code >= 256:
            return row(code - 256, kind)
        if code < 128:
            return self.scalar(code, kind)
        if code <= 208:
            number = code - 128 if code <= 192 else 192 - code
            return Operand(CONSTANT, value=number & (2**64 - 1 if kind in WIDE_TYPES or kind == MASK else 2**32 - 1), text=str(number))
        if code in _FLOATS:
            text = "0.15915494" + ("309189532" if kind in (F64, B64, I64) else "") if code == 248 else str(_FLOATS[code])
            return Operand(CONSTANT, value=_float_bits(_FLOATS[code], kind), text=text)
        if code in _APERTURES:
            text, value = _APERTURES[code]
            return Operand(CONSTANT, value=value if kind in WIDE_TYPES else value >> 32, text=text)
        if code in (251, 252, 253):
            names = {251: (VCCZ, "src_vccz"), 252: (EXECZ, "src_execz"), 253: (SCC, "src_scc")}
            return Operand(names[code][0], text=names[code][1])
        if code == LITERAL:
            return Operand(CONSTANT, value=_literal_bits(literal, kind), text=f"{literal:#x}")
        raise ValueError(f"operand code {code}")


def _float_bits(number: float, kind: int) -> int:
    if kind in (F64, B64, I64):
        return int.from_bytes(struct.pack("<d", number), "little")
    single = int.from_bytes(struct.pack("<f", number), "little")
    if kind == BF16:
        return single >> 16
    return int.from_bytes(struct.pack("<e", number), "little") if kind in HALF_TYPES or kind == PKH else single


def _literal_bits(literal: int, kind: int) -> int:
    if kind == F64:
        return literal << 32
    return literal | 0xFFFFFFFF << 32 if kind == I64 and literal >> 31 else literal


def with_flags(operand: Operand, flags: int) -> Operand:
    """Return the operand with source modifiers."""
    return replace(operand, flags=operand.flags | flags) if flags else operand


def take_both_halves(one: Instruction, kinds: tuple[int, int, int, int]) -> None:
    """Where an encoding has no op_sel, a packed operand gives its low half to the low result and its high half to the high one."""
    for n, kind in enumerate(kinds[: len(one.s)]):
        if kind in (PKH, PKI, PKF):
            one.s[n] = with_flags(one.s[n], HIGH_FROM_HIGH)


def half(operand: Operand, is_high: bool) -> Operand:
    """Return a 16-bit half of a register, with its name since RDNA3: v1.l, v1.h."""
    name, flags = register_text("v", operand.index, 1), operand.flags | (4 if is_high else 0)
    text = operand.text.replace(register_text("v", operand.index + 128, 1), name) if is_high else operand.text
    return replace(operand, flags=flags, text=text.replace(name, f"{name}.{'h' if is_high else 'l'}"))


__all__ = ["DPP", "F16", "LITERAL", "SDWA", "Registers", "half", "register_text", "row", "take_both_halves", "with_flags"]
