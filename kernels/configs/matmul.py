"""Tiles of the matrix product by architecture, the widest first; which of them a shape gets is decided in `kernels/matmul`."""

from dataclasses import dataclass, field
from typing import Any

# Rows up to which a product is a walk over its weights: a tile of warpgroups has 64 at least.
FEW = 64


@dataclass(frozen=True)
class Tile:
    """A program's block of the output, and of the inner dimension at a time.

    `group_m`: rows of tiles that are worked on together; `chiplets`: parts of the card that each have an L2 cache of their own; `options`:
    what only one vendor's compiler knows.
    """

    m: int
    n: int
    k: int
    warps: int
    stages: int
    group_m: int = 8
    chiplets: int = 1
    options: dict[str, int] = field(default_factory=dict)

    @property
    def launched(self) -> dict[str, Any]:
        """The options of a launch."""
        blocks = {"BLOCK_M": self.m, "BLOCK_N": self.n, "BLOCK_K": self.k, "GROUP_M": self.group_m, "CHIPLETS": self.chiplets}
        return {**blocks, "num_warps": self.warps, "num_stages": self.stages, **self.options}


@dataclass(frozen=True)
class Specialized:
    """The same for the kernel whose warps divide the labour; `part_n`: columns stored at a time; `step`: nanoseconds of a step on an H200.

    Each warpgroup has 64 rows: of a tile of 128 rows with all columns, of one of 64 with a piece of them.
    """

    m: int
    n: int
    k: int
    stages: int
    part_n: int
    step: int
    group_m: int = 8

    @property
    def pieces(self) -> tuple[int, ...]:
        """The columns in powers of two, as Triton's blocks are: 160 are 128 and 32."""
        first = 1 << (self.n - 1).bit_length() - 1
        return (self.n,) if self.m > 64 and 2 * first == self.n else (first, self.n - first)


@dataclass(frozen=True)
class Config:
    """`narrow`: fp16 and bf16; `frugal`: the same where addresses need more registers, with rows of odd length or a second output.

    `ieee`, `tf32`: fp32 by its precision; without the latter the former is taken. `specialized`: fp16 and bf16 that TMA can reach.
    `row`: 16-bit products of up to `m` rows with an operand that is dense in K, without matrix units.
    `few`: 16-bit products of up to `FEW` rows, with `m` the fewest rows of a tile; empty where other tiles take them.
    `dense_fp32`: tf32 reads operands that are dense in K, and fp32 a second one that is dense in N, several times faster: a copy pays.
    `widen`: operands are converted to fp32 before they are multiplied.
    """

    narrow: tuple[Tile, ...]
    frugal: tuple[Tile, ...]
    ieee: tuple[Tile, ...]
    tf32: tuple[Tile, ...] = ()
    specialized: tuple[Specialized, ...] = ()
    row: Tile | None = None
    few: tuple[Tile, ...] = ()
    dense_fp32: bool = False
    widen: bool = False


_SMALL = Tile(64, 64, 64, 4, 4)
_FRUGAL = (Tile(128, 128, 64, 8, 3), _SMALL)
# Multiply-adds without matrix instructions: registers bound the tile.
_FMA = (Tile(128, 64, 16, 8, 3), Tile(64, 64, 16, 8, 3))
_TF32 = (Tile(128, 128, 32, 8, 3), Tile(64, 64, 32, 4, 3))
# Products that wait for their weights, of 8 or 16 bits. The last is for sums whose length no step of 128 divides.
FEW_ROWS = (Tile(16, 64, 128, 4, 6), Tile(16, 64, 128, 4, 4), Tile(16, 128, 128, 4, 3), Tile(16, 64, 64, 4, 8))
# One or two rows: what counts is how much of the weights is on its way.
_ROW = Tile(2, 2, 2048, 4, 1)
_MFMA = {"matrix_instr_nonkdim": 16, "waves_per_eu": 2}


