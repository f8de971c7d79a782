"""Vector encodings."""

from harness.emulator.decode.vector.packed import vop3p, vopd
from harness.emulator.decode.vector.single import vop1, vop2, vop3, vopc

__all__ = ["vop1", "vop2", "vop3", "vop3p", "vopc", "vopd"]
