"""The figures of two sides' code as a reader sees them, and the words of each hint, by hand."""

import pytest
from synthetic import compiled

from warpwave.compare.code_hints import Figure, Side, figures, hints

BARE = {"registers": None, "spills": None, "shared_bytes": None, "constants": {}, "num_warps": None, "num_stages": None}


def side(architecture, *made):
    return Side(architecture, tuple(compiled(architecture, **fields) for fields in made))


def drawn(*made):
    """The figures of one side, by name."""
    return {figure.name: figure.here for figure in figures(side("a", *made))}


@pytest.mark.parametrize(
    ("made", "name", "text"),
    [
        ([{"registers": 96}], "registers a thread", "96"),
        ([{"registers": 96}, {"registers": 34}, {"registers": None}], "registers a thread", "34 to 96"),
        ([{"spills": 0}, {"spills": 12}], "spilled registers", "0 to 12"),
        ([{"occupancy": 0.25}, {"occupancy": 0.5}], "occupancy", "25% to 50%"),
        ([{"limited_by": ("registers", "shared")}, {"limited_by": ("shared",)}, {}], "limited by", "registers, shared"),
        ([{"resident_warps": 8}], "warps a multiprocessor", "8"),
        ([{"load_bits": 32}, {"load_bits": 128}], "widest global load", "32 bits to 128 bits"),
        ([{"shared_bytes": 0}], "shared memory", "0 B"),
        ([{"matrix": ("mma", "mfma")}, {"matrix": ("mma",)}], "matrix instructions", "mma, mfma"),
        ([{"matrix": ()}], "matrix instructions", "none"),
        ([{"constants": {"A": 1, "B": 2}, "num_warps": 1, "num_stages": 1}], "configuration", "A=1, B=2, 1 warp, 1 stage"),
        ([{"num_warps": None}, {"num_stages": None}], "configuration", "BLOCK=1024, 2 stages; BLOCK=1024, 4 warps"),
        ([{}, {}], "configuration", "BLOCK=1024, 4 warps, 2 stages"),
        ([{"constants": {"NAME": "x" * 155}}], "configuration", f"NAME={'x' * 155} …"),
        ([{"matrix": ("x" * 160,)}], "matrix instructions", "x" * 160),
    ],
)
def test_each_figure_as_text(made, name, text):
    """From the least to the most of all that the case launches; what is long ends with an ellipsis."""
    assert drawn(*made)[name] == text


def test_only_twenty_configurations_are_written_out():
    rows = [{"constants": {"B": place}, "num_warps": None, "num_stages": None} for place in range(21)]

    assert drawn(*rows)["configuration"] == "; ".join(f"B={place}" for place in range(20))


def test_a_figure_that_one_side_lacks_is_left_out():
    """With one side, only what it has is shown. The number of launches is shown if there are two sides."""
    assert figures(side("a", BARE)) == ()
    assert figures(side("a", {**BARE, "spills": 3})) == (Figure("spilled registers", "3", ""),)
    assert figures(side("a", BARE, BARE), side("b", {})) == (Figure("launches", "2", "1"),)
    assert figures(side("a", {}), side("b", BARE)) == (Figure("launches", "1", "1"),)


@pytest.mark.parametrize(
    ("mine", "theirs", "expected"),
    [
        ([{"spills": 1}, {"spills": 12}, {"spills": None}], [{}], "12 registers spilled on a, 0 on b"),
        ([{"spills": 2}], [{"spills": None}], ""),
        ([{"occupancy": 0.3}], [{"occupancy": 0.5}], "occupancy 30% on a, 50% on b"),
        ([{"occupancy": 0.375}], [{"occupancy": 0.5}], ""),
        ([{"occupancy": 0.3, "resident_warps": 9}], [{"occupancy": 0.5}], "occupancy 30% (9 warps a multiprocessor) on a, 50% on b"),
        (
            [{"occupancy": 0.3, "resident_warps": 9, "limited_by": ("unknown", "warps", "shared")}],
            [{"occupancy": 0.5}],
            "occupancy 30% (9 warps a multiprocessor, limited by warps, shared) on a, 50% on b",
        ),
        ([{"matrix": ("mma",)}], [{"matrix": ("mma",)}], ""),
        ([{"load_bits": 64}], [{"load_bits": 64}], ""),
        ([{"load_bits": 64}], [{"load_bits": None}], ""),
        ([{"num_warps": 1}], [{}], "1 warp here, 4 there"),
        ([{"num_warps": None}], [{}], ""),
        ([{"constants": {"A": 1}}], [{"constants": {"B": 2}}], "A 1 here, none there; B none here, 2 there"),
    ],
)
def test_the_evidence_of_a_hint(mine, theirs, expected):
    assert [hint.evidence for hint in hints(side("a", *mine), side("b", *theirs))][:1] == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("limits", "relief"),
    [
        (("registers",), ": fewer registers (a smaller block, more warps) would let more of them in."),
        (("scalars",), ": fewer scalar registers would let more of them in."),
        (("other", "warps", "shared"), ": smaller programs would let more of them in."),
        (("other",), "."),
        (None, "."),
    ],
)
def test_a_low_occupancy_names_what_relieves_it(limits, relief):
    """Of the configuration with the lowest one, by its first limit that something can be done about."""
    rows = [{"occupancy": 0.4, "limited_by": ("shared",)}, {"occupancy": 0.1, "limited_by": limits}, {"occupancy": None}]
    found = hints(side("a", *rows), side("b", {"occupancy": 0.9}))[0]

    assert found.text == f"Few warps are resident to hide the latency of memory{relief}"


def test_the_costliest_hint_comes_first_and_the_configuration_last():
    mine = {"spills": 9, "load_bits": 32, "occupancy": 0.1, "num_warps": 8}
    theirs = {"spills": 1, "load_bits": 64, "occupancy": 0.9, "matrix": ("mma",)}
    first_words = ["Spilled", "Its", "Narrow", "Few", "It"]

    assert [hint.text.split()[0] for hint in hints(side("a", mine), side("b", theirs))] == first_words
