"""Encodings of memory: FLAT, GLOBAL, SCRATCH, MUBUF and DS."""

from __future__ import annotations

from warpwave.emulator.decode import instruction as isa
from warpwave.emulator.decode.instruction import ABSENT, Instruction, Operand
from warpwave.emulator.decode.operands import Context, row, signed


def flat(at: Context) -> Instruction:
    """offset 12:0, lds/sve 13, segment 15:14, cache bits, op 24:18; addr 39:32, data 47:40, saddr 54:48, acc 55, vdst 63:56."""
    word, high = at.word, at.word_at(1)
    form = ("FLAT", "SCRATCH", "GLOBAL")[word >> (14 if at.family == "cdna" else 16) & 3]
    one = at.begin(form, word >> 18 & 0x7F, 8)
    one.imm = signed(word & 0x1FFF, 13)
    returns = word >> (16 if at.family == "cdna" else 14) & 1
    uses_address = word >> 13 & 1 == 1
    if at.architecture == "gfx90a":  # a scalar address instead of a lane's: none of its instructions has both
        uses_address = high >> 16 & 0x7F == 0x7F or form != "SCRATCH"
    if at.family == "rdna3":
        uses_address = high >> 23 & 1 == 1 or form != "SCRATCH"
    return _addressed(at, one, form, high & 0xFF, high >> 8 & 0xFF, high >> 16 & 0x7F, high >> 24, high >> 23 & 1, returns, uses_address)


def vflat(at: Context) -> Instruction:
    """RDNA4: saddr 6:0, op 20:14, vdst 39:32, sve 49, scope 51:50, th 54:52, data 62:55, vaddr 71:64, offset 95:72."""
    word, middle, high = at.word, at.word_at(1), at.word_at(2)
    form = {0xEC: "VFLAT", 0xED: "VSCRATCH", 0xEE: "VGLOBAL"}[word >> 24]
    one = at.begin(form, word >> 14 & 0x7F, 12)
    one.imm = signed(high >> 8, 24)
    form = form[1:]
    uses_address = middle >> 17 & 1 == 1 or form != "SCRATCH"
    return _addressed(at, one, form, high & 0xFF, middle >> 23 & 0xFF, word & 0x7F, middle & 0xFF, 0, middle >> 20 & 1, uses_address)


def _addressed(
    at: Context,
    one: Instruction,
    form: str,
    address: int,
    data: int,
    base: int,
    target: int,
    accumulator: int,
    returns: int,
    uses_address: bool,
) -> Instruction:
    if one.name.endswith(("_inv", "_wb", "_wbinv")):
        return one
    types = at.types(one)
    off = base == 0x7F or (at.family != "cdna" and base == 124) or form == "FLAT"
    from_scalar = ABSENT if off else at.scalar(base, isa.B32 if form == "SCRATCH" else isa.B64)
    acc = bool(accumulator) and at.family == "cdna"
    if form == "SCRATCH":
        places = [row(address, isa.B32)] if uses_address else [Operand(text="off")]
        places.append(from_scalar if not off else Operand(text="off"))
    else:
        places = [row(address, isa.B64 if off else isa.B32)]
        places += [] if form == "FLAT" else [Operand(text="off") if off else from_scalar]
    _fill(at, one, places, row(data, types.s[1], acc), row(target, types.d, acc), bool(returns))
    one.s[2] = from_scalar
    if "_lds_" in one.name:
        one.flags |= isa.TO_LDS
        one.s[1], one.shown = ABSENT, [place.text for place in places]
    one.modifiers = [f"offset:{one.imm}"] if one.imm else []
    return one


def _fill(at: Context, one: Instruction, places: list[Operand], data: Operand, target: Operand, returns: bool) -> None:
    """Set operands of a load, a store or an atomic; `places` are the address and the rest in the assembler's order."""
    types = at.types(one)
    is_atomic, is_load = (types.d != isa.NONE and (types.s[1] == isa.NONE) == loads for loads in (False, True))
    if at.architecture == "gfx90a" and one.name.endswith("_atomic_add_f32"):
        one.flags |= isa.FLUSHES  # denormals, whatever MODE says: a sum of floats in gfx90a's memory (LLVM's subtargets)
    one.s = [places[0], ABSENT if is_load else data, ABSENT]
    texts = [operand.text for operand in places]
    if is_load:
        one.d, one.shown = target, [target.text, *texts]
    elif is_atomic:
        one.d = target
        one.flags |= isa.RETURNS if returns else 0
        one.shown = [*([target.text] if returns else []), texts[0], data.text, *texts[1:]]
    else:
        one.shown = [texts[0], data.text, *texts[1:]]


def mubuf(at: Context) -> Instruction:
    """offset 11:0, offen 12, idxen 13, sc0 14, lds 16, op 24:18; vaddr 39:32, vdata 47:40, srsrc 52:48, acc 55, soffset 63:56."""
    word, high = at.word, at.word_at(1)
    one = at.begin("MUBUF", word >> 18 & 0x7F if at.family == "cdna" else word >> 18 & 0xFF, 8)
    if one.name.startswith(("buffer_wb", "buffer_inv", "buffer_gl")):
        return one
    one.imm = word & 0xFFF
    if at.family == "cdna":
        flags = (word >> 12 & 1, word >> 13 & 1, high >> 23 & 1, word >> 16 & 1, word >> 14 & 1)
    else:
        flags = (high >> 22 & 1, high >> 23 & 1, 0, 0, word >> 14 & 1)
    return _buffer(at, one, high & 0xFF, high >> 8 & 0xFF, (high >> 16 & 0x1F) * 4, high >> 24, flags)


