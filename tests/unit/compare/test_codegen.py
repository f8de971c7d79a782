"""Which configurations belong together, which kernels share a row, and what a card launched."""

from __future__ import annotations

import dataclasses
import html
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import command
import pytest
from recorded import recorded
from rich.console import Console
from synthetic import BASE, facts, other, record, row, run

from warpwave.collect.untrusted import read_lines
from warpwave.compare import compare
from warpwave.compare.codegen import (
    Room,
    align,
    by_generation,
    compare_codegen,
    compare_launches,
    configuration,
    differing,
    held_against,
    identity,
    moved,
    pair,
    parts,
    telling,
    use_of_waivers,
    variant,
)
from warpwave.compare.model import CodegenCell, Fidelity, WaiverUse
from warpwave.records import OPEN, CompiledKernel, Gates, Verdict, Waiver, Which
from warpwave.render.html import render_html
from warpwave.render.markdown import render_markdown
from warpwave.render.sections.codegen import line
from warpwave.render.terminal import render_terminal


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
    "nothing": ({}, [], ()),
    "a constant": ({"constants": {"B": 512, "E": True}}, ["B"], ("B 1024 → 512",)),
    "a constant's type": ({"constants": {"B": 1024, "E": 1}}, ["E"], ("E True → 1",)),
    "a constant that is gone": ({"constants": {"B": 1024}}, ["E"], ("E True → nothing",)),
    "a constant that is new": ({"constants": {"B": 1024, "E": True, "F": 1}}, ["F"], ("F nothing → 1",)),
    "a type": ({"signature": {"x": "*bf16", "n": "i32", "B": "constexpr"}}, ["x"], ("x *fp32 → *bf16",)),
    "warps": ({"num_warps": 8}, ["warps"], ("4 → 8 warps",)),
    "stages": ({"num_stages": 3}, ["stages"], ("2 → 3 stages",)),
    "an open option": ({"num_stages": None}, [], ()),
    "several": ({"constants": {"B": 512}, "num_warps": 8}, ["B", "E", "warps"], ("B 1024 → 512", "E True → nothing", "4 → 8 warps")),
}


@pytest.mark.parametrize("name", APART)
def test_how_far_two_configurations_are_apart(name):
    """The names of the parts, and what was retuned; an option that one does not tell is no difference."""
    changes, names, retuned = APART[name]

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


# Both vendors side by side.


def test_architectures_are_sorted_by_their_number():
    """In every report the same; a name of digits alone, or of none, is one, too."""
    names = ["gfx1100", "sm_100", "sm_90", "gfx942", "gfx90a", "sm_90a", "none", "7"]

    assert by_generation("sm_90\nx") == ("sm_", 90, "\nx")
    assert sorted(names, key=by_generation) == ["7", "gfx90a", "gfx942", "gfx1100", "none", "sm_90", "sm_90a", "sm_100"]


def test_a_configuration_in_one_line():
    """Options that are open are left out."""
    assert configuration(BASE) == "*fp32 i32, B=1024 E=True, 4 warps, 2 stages"
    assert configuration(other(options={"waves_per_eu": 2})) == "*fp32 i32, B=1024 E=True, 4 warps, 2 stages, waves_per_eu=2"
    assert configuration(BASE, stages=False) == "*fp32 i32, B=1024 E=True, 4 warps"
    assert configuration(other(num_warps=None, num_stages=None, constants={}, signature={})) == ""


def test_two_targets_of_one_architecture_are_two_cells_of_a_row():
    """A configuration that one target compiled twice has two rows."""
    cells = [CodegenCell("a", row()), CodegenCell("b", row()), CodegenCell("a", row())]
    found = align(cells)

    assert [(line.kernel, line.function, line.cells) for line in found] == [
        ("softmax", "_softmax_fwd", tuple(cells[:2])),
        ("softmax", "_softmax_fwd", (cells[2],)),
    ]
    assert compare_codegen({"a": run(compiled=(row(), row())), "b": run(compiled=(row(),))}) == tuple(
        dataclasses.replace(line) for line in align([cells[0], cells[2], cells[1]])
    )


