"""Find the encoding of each instruction, and decode a kernel's code from its first to its last byte."""

from __future__ import annotations

from collections.abc import Callable

from warpwave.emulator.decode import matrix, memory, scalar, vector
from warpwave.emulator.decode.instruction import M0, ROW, SGPR, Instruction
from warpwave.emulator.decode.operands import Context, set_event
from warpwave.emulator.errors import InvalidCodeObject
from warpwave.emulator.library import Operation

FAMILIES = {"gfx90a": "cdna", "gfx942": "cdna", "gfx950": "cdna", "gfx1100": "rdna3", "gfx1200": "rdna4", "gfx1201": "rdna4"}
_Decoder = Callable[[Context], Instruction]

_SIZES, _LONGEST = (4, 8, 12, 16), 16
_UNKNOWN, _MOST_UNKNOWN = ".long", 1024
# Instructions that were decoded, of about 1.5 KB each: kernels that follow each other have many in common.
_MOST_KNOWN = 1 << 13


def context(code: bytes, architecture: str, wavefront: int, operations: dict[str, Operation]) -> Context:
    """Return a context for the code of one architecture; raise KeyError for one that is not implemented."""
    return Context(code, architecture, FAMILIES[architecture], wavefront, operations)


def decode(at: Context, start: int, end: int) -> list[Instruction]:
    """Decode all instructions between two offsets; what no table knows becomes an instruction without an operation.

    Raise `InvalidCodeObject` where so much is unknown that it is no code: each such word is looked up in vain, and that takes long.
    """
    found, unknown, pc = [], 0, start
    while pc < end:
        at.move(pc)
        one = _known(at)
        unknown += one.name.startswith(_UNKNOWN)
        if unknown > _MOST_UNKNOWN:
            raise InvalidCodeObject(
                f"A code object for {at.architecture} has more than {_MOST_UNKNOWN} words that are no instructions of it. "
                "Usually the bytes are damaged. Compile the kernel again."
            )
        pair = [one] if one.second is None else [one.second, one] if one.swapped else [one, one.second]
        found += pair
        pc += one.size
    return found


_KNOWN: dict[tuple[str, int, bytes], Instruction] = {}


def _known(at: Context) -> Instruction:
    """Return a copy of an instruction of the same words, or decode it and remember it. Branches depend on where they are."""
    words = at.code[at.pc : at.pc + _LONGEST]
    for size in _SIZES:
        if (one := _KNOWN.get((at.architecture, at.wavefront, words[:size]))) is not None:
            made = _copied(one)
            made.pc = at.pc
            return made
    one = _decode_one(at)
    if one.target is None and one.second is None:
        one.packed = one.packed_operands()
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[at.architecture, at.wavefront, words[: one.size]] = _copied(one)
    return one


def _copied(one: Instruction) -> Instruction:
    """Return a shallow copy. `dataclasses.replace` calls the constructor, and takes twenty times as long."""
    made = object.__new__(Instruction)
    made.__dict__.update(one.__dict__)
    return made


def _decode_one(at: Context) -> Instruction:
    try:
        decoder, size = _cdna(at) if at.family == "cdna" else _rdna(at)  # by the leading bits; the least size
        one = decoder(at)
    except (ValueError, KeyError, IndexError):
        size = 4
        one = Instruction(f"{_UNKNOWN} {at.word:#010x}", size, pc=at.pc)
    else:
        set_event(at, one)
    if not _is_in_range(one):
        one.operation = None
    return one


def _is_in_range(one: Instruction) -> bool:
    """Return whether no operand leaves its registers, so that the core never reads past them."""
    for operand in (one.d, one.e, *one.s):
        if operand.kind == ROW and (operand.index % 256) + operand.words > 256:
            return False
        if operand.kind == SGPR and operand.index != M0 and operand.index + operand.words > 128:
            return False
    return True


def _rdna(at: Context) -> tuple[_Decoder, int]:
    word = at.word
    if word >> 30 != 3:
        return _cdna(at)
    if word >> 24 == 0b11001100:
        return (matrix.wmma if word >> 16 & 0x7F >= 64 else vector.vop3p), 8
    if at.family == "rdna4" and word >> 24 in (0xEC, 0xED, 0xEE):
        return memory.vflat, 12
    return (_WIDE_RDNA3 if at.family == "rdna3" else _WIDE_RDNA4)[word >> 26], 8


def _cdna(at: Context) -> tuple[_Decoder, int]:
    word = at.word
    if word >> 31 == 0:
        return (vector.vop1, 4) if word >> 25 == 0x3F else (vector.vopc, 4) if word >> 25 == 0x3E else (vector.vop2, 4)
    if word >> 30 == 2:
        if word >> 28 == 0b1011:
            top = word >> 23
            if top in _SOP:
                return _SOP[top], 4
            return scalar.sopk, 4
        return scalar.sop2, 4
    if word >> 23 == 0b110100111:
        is_matrix = at.begin("MFMA", word >> 16 & 0x7F).name.startswith(("v_mfma", "v_smfmac", "v_accvgpr"))
        return (matrix.mfma if is_matrix else vector.vop3p), 8
    return _WIDE_CDNA[word >> 26], 8


_SOP: dict[int, _Decoder] = {0b101111101: scalar.sop1, 0b101111110: scalar.sopc, 0b101111111: scalar.sopp}
_WIDE_CDNA: dict[int, _Decoder] = {
    0b110000: scalar.smem,
    0b110100: vector.vop3,
    0b110110: memory.ds,
    0b110111: memory.flat,
    0b111000: memory.mubuf,
}
_BOTH_RDNA: dict[int, _Decoder] = {0b110010: vector.vopd, 0b110101: vector.vop3, 0b110110: memory.ds, 0b111101: scalar.smem}
_WIDE_RDNA3: dict[int, _Decoder] = {**_BOTH_RDNA, 0b110111: memory.flat, 0b111000: memory.mubuf}
_WIDE_RDNA4: dict[int, _Decoder] = {**_BOTH_RDNA, 0b110001: memory.vbuffer}
