"""Programs of many cases: what their operands hold, how they run, and where they leave something else than is stated."""

import re
import struct
import zlib
from dataclasses import dataclass, field

import numpy as np
from cards import split
from machine_code import WAVES, assembled
from vector import APPROXIMATE, DTYPES, OLDER, SATURATED, STATED, WIDE, brains, by_pseudocode, raw_of, signed, typed

from warpwave.emulator import Launch, execute, load
from warpwave.emulator.decode.decoder import FAMILIES

COUNT = 2048
FEW = 128  # lanes, where the pseudocode says what each leaves
STAGE = 4096  # bytes of output that stores of a wave may write
PRIVATE = 192  # bytes of private memory of a lane
ROWS = 5  # of 64 bits: four operands, and what the destination held
D = 4
_EDGES = {
    "u": [0, 1, 2, 31, 32, 63, 127, 255, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF],
    "f32": [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 1.1754944e-38, 3.4028235e38, 1.0, -0.5, 2.0**31, -(2.0**33)],
    "f16": [0.0, -0.0, np.inf, -np.inf, np.nan, 6e-8, -6e-5, 65504.0, 1.0, 0.5],
    "f64": [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, 0.5, 1e308, -(2.0**31), 1e-45],
}


def drawn(kind: str, seed: str, count: int = COUNT) -> np.ndarray:
    """Return random numbers of a kind as 64 bits a lane, a sixth of them edges.

    Kinds are u, f32, f16, f64 and bf16; floats come in twos, halves and bf16 in fours.
    """
    random = np.random.default_rng(zlib.crc32(seed.encode()))
    if kind == "u":
        small = random.integers(0, 64, count, np.uint64) | random.integers(0, 64, count, np.uint64) << np.uint64(32)
        wide = random.integers(0, 2**64, count, np.uint64)
        edges = random.choice(np.array(_EDGES["u"], np.uint64), (2, count))
        which = random.random(count)
        return np.where(which < 1 / 6, edges[0] | edges[1] << np.uint64(32), np.where(which < 0.35, small, wide))
    if kind == "bf16":
        low, high = (drawn("f32", f"{seed} {n}", count) >> np.uint64(16) & np.uint64(0x0000FFFF0000FFFF) for n in range(2))
        return low | high << np.uint64(16)
    each = {"f32": 2, "f16": 4, "f64": 1}[kind]
    spread = {"f32": 30, "f16": 6, "f64": 60}[kind]
    dtype = {"f32": np.float32, "f16": np.float16, "f64": np.float64}[kind]
    values = random.standard_normal((count, each)) * 2.0 ** random.uniform(-spread, spread, (count, each))
    values = np.where(random.random((count, each)) < 1 / 6, random.choice(_EDGES[kind], (count, each)), values)
    with np.errstate(over="ignore"):
        return values.astype(dtype).view(np.uint64).reshape(-1)


@dataclass
class Case:
    """A shape made into code: instructions, and the rows of results with the types they should have."""

    shape: str
    code: list[str] = field(default_factory=list)
    expected: list[tuple[str, str, np.ndarray]] = field(default_factory=list)  # register, kind, and what it holds: 64 bits a lane
    roughly: bool = False  # an approximation, whose last bit is not known


class Machine:
    """What the operands of a program hold: rows of 64 bits, drawn for one kind of numbers."""

    def __init__(self, arch: str, kinds: tuple[str, ...], count: int = COUNT) -> None:
        self.arch, self.wave, self.count = arch, WAVES[arch], count
        self.cdna = self.wave == 64
        self.rows = [drawn(kind, f"{arch} {n} {kind}", count) for n, kind in enumerate(kinds)]
        self.lane = np.arange(count) % self.wave
        gfx12 = arch.startswith("gfx12")
        self.wait = "s_wait_loadcnt_dscnt 0x0\ns_wait_storecnt 0x0" if gfx12 else "s_waitcnt 0"
        self.scalar_wait = "s_wait_kmcnt 0x0" if gfx12 else "s_waitcnt 0"

    def first(self, values: np.ndarray) -> np.ndarray:
        return np.repeat(values[:: self.wave], self.wave)

    def mask_row(self) -> np.ndarray:
        return (self.rows[3] >> np.uint64(5) & np.uint64(1)).astype(bool)


