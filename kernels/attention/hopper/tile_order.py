"""In which order the Hopper kernels take their tiles: docs/kernels/tiles.md, "Attention"."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def _has_last(dealt, backwards):
    """Return 1 if this program gets one of the last tiles of a deal, which may not be enough for all."""
    programs, program = gl.num_programs(0), gl.program_id(0)
    place = gl.where(backwards, programs - 1 - program, program)
    return gl.where(place < dealt - (gl.cdiv(dealt, programs) - 1) * programs, 1, 0)


@gluon.jit
def deal_out(total, dealt):
    """Deal tiles to the programs, `dealt` at a time. Return this program's tiles, those of its first deal and of two, and a deal's rounds.

    Each round goes through the programs in the other direction: who got a long tile gets a short one next.
    """
    rounds = gl.cdiv(dealt, gl.num_programs(0))
    first = rounds - 1 + _has_last(dealt, rounds % 2 == 0)
    both = first + rounds - 1 + _has_last(dealt, True)
    return total // dealt // 2 * both + total // dealt % 2 * first, first, both, rounds


@gluon.jit
def index_of(turn, deal, dealt):
    """Return the index of a turn's tile in the order in which they are dealt."""
    _, first, both, rounds = deal
    programs, program = gl.num_programs(0), gl.program_id(0)
    second = gl.where(turn % both >= first, 1, 0)
    round = turn % both - second * first
    index = (turn // both * 2 + second) * dealt + round * programs
    index += gl.where((round + second * rounds) % 2 == 1, programs - 1 - program, program)
    return index


@gluon.jit
def place(index, section, row_tiles):
    """Return (head, row tile) of the tile at an index. Heads are in sections whose K and V fit the L2 cache.

    In a section, the last row tiles come first: under a mask, those are the longest.
    """
    within = index % (section * row_tiles)
    return index // (section * row_tiles) * section + within % section, row_tiles - 1 - within // section


@gluon.jit
def place_in_sequence(table, index, heads):
    """Return (head, tile) of the tile at an index, the last one first, and its sequence, see `plain/sequences.py`.

    Of the sequence: the queries, the keys, where both begin, and its number.
    """
    row = table + index // heads * 8
    start, tiles = gl.load(row), gl.load(row + 1)
    within = index - start * heads
    begin = (gl.load(row + 2), gl.load(row + 4))
    return within // tiles, tiles - 1 - within % tiles, gl.load(row + 3), gl.load(row + 5), begin, gl.load(row + 6)


@gluon.jit
def stretch(blocks):
    """Share blocks out. Return this program's number, and the first and the end of its blocks.

    Numbers go against the grid: a program waits for the number after its own, which the hardware has started before.
    """
    programs = gl.num_programs(0)
    number = programs - 1 - gl.program_id(0)
    return number, number * blocks // programs, (number + 1) * blocks // programs


@gluon.jit
def next_tile(head, tile, last_head, together, first, row_tiles):
    """Return the head and tile that come next: `together` heads have one tile after the other, from the last tile on."""
    head += 1
    if head == last_head:
        if tile == first:
            tile = row_tiles - 1
            last_head += together
        else:
            tile -= 1
            head -= together
    return head, tile, last_head


@gluon.jit
def tile_before(head, tile, first, row_tiles):
    """Return the head and tile that come next if each head has all its tiles at once, from the last tile on."""
    if tile == first:
        tile = row_tiles - 1
        head += 1
    else:
        tile -= 1
    return head, tile
