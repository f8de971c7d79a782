"""Make products of matrices into code with each of their modifiers, and say what each leaves."""

# ruff: noqa: E501 - a way to run an instruction is a line

from __future__ import annotations

import itertools
import zlib

import numpy as np
from statements.products import BITS, COUNT, MINIFLOATS, Product, Step, codes_of, packed, unpacked, value_of

FORMATS = ("fp8", "bf8", "fp6", "bf6", "fp4")  # by their numbers in cbsz and blgp
PAIRS = np.array([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])


class Operand:
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
    a, b = Operand(p, left, p.kept, random, codes[0]), Operand(p, right, p.per_lane, random, codes[1])
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
