"""Tiles of attention by architecture, dtype and padded head dimension."""

from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Tile:
    """`m` queries by `n` keys at a time.

    `tma`: tiles come through tensor descriptors. `part`: columns that products of rows take at a time, where registers do not hold the
    operands whole; 0 for all, as it is with `tma`. `heads_first`: the order of programs, see `kernels/attention/plain/tiles.py`. `split`:
    dK and dV take a launch each, where registers do not hold both. `mask_all`: forward, every block has the mask, where leaving it out by
    a branch takes registers. `options`: what only one vendor's compiler knows.
    """

    m: int
    n: int
    warps: int
    stages: int
    tma: bool = False
    part: int = 0
    heads_first: bool = False
    split: bool = False
    mask_all: bool = False
    options: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.tma and self.part:
            raise ValueError(f"a tile takes its operands through descriptors or in parts, not both: tma with part={self.part}")


@dataclass(frozen=True)
class Tiles:
    """Of the three kernels, for head dimensions of up to `width`."""

    width: int
    forward: Tile
    query: Tile
    key_value: Tile


# The most queries of a call that any card decodes.
MOST_OF_DECODING = 64


@dataclass(frozen=True)
class Decode:
    """Of the kernel for few queries, for head dimensions of up to `width`.

    `most`: queries that share a head of keys and may be packed into a tile. `n`: keys at a time. `resident`: programs that a multiprocessor
    holds at a time, by shared memory; how the keys are split goes by it.
    """

    width: int
    most: int
    n: int
    warps: int
    stages: int
    resident: int
    options: dict[str, int] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Config:
    """`narrow`: fp16 and bf16. `wide`: fp32. `in_parts`: fp32 that is split into bf16 beforehand. `decode`: few queries, fp16 and bf16.
    Each by head dimension, the smallest first.

    `design`: "hopper" takes the warp-specialised kernels where they support a shape. `precision`: of products, see
    `kernels/attention/plain/tiles.py`; fp32 is multiplied as such, or split into three bf16, which hold all of its digits, also where the
    user would allow tf32.
    """

    narrow: tuple[Tiles, ...]
    wide: tuple[Tiles, ...]
    decode: tuple[Decode, ...]
    in_parts: tuple[Tiles, ...] = ()
    design: str = "tl"
    precision: str = "ieee"


_MFMA = {"matrix_instr_nonkdim": 16}


def _cdna(m: int, n: int, part: int = 0) -> Tile:
    """Eight warps, so that two programs share a compute unit; tiles of a head meet in the cache of one chiplet."""
    return Tile(m, n, 8, 1, part=part, heads_first=True, options=_MFMA)


def _tma(m: int, n: int, warps: int, stages: int, split: bool = False) -> Tile:
    return Tile(m, n, warps, stages, tma=True, split=split)


_NARROW = (
    Tiles(64, forward=Tile(64, 64, 4, 2), query=Tile(128, 64, 8, 2), key_value=Tile(32, 64, 8, 1)),
    Tiles(128, forward=Tile(64, 64, 4, 2), query=Tile(64, 32, 4, 2), key_value=Tile(32, 64, 8, 1)),
    Tiles(256, forward=Tile(64, 32, 8, 1), query=Tile(64, 32, 8, 1, part=64), key_value=Tile(32, 64, 8, 1, part=64)),
)
# Multiply-adds without matrix instructions: registers bound the tile.
_FMA = (
    Tiles(64, forward=Tile(32, 32, 4, 1), query=Tile(32, 32, 8, 1, part=32), key_value=Tile(16, 16, 8, 1, part=32)),
    Tiles(128, forward=Tile(32, 32, 8, 1), query=Tile(16, 32, 8, 1, part=32), key_value=Tile(16, 32, 8, 1, part=64)),
    Tiles(256, forward=Tile(16, 32, 8, 1, part=32), query=Tile(16, 16, 8, 1, part=32), key_value=Tile(16, 32, 8, 1, part=32)),
)

# By tensor cores, six products of bf16 for one.
_BF16X6 = (
    Tiles(64, forward=Tile(64, 32, 4, 1, part=32), query=Tile(64, 32, 4, 1, part=32), key_value=Tile(32, 64, 4, 1, part=32)),
    Tiles(128, forward=Tile(128, 32, 8, 1, part=32), query=Tile(64, 32, 4, 1, part=32), key_value=Tile(32, 64, 8, 1, part=32, split=True)),
    Tiles(256, forward=Tile(64, 16, 8, 1, part=32), query=Tile(16, 32, 8, 1, part=32), key_value=Tile(16, 64, 8, 1, part=32, split=True)),
)

# What waits is memory: several blocks on their way for each program, and several programs on each multiprocessor.
# Four stages of 64 keys and 128 columns take 100 to 150 KB of shared memory; most cards but Hopper's have 99.
_DECODE_HOPPER = (Decode(64, 64, 64, 4, 3, 3), Decode(128, 64, 64, 4, 4, 2), Decode(256, 32, 64, 8, 2, 2))
_DECODE = (Decode(64, 64, 64, 4, 2, 3), Decode(128, 64, 64, 4, 2, 2), Decode(256, 32, 32, 4, 2, 2))
_DECODE_CDNA = tuple(Decode(width, most, n, 4, 1, 2, _MFMA) for width, most, n in ((64, 64, 64), (128, 64, 32), (256, 32, 32)))

