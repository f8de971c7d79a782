"""Tiles of the fp8 matrix product by architecture, and the encodings that its matrix instructions take."""

from dataclasses import dataclass

import torch

from kernels.configs.matmul import FEW_ROWS, Specialized, Tile

OCP = (torch.float8_e4m3fn, torch.float8_e5m2)
FNUZ = (torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)


@dataclass(frozen=True)
class Config:
    """`tiles`: the widest first. Blocks of scales have 128 elements, so a tile has 128 columns at most, or a divisor; so has its step.

    `by_block`: tiles for scales by block; empty where they are the same. `few`: tiles of products of up to `FEW` rows, with `m` the fewest
    rows; empty where other tiles take them. `native`: encodings that the matrix units multiply. `widened`:
    encodings that become fp16 first, which holds each of their numbers. They take the last tile: converted operands need so many registers
    that a wide tile spills (gfx942). Others are refused, because Triton cannot convert them there.
    """

    tiles: tuple[Tile, ...]
    native: tuple[torch.dtype, ...] = ()
    widened: tuple[torch.dtype, ...] = ()
    by_block: tuple[Tile, ...] = ()
    specialized: tuple[Specialized, ...] = ()
    few: tuple[Tile, ...] = ()


_MFMA = {"matrix_instr_nonkdim": 16, "waves_per_eu": 2}
_SMALL = Tile(64, 64, 128, 4, 4)
# Two or three programs on a multiprocessor: while one adds up its sum, another multiplies. Measured on an H200.
_LIMIT = {"maxnreg": 168}
_HIGH, _FEW = Tile(128, 64, 128, 4, 3, options=_LIMIT), Tile(64, 32, 128, 4, 5)

MATMUL_FP8 = {
    "sm_90": Config(
        (Tile(64, 128, 128, 4, 4, options=_LIMIT), _HIGH, _FEW),
        native=OCP,
        by_block=(_HIGH, _FEW),
        # The step of the mean of scales by row and by block, which takes 3 to 30% longer.
        specialized=(
            *(Specialized(128, 256, 128, 4, 64, 740), Specialized(128, 128, 128, 6, 32, 385), Specialized(128, 64, 128, 8, 32, 262)),
            *(Specialized(64, 256, 128, 5, 32, 390), Specialized(64, 192, 128, 6, 32, 381), Specialized(64, 128, 128, 8, 32, 262)),
            Specialized(64, 96, 128, 10, 32, 243),
        ),
        few=FEW_ROWS,
    ),
    "sm_1*": Config((Tile(128, 128, 128, 8, 3), _SMALL), native=OCP),
    "sm_89": Config((Tile(128, 128, 128, 8, 2), Tile(64, 64, 128, 4, 3)), native=OCP),
    "sm_*": Config((Tile(64, 64, 128, 4, 3),), widened=(torch.float8_e5m2,)),
    # CDNA 3 has encodings of its own, with another bias and without infinities; CDNA 4 and RDNA 4 have the usual ones.
    "gfx94*": Config((Tile(128, 128, 128, 8, 2, 4, 8, _MFMA), Tile(64, 64, 128, 4, 2, 4, 8, _MFMA)), native=FNUZ, widened=OCP),
    "gfx95*": Config((Tile(128, 128, 128, 8, 2, 8, 8, _MFMA), Tile(64, 64, 128, 4, 2, 8, 8, _MFMA)), native=OCP, widened=FNUZ),
    "gfx12*": Config((Tile(128, 128, 64, 8, 2), Tile(64, 64, 64, 4, 2)), native=OCP, widened=FNUZ),
    "gfx*": Config((Tile(64, 64, 64, 4, 2),), widened=OCP + FNUZ),
    # Few rows have parts there, so that tests see them.
    "interpreter": Config((Tile(32, 32, 64, 4, 2, 2, 3),), native=OCP, widened=FNUZ, few=(Tile(16, 32, 64, 4, 2),)),
    "*": Config((Tile(64, 64, 64, 4, 2),), native=OCP),
}