def test_a_waivers_use_is_counted_over_all_targets():
    """What it covers and what it let through; a kernel that did not run is neither, and the first of two waivers is the reason."""
    first, second = Waiver("spills", "first", Which(("softmax",))), Waiver("spills", "second", Which(function=("_softmax_*",)))
    gates = Gates(OPEN, waivers=(first, second))
    waived = row(waived={"spills": "first"})
    runs = {
        "a": run(compiled=(waived, row(), row(kernel="other")), gates=gates),
        "b": run(compiled=(waived, row(verdict=Verdict.NOT_RUN)), gates=gates),
        "c": run(compiled=(waived,)),
        "d": run(compiled=(), gates=gates),
    }

    assert use_of_waivers(runs) == (WaiverUse(first, 3, 2), WaiverUse(second, 4, 0))


def _terminal(comparison, full=False):
    text = io.StringIO()
    Console(file=text, width=80, force_terminal=False, highlight=False).print(render_terminal(comparison, full))
    return text.getvalue()


def rows_of(*kernels):
    return [
        (line.config, [cell.compiled.architecture for cell in line.cells]) for line in compare([run(compiled=kernels)], ["alpha"]).codegen
    ]


def test_vendors_stand_side_by_side_whatever_their_default_stages():
    """The backends' defaults differ, but the launch is the same."""
    assert rows_of(row(num_stages=3), row("syn942", num_stages=2)) == [("*fp32 i32, BLOCK=1024, 4 warps", ["sy_90", "syn942"])]


def test_stages_that_an_author_chose_are_configurations():
    """If an architecture has both, they are rows."""
    found = rows_of(*(row(name, num_stages=stages) for name in ("sy_90", "syn942") for stages in (2, 3)))

    turned = rows_of(*(row(name, num_stages=stages) for name, both in (("sy_90", (2, 3)), ("syn942", (3, 2))) for stages in both))

    assert [(config[-8:], len(where)) for config, where in found] == [("2 stages", 2), ("3 stages", 2)]
    assert turned == found


def test_autotuned_configurations_are_not_mixed_up():
    """If a launch has several configurations, only equal ones share a row."""
    found = rows_of(row(constants={"BLOCK": 1}), row(constants={"BLOCK": 2}), row("syn942", constants={"BLOCK": 2}))

    apart = rows_of(row(constants={"BLOCK": 1}), row(constants={"BLOCK": 2}), row("syn942", constants={"BLOCK": 3}))
    defaults = rows_of(*(row(name, constants={"BLOCK": b}, num_stages=n) for name, n in (("sy_90", 3), ("syn942", 2)) for b in (1, 2)))

    assert [where for _, where in found] == [["sy_90"], ["sy_90", "syn942"]]
    assert [where for _, where in apart] == [["sy_90"], ["sy_90"], ["syn942"]]
    assert [where for _, where in defaults] == [["sy_90", "syn942"]] * 2


# Launches of a card against what was compiled.


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


@pytest.mark.parametrize(
    ("compiled", "why"),
    [
        (
            {"binary_hash": "bb"},
            "the same specialization gives another binary, of the same size and registers",
        ),
        (
            {"binary_hash": "bb", "registers": 42},
            "the same specialization gives another binary: 40 registers instead of 42, 1000 bytes instead of 1000",
        ),
        ({"attributes": {}}, "specialized otherwise: x_ptr is tt.divisibility=16 instead of None"),
        (
            {"constants": {"BLOCK": 2048}, "num_warps": 8},
            "specialized otherwise: BLOCK is 1024 instead of 2048, num_warps is 4 instead of 8",
        ),
        ({"function": "other_kernel"}, "not launched there without a GPU"),
        ({"origin": "softmax/N=2048 [triton]", "signature": {}}, "not launched there without a GPU"),
    ],
)
def test_a_difference_is_explained(compiled, why):
    """Every launch on the GPU is either equal or has a reason."""
    found = only([ROW], [replace(ROW, **compiled)])

    assert found.equal == 0
    assert found.differing == (f"softmax softmax_kernel in {ROW.origin}: {why}",)
    assert text(found).endswith("0 equal byte for byte, 1 differs")