def execute_cases(
    machine: Machine, cases: list[Case], begin: tuple[str, ...] | list[str] = (), findings: list | None = None
) -> list[tuple[str, str]]:
    """Run cases in one program; return the shapes that leave something else, and what. With a list of findings, each access is checked."""
    arch, wave, cdna = machine.arch, machine.wave, machine.cdna
    groups = machine.count // wave
    rows = [
        half for row in machine.rows for half in ((row & np.uint64(0xFFFFFFFF)).astype(np.uint32), (row >> np.uint64(32)).astype(np.uint32))
    ]
    into = np.ascontiguousarray(np.stack(rows).reshape(len(rows), groups, wave).transpose(1, 0, 2))
    add = "v_add_u32" if cdna else "v_add_nc_u32"
    store = "global_store_dword" if cdna else "global_store_b32"
    load4, loads = ("global_load_dword", "s_load_dwordx4") if cdna else ("global_load_b32", "s_load_b128")
    group = "ttmp9" if arch.startswith("gfx12") else "s2"
    code, places = [], []
    for one in cases:
        code += one.code
        code += ["s_nop 7"] if cdna else []
        for register, kind, _ in one.expected:
            places.append(kind)
            count = 2 if kind in WIDE else 1
            if kind == "m":
                whole_on = f"s_mov_b{wave} {'exec' if cdna else 'exec_lo'}, -1"
                name = register if register[0] != "e" else "s[28:29]" if cdna else "s28"
                code += [f"s_mov_b{wave} {name}, {register}", whole_on] if register[0] == "e" else []
                code += [f"v_cndmask_b32 v48, 0, 1, {name}", f"{store} v4, v48, s[6:7]", f"{add} v4, {wave * 4}, v4"]
                continue
            number = int(re.search(r"\d+", register)[0])
            for n in range(count):
                name = f"v{number + n}"
                if register[0] == "a":
                    code += [f"v_accvgpr_read_b32 v48, a{number + n}"]
                    name = "v48"
                code += [f"{store} v4, {name}, s[6:7]", f"{add} v4, {wave * 4}, v4"]
    results = sum(2 if kind in WIDE else 1 for kind in places)
    spare = STAGE // 4 // wave
    out = np.zeros((groups, results + spare, wave), np.uint32)
    body = [
        f"{loads} s[4:7], s[0:1], 0x0",
        machine.scalar_wait,
        f"s_mul_i32 s8, {group}, {into.shape[1] * wave * 4}",
        "v_lshlrev_b32 v1, 2, v0",
    ]
    body += ["v_mov_b32 v4, v1", f"s_mul_i32 s9, {group}, {(results + spare) * wave * 4}"]
    body += ["s_add_u32 s4, s4, s8", "s_addc_u32 s5, s5, 0", "s_add_u32 s6, s6, s9", "s_addc_u32 s7, s7, 0"]
    body += [f"s_add_u32 s10, s6, {results * wave * 4}", "s_addc_u32 s11, s7, 0"]
    body += [f"{load4} v{10 + n}, v1, s[4:5] offset:{n * wave * 4}" for n in range(len(rows))]
    kernel = load(assembled(arch, "\n".join("\t" + line for line in "\n".join([*body, machine.wait, *begin, *code]).splitlines()), PRIVATE))
    arguments = struct.pack("<QQ", into.ctypes.data, out.ctypes.data)
    buffers = [(into.ctypes.data, into.nbytes), (out.ctypes.data, out.nbytes)]
    execute(kernel, Launch((groups, 1, 1), wave, arguments, 4096, buffers), findings=findings)
    wrong, at = [], 0
    for one in cases:
        for _, kind, expected in one.expected:
            found = out[:, at].reshape(-1).astype(np.uint64)
            at += 1
            if kind in WIDE:
                found |= out[:, at].reshape(-1).astype(np.uint64) << np.uint64(32)
                at += 1
            if (text := difference(kind, found, expected, one.roughly)) is not None:
                wrong.append((f"{one.shape}    as {one.code[-1]}", text))
    return wrong


