"""Make shapes of instructions on lanes into code, and say what each leaves: modifiers and lane patterns in numpy."""

from __future__ import annotations

import re

import numpy as np
from shapes import split
from statements.exact import DTYPES, WIDE, raw_of, typed
from statements.vector import OLDER, VECTOR
from statements.vector_eight import EIGHT
from statements.vector_real import REAL, REAL_CDNA
from statements.vector_whole import SATURATED, WHOLE
from units.cases import COUNT, Case, D, Machine
from units.operands import Operand, bits_of, lane_pattern, numbered, selected

STATED = WHOLE | REAL | EIGHT | VECTOR


def base(mnemonic: str) -> str:
    """Return the name of the meaning of a mnemonic: without the encoding, and as older cards have it."""
    name = re.sub(r"_(e32|e64|dpp|sdwa|e64_dpp)$", "", re.sub(r"_e64_dpp$", "", mnemonic)).replace("v_dual_", "v_")
    return OLDER.get(name, name)


def statement(mnemonic: str):
    """Return types of results, types of operands, and the function of an instruction; KeyError: nobody has stated it."""
    name = base(mnemonic)
    return (
        STATED.get(name)
        or next((STATED[f"{name} {first}"] for first in ("00", "0", "ocp") if f"{name} {first}" in STATED), None)
        or STATED[name]
    )


def drawn_kinds(part: str) -> tuple[str, ...]:
    """Return what kinds of numbers the operands of an instruction should get."""
    mnemonic = part.split()[0]
    _, operands, _ = statement(mnemonic)
    if "div_scale" in mnemonic:
        return ("f32", "f32", "f32", "u", "f32")
    found = [
        next((kind for kind in ("bf16", "f16", "f32", "f64") if kind in one), "u")
        for one in operands.split()
        if one not in ("m", "vcc") and one[0] != "d"
    ]
    found = ["f32" if one == "mix" else kind for one, kind in zip(operands.split(), found, strict=False)]
    rest = next(
        ("f32" if one == "d" else next((k for k in ("f16", "f32", "f64") if k in one), "u") for one in operands.split() if one[0] == "d"),
        "u",
    )
    return (*found, *["u"] * (D - len(found)), rest)


def part_of(
    machine: Machine, shape: str, example: str, target: int, at: int = 0, shared: bool = False
) -> tuple[list[str], str, list[tuple[str, str, np.ndarray]]]:
    """Return what goes before an instruction, the instruction, and what it leaves: register, kind and value."""
    mnemonic, _, rest = shape.partition(" ")
    kinds, modifiers = split(rest)
    literals = split(example.partition(" ")[2])[0]
    name = base(mnemonic)
    flags = dict(one.split(":", 1) if ":" in one else (one, "") for one in modifiers)
    if "byte_sel" in flags:
        flags["src0_sel"] = "BYTE_" + dict(one.split(":") for one in numbered(modifiers, example))["byte_sel"]
    results, types, function = meaning(machine, name, flags)
    outs = results.lstrip("~").split()
    places, texts, setup, left = [], [], [], []
    given = len(outs)
    if outs[-1] == "m" and name.startswith("v_cmpx") and len(kinds) == len(types.split()):
        given = 0  # it names no mask to write: on RDNA it writes EXEC alone
    for n, (one, kind) in enumerate(zip(kinds[:given], outs, strict=False)):
        if kind == "m":
            text = {"s2": "s[26:27]", "s": "s26"}.get(one, one)
            places.append((text, "m"))
        else:
            register = target + 2 * n
            text = f"v[{register}:{register + 1}]" if kind in WIDE else f"v{register}" + (one[1:] if one[1:] in (".l", ".h") else "")
            if one == "a":
                text = f"a{register}"
            places.append((text, kind))
        texts.append(text)
    if given == 0:
        places.append(("exec" if machine.cdna else "exec_lo", "m"))
    elif name.startswith("v_cmpx"):  # EXEC first: what is stored after it needs all lanes
        places.insert(0, ("exec" if machine.cdna else "exec_lo", "m"))
    wanted = types.split()
    values, operands = [], []
    sources = kinds[given:]
    names = [re.sub(r"[-|]|neg\(|abs\(|sext\(|\)", "", one) for one in literals[given:]]  # the same register twice stays the same
    halves = bits_of(flags.get("op_sel_hi", ""), 3, 0)
    for n, kind in enumerate(wanted):
        if kind[0] == "d":  # what the destination held
            values.append(machine.rows[D] >> np.uint64(16 if places[0][0].endswith(".h") else 32 * at))
            continue
        if kind == "vcc":
            operand = Operand(machine, "vcc" if machine.cdna else "vcc_lo", 3, "vcc")
            setup += operand.setup
            values.append(operand.raw)
            continue
        if n >= len(sources) and kind == "m":  # a VOP2 that names no mask reads VCC: v_dual_cndmask
            operand = Operand(machine, "vcc_lo", 3, "m")
        else:
            place = names.index(names[n])
            held = "f16" if kind == "mix" and halves[n] else kind
            operand = Operand(
                machine, sources[n], place, held, literals[given + n] if sources[n] == "lit" or sources[n] == "int" else None, at, shared
            )
            texts.append(operand.text)
        setup += operand.setup
        operands.append(operand)
        values.append(selected(operand, kind, flags, n, machine, f"src{n}_sel"))
    with np.errstate(all="ignore"):
        made = modified(name, function, wanted, values, flags, operands)
    made = made if isinstance(made, tuple) else (made,) * len(places)
    for (text, kind), value in zip(places, made, strict=True):
        left.append((text, kind, finished(machine, value, kind, flags, shape, name, text, at)))
    return setup, f"{mnemonic} {', '.join(texts)} {' '.join(numbered(modifiers, example))}".strip(), left


