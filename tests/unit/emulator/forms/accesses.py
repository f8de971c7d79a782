"""What loads and stores mean, stated on the bytes of arrays; which of the modules states an instruction; caches and hints."""

import re

import numpy as np
from cases import COUNT, PRIVATE, STAGE, Case, Machine
from vector import MASK32, brains, flushed, number, raw_of, typed

# The memory of each wave, as bytes of arrays: an input, an output and LDS, which cases change in turn; and how cases read it back.

# ruff: noqa: E501 - a statement is a line

SIZES = {
    "dword": 4, "dwordx2": 8, "dwordx3": 12, "dwordx4": 16, "dwordx8": 32, "dwordx16": 64, "ubyte": 1, "sbyte": 1, "byte": 1, "ushort": 2, "sshort": 2, "short": 2,
    "u8": 1, "i8": 1, "b8": 1, "u16": 2, "i16": 2, "b16": 2, "b32": 4, "b64": 8, "b96": 12, "b128": 16, "b256": 32, "b512": 64,
}  # fmt: skip
LDS = 2560  # bytes of it that hold something
REACH = 64  # addresses of private memory are below it


WAYS = ("scattered", "side by side", "some lanes")
SOME = 0x0FF0A55A5A3C96F1  # the lanes that are on


class Memory:
    """The bytes of each wave: `given` is what was loaded into the rows, `lds` starts as the same, over and over, `stage` as zeros.

    `private` has PRIVATE bytes for each lane, one lane after the other; they start as the rows.
    `way` says how cases reach memory: at random addresses, lane after lane, or at random ones from some lanes only.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine, self.groups = machine, COUNT // machine.wave
        words = [half for row in machine.rows for half in (row & np.uint64(MASK32), row >> np.uint64(32))]
        given = np.stack(words).astype(np.uint32).reshape(len(words), self.groups, machine.wave).transpose(1, 0, 2)
        self.given = np.ascontiguousarray(given).reshape(self.groups, -1).view(np.uint8)
        self.lds = np.tile(self.given, LDS // self.given.shape[1])
        self.stage = np.zeros((self.groups, STAGE), np.uint8)
        rows = np.stack([words[n % len(words)] for n in range(PRIVATE // 4)], -1).astype(np.uint32)
        self.private = np.ascontiguousarray(rows).view(np.uint8).reshape(self.groups, machine.wave * PRIVATE)
        self.wide = machine.cdna
        self.reach("scattered")
        self.begin = (
            ["v_mov_b32 v2, v1"]
            + [
                line
                for n in range(LDS // machine.wave // 4)
                for line in (
                    f"ds_write_b32 v2, v{10 + n % 10}" if self.wide else f"ds_store_b32 v2, v{10 + n % 10}",
                    f"{self.add} v2, {machine.wave * 4}, v2",
                )
            ]
            + ["v_mov_b32 v2, 0"]
            + [
                line
                for n in range(PRIVATE // 4)
                for line in (
                    f"scratch_store_dword v2, v{10 + n % 10}, off" if self.wide else f"scratch_store_b32 v2, v{10 + n % 10}, off",
                    f"{self.add} v2, 4, v2",
                )
            ]
            + [machine.wait]
        )

    @property
    def add(self) -> str:
        return "v_add_u32" if self.wide else "v_add_nc_u32"

    def reach(self, way: str) -> None:
        lane = np.arange(self.machine.wave, dtype=np.uint64)
        self.way, on = way, np.uint64(SOME) >> lane & np.uint64(1) != 0
        self.on = np.broadcast_to(on | (way != "some lanes"), (self.groups, self.machine.wave))

    def only(self, name: str, case: Case) -> Case:
        """Let an instruction of a case run in some lanes only, if that is the way."""
        if self.way != "some lanes":
            return case
        low, high = f"{SOME & MASK32:#x}", f"{SOME >> 32:#x}"
        before = [f"s_mov_b32 exec_lo, {low}"] + ([f"s_mov_b32 exec_hi, {high}"] if self.wide else [])
        after = f"s_mov_b{self.machine.wave} {'exec' if self.wide else 'exec_lo'}, -1"
        number = next(n for n, line in enumerate(case.code) if line.split(" ")[0] == name)
        case.code[number : number + 1] = [*before, case.code[number], after]
        return case

    def near(self, size: int, most: int = 256) -> tuple[list[str], np.ndarray]:
        """Return code that puts an address below `most` into v30, and the addresses by group and lane; aligned."""
        if self.way == "side by side" and most > REACH:
            return self.beside(size)
        mask = (most - 1) & ~(min(size, 16 if size % 3 else 4) - 1)
        return [f"v_and_b32 v30, {mask:#x}, v16"], (self.machine.rows[3] & np.uint64(mask)).astype(np.int64).reshape(self.groups, -1)

    def beside(self, size: int) -> tuple[list[str], np.ndarray]:
        at = np.broadcast_to(np.arange(self.machine.wave) * size, (self.groups, self.machine.wave))
        return [f"v_mul_u32_u24 v30, {size}, v0"], at

    def slots(self, into: str = "v30", spread: int = 1, size: int = 16) -> tuple[list[str], np.ndarray]:
        """Return code that puts a place of 16 bytes of its own for each lane into a register; `spread` 2: every second one."""
        if self.way == "side by side":
            return self.beside(size)
        lanes = np.arange(self.machine.wave) ^ 5
        code = [f"v_xor_b32 {into}, 5, v0", f"v_lshlrev_b32 {into}, {3 + spread}, {into}"]
        return code, np.broadcast_to(lanes * 16 * spread, (self.groups, self.machine.wave))

    def address(self, space: str, offset: str) -> list[str]:
        """Return code that puts a flat address into v[30:31]: of the input, the output, LDS or private memory, and an offset a lane."""
        cdna = self.machine.cdna
        low, carry = {"given": "s4", "stage": "s10"}.get(space, "0"), "vcc" if cdna else "vcc_lo"
        code = [f"v_mov_b32 v31, {'s5' if space == 'given' else 's11'}"]
        if low == "0":
            code = [f"s_mov_b64 s[24:25], src_{'shared' if space == 'lds' else 'private'}_base", "v_mov_b32 v31, s25"]
        more = "v_addc_co_u32" if cdna else "v_add_co_ci_u32"
        return [*code, f"v_add_co_u32 v30, {carry}, {low}, {offset}", f"{more} v31, {carry}, 0, v31, {carry}"]

    def put(self, space: str, address: str, row: int, offset: int) -> list[str]:
        """Return code that stores 16 bytes of each lane."""
        if space == "stage":
            store = "global_store_dwordx4" if self.wide else "global_store_b128"
            return [f"{store} {address}, v[{row}:{row + 3}], s[10:11] offset:{offset}", self.machine.wait]
        store = "ds_write_b64" if self.wide else "ds_store_b64"
        return [f"{store} {address}, v[{row + n}:{row + n + 1}] offset:{offset + 4 * n}" for n in (0, 2)] + [self.machine.wait]

    def get(self, space: str, address: str, row: int, offset: int) -> list[str]:
        """Return code that loads 16 bytes of each lane."""
        if space == "stage":
            load = "global_load_dwordx4" if self.wide else "global_load_b128"
            return [f"{load} v[{row}:{row + 3}], {address}, s[10:11] offset:{offset}", self.machine.wait]
        if space == "private":
            load = "scratch_load_dword" if self.wide else "scratch_load_b32"
            return [f"{load} v{row + n}, {address}, off offset:{offset + 4 * n}" for n in range(4)] + [self.machine.wait]
        load = "ds_read_b64" if self.wide else "ds_load_b64"
        return [f"{load} v[{row + n}:{row + n + 1}], {address} offset:{offset + 4 * n}" for n in (0, 2)] + [self.machine.wait]

    def read(self, memory: np.ndarray, at: np.ndarray, size: int) -> list[np.ndarray]:
        """Return the words at each address, one array a word; sizes below a word give their bytes."""
        group = np.arange(self.groups)[:, None]
        bytes_ = np.stack([memory[group, at + n] for n in range(size)], -1).astype(np.uint64)
        return [
            sum(bytes_[..., 4 * word + n] << np.uint64(8 * n) for n in range(min(4, size - 4 * word))).reshape(-1)
            for word in range((size + 3) // 4)
        ]

    def write(self, memory: np.ndarray, at: np.ndarray, values: list[np.ndarray], size: int, on: np.ndarray | None = None) -> None:
        group = np.broadcast_to(np.arange(self.groups)[:, None], at.shape)
        on = self.on if on is None else on
        for n in range(size):
            byte = (values[n // 4].reshape(at.shape) >> np.uint64(8 * (n % 4)) & np.uint64(0xFF)).astype(np.uint8)
            memory[group[on], (at + n)[on]] = byte[on]

    def source(self, n: int, words: int) -> tuple[str, list[np.ndarray]]:
        """Return registers to store from: v10 on, and what they hold."""
        rows = [half for row in self.machine.rows for half in (row & np.uint64(MASK32), row >> np.uint64(32))]
        return (f"v{10 + n}" if words == 1 else f"v[{10 + n}:{9 + n + words}]"), rows[n : n + words]


def memory_of(arch: str, numbers: str | None = None) -> tuple[Machine, Memory]:
    """Return a machine with memory; for atomics, `numbers` says which numbers they work on."""
    machine = machine_of(arch, numbers) if numbers else Machine(arch, ("f32", "u", "u", "u", "u"))
    return machine, Memory(machine)


# What cases of memory share: what a load leaves in registers, and how a case reads back what a store wrote.

LIMIT = 1008  # bytes that a buffer has


def extended(values: list[np.ndarray], name: str, size: int, old: np.ndarray) -> list[np.ndarray]:
    """Return the register after a load of less than a word: filled with the sign or zeros, or one of its halves."""
    if size >= 4:
        return values
    value, bits = values[0], np.uint64(8 * size)
    if re.search(r"sbyte|sshort|_i8|_i16", name):
        value = np.where(
            value >> (bits - np.uint64(1)) & np.uint64(1), value | (np.uint64(MASK32) ^ ((np.uint64(1) << bits) - np.uint64(1))), value
        )
    if "d16" in name:
        value = value & np.uint64(0xFFFF)
        value = old & np.uint64(0xFFFF) | value << np.uint64(16) if "d16_hi" in name else old & np.uint64(0xFFFF0000) | value
    return [value]


def words_of(row: np.ndarray) -> list[np.ndarray]:
    return [row & np.uint64(MASK32), row >> np.uint64(32)]


def resource(machine: Machine, base: int, into: int, limit: int) -> list[str]:
    """Return code that makes the description of a buffer: where it starts, and its bytes."""
    word = "0x27000" if machine.cdna else "0x31027000"
    code = [f"s_mov_b32 s{into}, s{base}", f"s_and_b32 s{into + 1}, s{base + 1}, 0xffff"]
    return [*code, f"s_mov_b32 s{into + 2}, {limit}", f"s_mov_b32 s{into + 3}, {word}"]


def size_of(name: str) -> int:
    found = [part for part in name.split("_") if part in SIZES]
    if not found:
        raise KeyError(name)
    return SIZES[found[-1]]


def loaded(memory: Memory, shape: str, code: list[str], values: list[np.ndarray]) -> Case:
    """Make a load into v40 on, or a40 on; in lanes that are off, what the registers held stays there."""
    machine, name = memory.machine, shape.split()[0]
    inits, kind = [f"v_mov_b32 v{40 + n}, v18" for n in range(len(values))], "v"
    if shape.split()[1].startswith("a"):
        inits, kind = [f"v_accvgpr_write_b32 a{40 + n}, v18" for n in range(len(values))], "a"
        code = [line.replace("v[40", "a[40").replace("v40,", "a40,") if line.startswith(name) else line for line in code]
    values = [np.where(memory.on.reshape(-1), value, machine.rows[4] & np.uint64(MASK32)) for value in values]
    return Case(shape, [*inits, *code, machine.wait], [(f"{kind}{40 + n}", "u32", value) for n, value in enumerate(values)])


def passed(memory: Memory, shape: str, code: list[str], start: int, size: int, values: list[np.ndarray]) -> Case:
    """Make a load to LDS, and read back what it puts there: a lane's words behind those of the lane before."""
    machine = memory.machine
    at = np.broadcast_to(np.arange(machine.wave) * size + start, (memory.groups, machine.wave))
    memory.write(memory.lds, at, values, size)
    code = [*code, machine.wait, f"v_mul_u32_u24 v30, {size}, v0"]
    code += [f"ds_read_b32 v{40 + n}, v30 offset:{start + 4 * n}" for n in range(len(values))]
    found = memory.read(memory.lds, at, size)
    return Case(shape, [*code, machine.wait], [(f"v{40 + n}", "u32", value) for n, value in enumerate(found)])


