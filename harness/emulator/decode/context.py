"""What every encoding's decoder needs: the words at hand, the tables, and the C core's types."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from harness.emulator.decode.instruction import B32, B64, CLAMP, Instruction, Operand
from harness.emulator.decode.operands import LITERAL, Registers
from harness.emulator.decode.tables import cache_name, mfma_name, mnemonics, operation_name, vector_name
from harness.emulator.library import Operation

_UNKNOWN = Operation(0, "", B32, 0, (B32, B32, B32, 0))
_UNKNOWN_WIDE = Operation(0, "", B64, 0, (B64, B64, B64, 0))


@dataclass
class Context:
    """One place in the code. `format` is "fnuz" or "ocp": which 8-bit floats the architecture has."""

    code: bytes
    architecture: str
    family: str
    wavefront: int
    operations: dict[str, Operation]
    registers: Registers
    format: str
    pc: int = 0
    word: int = 0
    types_of: dict[str, Operation] = field(default_factory=dict)

    def move(self, pc: int) -> None:
        """Go to the instruction at `pc`."""
        self.pc = pc
        self.word = self.word_at(0)

    def word_at(self, n: int) -> int:
        """Return the `n`th word from here; 0 behind the end."""
        at = self.pc + 4 * n
        return int(struct.unpack_from("<I", self.code, at)[0]) if at + 4 <= len(self.code) else 0

    def begin(self, encoding: str, opcode: int, size: int = 4) -> Instruction:
        """Begin an instruction: its mnemonic, and its operation if the core has it."""
        if self.family == "cdna" and encoding in ("VOP3P", "MFMA"):
            name = mfma_name(self.architecture, opcode)
        else:
            name = vector_name(self.architecture, encoding, opcode) or mnemonics(self.family, encoding).get(opcode)
            name = name or (cache_name(self.architecture, opcode) if encoding == "MUBUF" else None)
        if name is None:
            raise ValueError(f"{encoding} opcode {opcode}")
        return self.named(name, size)

    def named(self, name: str, size: int) -> Instruction:
        """Begin an instruction by its mnemonic."""
        operation = operation_name(name)
        if operation.startswith(("v_wmma", "v_swmmac")):
            operation += f"_r{self.family[-1]}"
        elif "fp8" in operation or "bf8" in operation:
            operation += f"_{self.format}"
        found = self.operations.get(operation)
        one = Instruction(name, size, pc=self.pc, operation=found.address if found else None)
        self.types_of[name] = found or (_UNKNOWN_WIDE if name.endswith("64") else _UNKNOWN)
        return one

    def vary(self, one: Instruction, suffix: str) -> None:
        """Exchange an operation for a variant of it that the instruction's modifiers ask for; there may be none."""
        self.types_of[one.name] = found = self.operations.get(f"{operation_name(one.name)}_{suffix}", _UNKNOWN)
        one.operation = found.address or None

    def saturate(self, one: Instruction) -> None:
        """Exchange an integer operation for the one that clamps; there may be none."""
        found = self.operations.get(self.types(one).name + "_clamp")
        one.operation = found.address if found else None
        one.flags &= ~CLAMP

    def types(self, one: Instruction) -> Operation:
        """Return what the instruction's operation writes and reads; a guess by its name if the core has it not."""
        return self.types_of[one.name]

    def literal(self, one: Instruction) -> int:
        """Return the literal behind the instruction, and count it to it, once."""
        if one.size in (4, 8) and not getattr(one, "_has_literal", False):
            one.size += 4
            one._has_literal = True  # type: ignore[attr-defined]
        return self.word_at(one.size // 4 - 1)

    def source(self, one: Instruction, code: int, kind: int) -> Operand:
        """Return a source operand, with its literal if it has one."""
        return self.registers.source(code, kind, self.literal(one) if code == LITERAL else 0)
