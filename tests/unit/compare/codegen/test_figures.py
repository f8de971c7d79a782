"""Every figure of generated code that may differ, and which configuration is held against which. All rows are made up."""

from __future__ import annotations

import dataclasses

import pytest
from codegen_rows import BASE, FAILED, MMA, WGMMA, other, products, row

from warpwave.compare.changed_codegen import Concern, Delta, Trend, deltas
from warpwave.compare.codegen import Room, differing, distance, identity, moved, pair, parts, telling, variant
from warpwave.records import Verdict

WORSE, BETTER, NEITHER = Trend.WORSE, Trend.BETTER, Trend.NEITHER
PASSED = Verdict.PASSED


# --- figures ----------------------------------------------------------------------------------------------------------------------------

FIGURES = {
    "a verdict": ({}, {"verdict": Verdict.FAILED}, [(Concern.VERDICT, WORSE, "verdict", "passed", "failed", 4.0)]),
    "a verdict that is mended": ({"verdict": Verdict.ERROR}, {}, [(Concern.VERDICT, BETTER, "verdict", "error", "passed", 5.0)]),
    "spilled registers": ({"spills": 1}, {"spills": 4}, [(Concern.SPILLS, WORSE, "spilled registers", "1", "4", 12.0)]),
    "private memory": (
        {"stack_bytes": 2048}, {"stack_bytes": 1000},
        [(Concern.SPILLS, BETTER, "private memory", "2 KiB", "1000 B", 1048.0)],
    ),
    "private memory of spills": ({"spills": 3}, {"spills": 3, "stack_bytes": 16}, []),
    "occupancy": (
        {},
        {"programs": 4, "occupancy": 0.25, "limited_by": ("shared", "warps")},
        [(Concern.OCCUPANCY, WORSE, "occupancy", "50% (8x4w, registers)", "25% (4x4w, shared, warps)", 0.25)],
    ),
    "full occupancy": (
        {},
        {"programs": 16, "occupancy": 1.0},
        [(Concern.OCCUPANCY, BETTER, "occupancy", "50% (8x4w, registers)", "100% (16x4w)", 0.5)],
    ),
    "as many warps in fewer programs": (
        {},
        {"programs": 4},
        [(Concern.OCCUPANCY, NEITHER, "occupancy", "50% (8x4w, registers)", "50% (4x4w, registers)", 0.0)],
    ),
    "an occupancy that nobody tells": ({}, {"occupancy": None, "programs": 1}, []),
    "loads": ({}, {"load_widths": (32, 64)}, [(Concern.ACCESS, WORSE, "widest load", "128", "64 bits", 64.0)]),
    "loads of one reader": ({"load_widths": (), "load_bits": 64}, {}, [(Concern.ACCESS, BETTER, "widest load", "64", "128 bits", 64.0)]),
    "loads that nobody tells": (
        {"load_widths": None, "load_bits": 64}, {},
        [(Concern.ACCESS, BETTER, "widest load", "64", "128 bits", 64.0)],
    ),
    "stores": ({"store_widths": (16,)}, {}, [(Concern.ACCESS, BETTER, "widest store", "16", "128 bits", 112.0)]),
    "stores that one does not have": ({"store_widths": ()}, {}, []),
    "registers": ({"registers": 40}, {"registers": 32}, [(Concern.REGISTERS, BETTER, "registers", "40", "32", 8.0)]),
    "kinds of registers": (
        {"vgprs": 30, "agprs": 0, "sgprs": 16},
        {"vgprs": 34, "agprs": 4, "sgprs": 10},
        [
            (Concern.REGISTERS, NEITHER, "VGPR", "30", "34", 4.0),
            (Concern.REGISTERS, NEITHER, "SGPR", "16", "10", 6.0),
            (Concern.REGISTERS, NEITHER, "AGPR", "0", "4", 4.0),
        ],
    ),
    "vector registers alone": ({"vgprs": 30, "agprs": 0}, {"vgprs": 34, "agprs": 0}, []),
    "kinds that one does not tell": ({"vgprs": None, "agprs": 4, "sgprs": 3}, {"vgprs": 3, "agprs": None, "sgprs": None}, []),
    "kinds that are the same": ({"vgprs": 9, "agprs": 4, "sgprs": 3}, {"vgprs": 9, "agprs": 4, "sgprs": 3}, []),
    "shared memory": ({}, {"shared_bytes": 17000}, [(Concern.SHARED, WORSE, "shared memory", "16 KiB", "17000 B", 616.0)]),
    "shared memory that is not used any more": (
        {}, {"shared_bytes": 0},
        [(Concern.SHARED, BETTER, "shared memory", "16 KiB", "0 B", 16384.0)],
    ),
    "a binary": ({}, {"binary_bytes": 20480}, [(Concern.SIZE, WORSE, "binary", "10000 B", "20 KiB", 1.048)]),
    "a smaller binary": ({}, {"binary_bytes": 8000}, [(Concern.SIZE, BETTER, "binary", "10000 B", "8000 B", 0.25)]),
    "a binary with another comment": ({}, {"binary_bytes": 10500}, []),
    "a binary that nobody weighed": ({}, {"binary_bytes": None}, []),
    "copies": ({"instructions": {"cp.async": 4}}, {}, [(Concern.ACCESS, WORSE, "cp.async", "4", "0", 4.0)]),
    "copies that are new": ({}, {"instructions": {"cp.async": 4}}, [(Concern.ACCESS, BETTER, "cp.async", "0", "4", 4.0)]),
    "more copies": (
        {"instructions": {"cp.async": 4}}, {"instructions": {"cp.async": 6}},
        [(Concern.ACCESS, NEITHER, "cp.async", "4", "6", 2.0)],
    ),
    "copies of another kind beside those": (
        {"instructions": {"cp.async": 4}},
        {"instructions": {"cp.async": 4, "tma": 2}},
        [(Concern.ACCESS, NEITHER, "tma", "0", "2", 2.0)],
    ),
    "copies that nobody counted": ({"instructions": None}, {"instructions": {"cp.async": 6}}, []),
    "products": (products(**MMA), {}, [(Concern.MATRIX, WORSE, "mma.sync.m16n8k16.bf16", "16", "0", 16.0)]),
    "products of a later generation": (
        products(**MMA),
        products(**WGMMA),
        [
            (Concern.MATRIX, NEITHER, "mma.sync.m16n8k16.bf16", "16", "0", 16.0),
            (Concern.MATRIX, BETTER, "wgmma.m64n64k16.bf16", "0", "4", 4.0),
        ],
    ),
    "products of another shape": (
        products(mma__m16n8k16=4),
        products(mma__m16n8k8=8),
        [(Concern.MATRIX, NEITHER, "mma.m16n8k16", "4", "0", 4.0), (Concern.MATRIX, NEITHER, "mma.m16n8k8", "0", "8", 8.0)],
    ),
    "fewer products": (products(mma__a=4), products(mma__a=2), [(Concern.MATRIX, NEITHER, "mma.a", "4", "2", 2.0)]),
    "products that were not counted": ({"matrix": ("mma",), "instructions": None}, products(mma=2), []),
    "products that were not counted and are gone": (
        {"matrix": ("mma",), "instructions": None},
        products(),
        [(Concern.MATRIX, WORSE, "mma", "some", "0", 0.0)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_that_differs(name):
    """What it is, in which direction it went, both values as they are shown, and how far apart they are."""
    before, after, expected = FIGURES[name]
    found = deltas(row(**before), row(**after))

    assert found == tuple(Delta(*delta[:5], pytest.approx(delta[5])) for delta in expected)


def test_a_figure_that_did_not_change_is_none():
    """Nor is one of a kernel without a binary, of which only the verdict is compared."""
    assert deltas(row(), row()) == ()
    assert [delta.concern for delta in deltas(row(), row(**FAILED))] == [Concern.VERDICT]
    assert [delta.concern for delta in deltas(row(**FAILED), row(spills=9))] == [Concern.VERDICT]
    assert [concern.rank for concern in Concern] == list(range(8))


# --- pairs ------------------------------------------------------------------------------------------------------------------------------


def test_the_parts_of_a_configuration():
    """Types, constants and options, by name; what a failed compile left open is no part."""
    assert parts(BASE) == {
        "x": ("type", "*fp32"),
        "n": ("type", "i32"),
        "B": ("constant", 1024),
        "E": ("constant", True),
        "warps": ("option", 4),
        "stages": ("option", 2),
    }
    assert list(parts(other(num_warps=None, num_stages=None))) == ["x", "n", "B", "E"]


APART = {
    "nothing": ({}, 0, [], ()),
    "a constant": ({"constants": {"B": 512, "E": True}}, 1, ["B"], ("B 1024 → 512",)),
    "a constant's type": ({"constants": {"B": 1024, "E": 1}}, 1, ["E"], ("E True → 1",)),
    "a constant that is gone": ({"constants": {"B": 1024}}, 1, ["E"], ("E True → nothing",)),
    "a constant that is new": ({"constants": {"B": 1024, "E": True, "F": 1}}, 1, ["F"], ("F nothing → 1",)),
    "a type": ({"signature": {"x": "*bf16", "n": "i32", "B": "constexpr"}}, 1, ["x"], ("x *fp32 → *bf16",)),
    "warps": ({"num_warps": 8}, 1, ["warps"], ("4 → 8 warps",)),
    "stages": ({"num_stages": 3}, 1, ["stages"], ("2 → 3 stages",)),
    "an open option": ({"num_stages": None}, 0, [], ()),
    "several": ({"constants": {"B": 512}, "num_warps": 8}, 3, ["B", "E", "warps"], ("B 1024 → 512", "E True → nothing", "4 → 8 warps")),
}


@pytest.mark.parametrize("name", APART)
def test_how_far_two_configurations_are_apart(name):
    """The number of parts, their names, and what was retuned; an option that one does not tell is no difference."""
    changes, far, names, retuned = APART[name]

    assert distance(BASE, other(**changes)) == distance(other(**changes), BASE) == far
    assert differing(BASE, other(**changes)) == names
    assert moved(BASE, other(**changes)) == retuned
    assert (identity(BASE) == identity(other(**changes))) == (name == "nothing")


def test_the_order_of_arguments_is_no_part_of_a_configuration():
    """Two processes tell them in any order."""
    assert identity(BASE) == identity(other(signature={"n": "i32", "x": "*fp32"}, constants={"E": True, "B": 1024}))


def test_what_tells_the_configurations_of_a_launch_apart():
    """Parts with more than one value, or that some lack, in one line."""
    launch = [BASE, other(num_warps=8), other(constants={"B": 1024})]

    assert telling(launch) == {"warps", "E"}
    assert telling(launch[:1]) == frozenset()
    assert variant(BASE, {"warps", "E", "B"}) == "B=1024, E=True, 4 warps"
    assert variant(BASE, {"stages", "no such"}) == "2 stages"


def test_a_configuration_is_paired_with_itself_first():
    """By its case, then with the same of another case, then with the nearest of its own; the rest is gone or new."""
    a, b = other(origin="a"), other(origin="b")
    retuned, far = other(origin="c", num_warps=8), other(origin="c", num_warps=16, num_stages=5, constants={})
    before, gone = other(origin="c", num_warps=2, constants={"B": 1024, "E": True, "F": 1}), other(origin="d", num_warps=1)
    found = pair([b, a, before, gone], [a, b, far, retuned])

    assert found == [(b, b), (a, a), (before, retuned), (gone, None), (None, far)]
    assert pair([a], [b]) == [(a, b)]
    assert pair([a, dataclasses.replace(a)], [a]) == [(a, a), (a, None)]


def test_pairing_has_a_bound_over_all_launches():
    """Above it what was retuned is told as removed and added; a pair of five parts a side counts as a fortieth of twelve."""
    one, two = other(num_warps=1), other(num_warps=2)
    rooms = [Room(), Room(), Room()]
    rooms[1].left = rooms[2].left = 1
    rooms[2].left = 0

    assert [pair([one], [two], room) for room in rooms] == [[(one, two)], [(one, two)], [(one, None), (None, two)]]
    assert [room.left for room in rooms] == [1_999_999, 0, 0]

    rooms[1].left = 1
    large = [other(signature={}, constants=dict.fromkeys(map(str, range(19)), warps), num_warps=warps) for warps in (1, 2)]
    assert pair(large[:1], large[1:], rooms[1]) == [(large[0], None), (None, large[1])]
    wide = [other(signature={}, constants=dict.fromkeys(map(str, range(18)), warps), num_warps=warps) for warps in (1, 2)]
    rooms[1].left = 1
    assert pair(wide[:1], wide[1:], rooms[1]) == [tuple(wide)]
    assert rooms[1].left == 0