def _cdna(*tiles: tuple[int, int, int, int], group_m: int = 8, chiplets: int = 1) -> tuple[Tile, ...]:
    return tuple(Tile(m, n, k, 8, stages, group_m, chiplets, _MFMA) for m, n, k, stages in tiles)


MATMUL = {
    "sm_90": Config(
        narrow=(Tile(128, 128, 64, 4, 3), _SMALL),
        frugal=_FRUGAL,
        ieee=_FMA,
        tf32=(Tile(128, 256, 32, 8, 3), Tile(128, 128, 32, 4, 3), Tile(64, 64, 32, 4, 3)),
        row=_ROW,
        dense_fp32=True,
        few=FEW_ROWS,
        specialized=(
            *(Specialized(128, 256, 64, 4, 64, 644), Specialized(128, 192, 64, 4, 64, 486), Specialized(128, 160, 64, 5, 32, 432)),
            *(Specialized(128, 128, 64, 6, 64, 345), Specialized(128, 96, 64, 7, 32, 287), Specialized(128, 64, 64, 8, 32, 219)),
            *(Specialized(64, 256, 64, 5, 32, 345), Specialized(64, 192, 64, 6, 32, 272), Specialized(64, 160, 64, 6, 32, 249)),
            *(Specialized(64, 128, 64, 8, 32, 197), Specialized(64, 96, 64, 9, 32, 174), Specialized(64, 64, 64, 10, 32, 162)),
        ),
    ),
    "sm_100": Config(narrow=(Tile(128, 256, 64, 8, 3), *_FRUGAL), frugal=_FRUGAL, ieee=_FMA, tf32=_TF32, row=_ROW),
    "sm_*": Config(narrow=_FRUGAL, frugal=(Tile(128, 64, 64, 8, 3), _SMALL), ieee=_FMA, tf32=_TF32, row=_ROW),
    # Eight chiplets on the MI300 and MI350 series. Tiles, groups and occupancy start from ROCm/aiter's tables; not measured here.
    "gfx942": Config(
        narrow=_cdna((256, 256, 64, 2), (128, 128, 64, 2), group_m=4, chiplets=8),
        frugal=_cdna((128, 128, 64, 2), group_m=4, chiplets=8),
        ieee=_cdna((128, 128, 32, 2), group_m=4, chiplets=8),
        tf32=_cdna((128, 128, 32, 2), group_m=4, chiplets=8),
        row=_ROW,
    ),
    "gfx95*": Config(
        narrow=_cdna((256, 128, 64, 3), (128, 128, 64, 3), chiplets=8),
        frugal=_cdna((128, 128, 64, 3), chiplets=8),
        ieee=_cdna((128, 128, 32, 2), chiplets=8),
        row=_ROW,
    ),
    "gfx9*": Config(narrow=_cdna((128, 128, 32, 2)), frugal=_cdna((128, 128, 32, 2)), ieee=_cdna((128, 128, 32, 2)), row=_ROW),
    "gfx1*": Config(narrow=(Tile(128, 128, 32, 8, 2),), frugal=(Tile(128, 128, 32, 8, 2),), ieee=(Tile(64, 64, 16, 8, 2),), row=_ROW),
    # Triton's interpreter multiplies the bits of bf16. Few rows have parts there, so that tests see them.
    "interpreter": Config(
        row=Tile(2, 16, 512, 4, 1),
        few=(Tile(16, 32, 64, 4, 2),),
        narrow=(Tile(64, 32, 64, 4, 2, 2, 3), Tile(32, 32, 64, 4, 2, 2, 3)),
        frugal=(Tile(32, 64, 32, 4, 2, 2, 3),),
        ieee=(Tile(32, 64, 64, 4, 2, 2, 3),),
        widen=True,
    ),
    "*": Config(narrow=(_SMALL,), frugal=(_SMALL,), ieee=(Tile(64, 64, 16, 4, 2),)),
}