def test_a_launch_is_not_explained_by_another_architecture():
    """The launches of a GPU may be of two architectures; each is compared with its own."""
    found = only([ROW, replace(ROW, architecture="sm_80", attributes={})], [ROW, replace(ROW, architecture="sm_80", origin="else")])

    assert (found.equal, ["not launched there" in text for text in found.differing]) == (1, [True])


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


@pytest.mark.parametrize(
    ("part", "told"),
    [
        ({"num_warps": 8}, "num_warps is 8 instead of 4"),
        ({"num_stages": 9}, "num_stages is 9 instead of 2"),
        ({"signature": {"x": "*i8"}}, "x is *i8 instead of None, x_ptr is None instead of *fp32, n is None instead of i32"),
        ({"attributes": {"x": "aligned"}}, "x is aligned instead of None"),
    ],
)
def test_every_part_of_a_specialization_counts(part, told):
    """And is named with both values."""
    equal, (entry,) = held_against([row(**part)], [row(binary_hash=row(**part).binary_hash)])

    assert equal == 0
    assert entry.endswith(f"specialized otherwise: {told}")


def test_launches_of_a_target_field_by_field():
    """Against its own compile stage and another's with the same Triton; else with the reason why there is none."""
    lane = run("lane", record=record("lane"), compiled=(row(),))
    card = run("card", record=record("card"), compiled=(), launched=(row(), row(function="f")))
    old = dataclasses.replace(card, facts=facts(triton="3.8.0"))
    sentence = "softmax f in bench: not launched there without a GPU"

    assert compare_launches({"card": card, "lane": lane}) == (Fidelity("card", "lane", "3.9.0", 2, 1, (sentence,)),)
    assert compare_launches({"lane": lane}) == ()
    for runs, words in (({"card": old, "lane": lane}, "3.9.0"), ({"card": card}, "sy_90")):
        (found,) = compare_launches(runs)
        assert dataclasses.replace(found, reason="") == Fidelity("card", "", runs["card"].facts.triton, 2)
        assert words in found.reason
    assert [entry.target for entry in compare_launches({"lane": lane, "card": card, "more": card})] == ["card", "more"]
    both = dataclasses.replace(card, compiled=(row(),))
    assert [entry.against for entry in compare_launches({"lane": lane, "card": both})] == ["card"]


# Launches recorded on an H100 (Triton 3.6.0, sweeps of the whole package).


REPO = Path(__file__).parents[3]

RECORDED = recorded() / "raw" / "cuda"


def rows(folder, name):
    return read_lines(folder, name, CompiledKernel)[0]


def test_the_lane_made_what_the_card_ran():
    """Byte for byte: every launch of the sweeps has the same binary, with the same registers, Liger's among them."""
    launched, compiled = rows(RECORDED, "bench/kernels.jsonl"), rows(RECORDED, "compile/kernels.jsonl")
    ours = [row for row in launched if not row.origin.endswith("[liger]")]
    assert (len(launched), len(ours)) == (301, 232)
    assert held_against(launched, compiled) == (301, ())


@pytest.mark.slow
def test_the_lane_still_asks_for_what_the_card_ran(tmp_path):
    """Today's compile stage gives the same inputs to the compiler:

    signature, constants, alignment, warps and stages. Binaries differ by Triton.
    """
    kernels = ("add", "dropout", "gelu")
    (tmp_path / "targets.yml").write_text(json.dumps({"targets": {"cpu": {"architectures": ["sm_90"]}}}), encoding="utf-8")
    words = ["run", "cpu", "--targets", str(tmp_path / "targets.yml"), "--stage", "compile", "--quiet"]
    words += [part for kernel in kernels for part in ("--bench", f"bench_{kernel}.py")]
    command.warpwave(*words, "--out", tmp_path / "out", cwd=REPO)
    launched = [row for row in rows(RECORDED, "bench/kernels.jsonl") if row.kernel in kernels]
    equal, differing = held_against(launched, rows(tmp_path / "out" / "raw" / "cpu", "compile/kernels.jsonl"))
    assert equal + len(differing) == 8
    assert all("another binary" in text for text in differing)