def vbuffer(at: Context) -> Instruction:
    """RDNA4: soffset 6:0, op 21:14, vdata 39:32, rsrc 49:41, scope 51:50, th 54:52, offen 62, idxen 63, vaddr 71:64, offset 95:72."""
    word, middle, high = at.word, at.word_at(1), at.word_at(2)
    one = at.begin("VBUFFER", word >> 14 & 0xFF, 12)
    one.imm = high >> 8
    flags = (middle >> 30 & 1, middle >> 31 & 1, 0, 0, middle >> 20 & 1)
    return _buffer(at, one, high & 0xFF, middle & 0xFF, middle >> 9 & 0x1FF, word & 0x7F, flags)


def _buffer(at: Context, one: Instruction, address: int, data: int, resource: int, offset: int, flags: tuple[int, ...]) -> Instruction:
    offen, idxen, acc, lds, returns = flags
    types = at.types(one)
    place = row(address, isa.B64 if offen and idxen else isa.B32) if offen or idxen else Operand(text="off")
    descriptor, scalar = at.scalar(resource, isa.REGS + 4), at.operand(offset, isa.B32)
    value = row(data, types.d if types.s[1] == isa.NONE else types.s[1], bool(acc))
    _fill(at, one, [place], value, row(data, types.d, bool(acc)) if types.d else ABSENT, False)
    one.flags |= isa.OFFSET_LANE * offen | isa.INDEX_LANE * idxen | isa.TO_LDS * lds | isa.RETURNS * returns
    one.s = [place, one.s[1], descriptor, scalar]
    one.d = ABSENT if lds else one.d
    one.shown = [*([] if lds else [value.text]), place.text, descriptor.text, scalar.text]
    one.modifiers = (["idxen"] if idxen else []) + (["offen"] if offen else []) + ([f"offset:{one.imm}"] if one.imm else [])
    one.modifiers += ["lds"] if lds else []
    return one


def ds(at: Context) -> Instruction:
    """offset0 7:0, offset1 15:8, gds, op; addr 39:32, data0 47:40, data1 55:48, vdst 63:56."""
    word, high = at.word, at.word_at(1)
    cdna = at.family == "cdna"
    one = at.begin("DS", word >> (17 if cdna else 18) & 0xFF, 8)
    types, acc = at.types(one), cdna and word >> 25 & 1 == 1
    one.imm = word & 0xFFFF
    address = row(high & 0xFF, isa.B32)
    if one.name == "ds_nop":
        return one
    if word >> (16 if cdna else 17) & 1:
        one.operation = None  # GDS
    if types.d != isa.NONE:
        one.d = row(high >> 24, types.d, acc)
    one.s = [address]
    if one.name != "ds_swizzle_b32":
        one.s += [row(high >> 8 & 0xFF, types.s[1], acc)] if types.s[1] != isa.NONE else []
        one.s += [row(high >> 16 & 0xFF, types.s[2], acc)] if types.s[2] != isa.NONE else []
    if "2" in one.name.split("_")[1] or "2addr" in one.name:
        one.modifiers = [f"offset{n}:{one.imm >> 8 * n & 0xFF}" for n in range(2) if one.imm >> 8 * n & 0xFF]
    elif one.imm:
        one.modifiers = [f"offset:{one.imm}"]
    return one


# Atomics of less than a word, which the compiler makes of a compare-and-swap of the aligned word around them.
#
# The word may end behind the tensor: that is the code of a right kernel, and no allocation of a card ends within a word. So these
# accesses need one byte of the word in a buffer, and all others need all of their bytes there.

#
# The load of the first value to compare with is no access that others must be ordered with: the swap notices if it has changed.

_FORMS = ("global", "flat", "buffer")
_SWAPS = {f"{form}_atomic_cmpswap{bits}": size for form in _FORMS for bits, size in (("", 4), ("_b32", 4), ("_x2", 8), ("_b64", 8))}
_SIZES = {"dword": 4, "b32": 4, "dwordx2": 8, "b64": 8}
_LOADS = {f"{form}_load_{name}": size for form in _FORMS for name, size in _SIZES.items()}
_SCALAR_LOADS = {f"s_load_{name}": size for name, size in _SIZES.items()}  # of an address that all lanes share
_FARTHEST = 64  # instructions between the load of the first value and the swap


def mark_widened(instructions: list[Instruction]) -> None:
    """Mark each compare-and-swap of a word, and the load before one that reads the same address."""
    for n, one in enumerate(instructions):
        size = _SWAPS.get(one.name)
        if not size:
            continue
        widened = isa.WIDENED if size == 4 else 0
        one.flags |= widened
        by_lane, for_all = True, True  # whether a load of this kind would still read the swap's address
        for before in reversed(instructions[max(0, n - _FARTHEST) : n]):
            is_by_lane = by_lane and _LOADS.get(before.name) == size and _place(before) == _place(one)
            if is_by_lane or (for_all and _SCALAR_LOADS.get(before.name) == size and _loads_for_all(before, one)):
                before.flags |= isa.COMPARED | widened
                break
            for_all = for_all and not _overlap(before.d, one.s[2])
            by_lane = by_lane and for_all and not _overlap(before.d, one.s[0])


def _place(one: Instruction) -> tuple[object, ...]:
    return one.name.split("_")[0], one.imm, one.s[0], one.s[2:]


def _loads_for_all(before: Instruction, one: Instruction) -> bool:
    if before.imm != one.imm or before.s[1].kind != isa.NO_OPERAND or one.s[2].kind != isa.SGPR:
        return False
    return before.s[0].kind == isa.SGPR and before.s[0].index == one.s[2].index


def _overlap(one: Operand, other: Operand) -> bool:
    same = one.kind == other.kind and one.kind in (isa.ROW, isa.SGPR)
    return same and one.index < other.index + other.words and other.index < one.index + one.words