def modified(name: str, function, wanted: list[str], values: list, flags: dict, operands: list[Operand]):
    """Apply op_sel and negation of halves, then the function."""
    low = bits_of(flags.get("op_sel", ""), len(wanted), 0)
    typed_values = []
    if name.startswith("v_fma_mix"):
        half = bits_of(flags.get("op_sel_hi", ""), 3, 0)
        for raw, is_half, high, operand in zip(values, half, low, operands, strict=False):
            value = typed(raw >> np.uint64(16 if high else 0), "f16").astype(np.float32) if is_half else typed(raw, "f32")
            value = np.abs(value) if operand.absolute else value
            typed_values.append(-value if operand.negative else value)
        return function(*typed_values)
    wanted = ["f32" if kind == "d" else kind.removeprefix("d") for kind in wanted]
    if any(kind.startswith("2") for kind in wanted):
        high = bits_of(flags.get("op_sel_hi", ""), len(wanted), 1)
        negated = [bits_of(flags.get(key, ""), len(wanted), 0) for key in ("neg_lo", "neg_hi")]
        if name == "v_pk_mov_b32":
            pairs = [typed(raw, "2u32") for raw in values]
            return np.stack([pairs[0][:, low[0]], pairs[1][:, low[1]]], 1)
        for n, (raw, kind) in enumerate(zip(values, wanted, strict=True)):
            pair = typed(raw, kind)
            if n == len(operands):  # what the destination held
                typed_values.append(pair)
                continue
            if not kind.startswith("2"):
                typed_values.append(pair)
                continue
            constant = operands[n].is_constant
            pick = (0, 0) if constant and kind == "2f16" else (0, 1) if constant and kind in WIDE else (low[n], high[n])
            pair = np.stack([pair[:, pick[0]], pair[:, pick[1]]], 1)
            sign = np.array([-1 if negated[0][n] else 1, -1 if negated[1][n] else 1], pair.dtype)
            typed_values.append(np.where(sign < 0, -pair, pair))
        return function(*typed_values)
    for n, (raw, kind) in enumerate(zip(values, wanted, strict=True)):
        if kind in ("m", "vcc"):
            typed_values.append(raw)
        else:
            shift = 16 if low[n] and kind in ("f16", "u16", "i16") else 0
            typed_values.append(typed(raw >> np.uint64(shift), kind))
    if name.startswith("v_bitop3"):
        return function(*typed_values, int(flags["bitop3"], 0))
    return function(*typed_values)


