"""The pages beside the report: an upgrade, a bisection, and a diff of code. Every figure in them is made up."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

UNIT = Path(__file__).parents[1] / "unit"
sys.path.append(str(UNIT))
sys.path.append(str(UNIT / "compare" / "toolchains"))
sys.path.append(str(UNIT / "render" / "html"))

from synthetic import case, compiled, sample
from test_html_in_browser import drawn
from test_upgrade import FAILING, Answer, Reply, bisect, bisection_sections, bisection_sentence, on, said

from warpwave.compare.upgrade import upgrade as compare_toolchains
from warpwave.records import Verdict
from warpwave.render.html import render_sections
from warpwave.render.sections.upgrade import sentence, upgrade_sections


def upgrade() -> str:
    rows = (compiled(in_flight=("one read",)), compiled("sy_80"), compiled("sy_100"))
    failed = dataclasses.replace(rows[2], verdict=Verdict.FAILED, registers=None, reason="no")
    after = (compiled(in_flight=()), compiled("sy_80", spills=4), failed)
    other = [case("t.py::two", kernel="other", properties={"max_abs_err": error}) for error in ("0.001", "0.1")]
    speeds = [(sample(value=value, kernel="other"),) for value in (3000.0, 1500.0)]
    old = on("a", compiled=rows, cases=(case(), other[0]), samples=speeds[0])
    new = on("b", compiled=after, cases=(case(verdict=Verdict.FAILED, message="wrong"), other[1]), samples=speeds[1])
    found = compare_toolchains([old, new], "a", "b")
    sections = upgrade_sections(found, FAILING, (), full=True)
    return render_sections(sentence(found, ()), sections, exit_code=1, kind="upgrade", source="x")


def bisection() -> str:
    found = bisect("?", "abcd", lambda name: Reply(Answer.SKIPPED, "no build") if name == "c" else said(name == "d"))
    return render_sections(bisection_sentence(found), bisection_sections(found), exit_code=0, kind="bisect", source="x")


PAGES = {"upgrade": upgrade, "bisection": bisection, "codegen_diff": drawn}
