"""`nox -s emulator`: hold the emulator's operations against AMD's pseudocode, and against cases that were recorded on cards.

    python tests/emulator_reference/session.py [--operands 256] [--seed 1] [--cards gfx942,gfx1100] [--only v_max] [--recorded FOLDER]

Prints what differs, and what is not covered with the reason. Exit code 1 if anything differs.
"""

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "unit" / "emulator"), str(Path(__file__).parent)]

import ctypes
import io
import struct
import types
import unittest

from comparison import CORRECTED, Compared, compare
from machine_code import WAVES

from warpwave.emulator import EmulatorError, Kernel, Launch, execute
from warpwave.emulator.library import core

# Operations of the core that no opcode has by itself.
VARIANTS = (
    (r".*_clamp$", "integers that saturate, which a modifier asks for: tests/unit/emulator/forms"),
    (r".*", "no opcode of a card with pseudocode has it (gfx90a's own are held by tests/unit/emulator/forms)"),
)


def not_covered(compared: list[Compared]) -> dict[str, list[str]]:
    reasons: dict[str, set[str]] = {}
    done = {name for one in compared for name in one.operations}
    left = {name: why for one in compared for why, names in one.left_out.items() for name in names}
    have = {
        name
        for wave in set(WAVES.values())
        for name in core(wave).operations
        if re.match(r"[vs]_(?!load|buffer|store|atomic|dcache)", name)
    }
    for name in have - done:
        why = left.get(name) or next(why for pattern, why in VARIANTS if re.fullmatch(pattern, name))
        reasons.setdefault(why, set()).add(name)
    return {why: sorted(names) for why, names in sorted(reasons.items())}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="nox -s emulator --")
    parser.add_argument("--operands", type=int, default=256, help="sets of operands for each operation")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cards", default="gfx942,gfx950,gfx1100,gfx1201")
    parser.add_argument("--only", default="", help="operations whose mnemonic begins so")
    parser.add_argument("--recorded", type=Path, help="a source archive or clone of tinygrad, for the cases in test/amd/hw")
    asked = parser.parse_args(arguments)
    compared, differ = [], 0
    for arch in asked.cards.split(","):
        one = compare(arch, asked.operands, asked.seed, asked.only)
        compared.append(one)
        differ += len(one.differ)
        print(f"{arch}: {len(one.agreed)} operations agree, {len(one.differ)} differ ({asked.operands} sets of operands each)", flush=True)
        for name, what in one.differ:
            print(f"  {name}: {what}")
    if not asked.only:
        print("\nPseudocode that was put right first:")
        for pattern, _, why in CORRECTED:
            print(f"  {pattern}: {why}")
        print("\nNot covered:")
        for why, names in not_covered(compared).items():
            print(f"  {why}: {', '.join(names)}")
    if asked.recorded:
        ran, wrong, refused = run_recorded(asked.recorded)
        differ += len(wrong)
        print(f"\nRecorded on cards: {ran} cases, {ran - len(wrong) - len(refused)} the same, {len(wrong)} differ, {len(refused)} refused")
        for name, what in wrong:
            print(f"  {name}: {what}")
        for name, what in refused:
            print(f"  refused {name}: {what.split(' (kernel')[0]}")
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))


# Cases that tinygrad recorded on AMD cards (`test/amd/hw` of its source archive, MIT), run on this project's emulator.

_CARDS = {"rdna3": ("gfx1100", 32), "rdna4": ("gfx1201", 32), "cdna": ("gfx950", 64)}
_LDS_OF = 0x1FF  # of PGM_RSRC2, from bit 15 on: units of 512 bytes
# As the cases' own kernels had it: to nearest, denormals of half and double only, NaN clamps to 0, IEEE.
_RSRC1 = {"rdna3": 63 | 3 << 18 | 1 << 21 | 1 << 23, "rdna4": 63 | 3 << 18, "cdna": 63 | 3 << 18 | 1 << 21 | 1 << 23}
_RSRC3 = 63  # CDNA: 256 rows


def run_asm(
    code: int, size: int, x: int, y: int, z: int, threads: int, _y: int, _z: int, arguments: int, rsrc2: int = 0, scratch: int = 0,
    arch: str = "rdna3", **_: object,
) -> int:  # fmt: skip
    """Execute machine code of this process; the only argument is the address of what it writes."""
    card, wave = _CARDS[arch]
    wave = 64 if threads > wave else wave
    image = ctypes.string_at(code, size)
    descriptor = struct.pack("<44xIIIHH4x", _RSRC3, _RSRC1[arch], 2 << 1 | 1 << 7, 1 << 3, 0)
    lds = (rsrc2 >> 15 & _LDS_OF) * 512
    kernel = Kernel("recorded", card, wave, (), 8, lds, scratch, 0, size, (0, size), descriptor, image, b"")
    packed = ctypes.string_at(arguments, 8)
    # 16 vector registers of each thread, 16 scalar ones, and three words: what tests/amd/hw/helpers.py of the archive reserves.
    written = max(16 * threads * 4, 2048) + 64 + 12 if scratch and arch == "rdna3" else threads * 4
    execute(kernel, Launch((x, y, z), threads, packed, lds, [(struct.unpack("<Q", packed)[0], written)]), limit_instructions=100_000)
    return 0


class _Result(unittest.TextTestResult):
    """Keeps what differs apart from what the emulator has no operation for."""

    def __init__(self, *arguments: object, **named: object) -> None:
        super().__init__(*arguments, **named)  # type: ignore[arg-type]
        self.refused: list[tuple[str, str]] = []

    def addError(self, test: unittest.TestCase, err: object) -> None:  # noqa: N802 - unittest's name
        if isinstance(err[1], EmulatorError):  # type: ignore[index]
            self.refused.append((test.id(), str(err[1])))  # type: ignore[index]
        else:
            super().addError(test, err)  # type: ignore[arg-type]


def run_recorded(archive: Path) -> tuple[int, list[tuple[str, str]], list[tuple[str, str]]]:
    """Return how many cases ran, those that differ with what they say, and those that the emulator refused."""
    if not (archive / "test" / "amd" / "hw" / "helpers.py").is_file():
        sys.exit(f"{archive} has no test/amd/hw/helpers.py. It is no source archive of tinygrad. Unpack or clone one, and pass its folder.")
    stub = types.ModuleType("test.mockgpu.amd.emu")
    stub.run_asm = run_asm  # type: ignore[attr-defined]
    sys.path.insert(0, str(archive))
    for name in [name for name in sys.modules if name == "test" or name.startswith("test.")]:
        del sys.modules[name]
    sys.modules |= {name: types.ModuleType(name) for name in ("test.mockgpu", "test.mockgpu.amd")} | {stub.__name__: stub}
    suite = unittest.TestSuite()
    for path in sorted((archive / "test" / "amd" / "hw").glob("test_*.py")):
        if not path.stem.startswith("test_cdna"):  # code that reads m0 unset, and so was never what a card ran
            suite.addTests(unittest.defaultTestLoader.loadTestsFromName(f"test.amd.hw.{path.stem}"))
    result = unittest.TextTestRunner(stream=io.StringIO(), resultclass=_Result).run(suite)
    differ = [(test.id(), text.strip().splitlines()[-1]) for test, text in [*result.failures, *result.errors]]
    return result.testsRun, differ, result.refused
