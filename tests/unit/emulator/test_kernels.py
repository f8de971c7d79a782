"""Whole Triton kernels, compiled by Triton for each architecture, executed over CPU tensors, and held against torch."""

import random
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import triton
import triton.language as tl
from machine_code import WAVES, assembled, compiled, run
from slow_cases import slow_but

from warpwave.emulator import EmulatorError, InvalidCodeObject, Kernel, Launch, OutOfMemoryBounds, TimeLimit, execute, load
from warpwave.emulator.code_object import set_up, source
from warpwave.emulator.decode import instruction as python_side
from warpwave.emulator.library import core
from warpwave.emulator.program import program

ARCHITECTURES = sorted(WAVES)  # gfx1200 has the instructions of gfx1201
every = pytest.mark.parametrize("arch", ARCHITECTURES)
# One of each width of a wave. What differs between cards is each instruction: used/ has those, for every card.
one_of_each = pytest.mark.parametrize("arch", slow_but(ARCHITECTURES, ("gfx942", "gfx1201")))


@triton.jit
def add(x, y, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + i, tl.load(x + i, i < n) + tl.load(y + i, i < n), i < n)


@triton.jit
def row_softmax(x, o, columns, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.program_id(0) * columns
    value = tl.load(x + row + i, i < columns, float("-inf")).to(tl.float32)
    e = tl.exp(value - tl.max(value, 0))
    tl.store(o + row + i, (e / tl.sum(e, 0)).to(o.dtype.element_ty), i < columns)


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, OUT: tl.constexpr, PRECISION: tl.constexpr):
    m, n, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), OUT)
    for start in range(0, K, BK):
        left = tl.load(a + m[:, None] * K + start + k[None, :], (m[:, None] < M) & (start + k[None, :] < K), 0.0)
        right = tl.load(b + (start + k[:, None]) * N + n[None, :], (start + k[:, None] < K) & (n[None, :] < N), 0.0)
        acc = tl.dot(left, right, acc, input_precision=PRECISION, out_dtype=OUT)
    tl.store(c + m[:, None] * N + n[None, :], acc, (m[:, None] < M) & (n[None, :] < N))


@triton.jit
def atomics(x, total, largest, count, taken, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i)
    tl.atomic_add(total + i % 7, value)
    tl.atomic_max(largest + i % 3, i % 61)
    tl.store(taken + tl.program_id(0), tl.atomic_add(count, 1))
    tl.atomic_cas(count + 1, 0, 5)


