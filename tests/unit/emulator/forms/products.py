"""Products of matrices: where their elements lie, as AMD's matrix instruction calculator has it; each with each of its modifiers, as code."""

# ruff: noqa: E501 - a way to run an instruction is a line

import itertools
import re
import struct
import zlib
from dataclasses import dataclass, field

import numpy as np
import torch
from cards import literals_of
from machine_code import WAVES, assembled

from warpwave.emulator import Launch, execute, load

COUNT = 2048  # lanes of a program
BITS = {"f64": 64, "f32": 32, "xf32": 32, "f16": 16, "bf16": 16, "i8": 8, "u8": 8, "i4": 4, "u4": 4}
BITS |= {"fp8": 8, "bf8": 8, "fp6": 6, "bf6": 6, "fp4": 4, "i32": 32}
_EIGHTS = {
    "fnuz": {"fp8": torch.float8_e4m3fnuz, "bf8": torch.float8_e5m2fnuz},
    "ocp": {"fp8": torch.float8_e4m3fn, "bf8": torch.float8_e5m2},
}
MINIFLOATS = {"fp6": (3, 1), "bf6": (2, 3), "fp4": (1, 1)}  # bits of fraction, and bias; no infinities, no NaN (OCP MX)


def value_of(codes: np.ndarray, kind: str, arch: str) -> np.ndarray:
    """Return what codes of a type stand for."""
    bits = BITS[kind]
    if kind in MINIFLOATS:
        fraction_bits, bias = MINIFLOATS[kind]
        magnitude, one = codes & (1 << bits - 1) - 1, 1 << fraction_bits
        exponent, fraction = magnitude // one, magnitude % one / one
        value = np.where(exponent > 0, (1 + fraction) * 2.0 ** (exponent.astype(int) - bias), fraction * 2.0 ** (1 - bias))
        return np.where(codes >> bits - 1, -value, value)
    if kind in ("fp8", "bf8"):
        eight = torch.from_numpy(codes.astype(np.uint8)).view(_EIGHTS["fnuz" if arch == "gfx942" else "ocp"][kind])
        return eight.to(torch.float64).numpy()
    if kind == "bf16":
        return (codes.astype(np.uint32) << 16).view(np.float32).astype(float)
    if kind == "xf32":  # 10 bits of fraction are left, others are cut off (triton-lang/triton#11783)
        return (codes.astype(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(float)
    if kind[0] == "f":
        return codes.astype(f"u{bits // 8}").view(f"f{bits // 8}").astype(float)
    half = 1 << bits - 1
    return codes.astype(float) - np.where((codes >= half) & (kind[0] == "i"), 2.0 * half, 0)


def codes_of(values: np.ndarray, kind: str, arch: str) -> np.ndarray:
    """Return codes of whole numbers that a type of floats has."""
    if kind == "bf16":
        return values.astype(np.float32).view(np.uint32).astype(np.uint64) >> np.uint64(16)
    if kind in ("fp8", "bf8"):
        eights = torch.from_numpy(values.astype(np.float32)).to(_EIGHTS["fnuz" if arch == "gfx942" else "ocp"][kind])
        return eights.view(torch.uint8).numpy().astype(np.uint64)
    width = BITS[kind] // 8
    return values.astype(f"f{width}").view(f"u{width}").astype(np.uint64)


def packed(codes: np.ndarray, bits: int) -> np.ndarray:
    """Return `[..., register]` of `[..., element]`: the elements of a lane side by side, in words."""
    if bits % 8 == 0 and bits != 24:
        return np.ascontiguousarray(codes.astype(f"<u{bits // 8}")).view("<u4")
    ones = codes.astype(np.uint64)[..., None] >> np.arange(bits, dtype=np.uint64) & np.uint64(1)
    words = ones.reshape(*codes.shape[:-1], -1, 32)
    return (words << np.arange(32, dtype=np.uint64)).sum(-1).astype(np.uint32)


def unpacked(words: np.ndarray, bits: int) -> np.ndarray:
    """Return `[..., element]` of `[..., register]`."""
    if bits % 8 == 0 and bits != 24:
        return np.ascontiguousarray(words.astype("<u4")).view(f"<u{bits // 8}").astype(np.uint64)
    ones = words.astype(np.uint64)[..., None] >> np.arange(32, dtype=np.uint64) & np.uint64(1)
    return (ones.reshape(*words.shape[:-1], -1, bits) << np.arange(bits, dtype=np.uint64)).sum(-1, dtype=np.uint64)


@dataclass
class Product:
    """A product: A is `m` by `k`, B `k` by `m`, the result `m` by `m`, in `blocks` of them. `kept` are elements of A that a lane has."""

    arch: str
    name: str
    example: str

    def __post_init__(self) -> None:
        pattern = r"v_(mfma|smfmac|wmma|swmmac)_(?:scale_)?(\w+?)_(\d+)x\d+x(\d+)_?(?:\d+b_)?(\w+?)(?:_1k)?"
        what, self.into, m, k, kinds = re.fullmatch(pattern, self.name).groups()
        self.m, self.k, self.lanes = int(m), int(k), WAVES[self.arch]
        self.left, self.right = kinds.split("_") if "_" in kinds else (kinds, kinds)
        self.sparse, self.integer, self.scaled = what in ("smfmac", "swmmac"), self.into == "i32", "_scale_" in self.name
        self.words = [width(one) for one in literals_of(self.example)]
        self.narrow = self.into in ("f16", "bf16")
        self.results = self.words[0] * 32 // BITS[self.into]
        if self.narrow and self.arch == "gfx1100":
            self.results //= 2  # a half of each register
        self.blocks = self.results * self.lanes // self.m**2
        self.groups = 1 if self.blocks > 1 or self.arch == "gfx1100" else self.lanes // self.m  # of lanes, each with its part of k
        self.per_lane = self.k // self.groups
        if self.name.startswith("v_mfma_f64_4x4x4"):
            self.per_lane = 1
        self.kept = self.per_lane // 2 if self.sparse else self.per_lane

    def of_operand(self, kind: str, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return block, row of A (column of B) and k, of each lane and element."""
        lane, n = np.arange(self.lanes)[:, None], np.arange(count)[None, :]
        if self.name.startswith("v_mfma_f64_4x4x4"):
            found = lane // 4 % 4, lane % 4, lane // 16
        elif self.blocks > 1:
            found = lane // self.m, lane % self.m, n
        elif "f8f6f4" in self.name and BITS[kind] == 8:  # sixteen neighbours of the first half of k, and sixteen of the second
            found = 0, lane % self.m, n // 16 * (self.k // 2) + 16 * (lane // self.m) + n % 16
        else:
            found = 0, lane % self.m, (count * (lane // self.m) if self.groups > 1 else 0) + n
        return tuple(np.broadcast_arrays(*found, lane + n)[:3])

    def of_result(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return block, row and column, of each lane and element of the result."""
        lane, n, m = np.arange(self.lanes)[:, None], np.arange(self.results)[None, :], self.m
        if self.arch == "gfx1100":
            found = 0, 2 * n + lane // 16, lane % 16
        elif self.lanes == 32:
            found = 0, n + 8 * (lane // 16), lane % 16
        elif self.into == "f64":
            found = (lane // 4 % 4, lane // 16, lane % 4) if m == 4 else (0, 4 * n + lane // 16, lane % 16)
        elif m == 32:
            found = n // 16, 8 * (n % 16 // 4) + 4 * (lane // 32) + n % 4, lane % 32
        elif m == 16:
            found = n // 4, 4 * (lane // 16) + n % 4, lane % 16
        else:
            found = lane // 4, n, lane % 4
        return tuple(np.broadcast_arrays(*found, lane + n)[:3])

    def matrix(self, values: np.ndarray, kind: str) -> np.ndarray:
        """Return `[wave, block, row of A or column of B, k]` of `[wave, lane, element]`."""
        made = np.zeros((len(values), self.blocks, self.m, self.k))
        made[(slice(None), *self.of_operand(kind, values.shape[-1]))] = values
        return made

    def sparse_matrix(self, values: np.ndarray, pairs: np.ndarray) -> np.ndarray:
        """Return what `matrix` does; `pairs` says which two of four neighbours in k each two elements of a lane are."""
        waves, lanes, kept = values.shape
        spread = np.zeros((waves, lanes, kept // 2, 4))
        np.put_along_axis(spread, pairs, values.reshape(waves, lanes, -1, 2), axis=3)
        return self.matrix(spread.reshape(waves, lanes, -1), self.left)

    def in_lanes(self, result: np.ndarray) -> np.ndarray:
        """Return `[wave, lane, element]` of `[wave, block, row, column]`."""
        return result[(slice(None), *self.of_result())]


def width(register: str) -> int:
    found = re.search(r"\[(\d+):(\d+)\]", register)
    return int(found[2]) - int(found[1]) + 1 if found else 1


@dataclass
class Step:
    """One instruction of a program: what its registers hold before, `[wave, lane, register]` by the first one, and what it leaves."""

    text: str
    given: dict[str, np.ndarray]
    into: str
    count: int
    check: object = None
    found: np.ndarray = field(default=None)


def execute_steps(arch: str, steps: list[Step]) -> None:
    """Run steps in one program, and note what each leaves: `[wave, lane, register]`."""
    wave, cdna = WAVES[arch], WAVES[arch] == 64
    waves = COUNT // wave
    rows = np.concatenate([words.transpose(2, 0, 1) for step in steps for words in step.given.values()])
    into = np.ascontiguousarray(rows.transpose(1, 0, 2))
    results = sum(step.count for step in steps)
    out = np.zeros((waves, results, wave), np.uint32)
    load4, store4 = ("global_load_dword", "global_store_dword") if cdna else ("global_load_b32", "global_store_b32")
    loads, wait = ("s_load_dwordx4", "s_waitcnt 0") if cdna else ("s_load_b128", "s_nop 0")
    group = "ttmp9" if arch.startswith("gfx12") else "s2"
    begin = [f"{loads} s[4:7], s[0:1], 0x0", wait, f"s_mul_i32 s8, {group}, {into[0].nbytes}", "v_lshlrev_b32 v1, 2, v0"]
    begin += [f"s_mul_i32 s9, {group}, {out[0].nbytes}"]
    begin += ["s_add_u32 s4, s4, s8", "s_addc_u32 s5, s5, 0", "s_add_u32 s6, s6, s9", "s_addc_u32 s7, s7, 0"]
    code = list(begin)
    for step in steps:
        for first, words in step.given.items():
            for n in range(words.shape[2]):
                code += [f"{load4} {first[0]}{int(first[1:]) + n}, v1, s[4:5]", f"s_add_u32 s4, s4, {wave * 4}", "s_addc_u32 s5, s5, 0"]
        code += [wait, step.text, *["s_nop 7"] * (3 if cdna else 1)]
        for n in range(step.count):
            register = f"{step.into[0]}{int(step.into[1:]) + n}"
            code += [f"{store4} v1, {register}, s[6:7]", f"s_add_u32 s6, s6, {wave * 4}", "s_addc_u32 s7, s7, 0"]
    kernel = load(assembled(arch, "\n".join("\t" + line for line in code)))
    arguments = struct.pack("<QQ", into.ctypes.data, out.ctypes.data)
    execute(kernel, Launch((waves, 1, 1), wave, arguments, 0, [(into.ctypes.data, into.nbytes), (out.ctypes.data, out.nbytes)]))
    at = 0
    for step in steps:
        step.found = out[:, at : at + step.count].transpose(0, 2, 1)
        at += step.count


# Each product with each of its modifiers.

FORMATS = ("fp8", "bf8", "fp6", "bf6", "fp4")  # by their numbers in cbsz and blgp
PAIRS = np.array([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])


class Elements:
    """Codes of A or of B in lanes, drawn: `[wave, lane, element]`, and their values."""

    def __init__(self, product: Product, kind: str, count: int, random: np.random.Generator, codes: str = "small") -> None:
        shape, self.kind = (COUNT // product.lanes, product.lanes, count), kind
        most = 3 if product.into == "bf16" else 2**20 if kind == "f64" else 6
        whole = random.integers(-most, most + 1, shape)
        if codes == "each":  # one element of each row is a code, the others are zeros: each code comes in a row
            at = np.arange(product.lanes)[:, None] // product.m * (product.groups > 1) * count + np.arange(count)
            row = np.arange(shape[0])[:, None, None] * product.m + np.arange(product.lanes)[:, None] % product.m
            chosen = random.integers(0, count * product.groups, shape[0] * product.m)
            self.codes = np.where(at == chosen[row], row % 2 ** BITS[kind], 0).astype(np.uint64)
        elif codes == "ones":
            one = (MINIFLOATS[kind][1] << MINIFLOATS[kind][0]) if kind in MINIFLOATS else int(codes_of(np.ones(1), kind, product.arch)[0])
            self.codes = np.full(shape, one, np.uint64)
        elif kind[0] in "iu" or kind in MINIFLOATS:
            self.codes = random.integers(0, 2 ** BITS[kind], shape, np.uint64)
        elif kind == "xf32":
            self.codes = codes_of(whole, "f32", product.arch) | random.integers(0, 2**13, shape, np.uint64) * (whole != 0).astype(np.uint64)
        else:
            self.codes = codes_of(whole, kind, product.arch)
        if product.arch == "gfx1100":  # both halves of a wave hold all
            self.codes[:, 16:] = self.codes[:, :16]
        self.values = value_of(self.codes, kind, product.arch)
        self.words = packed(self.codes, BITS[kind])


def with_signs(values: np.ndarray, low: int, high: int) -> np.ndarray:
    """Return elements, negated those in low halves, in high halves, or both."""
    odd = np.arange(values.shape[-1]) % 2 == 1
    return values * np.where(np.where(odd, high, low), -1, 1)


def start_of(product: Product, random: np.random.Generator) -> np.ndarray:
    """Return C in lanes; of whole numbers, a third near the largest and a third near the smallest."""
    shape = (COUNT // product.lanes, product.lanes, product.results)
    if product.integer:
        return random.integers(-99, 100, shape) + random.choice([0, 2**31 - 100, -(2**31) + 99], shape)
    most = 9 if product.narrow else 99
    return random.integers(-most, most + 1, shape)


def words_of(product: Product, start: np.ndarray, high: int, other: np.ndarray) -> np.ndarray:
    """Return C in registers. Before RDNA4, a half of each register is C, and the other half is other's."""
    if product.integer:
        return start.astype(np.int32).view(np.uint32)
    codes = codes_of(start, product.into, product.arch)
    if product.narrow and product.arch == "gfx1100":
        return (codes << np.uint64(16) | other if high else codes | other << np.uint64(16)).astype(np.uint32)
    return packed(codes, BITS[product.into])


def step(
    product: Product, random: np.random.Generator, c: str = "v", spread: tuple[int, int] = (0, 0), signs: tuple[int, int] = (0, 0), clamp: bool = False,
    negated: tuple[str, str] = ("000", "000"), chosen: int = 0, high: int = 0, formats: tuple[str, str] | None = None, bytes_: tuple[int, int] = (0, 0), codes: tuple[str, str] = ("small", "small"),
) -> Step:  # fmt: skip
    """Make an instruction with modifiers, and what it should leave. `c`: in registers, apart from the result, in accumulators, or a constant."""
    p, modifiers, rdna = product, [], product.lanes == 32
    left, right = formats or (p.left, p.right)
    if "iu" in p.left:
        left, right = (("i" if sign else "u") + p.left[2:] for sign in signs)
        modifiers += [f"neg_lo:[{signs[0]},{signs[1]},0]"] if any(signs) else []
    a, b = Elements(p, left, p.kept, random, codes[0]), Elements(p, right, p.per_lane, random, codes[1])
    low_signs, high_signs = ([int(bit) for bit in text] for text in negated)
    modifiers += [f"neg_{where}:[{','.join(text)}]" for where, text in zip(("lo", "hi"), negated, strict=True) if "1" in text]
    x, y = (with_signs(one.values, low_signs[n], high_signs[n]) for n, one in enumerate((a, b)))

    given, sources, at = {}, [], 10
    for operand in (a, b):
        count = operand.words.shape[2]
        given[f"v{at}"] = operand.words
        sources.append(f"v[{at}:{at + count - 1}]" if count > 1 else f"v{at}")
        at += count + count % 2
    waves = COUNT // p.lanes
    if p.sparse:
        pairs = PAIRS[random.integers(0, 6, (waves, p.lanes, p.kept // 2))]
        bits = (pairs.reshape(waves, p.lanes, -1).astype(np.uint64) << np.arange(0, 2 * p.kept, 2, dtype=np.uint64)).sum(
            -1, dtype=np.uint64
        )
        set_ = 0 if spread[0] else chosen
        index = random.integers(0, 2**32, bits.shape, np.uint64) & ~np.uint64((1 << 2 * p.kept) - 1 << 2 * p.kept * set_)
        given[f"v{at}"] = (index | bits << np.uint64(2 * p.kept * set_)).astype(np.uint32)[..., None]
        third, at = f"v{at}", at + 2
        modifiers += [f"index_key:{chosen}"] if rdna and chosen else []
        modifiers += [f"cbsz:{spread[0]}"] * bool(spread[0]) + [f"abid:{chosen}"] * bool(chosen) if not rdna else []
        matrix_a = p.sparse_matrix(x, pairs)
    else:
        matrix_a = p.matrix(x, left)
        modifiers += [f"cbsz:{spread[0]} abid:{spread[1]}"] if spread[0] else []
        blocks = np.arange(p.blocks)
        matrix_a = matrix_a[:, (blocks >> spread[0] << spread[0]) + spread[1] if spread[0] else blocks]
    matrix_b = p.matrix(y, right)
    scales = []
    if p.scaled:
        for n, matrix in enumerate((matrix_a, matrix_b)):
            exponents = np.where(random.random((waves, p.lanes, 4)) < 1 / 64, 255, random.integers(122, 133, (waves, p.lanes, 4)))
            given[f"v{at}"] = packed(exponents, 8)
            scales.append(f", v{at}")
            at += 2
            taken = exponents[..., bytes_[n]].reshape(waves, -1, p.m)  # a lane has the scale of 32 neighbours in k of one row
            matrix *= np.repeat(np.where(taken == 255, np.nan, 2.0 ** (taken - 127.0)).swapaxes(1, 2), 32, axis=2)[:, None]
        modifiers += [f"op_sel:[{bytes_[0] & 1},{bytes_[1] & 1},0] op_sel_hi:[{bytes_[0] >> 1},{bytes_[1] >> 1},0]"]
    if formats:
        modifiers += [f"cbsz:{FORMATS.index(left)} blgp:{FORMATS.index(right)}"]
    modifiers = ["op_sel:[0,0,1]"] * high + sorted(modifiers, key=lambda one: one.startswith("neg")) + ["clamp"] * clamp

    start = np.broadcast_to(5 if p.integer else 1, (waves, p.lanes, p.results)) if c == "constant" else start_of(p, random)
    other = random.integers(0, 2**16, start.shape, np.uint64)
    words = words_of(p, start, high, other)
    file, count = "a" if c == "a" else "v", words.shape[2]
    into = f"{file}{at}"
    registers = lambda first: f"{file}[{first}:{first + count - 1}]" if count > 1 else f"{file}{first}"  # noqa: E731
    target, source = registers(at), registers(at)
    if c == "apart":
        source, given[f"v{at + count}"] = registers(at + count), words
    elif c == "constant":
        source = "5" if p.integer else "1.0"
    if c != "apart" or (p.narrow and p.arch == "gfx1100"):  # whose other half stays
        given[into] = words_of(p, start_of(p, random), high, other) if c == "constant" else words
    text = f"{p.name} {target}, {', '.join(sources)}, {third if p.sparse else source}{''.join(scales)} {' '.join(modifiers)}"

    begin = np.abs(start) if high_signs[2] else start
    begin = -begin if low_signs[2] else begin

    with np.errstate(invalid="ignore"):
        if p.sparse:  # no product is made of what A lacks: an infinity of B there makes no NaN
            there = p.sparse_matrix(np.ones_like(x), pairs)[:, :, :, None] == 1
            product = np.where(there, matrix_a[:, :, :, None] * matrix_b[:, :, None], 0).sum(-1)
        else:
            product = matrix_a @ matrix_b.swapaxes(2, 3)
        total = begin + p.in_lanes(product)
    return Step(text, given, into, count, lambda found: check(p, text, found, total, clamp, high, other))


def check(p: Product, text: str, found: np.ndarray, total: np.ndarray, clamp: bool, high: int, other: np.ndarray) -> None:
    if p.integer:
        whole = total.astype(np.int64)
        expected = np.clip(whole, -(2**31), 2**31 - 1) if clamp else whole
        np.testing.assert_array_equal(found, (expected & 0xFFFFFFFF).astype(np.uint32), err_msg=text)
        return
    codes = unpacked(found, BITS[p.into])
    if p.narrow and p.arch == "gfx1100":
        codes, rest = unpacked(found, 16).reshape(*found.shape, 2)[..., :: -1 if high else 1].transpose(3, 0, 1, 2)
        np.testing.assert_array_equal(rest, other, err_msg=f"{text}: the other half")
    # Sums are exact, but for those with scales: they are rounded once here, where the hardware's own order may round otherwise.
    expected = total.astype(np.float32).astype(float) if p.into == "f32" else total
    np.testing.assert_array_equal(value_of(codes, p.into, p.arch), expected, err_msg=text)


def steps(p: Product) -> list[Step]:
    """Return a product with each of its modifiers."""
    random = np.random.default_rng(zlib.crc32(f"{p.arch} {p.name}".encode()))
    ways: list[dict] = [{}]
    if not p.sparse:
        ways += [{"c": "constant"}]
        ways += [{"c": "apart"}] if p.words[0] <= 16 else []
        ways += [{"c": "a"}] if p.lanes == 64 else []
    if "f8f6f4" in p.name:
        ways = [{**ways[n % len(ways)], "formats": pair} for n, pair in enumerate(itertools.product(FORMATS, FORMATS))]
        ways += [{"formats": (one, one), "codes": codes} for one in FORMATS for codes in (("each", "ones"), ("ones", "each"))]
        if p.scaled:
            ways = [{**way, "bytes_": (n % 4, (n // 4 + n) % 4)} for n, way in enumerate(ways)]
    elif p.left in FORMATS:
        ways += [{"codes": codes} for codes in (("each", "ones"), ("ones", "each"))]
    if p.blocks > 1 and p.into != "f64":
        most = p.blocks.bit_length() - 1
        ways += [{"spread": (cbsz, abid)} for cbsz in range(1, most + 1) for abid in {0, 1, (1 << cbsz) - 1}]
    if p.sparse:
        sets = 32 // (2 * p.kept) if p.lanes == 64 else 2 if p.kept == 8 else 1
        ways += [{"chosen": n} for n in range(1, sets)]
        ways += [{"chosen": sets - 1, "spread": (1, 0)}] if p.lanes == 64 and sets > 1 else []
    if "iu" in p.left:
        ways = [
            {**way, "signs": signs, "clamp": clamp}
            for way in ways
            for signs in itertools.product((0, 1), (0, 1))
            for clamp in (False, True)
        ]
    if p.lanes == 32 and p.left in ("f16", "bf16"):
        last = "0" if p.sparse else "1"
        patterns = [
            ("100", "000"),
            ("010", "000"),
            ("000", "100"),
            ("000", "010"),
            (f"11{last}", "000"),
            ("000", f"01{last}"),
            (f"10{last}", f"11{last}"),
        ]
        ways += [{"negated": pattern} for pattern in patterns]
        ways += [{**way, "high": 1} for way in ways] if p.narrow and p.arch == "gfx1100" else []
    return [step(p, random, **way) for way in ways]
