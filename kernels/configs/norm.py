"""Launch configurations of layer_norm and rms_norm, forward and backward. Columns and elements are of two bytes: half as many of four."""

import math
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Tile:
    """What rows of up to `columns` columns, a power of two, are worked on by.

    `elements` a program at a time: several rows, or a step of one that is longer. Its warps; and where programs stride over rows, how
    many there are for each multiprocessor, and in how many stages their loads run ahead. In how many `chunks` a program has its columns;
    forward, `packed`, if what is needed again stays in half precision meanwhile; and the most `registers` a thread may have. `vector`: for
    rows that start anywhere, the elements of 16 bytes; a program has every `vector`-th row, and reads so many elements at a time.
    """

    columns: int
    elements: int
    warps: int
    programs: int = 1
    stages: int = 1
    chunks: int = 1
    packed: bool = False
    registers: int | None = None
    vector: int = 1


@dataclass(frozen=True)
class Parts:
    """Programs share rows, `rows` at a time: each has up to `columns` columns of them; the rest is as in `Tile`."""

    rows: int
    columns: int
    warps: int
    chunks: int = 1
    packed: bool = False
    registers: int | None = None


@dataclass(frozen=True)
class Ring:
    """Programs share rows of up to `longest` columns: each has up to `columns` of them, and strides over the rows.

    `programs` for each multiprocessor, with `ahead` rows on their way to shared memory, and one that waits for other parts.
    """

    columns: int
    warps: int
    programs: int
    ahead: int
    registers: int | None = None
    longest: float = math.inf


@dataclass(frozen=True, eq=False)  # a key by its identity
class Norm:
    """Tiles by the length of rows; rows longer than the `columns` of the last go by the others.

    `forward_parts`, `backward_rings`: programs share a row and wait for each other, so that each element is read once. None where no GPU
    has shown that it starts programs in order: then a program has the row for itself and reads it twice, in steps of `elements`
    (`forward_long`, `backward_long`), and sums over rows are a launch of their own (`column_sums`). `even`: forward, lengths that a
    power of two fits badly are split into chunks (`kernels/norm.py`), whatever the tile.
    """

    forward: tuple[Tile, ...]
    backward: tuple[Tile, ...]
    forward_long: Tile
    backward_long: Tile
    column_sums: Tile
    forward_parts: Parts | None = None
    backward_rings: tuple[Ring, ...] = ()
    even: bool = False


_PORTABLE = Norm(
    forward=(Tile(1024, 2048, 4), Tile(4096, 4096, 4), Tile(16384, 16384, 8)),
    backward=(Tile(4096, 4096, 8), Tile(8192, 8192, 16)),
    forward_long=Tile(0, 8192, 16),
    backward_long=Tile(0, 4096, 8),
    column_sums=Tile(256, 2048, 4, programs=8),
)

# Rows that run ahead wait in shared memory, two stages of them, so that registers are left for sums over rows.
_HOPPER = replace(
    _PORTABLE,
    even=True,
    backward=(
        Tile(512, 2048, 2, programs=4, stages=3),
        Tile(1024, 4096, 4, programs=2, stages=3),
        Tile(2048, 2048, 4, programs=3, stages=3),
        Tile(8192, 8192, 8, programs=1, stages=3),
    ),
    backward_rings=(Ring(1024, 1, programs=12, ahead=1, registers=160, longest=32768), Ring(2048, 2, programs=6, ahead=1, registers=168)),
)

LAYER_NORM = {
    "sm_90": replace(
        _HOPPER,
        forward=(
            Tile(64, 1024, 1, packed=True),
            Tile(128, 2048, 2, packed=True),
            Tile(256, 1024, 1, packed=True),
            Tile(2048, 2048, 2, packed=True),
            Tile(4096, 4096, 4),
            Tile(8192, 16384, 8, chunks=4, packed=True, registers=80),
            Tile(16384, 16384, 8, chunks=4, packed=True, registers=72),
            Tile(32768, 32768, 16, chunks=8, packed=True, registers=64),
        ),
        forward_parts=Parts(2, 8192, 4, chunks=8, packed=True, registers=96),
    ),
    "*": _PORTABLE,
}

RMS_NORM = {
    "sm_90": replace(
        _HOPPER,
        forward=(
            Tile(1024, 2048, 2, packed=True),
            Tile(2048, 2048, 2),
            Tile(4096, 4096, 4),
            Tile(8192, 8192, 4),
            Tile(16384, 16384, 8, chunks=4, packed=True, registers=64),
            Tile(32768, 32768, 16, chunks=4, packed=True, registers=64),
        ),
        forward_parts=Parts(4, 4096, 4, chunks=4, packed=True, registers=96),
        backward_rings=tuple(replace(ring, registers=144) for ring in _HOPPER.backward_rings),
    ),
    "*": _PORTABLE,
}
