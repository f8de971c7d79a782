"""Matrix instructions: MFMA of CDNA, WMMA of RDNA."""

from __future__ import annotations

from warpwave.emulator.decode import instruction as isa
from warpwave.emulator.decode.instruction import Instruction
from warpwave.emulator.decode.operands import Context, row

# Registers of 32 values of a format, where they are fewer than those of 8 bits.
_WORDS = {2: 6, 3: 6, 4: 4}


def mfma(at: Context) -> Instruction:
    """dst 7:0, cbsz 10:8, abid 14:11, acc of dst and src2 15, op 22:16; sources as in VOP3, acc of src0 and src1 60:59, blgp 63:61."""
    word, high = at.word, at.word_at(1)
    one = at.begin("MFMA", word >> 16 & 0x7F, 8)
    types = at.types(one)
    if one.name.startswith("v_accvgpr"):
        one.name += "" if one.name.endswith("_b32") else "_b32"
        reads = "read" in one.name
        one.d = row(word & 0xFF, types.d, accumulator=not reads)
        one.s = [row((high & 0x1FF) - 256, types.s[0], accumulator=True) if reads else at.source(one, high & 0x1FF, types.s[0])]
        return one
    if one.name == "v_mfma_ld_scale_b32":
        return _scaled(at)
    in_acc = bool(word >> 15 & 1)
    one.d = row(word & 0xFF, types.d, in_acc)
    formats = (word >> 8 & 7, high >> 29) if "f8f6f4" in one.name else ()
    if set(formats) & {5, 6, 7}:
        one.operation = None  # no formats
    kinds = [isa.REGS + _WORDS.get(value, 8) for value in formats] or types.s
    one.s = [row((high & 0x1FF) - 256, kinds[0], bool(high >> 27 & 1)), row((high >> 9 & 0x1FF) - 256, kinds[1], bool(high >> 28 & 1))]
    third = high >> 18 & 0x1FF
    if "smfmac" in one.name:  # it accumulates, and source 2 says which values of a row of A it has
        one.s.append(row(third - 256, isa.B32))
        return _with_modifiers(one, word, high)
    kind = isa.F64 if "f64" in one.name else isa.F32
    one.s.append(row(third - 256, types.s[2], in_acc) if third >= 256 else at.operand(third, kind))
    if at.architecture == "gfx90a" and one.name.endswith("f16"):
        one.flags |= isa.FLUSHES
    return _with_modifiers(one, word, high)


def _with_modifiers(one: Instruction, word: int, high: int) -> Instruction:
    cbsz, abid, blgp = word >> 8 & 7, word >> 11 & 15, high >> 29
    one.shuffle = cbsz | abid << 3 | blgp << 7
    one.modifiers = [f"{name}:{value}" for name, value in (("cbsz", cbsz), ("abid", abid), ("blgp", blgp)) if value]
    return one


def _scaled(at: Context) -> Instruction:
    """Read the scales of a product, and the product itself behind them: op_sel 12:11 and op_sel_hi 60:59 choose a byte of each scale."""
    word, high, pc = at.word, at.word_at(1), at.pc
    scales = [at.source(Instruction("", 8), high & 0x1FF, isa.B32), at.source(Instruction("", 8), high >> 9 & 0x1FF, isa.B32)]
    at.move(pc + 8)
    one = mfma(at)
    at.move(pc)
    low, top = word >> 11 & 3, high >> 27 & 3
    one.pc, one.size = pc, 16
    one.e, one.s = scales[0], [*one.s, scales[1]]
    one.imm = 16 | (low & 1 | (top & 1) << 1) | (low >> 1 | top >> 1 << 1) << 2
    one.name = one.name.replace("v_mfma_", "v_mfma_scale_")
    one.shown = [one.d.text, *(o.text for o in one.s[:3]), scales[0].text, scales[1].text]
    one.modifiers = [f"op_sel:[{low & 1},{low >> 1},0]", f"op_sel_hi:[{top & 1},{top >> 1},0]", *one.modifiers]
    return one


def wmma(at: Context) -> Instruction:
    """Encoded as other packed instructions. Negated integers are signed ones; op_sel of a sparse one says where its indices are.

    Bits of `shuffle`: 0 and 1 for signed A and B, 2 for a result in high halves, 3 to saturate, 4 to 9 for negations, 10 for the indices.
    """
    word, high = at.word, at.word_at(1)
    one = at.begin("VOP3P", word >> 16 & 0x7F, 8)
    types = at.types(one)
    one.d = row(word & 0xFF, types.d)
    one.s = [row((high & 0x1FF) - 256, types.s[0]), row((high >> 9 & 0x1FF) - 256, types.s[1])]
    third = high >> 18 & 0x1FF
    kind = isa.BF16 if one.name.startswith("v_wmma_bf16") else isa.F16 if one.name.startswith("v_wmma_f16") else isa.F32
    is_sparse, is_integer = one.name.startswith("v_swmmac"), "_iu" in one.name
    one.s.append(row(third - 256, types.s[2]) if third >= 256 else at.operand(third, kind))
    negated, negated_hi, clamp, select = high >> 29, word >> 8 & 7, word >> 15 & 1, word >> 11 & 7
    is_narrow = kind != isa.F32 and at.family == "rdna3"
    one.shuffle = negated & 3 if is_integer else negated << 4 | negated_hi << 7
    one.shuffle |= (select >> 2) << 2 if is_narrow else 0
    one.shuffle |= clamp << 3 | ((select & 1) << 10 if is_sparse else 0)
    one.modifiers = ["op_sel:[0,0,1]"] if one.shuffle & 4 else [f"index_key:{select & 1}"] if is_sparse and select else []
    one.modifiers += [f"neg_lo:[{_bits(negated)}]"] if negated else []
    one.modifiers += [f"neg_hi:[{_bits(negated_hi)}]"] if negated_hi else []
    one.modifiers += ["clamp"] if clamp else []
    refused = (
        (negated >> 2 or negated_hi) if is_integer else clamp or ("8" in one.name.rpartition("16x16x")[2] and (negated | negated_hi) & 3)
    )
    if refused or (is_sparse and (third < 256 or negated >> 2 or negated_hi >> 2)):
        one.operation = None
    return one


def _bits(three: int) -> str:
    return f"{three & 1},{three >> 1 & 1},{three >> 2}"
