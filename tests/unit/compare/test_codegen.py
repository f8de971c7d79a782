"""Every figure of generated code that may differ, and which configuration is held against which. All rows are made up."""

from __future__ import annotations

import dataclasses
import html
import io
import re
from dataclasses import replace

import pytest
from rich.console import Console
from synthetic import BASE, FAILED, MMA, WGMMA, compiled, facts, other, products, row, run

from warpwave.compare import compare
from warpwave.compare.changed_codegen import Concern, Delta, Trend, deltas, one_vendor
from warpwave.compare.codegen import Room, compare_launches, differing, distance, identity, moved, pair, parts, telling, variant
from warpwave.compare.model import Likeness
from warpwave.records import HOST_CODE, CompiledKernel, Verdict
from warpwave.render.html import render_html
from warpwave.render.markdown import render_markdown
from warpwave.render.sections.codegen import line
from warpwave.render.terminal import render_terminal

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


# Generated code of two vendors: what compiles for one only, and which kernels share a row. All rows are synthetic.


def test_what_only_one_vendor_takes_is_named():
    """Each backend has its own default of stages. That is not another configuration."""
    rows = [row(), row("sy_100"), row("syn942", **FAILED, num_stages=1), row("syn950", **FAILED, num_stages=1)]
    (split,) = one_vendor(rows)

    assert (split.lives, split.dies, split.reason) == (("sy_90", "sy_100"), ("syn942", "syn950"), "out of LDS")


TAKEN = {
    "by nobody": [row(**FAILED), row("syn942", **FAILED)],
    "by everybody": [row(), row("syn942")],
    "by some of each": [row(), row("sy_80", **FAILED), row("syn942", **FAILED), row("syn950")],
    "by one that has it alone": [row(), row("syn942", **FAILED, constants={"BLOCK": 9}), row("syn942")],
    "but for a gate": [row(), row("syn942", verdict=Verdict.FAILED, broken={"spills": "1"})],
    "in code that no GPU is there for": [row(), row("syn942", **{**FAILED, "verdict": Verdict.NOT_RUN})],
}


@pytest.mark.parametrize("rows", TAKEN.values(), ids=TAKEN)
def test_what_is_no_matter_of_vendors_is_not_reported(rows):
    """A launch is listed only if it compiles on all of one vendor's GPUs and fails on another's."""
    assert one_vendor(rows) == ()


def test_a_vendor_s_own_tile_is_found_by_its_case():
    """Tuning tables differ by vendor; what launches their entries is the same."""
    (split,) = one_vendor([row(), row("syn942", **FAILED, constants={"BLOCK": 4096})])

    assert split.lives == ("sy_90",)


def test_a_crash_of_the_compiler_is_found_by_its_case():
    """It left no configuration, only the name of the case."""
    crash = compiled("syn942", function="(host code)", verdict=Verdict.CRASHED, signature={}, constants={}, reason="SIGABRT")
    (split,) = one_vendor([row(), crash])

    assert (split.lives, split.dies, split.verdict) == (("sy_90",), ("syn942",), Verdict.CRASHED)


def test_the_report_has_the_section_only_where_there_is_something():
    """In the terminal and in Markdown."""
    split, whole = ([run(compiled=(row(), row("syn942", **more)))] for more in (FAILED, {}))
    drawn = [(str(render_markdown(compare(runs, ["alpha"]))), _terminal(compare(runs, ["alpha"]))) for runs in (split, whole)]

    assert [["Can run on one vendor only" in text for text in texts] for texts in drawn] == [[True, True], [False, False]]
    assert "fails on syn942: failed: out of LDS" in drawn[0][1]


def _terminal(comparison, full=False):
    text = io.StringIO()
    Console(file=text, width=80, force_terminal=False, highlight=False).print(render_terminal(comparison, full))
    return text.getvalue()


# --- both vendors in one row ------------------------------------------------------------------------------------------------------------


def rows_of(*kernels):
    return [
        (line.config, [cell.compiled.architecture for cell in line.cells]) for line in compare([run(compiled=kernels)], ["alpha"]).codegen
    ]


def test_vendors_stand_side_by_side_whatever_their_default_stages():
    """The backends' defaults differ, but the launch is the same."""
    assert rows_of(row(num_stages=3), row("syn942", num_stages=2)) == [("*fp32 i32, BLOCK=1024, 4 warps, 3/2 stages", ["sy_90", "syn942"])]


def test_stages_that_an_author_chose_are_configurations():
    """If an architecture has both, they are rows."""
    found = rows_of(*(row(name, num_stages=stages) for name in ("sy_90", "syn942") for stages in (2, 3)))

    turned = rows_of(*(row(name, num_stages=stages) for name, both in (("sy_90", (2, 3)), ("syn942", (3, 2))) for stages in both))

    assert [(config[-8:], len(where)) for config, where in found] == [("2 stages", 2), ("3 stages", 2)]
    assert turned == found


def test_vendors_with_tiles_of_their_own_stand_side_by_side():
    """One case with one configuration on each vendor: the row shows both, the same in any order."""
    kernels = (row("syn942", constants={"BLOCK": 4096}), row(constants={"BLOCK": 1024}))

    assert [config for config, _ in rows_of(*kernels)] == ["*fp32 i32, BLOCK=1024/4096, 4 warps, 2 stages"]
    assert [config for config, _ in rows_of(*kernels[::-1])] == [config for config, _ in rows_of(*kernels)]