def registers(count: int, start: int = 40) -> str:
    return f"v{start}" if count == 1 else f"v[{start}:{start + count - 1}]"


def dumped(memory: Memory, shape: str, code: list[str], where: np.ndarray, at: np.ndarray, offsets: list[int]) -> Case:
    """Read back 16 bytes of the places that a store wrote, from LDS."""
    made = Case(shape, [*code, memory.machine.wait])
    for n, offset in enumerate(offsets):
        made.code += memory.get("lds", "v30", 40 + 4 * n, offset)
        made.expected += [(f"v{40 + 4 * n + word}", "u32", value) for word, value in enumerate(memory.read(where, at + offset, 16))]
    return made


def staged(memory: Memory, shape: str, code: list[str], place: tuple[list[str], np.ndarray], offset: int) -> Case:
    """Read back 16 bytes of each place of the output."""
    again, at = place
    made = Case(shape, [*code, memory.machine.wait, *again, *memory.get("stage", "v30", 40, offset)])
    made.expected = [(f"v{40 + n}", "u32", word) for n, word in enumerate(memory.read(memory.stage, at + offset, 16))]
    return made


# What atomics mean, on LDS, global memory and buffers: what is left in memory, and what comes back.
#
# A machine for atomics holds data in row 0, what is in memory before in row 1, and what a compare-and-swap expects in row 2.