@triton.jit
def scanned(x, o, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(o + i, tl.cumsum(tl.load(x + i), 0))


@triton.jit
def ordered(x, index, o, g, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(x + i)
    tl.store(o + i, tl.sort(value))
    tl.store(g + i, tl.gather(value, tl.load(index + i), 0))


@triton.jit
def collatz(x, steps, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    n = tl.load(x + i).to(tl.int64)
    count = tl.zeros((BLOCK,), tl.int32)
    while tl.max((n != 1).to(tl.int32), 0) > 0:
        odd = n % 2 == 1
        count += (n != 1).to(tl.int32)
        n = tl.where(n == 1, 1, tl.where(odd, 3 * n + 1, n // 2))
    tl.store(steps + i, count)


@triton.jit
def waits(flags, o):
    """Program n waits for program n + 1; the last one waits for nobody."""
    me = tl.program_id(0)
    if me < tl.num_programs(0) - 1:
        while tl.atomic_add(flags + me + 1, 0) == 0:
            pass
    tl.store(o + me, me * 3)
    tl.debug_barrier()
    tl.atomic_add(flags + me, 1)


@triton.jit
def divided(x, y, quotient, exact, root, rest, power, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(quotient + i, a / b)
    tl.store(exact + i, tl.div_rn(a, b))
    tl.store(root + i, tl.sqrt_rn(tl.abs(a)))
    tl.store(rest + i, a % b)
    tl.store(power + i, tl.exp2(tl.minimum(a, 20.0)))


@triton.jit
def converted(x, h, b, e, i32, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(x + i)
    tl.store(h + i, value.to(tl.float16))
    tl.store(b + i, value.to(tl.bfloat16))
    tl.store(e + i, value.to(e.dtype.element_ty))
    tl.store(i32 + i, value.to(tl.int32))


@every
def test_add_with_a_mask(arch):
    x, y, o = torch.randn(1000), torch.randn(1000), torch.full((1024,), 7.0)
    done = run(add, arch, (4,), {"x": x, "y": y, "o": o, "n": 1000}, {"BLOCK": 256})

    assert torch.equal(o[:1000], x + y)
    assert (o[1000:] == 7).all()
    assert done.waves == 16  # four programs of four warps


@one_of_each
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_softmax(arch, dtype):
    x = torch.randn(5, 781).to(dtype)
    o = torch.empty_like(x)
    run(row_softmax, arch, (5,), {"x": x, "o": o, "columns": 781}, {"BLOCK": 1024})

    torch.testing.assert_close(o, torch.softmax(x.float(), 1).to(dtype), rtol=2e-6 if dtype == torch.float32 else 1e-2, atol=1e-6)


MATRICES = [torch.float32, "tf32", torch.float16, torch.bfloat16, torch.int8, "fp8", "bf8"]


@one_of_each
@pytest.mark.parametrize("dtype", MATRICES, ids=str)
@pytest.mark.parametrize("size", slow_but([(70, 50, 100), (32, 64, 32)], [(70, 50, 100)]), ids=str)
def test_matmul(arch, dtype, size):
    m, n, k = size
    eights = {"fp8": torch.float8_e4m3fnuz, "bf8": torch.float8_e5m2fnuz} if arch == "gfx942" else {}
    eights = eights or {"fp8": torch.float8_e4m3fn, "bf8": torch.float8_e5m2}
    if dtype == "tf32" and arch != "gfx942":
        pytest.skip("no such matrix instruction there")
    tolerance, precision = (5e-2, "tf32") if dtype == "tf32" else (1e-4, "ieee")
    dtype = torch.float32 if dtype == "tf32" else eights.get(dtype, dtype)
    if dtype == torch.int8:
        a, b = torch.randint(-128, 128, (m, k), dtype=dtype), torch.randint(-128, 128, (k, n), dtype=dtype)
        c, out = torch.zeros(m, n, dtype=torch.int32), tl.int32
    else:
        a, b = torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype)
        c, out = torch.zeros(m, n), tl.float32
    constants = {"BM": 32, "BN": 32, "BK": 32, "OUT": out, "PRECISION": precision}
    run(matmul, arch, (-(-m // 32), -(-n // 32)), {"a": a, "b": b, "c": c, "M": m, "N": n, "K": k}, constants)

    left, right = a.double(), b.double()
    if arch == "gfx90a" and dtype in (torch.float16, torch.float8_e5m2):  # its matrix instructions take subnormal fp16 for zero
        left, right = (torch.where(x.abs() < 2**-14, 0.0, x) for x in (left, right))
    torch.testing.assert_close(c.double(), left @ right, rtol=1e-5, atol=tolerance)


@every
def test_atomics(arch):
    x = torch.randint(0, 9, (512,)).float()
    total, largest, count, taken = (
        torch.zeros(7),
        torch.zeros(3, dtype=torch.int32),
        torch.zeros(2, dtype=torch.int32),
        torch.zeros(4, dtype=torch.int32),
    )
    run(atomics, arch, (4,), {"x": x, "total": total, "largest": largest, "count": count, "taken": taken}, {"BLOCK": 128})

    assert torch.equal(total, torch.zeros(7).index_add(0, torch.arange(512) % 7, x))
    assert (largest.max().item(), count.tolist(), sorted(taken.tolist())) == (60, [4, 5], [0, 1, 2, 3])


@one_of_each
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.int64, torch.int16])
def test_scan(arch, dtype):
    x = torch.randint(-50, 50, (1024,)).to(dtype)
    o = torch.zeros_like(x)
    run(scanned, arch, (1,), {"x": x, "o": o}, {"BLOCK": 1024})

    assert torch.equal(o, x.cumsum(0).to(dtype))


@one_of_each
def test_sort_and_gather(arch):
    x, index = torch.randn(256), torch.randint(0, 256, (256,), dtype=torch.int32)
    o, g = torch.zeros(256), torch.zeros(256)
    run(ordered, arch, (1,), {"x": x, "index": index, "o": o, "g": g}, {"BLOCK": 256})

    assert torch.equal(o, x.sort().values)
    assert torch.equal(g, x[index.long()])


@one_of_each
def test_a_loop_that_ends_when_all_lanes_are_done(arch):
    x = torch.arange(1, 129, dtype=torch.int32)
    steps = torch.zeros(128, dtype=torch.int32)
    run(collatz, arch, (1,), {"x": x, "steps": steps}, {"BLOCK": 128})

    def length(n: int) -> int:
        return 0 if n == 1 else 1 + length(3 * n + 1 if n % 2 else n // 2)

    assert steps.tolist() == [length(n) for n in range(1, 129)]


@every
def test_programs_that_wait_for_later_ones_end(arch):
    flags, o = torch.zeros(4, dtype=torch.int32), torch.zeros(4, dtype=torch.int32)
    run(waits, arch, (4,), {"flags": flags, "o": o}, {}, limit=50_000_000, num_warps=1)

    assert (o.tolist(), flags.tolist()) == ([0, 3, 6, 9], [1, 1, 1, 1])


@one_of_each
def test_division_roots_and_remainders(arch):
    x = torch.cat(
        [torch.randn(500) * 100, torch.tensor([0.0, -0.0, 1e-40, 3e38, float("inf"), float("nan"), 1e-45, -3e38, 1.0, 2.0, 3.0, 5.0])]
    )
    y = torch.cat([torch.randn(500) * 3, torch.tensor([3.0, 2.0, 1e30, 1e-30, 2.0, 1.0, 1e-45, 3e-39, 3.0, 1e-44, 1e38, 3e38])])
    into = {name: torch.zeros(512) for name in ("quotient", "exact", "root", "rest", "power")}
    run(divided, arch, (1,), {"x": x, "y": y, **into}, {"BLOCK": 512})

    torch.testing.assert_close(into["exact"], x / y, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(into["root"], x.abs().double().sqrt().float(), rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(into["quotient"][:500], (x / y)[:500], rtol=3e-7, atol=0)
    torch.testing.assert_close(into["rest"][:500], torch.fmod(x, y)[:500], rtol=0, atol=0)
    power = torch.exp2(torch.fmin(x, torch.tensor(20.0)))
    power[power < 2.0**-126] = 0  # Triton lets exp2 flush on AMD
    torch.testing.assert_close(into["power"], power, rtol=2e-7, atol=0, equal_nan=True)


@one_of_each
def test_conversions(arch):
    x = torch.cat(
        [torch.randn(480) * 20, torch.tensor([0.0, -0.0, 1e-7, 6e-8, 65504.0, 65519.9, 65520.0, 1e-40, 3e38] * 3), torch.randn(5)]
    )
    eight = {"gfx942": torch.float8_e4m3fnuz, "gfx950": torch.float8_e4m3fn}.get(arch, torch.float8_e5m2)
    h, b, e, i = (
        torch.zeros(512, dtype=torch.float16),
        torch.zeros(512, dtype=torch.bfloat16),
        torch.zeros(512, dtype=eight),
        torch.zeros(512, dtype=torch.int32),
    )
    run(converted, arch, (1,), {"x": x, "h": h, "b": b, "e": e, "i32": i}, {"BLOCK": 512})

    # Triton sets FP16_OVFL for the 8-bit numbers, and halves that overflow become the largest one, too.
    assert torch.equal(h.view(torch.int16), x.to(torch.float16).clamp(-65504, 65504).view(torch.int16))
    assert torch.equal(b.view(torch.int16), x.to(torch.bfloat16).view(torch.int16))
    small = x.abs() < 200
    assert torch.equal(e.view(torch.uint8)[small], x.to(eight).view(torch.uint8)[small])
    assert torch.equal(i[:480], x[:480].to(torch.int32))


@every
def test_an_access_outside_of_the_buffers_is_refused_by_name(arch):
    x, y, o = torch.randn(1000), torch.randn(1000), torch.zeros(1000)
    with pytest.raises(OutOfMemoryBounds, match=r"test_kernels\.py:\d+.*outside of all buffers") as caught:
        run(add, arch, (4,), {"x": x, "y": y[:990], "o": o, "n": 1000}, {"BLOCK": 256})

    assert y.data_ptr() + 990 * 4 <= caught.value.address < y.data_ptr() + 1000 * 4
    assert caught.value.workgroup == (3, 0, 0)


@every
def test_a_limit_ends_a_loop(arch):
    x = torch.zeros(128, dtype=torch.int32)  # halved for ever, never 1
    with pytest.raises(TimeLimit) as caught:
        run(collatz, arch, (1,), {"x": x, "steps": x.clone()}, {"BLOCK": 128}, limit=1000)

    assert caught.value.executed >= 1000


# What is read of a code object: descriptor, metadata, text, lines; and that what cannot be read is refused with a sentence.

X = torch.zeros(1024)


@pytest.fixture(scope="module")
def made():
    return compiled(add, "gfx942", {"x": X, "y": X, "o": X, "n": 1000}, {"BLOCK": 256})


def test_metadata_names_arguments_and_sizes(made):
    kernel = load(made.asm["hsaco"])

    assert (kernel.name, kernel.architecture, kernel.wavefront, kernel.lds, kernel.scratch) == ("add", "gfx942", 64, 0, 0)
    assert [(a.offset, a.size) for a in kernel.arguments[:4]] == [(0, 8), (8, 8), (16, 8), (24, 4)]
    assert kernel.arguments[0].kind == "global_buffer"
    assert kernel.kernarg_bytes == 48


def test_the_descriptor_says_where_registers_are_set_up(made):
    """Against the directives of the assembly, which LLVM wrote the descriptor from."""
    text, setup = made.asm["amdgcn"], SimpleNamespace(sgpr_ids=[0, 0, 0])
    set_up(load(made.asm["hsaco"]), setup)

    def directive(name: str) -> int:
        return int(text.split(f".amdhsa_{name} ")[1].split()[0])

    assert setup.kernarg_at == 0
    assert setup.sgpr_ids == [directive("user_sgpr_count"), 0xFFFFFFFF, 0xFFFFFFFF]
    denormals = directive("float_denorm_mode_32") << 4 | directive("float_denorm_mode_16_64") << 6
    assert setup.mode == denormals | directive("dx10_clamp") << 8 | directive("ieee_mode") << 9
    assert setup.rows == directive("accum_offset")
    assert (setup.preload_at, setup.preload_words) == (2, directive("user_sgpr_kernarg_preload_length"))


def test_lines_are_those_of_the_python_file(made):
    kernel = load(made.asm["hsaco"])
    stores = [one for one in program(kernel).instructions if "store" in one.name]

    assert source(kernel.elf, stores[0].pc) == (add.fn.__code__.co_filename, add.fn.__code__.co_firstlineno + 3)


@pytest.mark.parametrize("damage", [b"", b"\x7fELF", b"not a code object" * 20, "cut", "host"])
def test_what_is_no_code_object_is_refused(made, damage):
    data = {"cut": made.asm["hsaco"][:900], "host": Path(sys.executable).read_bytes()[:100_000]}.get(damage, damage)
    with pytest.raises(InvalidCodeObject):
        load(data)


def test_a_launch_that_makes_no_sense_is_refused(made):
    kernel = load(made.asm["hsaco"])
    with pytest.raises(EmulatorError, match="bytes of arguments"):
        execute(kernel, Launch((1, 1, 1), 256, b"\0" * 8))
    with pytest.raises(EmulatorError, match="2048 threads"):
        execute(kernel, Launch((1, 1, 1), 2048, b"\0" * 48))


def test_an_empty_grid_runs_nothing(made):
    assert execute(load(made.asm["hsaco"]), Launch((0, 1, 1), 256, b"\0" * 48)).instructions == 0


def test_no_damaged_code_ends_in_a_crash_of_the_process():
    """Random words instead of code: every one is executed or refused, and nothing is touched outside."""
    drawn, original = random.Random(5), assembled("gfx942", "\n".join(["\ts_nop 0"] * 40))
    kernel = load(original)
    start = original.index(b"\x00\x00\x80\xbf" * 40)
    refused = 0
    for _ in range(100):
        words = b"".join(drawn.randrange(2**32).to_bytes(4, "little") for _ in range(40))
        broken = load(original[:start] + words + original[start + 160 :])
        try:
            execute(broken, Launch((1, 1, 1), 64, b"\0" * 16, 4096), limit_instructions=10_000)
        except EmulatorError:
            refused += 1
    assert kernel.name == "k"
    assert refused > 66


def test_a_damaged_code_object_is_executed_or_refused(made):
    """Bytes changed, cut out or put in anywhere, debug information included: no other error comes out, and none takes long."""
    drawn, refused = random.Random(2), 0
    for _ in range(300):
        data = bytearray(made.asm["hsaco"])
        for _ in range(drawn.choice((1, 2, 8))):
            at = drawn.choice((drawn.randrange(len(data)), drawn.randrange(0x200), drawn.randrange(len(data) - 2000, len(data))))
            size = drawn.choice((1, 1, 8, 20))
            data[at : at + size * drawn.randrange(2)] = drawn.choice((drawn.randbytes(size), bytes(size), b"\xff" * size, b""))
        try:
            kernel = load(bytes(data))
            execute(kernel, Launch((1, 1, 1), 64, bytes(max(kernel.kernarg_bytes, 48))), limit_instructions=10_000)
        except EmulatorError:
            refused += 1
    assert refused > 50


@pytest.mark.parametrize(
    ("field", "value"),
    [("wavefront", 1), ("wavefront", "x"), ("scratch", 1 << 40), ("scratch", -1), ("lds", 1 << 31), ("kernarg_bytes", 1.5)],
)
def test_a_field_that_no_compiler_writes_is_refused(made, monkeypatch, field, value):
    def damaged(**fields):
        return Kernel(**{**fields, field: value})

    monkeypatch.setattr("warpwave.emulator.code_object.Kernel", damaged)

    with pytest.raises(InvalidCodeObject):
        load(made.asm["hsaco"])


# The decoder against LLVM: every instruction of compiled kernels has the mnemonic and operands of the compiler's own assembly text.

F = torch.zeros(512)
I = torch.zeros(512, dtype=torch.int32)  # noqa: E741
KERNELS = {
    "add": (add, {"x": F, "y": F, "o": F, "n": 500}, {"BLOCK": 256}),
    "softmax": (row_softmax, {"x": F, "o": F, "columns": 100}, {"BLOCK": 128}),
    "atomics": (atomics, {"x": F, "total": F, "largest": I, "count": I, "taken": I}, {"BLOCK": 128}),
    "scan": (scanned, {"x": F, "o": F}, {"BLOCK": 512}),
    "sort": (ordered, {"x": F, "index": I, "o": F, "g": F}, {"BLOCK": 256}),
    "loop": (collatz, {"x": I, "steps": I}, {"BLOCK": 128}),
    "division": (divided, {"x": F, "y": F, "quotient": F, "exact": F, "root": F, "rest": F, "power": F}, {"BLOCK": 512}),
    "conversions": (converted, {"x": F, "h": F.half(), "b": F.bfloat16(), "e": F.to(torch.float8_e5m2), "i32": I}, {"BLOCK": 512}),
}
for dtype in (torch.float16, torch.float32, torch.int8):
    a = torch.zeros(128, 128, dtype=dtype)
    out = tl.int32 if dtype == torch.int8 else tl.float32
    c = torch.zeros(128, 128, dtype=torch.int32 if dtype == torch.int8 else torch.float32)
    constants = {"BM": 64, "BN": 64, "BK": 32, "OUT": out, "PRECISION": "ieee"}
    KERNELS[f"matmul {dtype}"] = (matmul, {"a": a, "b": a, "c": c, "M": 128, "N": 128, "K": 128}, constants)

# Text that says nothing of the operands: caches, names of lane patterns (tested by their meaning), counters.
_DROPPED = re.compile(r"^(sc0|sc1|nt|glc|slc|scc|dlc|row_.*|bank_mask.*|bound_ctrl.*|wave_.*|dpp.*|th:.*|scope:.*|offset0:0)$")
_BY_NAME = ("s_waitcnt", "s_cbranch", "s_branch", "s_sendmsg", "s_delay_alu", "s_wait", "s_clause", "s_trap", "s_set", "s_barrier")


def parts(text: str) -> list[str]:
    """Mnemonic and operands, with numbers in one form."""
    text = re.sub(r"_(e32|e64|sdwa|dpp|dpp8|e64_dpp)\b", "", text.split(";")[0].strip())
    text = re.sub(
        r"x(4|8|16|2|1)(f32|f16|bf16)(_1k)?\b", lambda found: f"x{found[1]}_{found[2]}", text
    )  # gfx90a's names of matrix instructions
    text = re.sub(r"(_i32_\w+)x(8|16)i8\b", r"\1x\2_i8", text)
    text = re.sub(r"(quad_perm|dpp8):\[[\d, ]*\]", "", text)
    words = [word for word in re.split(r"[ ,]+", text.lower()) if word and not _DROPPED.match(word)]
    return [str(int(word, 0)) if re.fullmatch(r"-?(0x[0-9a-f]+|\d+)", word) else word for word in words]


# The newest encoding with every kernel. The emulator runs the kernels of the others, so it decodes them.
@pytest.mark.parametrize("arch", slow_but(ARCHITECTURES, ["gfx1201"]))
@pytest.mark.parametrize("name", KERNELS)
def test_each_instruction_reads_as_the_compiler_wrote_it(name, arch):
    function, arguments, constants = KERNELS[name]
    made = compiled(function, arch, arguments, constants)
    body = made.asm["amdgcn"].split(f"\n{function.__name__}:")[1].split(".Lfunc_end0")[0]
    expected = [line.strip() for line in body.splitlines() if re.match(r"\t[a-z]\w+", line)]
    decoded = program(load(made.asm["hsaco"])).instructions
    seconds = {id(one.second) for one in decoded if one.second}  # shown with the first
    decoded = [one for one in decoded if id(one) not in seconds]
    at, differences, missing = 0, [], []
    for line in expected:
        mnemonic = line.split()[0]
        while decoded[at].name == "s_nop" and mnemonic != "s_nop":  # alignment
            at += 1
        one = decoded[at]
        at += 1
        missing += [] if one.operation else [line]
        mine, theirs = parts(str(one)), parts(line)
        if mnemonic.startswith(_BY_NAME):
            mine, theirs = mine[:1], theirs[:1]
        differences += [(theirs, mine)] if mine != theirs else []

    assert len(expected) > 15
    assert (differences, missing) == ([], [])


def test_the_two_sides_number_types_and_flags_alike():
    """Python packs what C reads: the enumerations of core/machine.h are those of instruction.py."""
    header = (Path(python_side.__file__).parents[1] / "core" / "machine.h").read_text()

    def enumeration(name: str) -> list[str]:
        return re.findall(r"(\w+)(?: = [^,}]*)?[,}]", re.search(rf"enum {name} {{(.*?)}};", header, re.S)[1].split("};")[0] + "}")

    types = [name for name in enumeration("type") if name != "REGS"]
    assert [getattr(python_side, name) for name in types] == list(range(len(types)))
    for name in ("operand_flag", "instruction_flag"):
        for constant, value in re.findall(r"(\w+) = (\d+)", re.search(rf"enum {name} {{(.*?)}};", header, re.S)[1]):
            assert getattr(python_side, constant) == int(value)
    for wavefront in sorted(set(WAVES.values())):
        loaded = core(wavefront).library
        assert loaded.size_of(1) == len(python_side.Instruction("x", 4).record(0))


def test_types_of_operands_agree_with_the_makers_tables():
    """The C table says how wide each operand is; AMD's machine-readable description, made by others, says it too."""
    from tinygrad.runtime.autogen.amd.cdna.operands import OPERANDS

    from warpwave.emulator.decode.instruction import operation_name

    operations, compared, wrong = core(64).operations, 0, []
    for opcode, operands in OPERANDS.items():
        encoding = type(opcode).__name__
        name = operation_name(re.sub(r"_(e32|e64)$", "", opcode.name.lower()))
        if encoding not in ("VOP1Op", "VOP2Op", "VOP3Op", "SOP1Op", "SOP2Op", "SOPCOp") or name not in operations:
            continue
        entry = operations[name]
        places = {"src0": 0, "ssrc0": 0, "src1": 1, "vsrc1": 1, "ssrc1": 1, "src2": 2}
        for field, (_, bits, _) in operands.items():
            if field in places and entry.s[places[field]]:
                kind = entry.s[places[field]]
            elif field in ("vdst", "sdst") and entry.d:
                kind = entry.d
            else:
                continue
            compared += 1
            mine = 64 if kind == python_side.MASK else 32 * python_side.words_of(kind)
            if max(bits, 32) != mine:
                wrong.append((name, field, bits, mine))
    assert compared > 700
    assert [entry for entry in wrong if entry[0] not in KNOWN] == []


# Where the description gives a width of 64 to an operand of which 32 bits are read, or the other way round.
KNOWN: set[str] = set()
