"""Cases that tinygrad recorded on AMD cards (`test/amd/hw` of its source archive, MIT), run on this project's emulator.

The cases are read where they are. They call `run_asm` of tinygrad's own emulator; this module puts its own function in that place.
"""

import ctypes
import io
import struct
import sys
import types
import unittest
from pathlib import Path

from warpwave.emulator import EmulatorError, Kernel, Launch, execute

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