OFFSET = 64
WHOLE = {
    "swap": lambda old, x: x,
    "add": lambda old, x: old + x,
    "sub": lambda old, x: old - x,
    "rsub": lambda old, x: x - old,
    "csub": lambda old, x: np.where(old > x, old - x, 0),  # no less than 0
    "inc": lambda old, x: np.where(old >= x, 0, old + 1),  # up to x, then 0
    "dec": lambda old, x: np.where((old == 0) | (old > x), x, old - 1),  # down to 0, then x
    "and": lambda old, x: old & x,
    "or": lambda old, x: old | x,
    "xor": lambda old, x: old ^ x,
    "min": np.minimum,
    "max": np.maximum,
}
# Of a NaN and a number the number is left. AMD's documents leave open what is left of two zeros; the core takes their signs, as VALU does.
REAL = {
    "add": lambda old, x: old + x,
    "min": lambda old, x: number(old, x, np.fmin),
    "max": lambda old, x: number(old, x, np.fmax),
    "pk_add": lambda old, x: old + x,
}
OLDER = {"cmpst": "cmpswap", "cmpstore": "cmpswap", "wrxchg": "swap", "storexchg": "swap"}
_NAME = re.compile(r"(ds|(?:global|flat|buffer)_atomic)_(\w+?)(_x2|_(?:u|i|b|f|bf)\d+)?")