def finished(machine: Machine, value: np.ndarray, kind: str, flags: dict, shape: str, name: str, text: str, at: int) -> np.ndarray:
    """Return the register after the instruction: clamped, written to the part that it goes to, in the lanes that may be."""
    if kind == "m":
        return np.asarray(value, bool).astype(np.uint64)
    old = machine.rows[D] >> np.uint64(32 * at) if at else machine.rows[D] if kind in WIDE else machine.rows[D] & np.uint64(0xFFFFFFFF)
    with np.errstate(all="ignore"):
        if "clamp" in flags:
            value = clamped(name, np.asarray(value, DTYPES[kind]) if kind in ("f16", "f32", "f64") else value)
        # "mul:2" and the like do nothing: MODE keeps denormals.
        kind = {"low": "u16", "bf16": "u16", "2bf16": "u32"}.get(kind, kind)
        made = raw_of(value, kind) if not (kind[0] != "f" and value.dtype == np.uint64) else value
    made = made & np.uint64(2**64 - 1 if kind in WIDE else 2**32 - 1)
    narrow = kind in ("f16", "u16", "i16")
    ends = bits_of(flags.get("op_sel", ""), 4, 0)
    high = name == "v_fma_mixhi_f16" or text.endswith(".h") or (narrow and len(ends) == len(statement(name)[1].split()) + 1 and ends[-1])
    if name == "v_bitop3_b16":
        made = made & np.uint64(0xFFFF)  # what becomes of the other half is not known: finished words are compared by their low half
    elif narrow and (not machine.cdna or name in KEEP_OTHER_HALF or high):
        made = made & np.uint64(0xFFFF)
        made = old & np.uint64(0xFFFF) | made << np.uint64(16) if high else old & np.uint64(0xFFFF0000) | made
    if (select := flags.get("dst_sel", "DWORD")) != "DWORD":
        width = 8 if "BYTE" in select else 16
        at, unused = width * int(select[-1]), flags["dst_unused"]
        part = (made & np.uint64(2**width - 1)) << np.uint64(at)
        room = np.uint64((2**width - 1) << at)
        above = np.where(made >> np.uint64(width - 1) & np.uint64(1), np.uint64((2**32 - 1) & ~(2 ** (at + width) - 1)), np.uint64(0))
        made = old & ~room | part if unused == "UNUSED_PRESERVE" else part | above if unused == "UNUSED_SEXT" else part
    pattern = lane_pattern(flags, machine)
    if pattern is not None:
        lane = np.arange(machine.wave)
        off = np.zeros(machine.wave, bool)
        if "row_mask" in flags:
            off = ~(int(flags["row_mask"], 0) >> (lane // 16) & 1 & int(flags["bank_mask"], 0) >> (lane % 16 // 4)).astype(bool)
        if "bound_ctrl" not in flags:
            off |= pattern < 0
        made = np.where(np.tile(off, COUNT // machine.wave), old, made)
    return made


def meaning(machine: Machine, name: str, flags: dict):
    """Return the statement of an instruction on a card; whole numbers that are clamped are saturated, and clamped no more."""
    if f"{name} 00" in STATED:  # negations say which factors are signed
        signs = bits_of(flags.pop("neg_lo", ""), 3, 0)
        name = f"{name} {signs[0]}{signs[1]}"
    if f"{name} 3" in STATED:  # op_sel says which byte
        which = bits_of(flags.pop("op_sel", ""), 3, 0)
        name = f"{name} {which[0] + 2 * which[1]}"
    if "clamp" in flags and name in SATURATED:
        flags.pop("clamp")
        return SATURATED[name]
    if f"{name} ocp" in STATED:
        return STATED[f"{name} {'fnuz' if machine.arch == 'gfx942' else 'ocp'}"]
    return REAL_CDNA[name] if machine.cdna and name in REAL_CDNA else STATED[name]


# On CDNA, a result of 16 bits zeroes the other half, but for these, which can choose their half.
KEEP_OTHER_HALF = {
    "v_fma_mixlo_f16",
    "v_fma_mixhi_f16",
    "v_fma_f16",
    "v_mad_f16",
    "v_mad_u16",
    "v_mad_i16",
    "v_div_fixup_f16",
    "v_cvt_pk_fp8_f32",
    "v_cvt_pk_bf8_f32",
}
KEEP_OTHER_HALF |= {f"v_{name}3_{kind}" for name in ("max", "min", "med") for kind in ("f16", "i16", "u16")}
KEEP_OTHER_HALF |= {f"v_cvt_scalef32_pk_{eight}_{kind}" for eight in ("fp8", "bf8") for kind in ("f32", "f16", "bf16")}


def clamped(name: str, value: np.ndarray) -> np.ndarray:
    """Return floats between 0 and 1. AMD's manuals do not say what becomes of -0: here it is 0."""
    if value.dtype.kind != "f":
        raise KeyError(f"clamp of {name}: nobody has stated it")
    return np.where(np.isnan(value) | (value == 0), 0, np.clip(value, 0, 1)).astype(value.dtype)


def case(machine: Machine, shape: str, example: str) -> Case:
    """Make a shape into code, and say what it leaves."""
    made = Case(shape, roughly=statement(shape.split()[0])[0].startswith("~"))
    halves, examples = shape.split(" :: "), example.split(" :: ")
    texts = []
    for n, (half, one) in enumerate(zip(halves, examples, strict=True)):
        setup, text, left = part_of(machine, half, one, 40 + 5 * n, n, len(halves) > 1 and "lit" in shape)
        made.code += setup
        texts.append(text)
        for register, kind, value in left:
            if register == "null":
                continue
            made.expected.append((register, kind, value))
    inits = [f"v_mov_b32 v{register}, v{10 + 2 * D + register % 2}" for register in (40, 41)]
    if len(halves) > 1:
        inits = ["v_mov_b32 v40, v18", "v_mov_b32 v45, v19"]
    if " a," in f" {shape.split(' ', 1)[1]}," and shape.split()[1].startswith("a"):
        inits.append("v_accvgpr_write_b32 a40, v18")
    made.code = [*inits, *made.code, " :: ".join(texts)]
    return made
