"""Every instruction that compiled kernels use, and every other one that the core executes, against a second statement of its meaning:
AMD's pseudocode, or one in numpy.

A form without a statement fails, and so do an operation of the core that no list names and a shape of a bundled kernel on no list.
"""

import collections
import re
from functools import cache, partial

import accesses
import cases
import exchanges
import numpy as np
import pytest
import scalars
import torch
from cards import CARDS, CONTROL, PRODUCTS, instructions, shape, unused, used
from machine_code import WAVES, assembled, compiled, lanes
from products import Product, execute_steps, step, steps
from slow_cases import slow_but

from kernels.add.add import add_kernel
from kernels.dropout.dropout import dropout_kernel
from kernels.gelu.gelu import gelu_kernel
from warpwave.emulator import Check, Launch, Unimplemented, execute, load
from warpwave.emulator.decode.decoder import FAMILIES, context, decode
from warpwave.emulator.decode.instruction import Instruction
from warpwave.emulator.library import core

SOON = slow_but(WAVES, ["gfx942", "gfx1201"])


def wrong_on(arch: str, examples: dict[str, str]) -> list[tuple[str, str]]:
    on_lanes, on_scalars, in_memory = collections.defaultdict(list), [], collections.defaultdict(list)
    memories = cache(partial(accesses.memory_of, arch))
    rows = scalars.given(arch)
    for one, example in examples.items():
        mnemonic = one.split()[0]
        name = cases.base(mnemonic)
        if mnemonic.startswith((*PRODUCTS, *CONTROL)) and mnemonic not in accesses.HINTS:
            continue
        if name in exchanges.EXCHANGES:
            in_memory[None].append(exchanges.EXCHANGES[name](memories(None)[0], one, example))
        elif mnemonic.startswith(accesses.PREFIXES) or mnemonic in (*accesses.HINTS, *accesses.CACHES):
            numbers = accesses.memory_numbers_of(mnemonic)
            in_memory[numbers] += accesses.memory_cases(memories(numbers)[1], one, example)
        elif mnemonic.startswith(("s_", "v_s_")):
            on_scalars.append(scalars.Scalar(arch, one, example, rows))
        else:
            kinds = max((cases.drawn_kinds(arch, half) for half in one.split(" :: ")), key=lambda each: sum(kind != "u" for kind in each))
            on_lanes[kinds].append((one, example))
    wrong = scalars.run(arch, on_scalars, rows)
    for numbers, in_group in in_memory.items():
        machine, memory = memories(numbers)
        for findings in (None, []):  # accesses that are checked are made lane by lane, others at once where that is possible
            wrong += cases.execute_cases(machine, in_group, memory.begin, findings)
            wrong += [(one.place.instruction, one.check.name) for one in findings or () if one.check is not Check.OUT_OF_RANGE]
    for kinds, in_group in on_lanes.items():
        machine = cases.Machine(arch, kinds, cases.FEW)
        wrong += cases.execute_cases(machine, [cases.case(machine, *each) for each in in_group])
    return wrong


def one_in_eight(arch: str) -> dict[str, str]:
    """Some of the forms that no kernel here has; the others differ in the operation, and take half a minute."""
    return dict([*unused(arch).items()][::8])


@pytest.mark.parametrize("arch", SOON)
@pytest.mark.parametrize("listed", [used, one_in_eight, pytest.param(unused, marks=pytest.mark.slow)], ids=lambda one: one.__name__)
def test_every_form_does_what_is_stated(listed, arch):
    assert wrong_on(arch, listed(arch)) == []


# Products of matrices: whole numbers, whose sums are exact in any order, and all codes of small floats.


def products(arch: str) -> list[Product]:
    examples = [*used(arch).values(), *unused(arch).values()]
    return [Product(arch, name, one) for name, one in sorted({one.split()[0]: one for one in examples if one.startswith(PRODUCTS)}.items())]


@pytest.mark.parametrize("arch", SOON)
def test_every_product_is_one(arch):
    for product in products(arch):
        made = steps(product)
        execute_steps(arch, made)
        for one in made:
            one.check(one.found)


def test_scaled_products_that_differ_in_their_last_word_alone():
    """The last of four words says which registers A, B and C are in: the decoder remembers instructions by all of their words."""
    random = np.random.default_rng(3)
    product = next(one for one in products("gfx950") if one.name == "v_mfma_scale_f32_16x16x128_f8f6f4")
    made = [step(product, random, formats=("fp4", "fp4"), c=c) for c in ("v", "constant", "v")]
    execute_steps("gfx950", made)
    for one in made:
        one.check(one.found)