def is_atomic(name: str) -> bool:
    return "_atomic_" in name or (name.startswith("ds_") and parsed(name) is not None)


def parsed(name: str) -> tuple[str, str] | None:
    """Return what an atomic does, and the type it does it on: `u32`, `i64`, `2f16`, `2bf16`; None: it is no atomic."""
    found = _NAME.fullmatch(re.sub(r"_rtn|_num", "", name))
    if not found:
        return None
    what, kind = OLDER.get(found[2], found[2]), (found[3] or "_u32")[1:].replace("x2", "u64").replace("b32", "u32").replace("b64", "u64")
    if what[1:] in ("min", "max"):
        what, kind = what[1:], kind.replace("u", "i") if what[0] == "s" else kind
    kind = f"2{kind}" if what == "pk_add" else kind
    known = REAL if "f" in kind else {**WHOLE, "cmpswap": None}
    return (what, kind) if what in known else None


def numbers_of(name: str) -> str:
    """Return which numbers the machine of an atomic holds."""
    _, kind = statement(name)
    return kind.lstrip("2") if "f" in kind else "u"


def statement(name: str) -> tuple[str, str]:
    found = parsed(name)
    if found is None:
        raise KeyError(name)
    return found


def machine_of(arch: str, numbers: str) -> Machine:
    """Draw numbers; in some lanes, memory holds the data itself or the data with the other sign, and what is expected, or half of it."""
    kind = "f32" if numbers == "bf16" else numbers
    machine = Machine(arch, (kind, kind, "u", "u", "u"))
    data, old, other = machine.rows[:3]
    if numbers == "bf16":
        data, old = (row >> np.uint64(16) & np.uint64(0xFFFF) | row >> np.uint64(48) << np.uint64(16) for row in (data, old))
        data, old = (row | row << np.uint64(32) for row in (data, old))
    signs = {"f32": 1 << 31 | 1 << 63, "f16": 0x8000800080008000, "bf16": 0x8000800080008000}.get(numbers, 1 << 63)
    every = machine.lane % 8
    if numbers == "f32":  # a normal sum's difference that is none
        data, old = (np.where(every == 2, np.uint64(bits << 32 | bits), row) for bits, row in ((0x00C00000, data), (0x80900000, old)))
    old = np.where(every == 0, data ^ np.uint64(signs), np.where(every == 1, data, old))
    low, high = np.uint64(MASK32), np.uint64(MASK32 << 32)
    other = np.choose(machine.lane // 2 % 4, [old, old, other & low | old & high, old & low | other & high])
    machine.rows[:3] = [data, old, other]
    return machine


def result(what: str, kind: str, old: np.ndarray, data: np.ndarray, expected: np.ndarray, flushes: bool = False) -> np.ndarray:
    """Return what is in memory afterwards, 64 bits a lane; `flushes` is about denormals of a sum of floats."""
    if flushes:
        with np.errstate(all="ignore"):
            return raw_of(flushed(flushed(typed(old, kind)) + flushed(typed(data, kind))), kind)
    if what == "cmpswap":
        return np.where(old == expected, data, old)
    with np.errstate(all="ignore"):
        if kind == "2bf16":
            sums = REAL[what](typed(brains(old), "2f32"), typed(brains(data), "2f32")).view(np.uint32).astype(np.uint64)
            rounded = sums + np.uint64(0x7FFF) + (sums >> np.uint64(16) & np.uint64(1)) >> np.uint64(16)
            rounded = np.where(np.isnan(sums.astype(np.uint32).view(np.float32)), 0x7FC0, rounded)
            return rounded[:, 0] | rounded[:, 1] << np.uint64(16)
        function = (REAL if "f" in kind else WHOLE)[what]
        return raw_of(function(typed(old, kind), typed(data, kind)), kind)


def cases(memory: Memory, shape: str, example: str) -> list[Case]:
    """Make an atomic into code: without and with the old value, and a flat one in global memory and in LDS."""
    name = shape.split()[0]
    if name.startswith("ds_"):
        modes = (False, True) if statement(name) == ("add", "f32") else (False,)
        return [_in_space(memory, shape, "lds", "_rtn_" in name, flushes) for flushes in modes]
    spaces = ("stage", "lds") if name.startswith("flat_") else ("stage",)
    return [_in_space(memory, shape, space, returns) for space in spaces for returns in (False, True)]


def _in_space(memory: Memory, shape: str, space: str, returns: bool, flushes: bool = False) -> Case:
    """Make one case. `flushes` sets MODE so that denormals of floats are flushed. LDS heeds it; memory flushes on gfx90a, always."""
    machine = memory.machine
    name, *kinds = re.split(r"[ ,]+", shape)
    what, kind = statement(name)
    words = 2 if kind.endswith("64") else 1
    offset = OFFSET if "offset" in kinds else 0
    flag = "th:TH_ATOMIC_RETURN" if machine.arch == "gfx1201" else "glc" if machine.arch in ("gfx90a", "gfx1100") else "sc0"
    flags = [one for one in kinds if one.startswith("scope:") or one in ("sc1", "nt", "slc", "dlc")]
    flags = [*([f"offset:{offset}"] if offset else []), *([flag] if returns and not name.startswith("ds_") else []), *flags]
    code, at = memory.slots("v28", 2 if name.startswith("buffer_") and machine.wave == 32 else 1)
    mask = np.uint64(MASK32 if words == 1 else 2**64 - 1)
    data, old, other = (row & mask for row in machine.rows[:3])
    bytes_ = getattr(memory, space)
    memory.write(bytes_, at + offset, words_of(machine.rows[1]) + words_of(machine.rows[2]), 16, np.ones(at.shape, bool))
    code += memory.put(space, "v28", 12, offset)
    code += ["v_mov_b32 v46, v18", "v_mov_b32 v47, v19", *(f"v_mov_b32 v{32 + n}, v{10 + n}" for n in range(words))]
    code += [f"v_mov_b32 v{32 + words + n}, v{14 + n}" for n in range(words)]
    value, expected = registers(words, 32), registers(words, 32 + words)
    both = value if what != "cmpswap" else registers(2 * words, 32)
    inside, back = np.ones(at.shape, bool), registers(words, 46)
    if name.startswith("ds_"):
        sources = [expected, value] if "cmpst_" in name else [value, expected]  # the newer ds_cmpstore has them the other way round
        line = [*([back] if returns else []), "v28", *(sources if what == "cmpswap" else [value])]
    elif name.startswith("buffer_"):
        if "offen" not in kinds:
            raise KeyError(shape)
        code += resource(machine, 10, 20, LIMIT)
        inside, back = at + offset + 4 * words <= LIMIT, value
        line, flags = [both, "v28", "s[20:23]", "null" if "null" in kinds else "0"], ["offen", *flags]
    else:
        code += memory.address(space, "v28")
        base = [] if name.startswith("flat_") else ["off"] if "off" in kinds else ["s[10:11]"]
        line = [*([back] if returns else []), "v28" if base == ["s[10:11]"] else "v[30:31]", both, *base]
    mode = (["s_setreg_imm32_b32 hwreg(1, 4, 2), 0"], ["s_setreg_imm32_b32 hwreg(1, 4, 2), 3"]) if flushes else ([], [])
    code += [*mode[0], f"{name} {', '.join(line)} {' '.join(flags)}", *mode[1], machine.wait]
    in_memory = (what, kind, machine.arch) == ("add", "f32", "gfx90a") and space == "stage"
    after = result(what, kind, old, data, other, flushes or in_memory)
    memory.write(bytes_, at + offset, words_of(after), 4 * words, inside & memory.on)
    made = Case(shape, [*code, *memory.get(space, "v28", 40, offset)])
    found = memory.read(bytes_, at + offset, 16)
    kind = {"u32": "u32", "i32": "u32", "u64": "u64", "i64": "u64"}.get(kind, kind)
    made.expected = [("v40", kind, found[0] if words == 1 else found[0] | found[1] << np.uint64(32))]
    made.expected += [(f"v{40 + n}", "u32", found[n]) for n in range(words, 4)]
    if returns:
        given = np.where(inside.reshape(-1), old, 0)  # beyond the end of a buffer, 0 comes back
        given = np.where(memory.on.reshape(-1), given, data if back == value else machine.rows[4] & mask)
        made.expected.append((back, "u64" if words == 2 else "u32", given))
    return made


# What loads and stores of buffers mean: what is beyond the end reads 0, and is not written.

_FLAGS = ("offen", "lds", "sc0", "sc1", "nt", "glc", "slc", "dlc")


def in_buffer(memory: Memory, shape: str, example: str) -> Case:
    """buffer_load and buffer_store, with an offset a lane."""
    machine, name = memory.machine, shape.split()[0]
    size = size_of(name)
    kinds = re.split(r"[ ,]+", shape)
    load = "load" in name
    offset = 64 if "offset" in kinds else 0
    scalar = next(one for one in kinds[3:] if one in ("int", "null", "s"))
    if "offen" not in kinds:
        raise KeyError(shape)
    code = resource(machine, 4 if load else 10, 20, LIMIT)
    added = 0
    text = "null" if scalar == "null" else "0"
    if scalar == "s":
        code, text, added = [*code, "s_mov_b32 s24, 16"], "s24", 16
    suffix = "".join(f" {one}" for one in kinds[4:] if one in _FLAGS or one.startswith(("th:", "scope:")))
    suffix += f" offset:{offset}" if offset else ""
    if load:
        more, at = memory.near(size if size != 12 else 16, 2048)  # none across the end: AMD's documents leave open what it would read
        inside = at + offset + added + size <= LIMIT
        values = memory.read(memory.given, np.where(inside, at + offset + added, 0), size)
        values = [np.where(inside.reshape(-1), value, 0).astype(np.uint64) for value in values]
        values = extended(values, name, size, machine.rows[4] & np.uint64(MASK32))
        if "lds" in kinds:  # lanes side by side, from m0 on
            code += [*more, "s_mov_b32 m0, 0x100", f"{name} v30, s[20:23], {text}{suffix}"]
            return passed(memory, shape, code, 256 + offset, size, values)
        return loaded(memory, shape, [*code, *more, f"{name} {registers(len(values))}, v30, s[20:23], {text}{suffix}"], values)
    more, at = memory.slots(spread=2 if machine.wave == 32 else 1, size=size)
    inside = at + offset + added + size <= LIMIT
    source, values = memory.source(0, max(1, size // 4))
    values = [value >> np.uint64(16) for value in values] if "d16_hi" in name else values
    memory.write(memory.stage, at + offset + added, values, size, inside & memory.on)
    made = Case(shape, [*code, *more, f"{name} {source}, v30, s[20:23], {text}{suffix}", machine.wait])
    made.code += memory.get("stage", "v30", 40, offset + added)
    made.expected = [(f"v{40 + n}", "u32", one) for n, one in enumerate(memory.read(memory.stage, at + offset + added, 16))]
    return made


# What reads and writes of LDS mean: of all widths, two at a time, and transposing.


def in_lds(memory: Memory, shape: str, example: str) -> Case:
    """ds_read, ds_write and their newer names, one or two at a time."""
    machine, name = memory.machine, shape.split()[0]
    if "_tr_" in name:
        return transposed(memory, shape)
    if re.search(r"2_b|2st64|2addr", name):
        return pair(memory, shape)
    size = size_of(name)
    offset = 600 if "offset" in shape else 0
    suffix = f" offset:{offset}" if offset else ""
    if "read" in name or "load" in name:
        code, at = memory.near(size)
        values = extended(memory.read(memory.lds, at + offset, size), name, size, machine.rows[4] & np.uint64(MASK32))
        return loaded(memory, shape, [*code, f"{name} {registers(len(values))}, v30{suffix}"], values)
    if not re.match(r"ds_(write|store)_", name):
        raise KeyError(name)
    code, at = memory.slots(size=size)
    text, values = memory.source(1 if size < 8 else 0, max(1, size // 4))
    values = [value >> np.uint64(16) for value in values] if "d16_hi" in name else values
    memory.write(memory.lds, at + offset, values, size)
    return dumped(memory, shape, [*code, f"{name} v30, {text}{suffix}"], memory.lds, at, [offset])


def pair(memory: Memory, shape: str) -> Case:
    """Two places, at offsets that count in elements, or in 64 of them."""
    machine, name = memory.machine, shape.split()[0]
    size = size_of(name)
    unit = size * (64 if "st64" in name or "stride64" in name else 1)
    places = [0, 0]
    given = re.findall(r"offset([01])", shape)
    for which in given:  # the second far enough from the first for lanes not to meet
        places[int(which)] = {4: 60, 8: 30, 256: 1, 512: 1}[unit] * (2 if which == "1" and "0" in given else 1)
    text = "".join(f" offset{which}:{places[int(which)]}" for which in given)
    if "read" in name or "load" in name:
        code, at = memory.near(size)
        values = [word for place in places for word in memory.read(memory.lds, at + place * unit, size)]
        return loaded(memory, shape, [*code, f"{name} {registers(len(values))}, v30{text}"], values)
    code, at = memory.slots()
    few = np.broadcast_to(np.arange(machine.wave) < 8, at.shape)  # slots of 128 bytes: the second do not meet the first
    whole = "exec" if machine.cdna else "exec_lo"
    words = size // 4
    (first, x), (second, y) = memory.source(0, words), memory.source(2, words)
    for place, values in zip(places, (x, y), strict=True):
        memory.write(memory.lds, at + place * unit, values, size, few)
    code += [f"s_mov_b{machine.wave} {whole}, 0xff", f"{name} v30, {first}, {second}{text}", f"s_mov_b{machine.wave} {whole}, -1"]
    return dumped(memory, shape, code, memory.lds, at, [place * unit for place in places])


def transposed(memory: Memory, shape: str) -> Case:
    """Sixteen lanes read rows of 16 elements, 8 bytes a lane; each gets a column."""
    machine, name = memory.machine, shape.split()[0]
    bits = int(name.rsplit("_b", 1)[1])
    at = np.broadcast_to(np.arange(machine.wave) * 8, (memory.groups, machine.wave))
    offset = 128 if "offset" in shape else 0
    words = np.stack(memory.read(memory.lds, at + offset, 8), -1)
    whole = (words[:, 0] | words[:, 1] << np.uint64(32)).reshape(-1, 16)  # of sixteen lanes
    places = np.arange(0, 64, bits, dtype=np.uint64)
    rows = (whole[..., None] >> places & np.uint64(2**bits - 1)).reshape(len(whole), -1, 16)
    columns = (rows.swapaxes(1, 2) << places).sum(-1, dtype=np.uint64).reshape(-1)
    text = f"{name} v[40:41], v30" + (f" offset:{offset}" if offset else "")
    return loaded(memory, shape, ["v_lshlrev_b32 v30, 3, v0", text], [columns & np.uint64(MASK32), columns >> np.uint64(32)])


# What loads and stores of private memory mean: each lane has bytes of its own, and the same address is another place in each.

OFFSET_PRIVATE, SCALAR = 32, 20


def in_private(memory: Memory, shape: str, example: str) -> Case:
    """scratch_load and scratch_store: an address of 32 bits in a register of the lane, or one for all lanes, and an offset."""
    machine, (name, *kinds) = memory.machine, re.split(r"[ ,]+", shape)
    size, offset = size_of(name), OFFSET_PRIVATE if "offset" in kinds else 0
    by_lane, for_all = kinds[1 if "load" in name else 0] != "off", "s" in kinds
    suffix = f" offset:{offset}" if offset else ""
    address = f"{'v30' if by_lane else 'off'}", f"{'s24' if for_all else 'off'}"
    code, at = memory.near(size, REACH)
    code += [f"s_mov_b32 s24, {SCALAR}"]
    fixed = offset + (SCALAR if for_all else 0)
    at = (at if by_lane else at * 0) + fixed
    place = at + np.arange(machine.wave) * PRIVATE
    if "load" in name:
        values = extended(memory.read(memory.private, place, size), name, size, machine.rows[4] & np.uint64(MASK32))
        return loaded(memory, shape, [*code, f"{name} {registers(len(values))}, {address[0]}, {address[1]}{suffix}"], values)
    text, values = memory.source(0, max(1, size // 4))
    values = [value >> np.uint64(16) for value in values] if "d16_hi" in name else values
    memory.write(memory.private, place, values, size)
    code += [f"{name} {address[0]}, {text}, {address[1]}{suffix}", machine.wait]
    code += [f"{memory.add} v28, {fixed}, v30" if by_lane else f"v_mov_b32 v28, {fixed}"]
    made = Case(shape, [*code, *memory.get("private", "v28", 40, 0)])
    made.expected = [(f"v{40 + n}", "u32", one) for n, one in enumerate(memory.read(memory.private, place, 16))]
    return made


# What scalar loads mean: from an address, or from a buffer, beyond whose end they read 0.


def to_scalars(memory: Memory, shape: str, example: str) -> Case:
    """s_load: one to sixteen words, or less than one, from an address that all lanes share."""
    machine, name = memory.machine, shape.split()[0]
    size = size_of(name)
    offset = 36 if "lit" in shape else 0 if size > 4 else 4
    offset += 0 if size >= 4 else 3 - size
    words = (size + 3) // 4
    target = "s16" if words == 1 else f"s[16:{15 + words}]"
    at = np.full((memory.groups, machine.wave), offset)
    values = extended(memory.read(memory.given, at, size), name, size, at)
    code = [f"{name} {target}, s[4:5], {offset:#x}", machine.scalar_wait, *(f"v_mov_b32 v{40 + n}, s{16 + n}" for n in range(words))]
    return Case(shape, code, [(f"v{40 + n}", "u32", value) for n, value in enumerate(values)])


def from_buffer(memory: Memory, shape: str, example: str) -> list[Case]:
    """s_buffer_load: inside of the buffer, and behind the end of a shorter one."""
    machine, name = memory.machine, shape.split()[0]
    size = size_of(name)
    words = size // 4
    target = "s16" if words == 1 else f"s[16:{15 + words}]"
    offset = int(re.split(r"[ ,]+", example)[-1], 0)
    found = []
    for limit in (LIMIT, offset):
        at = np.full((memory.groups, machine.wave), offset)
        values = [value if limit == LIMIT else value * np.uint64(0) for value in memory.read(memory.given, at, size)]
        code = [*resource(machine, 4, 12, limit), f"{name} {target}, s[12:15], {offset:#x}", machine.scalar_wait]
        code += [f"v_mov_b32 v{40 + n}, s{16 + n}" for n in range(words)]
        found.append(Case(shape, code, [(f"v{40 + n}", "u32", value) for n, value in enumerate(values)]))
    return found


def in_global(memory: Memory, shape: str, example: str) -> Case:
    """global_load, global_store: an address of 64 bits, or a scalar one and an offset of 32."""
    machine, name = memory.machine, shape.split()[0]
    size = size_of(name)
    offset = 100 if "offset" in shape else 0
    is_wide = "off" in re.split(r"[ ,]+", shape)
    suffix = f" offset:{offset}" if offset else ""
    if "load" in name:
        code, at = memory.near(size)
        code += memory.address("given", "v30") if is_wide else []
        address = "v[30:31], off" if is_wide else "v30, s[4:5]"
        values = extended(memory.read(memory.given, at + offset, size), name, size, machine.rows[4] & np.uint64(MASK32))
        if "_lds_" in name:  # lanes side by side, from m0 on; the offset counts on both sides
            code += ["s_mov_b32 m0, 0x100", f"{name} {address}{suffix}"]
            return passed(memory, shape, code, 256 + offset, size, values)
        return loaded(memory, shape, [*code, f"{name} {registers(len(values))}, {address}{suffix}"], values)
    place = memory.slots(size=size)
    code, at = list(place[0]), place[1]
    code += memory.address("stage", "v30") if is_wide else []
    text, values = memory.source(0, max(1, size // 4))
    values = [value >> np.uint64(16) for value in values] if "d16_hi" in name else values
    memory.write(memory.stage, at + offset, values, size)
    line = f"{name} v[30:31], {text}, off{suffix}" if is_wide else f"{name} v30, {text}, s[10:11]{suffix}"
    return staged(memory, shape, [*code, line], place, offset)


def anywhere(memory: Memory, shape: str, example: str) -> list[Case]:
    """flat_load, flat_store: the address says whether it is in global memory, in LDS or in private memory."""
    machine, name = memory.machine, shape.split()[0]
    size = size_of(name)
    offset = 32 if "offset" in shape else 0
    suffix, found = f" offset:{offset}" if offset else "", []
    for space in ("given" if "load" in name else "stage", "lds", "private"):
        code, at = memory.near(size, REACH) if "load" in name or space == "private" else memory.slots(size=size)
        place = at + offset + (np.arange(machine.wave) * PRIVATE if space == "private" else 0)
        code += [f"{memory.add} v28, {offset}, v30", *memory.address(space, "v30")]
        bytes_ = getattr(memory, space)
        if "load" in name:
            values = extended(memory.read(bytes_, place, size), name, size, machine.rows[4] & np.uint64(MASK32))
            found.append(loaded(memory, shape, [*code, f"{name} {registers(len(values))}, v[30:31]{suffix}"], values))
            continue
        text, values = memory.source(0, max(1, size // 4))
        values = [value >> np.uint64(16) for value in values] if "d16_hi" in name else values
        memory.write(bytes_, place, values, size)
        made = Case(shape, [*code, f"{name} v[30:31], {text}{suffix}", machine.wait, *memory.get(space, "v28", 40, 0)])
        made.expected = [(f"v{40 + n}", "u32", one) for n, one in enumerate(memory.read(bytes_, place, 16))]
        found.append(made)
    return found


def nothing(memory: Memory, shape: str, example: str) -> Case:
    """A cache or a hint: registers and memory stay as they are."""
    machine = memory.machine
    place = memory.slots()
    before = ["v_mov_b32 v46, v18", "s_cmp_eq_u32 0, 0", example, "s_cselect_b32 s26, 1, 0", "v_mov_b32 v47, s26"]
    made = staged(memory, shape, [*before, *place[0]], place, 0)
    made.expected += [("v46", "u32", machine.rows[4] & np.uint64(MASK32)), ("v47", "u32", np.ones(COUNT, np.uint64))]
    return made


CACHES = (
    *("buffer_inv", "buffer_wbl2", "buffer_gl0_inv", "buffer_gl1_inv", "global_inv", "global_wb", "global_wbinv", "buffer_wbinvl1"),
    "buffer_wbinvl1_vol",
)
HINTS = (
    *("s_nop", "v_nop", "s_delay_alu", "s_clause", "s_setprio", "s_set_inst_prefetch_distance", "s_waitcnt_depctr", "s_wait_alu"),
    *("s_sleep", "s_wait_storecnt", "s_waitcnt_vscnt", "ds_nop"),
)


PREFIXES = ("ds_", "global_", "buffer_", "s_load_", "flat_", "scratch_", "s_buffer_")
MAKERS = {
    "ds_": in_lds,
    "global_": in_global,
    "buffer_": in_buffer,
    "flat_": anywhere,
    "scratch_": in_private,
    "s_load_": to_scalars,
    "s_buffer_": from_buffer,
}


def memory_numbers_of(name: str) -> str | None:
    """Return which numbers an instruction's machine holds: None unless it is an atomic."""
    return numbers_of(name) if name not in HINTS and is_atomic(name) else None


def memory_cases(memory: Memory, shape: str, example: str) -> list[Case]:
    """Make a shape that touches memory, or does nothing to registers, into code."""
    name = shape.split()[0]
    if name in CACHES or name in HINTS:
        return [nothing(memory, shape, example)]
    make = next(make for prefix, make in MAKERS.items() if name.startswith(prefix))
    ways = WAYS
    if is_atomic(name):
        make, ways = cases, WAYS[::2]  # lanes side by side are nothing else to them
    if name.startswith("s_") or "_tr_" in name or re.match("ds_(write|store)2|ds_store_2addr", name):
        ways = WAYS[:1]
    found = []
    for way in ways:
        memory.reach(way)
        made = make(memory, shape, example)
        found += [memory.only(name, one) for one in (made if isinstance(made, list) else [made])]
    memory.reach(WAYS[0])
    return found
