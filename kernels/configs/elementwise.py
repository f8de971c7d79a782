"""Launch configurations of add, gelu and dropout: elements a program, and its warps."""

from dataclasses import dataclass


@dataclass(frozen=True, eq=False)  # a key by its identity
class Elementwise:
    """`block` elements a program of `warps` warps; 16 bytes a lane and load at least, whatever the dtype."""

    block: int
    warps: int


ELEMENTWISE = {
    "gfx9*": Elementwise(block=2048, warps=4),  # 64 lanes a warp
    "*": Elementwise(block=1024, warps=4),
}

# Four words of random bits a Philox call, so a lane works on four runs of elements at once.
DROPOUT = {"gfx9*": Elementwise(block=4096, warps=2), "*": Elementwise(block=2048, warps=2)}
