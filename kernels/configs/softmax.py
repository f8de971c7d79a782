"""Launch configurations of softmax and log_softmax, forward and backward."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Tile:
    """How rows of up to `columns` columns, a power of two, are worked on: `elements` a program, a power of two, and its warps.

    Where a row has fewer elements, a program has several rows; where it has more, several programs have parts of it. `packed`: what is
    needed twice stays in half precision meanwhile. `registers`: a limit a thread, so that one more program fits the multiprocessor.
    `odd`: what takes its place where rows start anywhere, and not on 16 bytes; without one, it is this tile without a limit.
    """

    columns: int
    elements: int
    warps: int
    packed: bool = False
    registers: int | None = None
    odd: Tile | None = None

    def of_rows(self, even: bool) -> Tile:
        """The tile for rows that all start on 16 bytes, or anywhere."""
        return self if even else self.odd or replace(self, registers=None)


@dataclass(frozen=True, eq=False)  # a key by its identity
class Softmax:
    """Tiles by the result's bytes an element, then by length; the last one serves all that are longer.

    `exchange`: the programs that have parts of a row wait for each other, so that each element is read once; otherwise there are two
    launches, and two reads. This needs programs to start in the order of their numbers.
    `strided`: columns and elements a step, where neighbours along the dimension are none in memory. `packed`: as in `Tile`, for chunks.
    """

    forward: Mapping[int, tuple[Tile, ...]]
    backward: Mapping[int, tuple[Tile, ...]]
    strided: Tile = Tile(128, 4096, 4)
    exchange: bool = False
    packed: bool = False


_FORWARD = (Tile(1024, 2048, 4), Tile(4096, 4096, 4), Tile(8192, 8192, 8), Tile(16384, 16384, 16), Tile(65536, 8192, 16))
_BACKWARD = (Tile(1024, 2048, 4), Tile(4096, 4096, 8), Tile(8192, 8192, 16), Tile(16384, 8192, 16))

# Of Hopper, in any precision.
_SHORT = (Tile(1024, 1024, 2), Tile(2048, 2048, 2), Tile(4096, 4096, 4), Tile(8192, 8192, 8))
_SHORT_BACKWARD = (Tile(1024, 1024, 4), Tile(2048, 2048, 4), Tile(4096, 4096, 8))
_ODD = Tile(16384, 16384, 4, packed=True, registers=104)

SOFTMAX = {
    "sm_90": Softmax(
        forward={
            2: (
                *_SHORT,
                Tile(16384, 16384, 8, packed=True),
                Tile(32768, 32768, 8, packed=True, odd=_ODD),
                Tile(131072, 16384, 4, packed=True, registers=96, odd=_ODD),
                Tile(262144, 16384, 4, packed=True, registers=104, odd=_ODD),
            ),
            4: (
                Tile(16, 512, 1),
                Tile(128, 512, 2),
                *_SHORT,
                Tile(16384, 16384, 16),
                Tile(32768, 32768, 32),
                Tile(131072, 8192, 4, registers=96),
                Tile(524288, 4096, 2, registers=96),
                Tile(1048576, 8192, 4, registers=96),
            ),
        },
        backward={
            2: (
                *_SHORT_BACKWARD,
                Tile(8192, 8192, 8),
                Tile(16384, 16384, 16, packed=True),
                Tile(32768, 32768, 32, packed=True),
                Tile(131072, 8192, 4, packed=True),
                Tile(524288, 4096, 2, packed=True),
                Tile(1048576, 8192, 4, packed=True),
            ),
            4: (
                *_SHORT_BACKWARD,
                Tile(8192, 8192, 16),
                Tile(16384, 16384, 16),
                Tile(65536, 4096, 4, registers=88),
                Tile(262144, 2048, 2, registers=80),
                Tile(524288, 4096, 4, registers=88),
            ),
        },
        exchange=True,
        packed=True,
    ),
    "*": Softmax(forward={2: _FORWARD, 4: _FORWARD}, backward={2: _BACKWARD, 4: _BACKWARD}),
}