@pytest.mark.parametrize("wave", [32, 64])
def test_no_product_of_the_core_is_forgotten(wave):
    """Each of the core's products is one of a list's, under the name that the card gives it."""
    kept = set()
    for arch in WAVES:
        eights = "fnuz" if arch == "gfx942" else "ocp"
        for p in products(arch) if WAVES[arch] == wave else []:
            name = p.name.replace("_scale_", "_")
            if arch == "gfx90a":
                blocks = f"_{p.blocks}b" if p.blocks > 1 else ""
                name = f"v_mfma_{p.into}_{p.m}x{p.m}x{p.k}{blocks}_{p.left}"
            suffix = f"_r{FAMILIES[arch][-1]}" if wave == 32 else f"_{eights}" if p.left in ("fp8", "bf8") else ""
            kept.add(name + suffix)

    assert {name for name in core(wave).operations if name.startswith(PRODUCTS)} == kept


# The lists name every operation of the C core.

EXCEPTIONS: dict[str, str] = {
    "unimplemented": "what the decoder knows no operation for; it ends a launch with an error, as test_control.py has it",
    "flat_atomic_csub": "AMD's table for gfx1100 has it, and LLVM's assembler refuses it; those of global memory and buffers are listed",
}


def decoded(arch: str) -> list[tuple[str, Instruction]]:
    """Return each line of a card's lists, and what the decoder makes of it; a dual instruction is two."""
    family = "cdna" if WAVES[arch] == 64 else "rdna"
    paths = [CARDS / f"{arch}.txt", CARDS / "unused" / f"{family}.txt", CARDS / "unused" / f"{arch}.txt"]
    lines = [line for path in paths for line in path.read_text().splitlines()]
    code = re.sub(r"\.LBB\w+", "0", "\n".join(f"\t{line}" for line in lines))
    kernel = load(assembled(arch, code))
    found = decode(context(kernel.image, arch, WAVES[arch], core(WAVES[arch]).operations), *kernel.text)
    twice = [line for line in lines for _ in range(1 + (" :: " in line))]
    assert found[len(twice)].name == "s_endpgm"
    return list(zip(twice, found, strict=False))


def test_every_line_has_an_operation_and_every_operation_a_line():
    listed, have = set(), set()
    for arch, wave in WAVES.items():
        names = {one.number: name for name, one in core(wave).operations.items()}
        lines = decoded(arch)
        assert [line for line, one in lines if one.operation is None] == []
        have |= set(names.values())
        listed |= {names[one.operation] for _, one in lines}

    assert have - listed == EXCEPTIONS.keys()


N = 4096


def kernels(dtype):
    x, out, seed = torch.zeros(N, dtype=dtype), torch.zeros(N, dtype=dtype), torch.zeros(1, dtype=torch.int64)
    yield add_kernel, {"x_ptr": x, "y_ptr": x, "out_ptr": out, "n_elements": N, "alpha": 1.5}, {"BLOCK_SIZE": 1024}
    yield gelu_kernel, {"x_ptr": x, "out_ptr": out, "n_elements": N}, {"TANH": False, "BLOCK_SIZE": 1024}
    random = {"x_ptr": x, "out_ptr": out, "seed_ptr": seed, "n_elements": N, "threshold": 12345, "scale": 2.0}
    yield dropout_kernel, random, {"QUARTER": 256}


@pytest.mark.parametrize(("arch", "dtype"), [("gfx942", torch.bfloat16), ("gfx1201", torch.float16)], ids=["gfx942", "gfx1201"])
def test_what_kernels_compile_to_is_on_the_list(arch, dtype):
    """If this fails, kernels or Triton have changed: make the lists anew as `cards.py` says, and state the new forms."""
    found = {
        shape(line.replace("\t", " "))
        for function, arguments, constants in kernels(dtype)
        for line in instructions(compiled(function, arch, arguments, constants).asm["amdgcn"])
    }

    assert len(found) > 50
    assert found - used(arch).keys() == set()


# Floats of the scalar unit, which gfx1201 alone has, where MODE flushes denormals of operands, results or both.

KEEPS_SOURCES, KEEPS_RESULTS = 1, 2