_RDNA = Config(
    decode=(Decode(64, 64, 32, 8, 1, 2), Decode(128, 64, 32, 8, 1, 2), Decode(256, 32, 16, 8, 1, 2)),
    narrow=(
        Tiles(64, forward=Tile(128, 32, 8, 1, mask_all=True), query=Tile(64, 32, 8, 1, part=32), key_value=Tile(32, 64, 8, 1, part=32)),
        Tiles(128, forward=Tile(64, 32, 8, 1, part=32), query=Tile(64, 32, 8, 1, part=32), key_value=Tile(32, 64, 8, 1, part=32)),
        Tiles(256, forward=Tile(32, 32, 4, 1, part=32), query=Tile(64, 32, 8, 1, part=32), key_value=Tile(16, 32, 8, 1, part=32)),
    ),
    wide=(
        Tiles(64, forward=Tile(32, 32, 8, 1, part=32), query=Tile(32, 32, 8, 1, part=32), key_value=Tile(16, 32, 8, 1, part=32)),
        Tiles(128, forward=Tile(32, 32, 8, 1, part=32), query=Tile(32, 32, 8, 1, part=32), key_value=Tile(16, 16, 8, 1, part=32)),
        Tiles(256, forward=Tile(16, 16, 8, 1, part=32), query=Tile(16, 16, 8, 1, part=32), key_value=Tile(16, 16, 8, 1, part=32)),
    ),
)

ATTENTION = {
    "sm_90": Config(
        narrow=(
            Tiles(128, forward=_tma(64, 64, 4, 3), query=_tma(128, 64, 8, 3), key_value=_tma(64, 64, 4, 2)),
            Tiles(256, forward=_tma(128, 64, 8, 2), query=_tma(128, 32, 8, 2), key_value=_tma(32, 128, 8, 2, split=True)),
        ),
        wide=_BF16X6,
        in_parts=(
            Tiles(64, forward=Tile(128, 32, 8, 2), query=Tile(128, 64, 8, 2), key_value=Tile(64, 128, 8, 2)),
            Tiles(128, forward=Tile(128, 32, 8, 2), query=Tile(64, 32, 4, 2), key_value=Tile(32, 64, 4, 2, split=True)),
        ),
        decode=_DECODE_HOPPER,
        design="hopper",
        precision="bf16x6",
    ),
    # Blackwell's tensor memory leaves the keys' kernel fewer registers: a tile below what fills it.
    "sm_100": Config(
        narrow=(*(replace(tiles, key_value=Tile(32, 32, 4, 2)) for tiles in _NARROW[:2]), _NARROW[2]), wide=_FMA, decode=_DECODE
    ),
    "sm_*": Config(narrow=_NARROW, wide=_FMA, decode=_DECODE),
    "gfx9*": Config(
        decode=_DECODE_CDNA,
        narrow=(
            Tiles(64, forward=_cdna(128, 64), query=_cdna(128, 64), key_value=_cdna(64, 64)),
            Tiles(128, forward=_cdna(128, 64), query=_cdna(64, 64), key_value=_cdna(32, 64)),
            Tiles(256, forward=_cdna(64, 32), query=_cdna(64, 32, part=32), key_value=_cdna(16, 64, part=32)),
        ),
        wide=(
            Tiles(64, forward=_cdna(64, 32), query=_cdna(64, 32), key_value=_cdna(32, 64)),
            Tiles(128, forward=_cdna(64, 32), query=_cdna(32, 32, part=32), key_value=_cdna(16, 64, part=32)),
            Tiles(256, forward=_cdna(32, 32, part=32), query=_cdna(32, 16, part=32), key_value=_cdna(16, 32, part=32)),
        ),
    ),
    # Wider operands of WMMA, each held twice on RDNA 3, leave this kernel no registers: it spills.
    "gfx11*": replace(_RDNA, decode=_RDNA.decode[:1]),
    "gfx1*": _RDNA,
    # For the interpreter.
    "*": Config(
        decode=(Decode(64, 32, 32, 4, 1, 1), Decode(256, 16, 16, 4, 1, 1)),
        narrow=(
            Tiles(64, forward=Tile(64, 32, 4, 1), query=Tile(64, 32, 4, 1), key_value=Tile(32, 64, 4, 1)),
            Tiles(256, forward=Tile(32, 32, 4, 1), query=Tile(32, 32, 4, 1), key_value=Tile(32, 32, 4, 1)),
        ),
        wide=(
            Tiles(64, forward=Tile(32, 32, 4, 1), query=Tile(32, 32, 4, 1), key_value=Tile(32, 32, 4, 1)),
            Tiles(256, forward=Tile(32, 16, 4, 1), query=Tile(32, 16, 4, 1), key_value=Tile(16, 32, 4, 1)),
        ),
        precision="widened",
    ),
}
