"""Launch configurations of cross entropy: how rows of logits are walked through, and how they are held."""

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Part:
    """How rows of up to `columns` columns are held: `elements` a program, a power of two, and its warps; a shorter row has fewer of both.

    `packed`: logits in half precision stay so until they are needed again, by inline assembly of NVIDIA's. `registers`: a limit a thread,
    so that more programs fit a multiprocessor; label smoothing, which needs more, goes without.
    """

    columns: int
    elements: int
    warps: int
    packed: bool = False
    registers: int | None = None


@dataclass(frozen=True)
class CrossEntropy:
    """A row is read by one program of `warps` warps, `depth` times `width` columns a step, and from `split_from` columns on by `splits`.

    Each lane keeps a maximum and a sum of its own over the `depth` rows of the tile. `held`: for loss and gradient at once, by bytes an
    element, then by length; the last serves all that are longer. With `exchange`, the programs that hold parts of one row wait for one
    another's maximum and sum, so that each logit is read once; without, rows of more than one part are read twice.
    """

    depth: int
    width: int
    warps: int
    splits: int
    split_from: int
    gradient: Part
    held: Mapping[int, tuple[Part, ...]]
    exchange: bool = False


_HELD, _SMALL = Part(8192, 8192, 8), Part(512, 512, 4)
_PORTABLE = CrossEntropy(
    depth=8, width=1024, warps=4, splits=4, split_from=65536, gradient=Part(1 << 30, 4096, 4), held={2: (_HELD,), 4: (_HELD,)}
)

CROSS_ENTROPY = {
    "sm_90": replace(
        _PORTABLE,
        held={
            2: (
                _HELD,
                Part(16384, 16384, 8, packed=True),
                Part(32768, 32768, 8, packed=True),
                Part(1 << 30, 8192, 2, packed=True, registers=104),
            ),
            4: (Part(32768, 32768, 32), Part(1 << 30, 8192, 4, registers=96)),
        },
        exchange=True,
    ),
    "sm_*": _PORTABLE,
    "gfx9*": replace(_PORTABLE, depth=4, width=2048, gradient=Part(1 << 30, 8192, 4)),  # 64 lanes a warp
    "gfx1*": replace(_PORTABLE, depth=4),
    # The interpreter: small, so that small tests reach every branch.
    "*": CrossEntropy(depth=2, width=64, warps=4, splits=3, split_from=1000, gradient=_SMALL, held={2: (_SMALL,), 4: (_SMALL,)}),
}