def flushed(words: list[int], width: int, count: int) -> list[int]:
    """Return `count` floats of `width` bits side by side, with zeros of the same sign where there were denormals."""
    exponent = 0x7C00 if width == 16 else 0x7F800000
    made = []
    for word in words:
        parts = [word >> width * n & (1 << width) - 1 for n in range(count)]
        parts = [part if part & exponent else part & 1 << width - 1 for part in parts]
        made.append(sum(part << width * n for n, part in enumerate(parts)))
    return made


def denormals(rows: list[list[int]]) -> list[list[int]]:
    """Make more denormals: a third of the words lose the exponents of their floats, a third those of their halves."""
    clear = (2**64 - 1, 0x807FFFFF_807FFFFF, 0x83FF83FF_83FF83FF)
    return [[word & clear[(n + at) % 3] for n, word in enumerate(row)] for at, row in enumerate(rows)]


@pytest.mark.parametrize("mode", slow_but(range(4), [0]))
@pytest.mark.parametrize("kind", ["f32", "f16"])
def test_denormals_of_scalars(kind, mode):
    """MODE of a kind changes what reads or writes that kind; where it flushes everything, the other kind's instructions run as well."""
    both = used("gfx1201") | unused("gfx1201")
    # Some take no part of MODE: they flush always.
    floats = {one: text for one, text in both.items() if re.match(r"s_\w+_f(16|32)", one)}
    rows, width = denormals(scalars.given("gfx1201")), int(kind[1:])
    sources = rows if mode & KEEPS_SOURCES else [flushed(row, width, 64 // width) for row in rows]
    set_ = mode | 0b1100 if kind == "f32" else mode << 2 | 0b11
    made = []
    for one, example in floats.items():
        mnemonic = one.split()[0]
        if kind not in mnemonic and mode:
            continue
        reads = re.findall(r"_([iuf]\d+)", mnemonic)[-1]  # of a conversion, the last kind that its name has
        case = scalars.Scalar("gfx1201", one, example, sources if reads == kind else rows)
        writes = scalars.kind_of_result(mnemonic) if case.values else ""
        if writes.removeprefix("2") == kind and not mode & KEEPS_RESULTS:
            case.values = flushed(case.values, width, 2 if writes[0] == "2" else 1)
        if case.values:
            case.codes = [row & 1 for row in rows[2]]  # they leave the condition code as it was
        at = next(n for n, line in enumerate(case.code) if line.startswith(mnemonic))
        case.code[at : at + 1] = [f"s_denorm_mode {set_}", case.code[at], "s_denorm_mode 15"]
        made.append(case)

    assert len(made) >= (30 if mode else 60)
    assert scalars.run("gfx1201", made, rows) == []


@pytest.mark.parametrize(
    "text", ["s_add_f32 s12, s16, s17", "s_fmac_f16 s12, s16, s17", "s_fmaak_f32 s12, s16, s17, 0x41200000", "s_cvt_f16_f32 s12, s16"]
)
def test_a_direction_that_scalars_lack_is_refused(text):
    with pytest.raises(Unimplemented, match=text.split()[0]):
        lanes("gfx1201", f"s_mov_b32 s16, 1.0\n s_mov_b32 s17, 0.5\n s_round_mode 5\n {text}", [np.zeros(32, np.uint32)], 1)


def test_what_rounds_to_zero_always_does_so_in_each_direction():
    code = "s_mov_b32 s16, 0x3f8fffff\n s_mov_b32 s17, 0xbf8fffff\n s_round_mode 5\n"
    code += " s_cvt_pk_rtz_f16_f32 s12, s16, s17\n v_mov_b32 v40, s12"

    assert (lanes("gfx1201", code, [np.zeros(32, np.uint32)], 1)[0] == 0xBC7F3C7F).all()


@pytest.mark.parametrize(
    "line",
    [
        "v_mac_f32 v40, v10, v11", "v_mac_f32_e64 v40, v10, -v11", "v_madmk_f32 v40, v10, 0x41200000, v11",
        "v_madak_f32 v40, v10, v11, 0x41200000", "v_mad_f32 v40, v10, v11, v12", "v_mad_legacy_f32 v40, v10, v11, v12",
    ],
)  # fmt: skip
def test_what_rounds_twice_is_refused(line):
    """On gfx90a they flush denormals and round the product; later cards give their opcodes to other instructions."""
    with pytest.raises(Unimplemented, match=line.split()[0].removesuffix("_e64")):
        execute(load(assembled("gfx90a", f"\t{line}")), Launch((1, 1, 1), 64, bytes(16), 0, []))