def difference(kind: str, found: np.ndarray, expected: np.ndarray, roughly: bool) -> str | None:
    """Return the first lane that differs, or None. NaN is NaN; approximations may differ in the last bit."""
    if kind == "half":
        return difference("f16", found & np.uint64(0xFFFF), expected, roughly)
    if kind == "bf16":  # the other half as it is
        nan = np.isnan(typed(found, "bf16")) & np.isnan(typed(expected, "bf16"))
        found = np.where(nan, found & ~np.uint64(0xFFFF) | expected & np.uint64(0xFFFF), found)
    if kind == "low":
        found = found & np.uint64(0xFFFF)
    if kind == "2bf16":
        return difference("2f32", brains(found), brains(expected), False)
    same = found == expected
    if kind.lstrip("2").startswith("f") and kind != "bf16":
        a, b = (typed(x, kind) for x in (found, expected))
        pair = (np.isnan(a) & np.isnan(b)) | (a.view(f"u{a.itemsize}") == b.view(f"u{b.itemsize}"))
        if roughly:
            pair |= np.abs(a.view(f"i{a.itemsize}").astype(np.int64) - b.view(f"i{b.itemsize}")) <= 1
        same = pair.reshape(len(found), -1).all(1)
        if kind == "f16":  # the result may be the higher half
            same &= found >> np.uint64(16) == expected >> np.uint64(16)
            high = [typed(x >> np.uint64(16), "f16") for x in (found, expected)]
            near = np.abs(high[0].view(np.int16).astype(int) - high[1].view(np.int16)) <= roughly
            same |= (np.isnan(high).all(0) | near) & (found & np.uint64(0xFFFF) == expected & np.uint64(0xFFFF))
    if same.all():
        return None
    at = int(np.argmin(same))
    return f"{(~same).sum()} of {len(same)} lanes; lane {at}: {found[at]:#x}, not {expected[at]:#x}"


# Operands as they are written, and what each holds in each lane: registers, scalars, constants, halves, and lanes that DPP picks.


class Operand:
    """An operand of a case: how it is written, and what it holds in each lane."""

    def __init__(
        self, machine: Machine, text: str, n: int, kind: str, literal: str | None = None, high: int = 0, shared: bool = False
    ) -> None:
        self.setup: list[str] = []
        inner = re.sub(r"neg\(|abs\(|sext\(|[-|)]", "", text) if not re.match(r"-\d", text) else text
        negative, absolute = text.startswith(("-v", "-s", "-|", "neg(")), "|" in text
        extended = text.startswith("sext")
        row = machine.rows[n] >> np.uint64(32 * high)  # the second of two instructions reads the upper words: other registers, other banks
        low = np.uint64(0xFFFFFFFF)
        wide = kind in WIDE
        self.is_mask = kind in ("m", "vcc")
        if self.is_mask:
            name = {"s2": "s[30:31]", "s": "s30"}.get(inner, inner)
            source, room = machine.mask_row(), "vcc" if machine.cdna else "vcc_lo"
            self.setup = [f"v_lshrrev_b32 v9, 5, v{10 + 2 * 3}", "v_and_b32 v9, 1, v9", f"v_cmp_eq_u32 {room}, 1, v9"]
            self.setup += [] if name == room else [f"s_mov_b{machine.wave} {name}, {room}"]
            self.text, self.raw, self.negative, self.absolute = name, source, False, False
            return
        half = re.fullmatch(r"v\.([lh])", inner)
        if re.fullmatch(r"v\d?|v\.[lh]|a", inner):
            register = 10 + 2 * n + high
            self.raw = row if wide or kind.startswith("2") else row & low
            if half:
                self.raw = self.raw >> np.uint64(16 if half[1] == "h" else 0) & np.uint64(0xFFFF)
            name = f"v{register}" + (f".{half[1]}" if half else "") if inner != "v2" else f"v[{register}:{register + 1}]"
            if inner == "a":
                name, self.setup = f"a{register}", [f"v_accvgpr_write_b32 a{register}, v{register}"]
        elif re.fullmatch(r"s\d?|vcc|vcc_lo|vcc_hi|m0", inner):
            register = 16 + 2 * n + high
            both = inner in ("s2", "vcc")
            if shared:  # a second scalar would be one too many beside a literal
                n, high, register, row = 0, 0, 16, machine.rows[0]
            self.raw = machine.first(row if both or wide else row & low)
            if wide and not both:  # 32 bits of a scalar where 64 are read: constants only
                raise KeyError(f"{text} as {kind}")
            name = f"s[{register}:{register + 1}]" if inner == "s2" else f"s{register}" if inner == "s" else inner
            self.setup = [f"v_readfirstlane_b32 s{16 + 2 * n + word}, v{10 + 2 * n + word}" for word in range(2)]
            self.setup += (
                []
                if inner[0] == "s"
                else [f"s_mov_b{64 if both else 32} {name}, {f's[{register}:{register + 1}]' if both else f's{register}'}"]
            )
        elif inner in ("exec_lo", "exec_hi", "exec"):
            self.raw, name = np.full(machine.count, 2**64 - 1 if inner == "exec" else 2**32 - 1, np.uint64), inner
        elif inner == "ttmp":
            name, self.raw = "ttmp9", np.arange(machine.count, dtype=np.uint64) // np.uint64(machine.wave)
        elif inner == "null":
            name, self.raw = inner, np.zeros(machine.count, np.uint64)
        else:
            name, bits = self._constant(inner, kind, literal)
            self.raw = np.full(machine.count, bits, np.uint64)
        self.negative, self.absolute = negative, absolute
        self.is_constant = not re.match(r"v|s|a|exec|ttmp|m0|null", inner)
        if absolute or negative:
            name = f"|{name}|" if absolute else name
            name = f"neg({name})" if negative and not name.startswith(("v", "s", "|")) else f"-{name}" if negative else name
        self.extended = extended
        self.text = f"sext({name})" if extended else name
        self.wave_wide = not inner.startswith(("v", "a"))

    @staticmethod
    def _constant(inner: str, kind: str, literal: str | None) -> tuple[str, int]:
        real = re.fullmatch(r"-?\d+\.\d+", inner)
        if real or (kind.lstrip("2").startswith("f") and inner == "0.15915494"):
            value = float(inner)
            dtype = {"16": np.float16, "64": np.float64}.get(kind[-2:] if kind != "2bf16" else "", np.float32)
            bits = int(np.array([value], dtype).view(f"u{dtype().itemsize}")[0])
            return inner, bits | bits << 32 if kind == "2f32" else bits | bits << 16 if kind == "2f16" else bits
        number = int(literal, 0) if literal else int(inner, 0)
        bits = number & (2**64 - 1 if kind in ("u64", "i64", "f64") and -16 <= number <= 64 else 2**32 - 1)
        if kind == "i64":  # a literal is extended with its sign, one of u64 with zeros
            bits = signed(number, 32) & 2**64 - 1
        if kind == "f64" and not -16 <= number <= 64:
            bits = number << 32
        if kind in ("2f32", "2u32"):
            bits |= bits << 32
        return str(number), bits


