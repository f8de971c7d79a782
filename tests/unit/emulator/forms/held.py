"""The lists of instructions in `cards/`, and what those on them leave that is not what is stated.

`cards/GFX.txt` has what the bundled kernels and `tests/idioms` compile to: one instruction for each shape (shapes.py). `cards/unused/` has
the rest of what the emulator's core executes, an instruction for each form: on all CDNA or all RDNA cards, or on one.

`statements/` says what instructions mean. `units/` (lanes, scalars, products, exchanges) and `accesses/` (memory) make programs of them.
"""

from __future__ import annotations

import collections
from functools import cache, partial
from pathlib import Path

import accesses
from machine_code import WAVES
from shapes import shape
from units import cases, exchanges, on_lanes, on_scalars

from warpwave.emulator import Check

CARDS = Path(__file__).parent / "cards"
PRODUCTS = ("v_mfma", "v_smfmac", "v_wmma", "v_swmmac")
CONTROL = (
    "s_cbranch", "s_branch", "s_endpgm", "s_wait", "s_barrier", "s_setreg", "s_sendmsg", "s_getreg", "s_round_mode", "s_denorm_mode",
    "s_getpc", "s_setpc", "s_swappc", "s_call", "s_mem", "s_trap", "s_wakeup", "s_prefetch", "s_dcache", "s_icache", "s_version",
)  # fmt: skip


def used(arch: str) -> dict[str, str]:
    """Return an instruction for each shape that kernels use on a card."""
    return by_shape(CARDS / f"{arch}.txt")


def unused(arch: str) -> dict[str, str]:
    """Return an instruction for each form that the core executes on a card, and that no kernel uses."""
    family = "cdna" if WAVES[arch] == 64 else "rdna"
    return by_shape(CARDS / "unused" / f"{family}.txt") | by_shape(CARDS / "unused" / f"{arch}.txt")


def by_shape(path: Path) -> dict[str, str]:
    return {shape(line): line for line in path.read_text().splitlines()}


def in_memory(arch: str, numbers: str | None = None) -> tuple[cases.Machine, accesses.Memory]:
    """Return a machine with memory; for atomics, `numbers` says which numbers they work on."""
    machine = accesses.machine_of(arch, numbers) if numbers else cases.Machine(arch, ("f32", "u", "u", "u", "u"))
    return machine, accesses.Memory(machine)


def wrong_on(arch: str, examples: dict[str, str]) -> list[tuple[str, str]]:
    """Execute instructions, without products and control; return those that leave something else than is stated, and what."""
    groups, scalar_cases, memory_cases = collections.defaultdict(list), [], collections.defaultdict(list)
    memories = cache(partial(in_memory, arch))
    rows = on_scalars.given(arch)
    for one, example in examples.items():
        mnemonic = one.split()[0]
        name = on_lanes.base(mnemonic)
        if mnemonic.startswith((*PRODUCTS, *CONTROL)) and mnemonic not in accesses.HINTS:
            continue
        if name in exchanges.EXCHANGES:
            memory_cases[None].append(exchanges.EXCHANGES[name](memories(None)[0], one, example))
        elif mnemonic.startswith(accesses.PREFIXES) or mnemonic in (*accesses.HINTS, *accesses.CACHES):
            numbers = accesses.memory_numbers_of(mnemonic)
            memory_cases[numbers] += accesses.memory_cases(memories(numbers)[1], one, example)
        elif mnemonic.startswith(("s_", "v_s_")):
            scalar_cases.append(on_scalars.Scalar(arch, one, example, rows))
        else:
            kinds = max(map(on_lanes.drawn_kinds, one.split(" :: ")), key=lambda each: sum(kind != "u" for kind in each))
            groups[kinds].append((one, example))
    wrong = on_scalars.run(arch, scalar_cases, rows)
    for numbers, in_group in memory_cases.items():
        machine, bytes_ = memories(numbers)
        for findings in (None, []):  # accesses that are checked are made lane by lane, others at once where that is possible
            wrong += cases.execute_cases(machine, in_group, bytes_.begin, findings)
            wrong += [(one.place.instruction, one.check.name) for one in findings or () if one.check is not Check.OUT_OF_RANGE]
    for kinds, in_group in groups.items():
        here = cases.Machine(arch, kinds)
        wrong += cases.execute_cases(here, [on_lanes.case(here, *each) for each in in_group])
    return wrong
