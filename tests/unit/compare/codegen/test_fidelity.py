"""The code of the compile stage against that of real launches, with rows made by hand."""

from __future__ import annotations

import html
import io
import re
from dataclasses import replace

import pytest
from rich.console import Console
from synthetic import facts, run

from warpwave.compare import compare
from warpwave.compare.codegen import compare_launches
from warpwave.compare.model import Likeness
from warpwave.records import HOST_CODE, CompiledKernel, Verdict
from warpwave.render.html import render_html
from warpwave.render.markdown import render_markdown
from warpwave.render.sections.codegen import line
from warpwave.render.terminal import render_terminal

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
