"""Generated code of two vendors: what compiles for one only, and which kernels share a row. All rows are synthetic."""

from __future__ import annotations

import io

import pytest
from codegen_rows import FAILED, row
from rich.console import Console
from synthetic import compiled, run

from warpwave.compare import compare
from warpwave.compare.changed_codegen import one_vendor
from warpwave.records import Verdict
from warpwave.render.markdown import render_markdown
from warpwave.render.terminal import render_terminal


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

    assert [["Compiles on one vendor only" in text for text in texts] for texts in drawn] == [[True, True], [False, False]]
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