def selected(operand: Operand, kind: str, flags: dict, n: int, machine: Machine, key: str) -> np.ndarray:
    """Return an operand behind SDWA and, for the first one, DPP."""
    raw = operand.raw
    if (select := flags.get(key)) and select != "DWORD" and not operand.is_mask:
        width = 8 if "BYTE" in select else 16
        raw = raw >> np.uint64(width * int(select[-1])) & np.uint64(2**width - 1)
        if operand.extended:
            raw = np.where(raw >> np.uint64(width - 1) & np.uint64(1), raw | np.uint64(2**32 - 2**width), raw)
    sign = np.uint64(1 << {"16": 15, "64": 63}.get(kind[-2:], 31))
    if kind != "mix" and not kind.startswith("2"):
        raw = raw & ~sign if operand.absolute else raw
        raw = raw ^ sign if operand.negative else raw
    if n == 0 and (pattern := lane_pattern(flags, machine)) is not None:
        rows = raw.reshape(-1, machine.wave)
        raw = np.where(pattern < 0, 0, rows[:, pattern]).astype(np.uint64).reshape(-1)
    return raw


def lane_pattern(flags: dict, machine: Machine) -> np.ndarray | None:
    """Return for each lane the lane that DPP takes the first operand from, -1 if there is none; None: no DPP."""
    lane = np.arange(machine.wave)
    row, at = lane // 16 * 16, lane % 16
    for name, value in flags.items():
        if name == "quad_perm":
            return lane // 4 * 4 + np.array([int(one) for one in value.strip("[]").split(",")])[lane % 4]
        if name == "dpp8":
            return lane // 8 * 8 + np.array([int(one) for one in value.strip("[]").split(",")])[lane % 8]
        n = int(value, 0) if re.fullmatch(r"0x[0-9a-f]+|\d+", value) else 0
        found = {
            "row_shl": np.where(at + n < 16, lane + n, -1), "row_shr": np.where(at >= n, lane - n, -1), "row_ror": row + (at - n) % 16,
            "row_mirror": row + 15 - at, "row_half_mirror": lane // 8 * 8 + 7 - lane % 8, "row_share": row + n, "row_xmask": row + (at ^ n),
            "row_newbcast": row + n, "wave_shr": lane - 1, "wave_shl": np.where(lane + 1 < machine.wave, lane + 1, -1),
            "wave_ror": (lane - 1) % machine.wave, "wave_rol": (lane + 1) % machine.wave,
            "row_bcast": np.where(lane >= n + 1, (lane // (n + 1)) * (n + 1) - 1, -1),
        }.get(name)  # fmt: skip
        if found is not None:
            return found
    return None


def bits_of(text: str, count: int, default: int) -> list[int]:
    return [int(one) for one in text.strip("[]").split(",")] if text else [default] * count


def numbered(modifiers: list[str], example: str) -> list[str]:
    """Return modifiers with their numbers, which a shape leaves out."""
    real = dict(one.split(":", 1) for one in split(example.partition(" ")[2])[1] if ":" in one)
    return [f"{one}:{real[one]}" if one in real and ":" not in one else one for one in modifiers]


# Shapes of instructions on lanes as code, and what each leaves: modifiers and lane patterns in numpy.


def plain(mnemonic: str) -> str:
    """Return a mnemonic without its encoding."""
    return re.sub(r"_(e32|e64|dpp|sdwa|e64_dpp)$", "", re.sub(r"_e64_dpp$", "", mnemonic)).replace("v_dual_", "v_")


def base(mnemonic: str) -> str:
    """Return a mnemonic without its encoding, and as older cards have it."""
    return OLDER.get(plain(mnemonic), plain(mnemonic))


def statement(arch: str, mnemonic: str):
    """Return the meaning of an instruction on a card, of one with variants that of the first."""
    name = base(mnemonic)
    stated = next((STATED[one] for one in (name, f"{name} 00", f"{name} 0", f"{name} ocp") if one in STATED), None)
    return stated or by_pseudocode(FAMILIES[arch], plain(mnemonic), WAVES[arch]) or by_pseudocode(FAMILIES[arch], name, WAVES[arch])


def drawn_kinds(arch: str, part: str) -> tuple[str, ...]:
    """Return what kinds of numbers the operands of an instruction should get."""
    mnemonic = part.split()[0]
    _, operands, _ = statement(arch, mnemonic)
    if "div_scale" in mnemonic:
        return ("f32", "f32", "f32", "u", "f32")
    found = [
        next((kind for kind in ("bf16", "f16", "f32", "f64") if kind in one), "u")
        for one in operands.split()
        if one not in ("m", "vcc") and one[0] != "d"
    ]
    found = ["f32" if one == "mix" else kind for one, kind in zip(operands.split(), found, strict=False)]
    rest = next(
        (next((k for k in ("f16", "f32", "f64") if k in one), "u") for one in operands.split() if one[0] == "d"),
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
    results, types, function = meaning(machine, mnemonic, flags)
    outs = results.split()
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
    wanted = [kind.removeprefix("d") for kind in wanted]
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
    high = (
        name == "v_fma_mixhi_f16"
        or text.endswith(".h")
        or (narrow and len(ends) == len(statement(machine.arch, name)[1].split()) + 1 and ends[-1])
    )
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
        made = np.where(np.tile(off, machine.count // machine.wave), old, made)
    return made


def meaning(machine: Machine, mnemonic: str, flags: dict):
    """Return the meaning of an instruction on a card; whole numbers that are clamped are saturated, and clamped no more."""
    name = base(mnemonic)
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
    return STATED[name] if name in STATED else statement(machine.arch, mnemonic)


# On CDNA, a result of 16 bits zeroes the other half, but for these, which can choose their half.
KEEP_OTHER_HALF = {
    *("v_fma_mixlo_f16", "v_fma_mixhi_f16", "v_fma_f16", "v_mad_f16", "v_mad_u16", "v_mad_i16", "v_div_fixup_f16", "v_cvt_pk_fp8_f32"),
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
    made = Case(shape, roughly=bool(APPROXIMATE.match(base(shape.split()[0]))))
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