def test_autotuned_configurations_are_not_mixed_up():
    """If a launch has several configurations, only equal ones share a row."""
    found = rows_of(row(constants={"BLOCK": 1}), row(constants={"BLOCK": 2}), row("syn942", constants={"BLOCK": 2}))

    apart = rows_of(row(constants={"BLOCK": 1}), row(constants={"BLOCK": 2}), row("syn942", constants={"BLOCK": 3}))
    defaults = rows_of(*(row(name, constants={"BLOCK": b}, num_stages=n) for name, n in (("sy_90", 3), ("syn942", 2)) for b in (1, 2)))

    assert [where for _, where in found] == [["sy_90"], ["sy_90", "syn942"]]
    assert [where for _, where in apart] == [["sy_90"], ["sy_90"], ["syn942"]]
    assert [where for _, where in defaults] == [["sy_90", "syn942"]] * 2


# The code of the compile stage against that of real launches, with rows made by hand.

ROW = CompiledKernel(
    "softmax",
    "softmax_kernel",
    "sm_90",
    Verdict.PASSED,
    origin="softmax/N=1024 [triton]",
    signature={"x_ptr": "*fp32", "n": "i32"},
    constants={"BLOCK": 1024},
    attributes={"x_ptr": "tt.divisibility=16"},
    num_warps=4,
    num_stages=3,
    binary_hash="aa",
    binary_bytes=1000,
    registers=40,
)


def only(launched, compiled):
    """The only row of a target that was compared with itself."""
    (found,) = compare_launches({"a": run("a", launched=tuple(launched), compiled=tuple(compiled))})
    return found


def text(entry):
    return "".join(bit.text for bit in line(entry))


def test_the_same_binary_is_counted():
    """Rows of other architectures, and points that did not run, are ignored."""
    others = [replace(ROW, architecture="sm_80", binary_hash="cc"), replace(ROW, function=HOST_CODE, verdict=Verdict.NOT_RUN)]
    found = only([ROW], [*others, ROW])

    assert (found.equal, found.deviations) == (1, ())
    assert text(found) == "a against a: of 1 launch of the card's own JIT, 1 equal byte for byte"


@pytest.mark.parametrize(
    ("compiled", "likeness", "why"),
    [
        (
            {"binary_hash": "bb"},
            Likeness.ANOTHER_BINARY,
            "the same specialization gives another binary, of the same size and registers",
        ),
        (
            {"binary_hash": "bb", "registers": 42},
            Likeness.ANOTHER_BINARY,
            "the same specialization gives another binary: 40 registers instead of 42, 1000 bytes instead of 1000",
        ),
        ({"attributes": {}}, Likeness.RESPECIALIZED, "specialized otherwise: x_ptr is tt.divisibility=16 instead of None"),
        (
            {"constants": {"BLOCK": 2048}, "num_warps": 8},
            Likeness.RESPECIALIZED,
            "specialized otherwise: BLOCK is 1024 instead of 2048, num_warps is 4 instead of 8",
        ),
        ({"function": "other_kernel"}, Likeness.NOT_SEEN, "not launched there without a GPU"),
        ({"origin": "softmax/N=2048 [triton]", "signature": {}}, Likeness.NOT_SEEN, "not launched there without a GPU"),
    ],
)
def test_a_difference_is_explained(compiled, likeness, why):
    """Every launch on the GPU is either equal or has a reason."""
    found = only([ROW], [replace(ROW, **compiled)])

    assert found.equal == 0
    assert [(entry.likeness, entry.reason) for entry in found.deviations] == [(likeness, why)]
    assert text(found).endswith(f"0 equal byte for byte, 1 {likeness.value}")


def test_a_launch_is_not_explained_by_another_architecture():
    """The launches of a GPU may be of two architectures; each is compared with its own."""
    found = only([ROW, replace(ROW, architecture="sm_80", attributes={})], [ROW, replace(ROW, architecture="sm_80", origin="else")])

    assert (found.equal, [entry.likeness for entry in found.deviations]) == (1, [Likeness.NOT_SEEN])


def test_another_targets_lane_counts_where_its_triton_is_the_same():
    """Often another target compiles without a GPU. Code from another Triton is not compared."""
    card = run("card", launched=(ROW,), compiled=())
    same, other = run("same", compiled=(ROW,)), run("other", compiled=(ROW,), facts=facts(triton="9.9"))

    assert [(row.target, row.against, row.equal) for row in compare_launches({"card": card, "same": same, "other": other})] == [
        ("card", "same", 1)
    ]
    (alone,) = compare_launches({"card": card, "other": other})
    assert text(alone) == (
        "card: 1 launch of the card's own JIT, not compared: the code compiled without a GPU is from Triton 9.9, "
        "the launches are from 3.9.0"
    )


@pytest.mark.parametrize("compiled", [[], [replace(ROW, architecture="gfx942")]])
def test_nothing_to_hold_against_is_said(compiled):
    """Launches without a counterpart are reported, not hidden."""
    assert only([ROW], compiled).reason == "nothing was compiled for sm_90 without a GPU"


@pytest.mark.parametrize("compiled", [(ROW,), ()])
def test_every_renderer_says_it_in_a_line(compiled):
    """In the terminal, in the summary and on the page, even if nothing was compiled."""
    comparison = compare([run("a", launched=(ROW,), compiled=compiled)], ["a"])
    said = text(comparison.fidelity[0]).partition(": ")[2]
    console = Console(file=io.StringIO(), width=500, highlight=False)
    console.print(render_terminal(comparison, full=True))
    page = " ".join(re.sub("<[^>]*>", "", html.unescape(render_html(comparison))).split())

    assert said in console.file.getvalue()
    assert said in render_markdown(comparison).replace("`", "")
    assert said in page


def test_without_launches_there_is_nothing_to_say():
    """The target has no GPU."""
    assert compare_launches({"a": run(compiled=(ROW,))}) == ()
