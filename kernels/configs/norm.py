"""Launch configurations of layer_norm and rms_norm, forward and backward."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Tile:
    """What rows of up to `columns` columns, a power of two, are worked on by.

    `elements` a program at a time: several rows, or a step of one that is longer. Its warps; and where programs stride over rows, how
    many there are for each multiprocessor, and in how many stages their loads run ahead.
    """

    columns: int
    elements: int
    warps: int
    programs: int = 1
    stages: int = 1


@dataclass(frozen=True)
class Norm:
    """Tiles by the length of rows; rows longer than the `columns` of the last go by the others, in steps or parts of their `elements`.

    `forward_split`, `backward_split`: programs share a row and wait for each other, so that each element is read once. Their `elements`
    are of two bytes, and half as many where there are four. None where no GPU has shown that it starts programs in order: then a
    program has the row for itself and reads it twice (`forward_long`, `backward_long`), and sums over rows are a launch of their own
    (`column_sums`).
    """

    forward: tuple[Tile, ...]
    backward: tuple[Tile, ...]
    forward_long: Tile
    backward_long: Tile
    column_sums: Tile
    forward_split: Tile | None = None
    backward_split: Tile | None = None


# Rows that run ahead wait in shared memory, two stages of them, so that registers are left for sums over rows.
_HOPPER_BACKWARD = (
    Tile(512, 2048, 2, programs=4, stages=3),
    Tile(1024, 4096, 4, programs=2, stages=3),
    Tile(2048, 2048, 4, programs=3, stages=3),
    Tile(8192, 8192, 8, programs=1, stages=3),
)
_BACKWARD_SPLIT = Tile(0, 8192, 16, programs=1, stages=3)

_PORTABLE = Norm(
    forward=(Tile(1024, 2048, 4), Tile(4096, 4096, 4), Tile(16384, 16384, 8)),
    backward=(Tile(4096, 4096, 8), Tile(8192, 8192, 16)),
    forward_long=Tile(0, 8192, 16),
    backward_long=Tile(0, 4096, 8),
    column_sums=Tile(256, 2048, 4, programs=8),
)

LAYER_NORM = {
    "sm_90": replace(
        _PORTABLE,
        forward=(
            Tile(1024, 2048, 2),
            Tile(2048, 2048, 1),
            Tile(4096, 8192, 4),
            Tile(8192, 8192, 4),
            Tile(16384, 16384, 8),
            Tile(32768, 4096, 16),
        ),
        backward=_HOPPER_BACKWARD,
        backward_split=_BACKWARD_SPLIT,
    ),
    "*": _PORTABLE,
}

RMS_NORM = {
    # Two reads of a row by many warps beat a row in registers where there is one sum to wait for: the second is of the L1 cache.
    "sm_90": replace(
        _PORTABLE,
        forward=(
            Tile(1024, 2048, 2),
            Tile(2048, 1024, 4),
            Tile(4096, 2048, 8),
            Tile(8192, 4096, 16),
            Tile(16384, 8192, 16),
            Tile(32768, 8192, 32),
        ),
        forward_split=Tile(0, 16384, 16, programs=1, stages=3),
        backward=_HOPPER_BACKWARD,
        backward_split=_BACKWARD_SPLIT,
    ),
    "*": _PORTABLE,
}
