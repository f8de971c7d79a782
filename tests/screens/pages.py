"""The pages beside the report: a history, an upgrade, a bisection, and a diff of code. Every figure in them is made up."""

from __future__ import annotations

import dataclasses
import sys
import tempfile
from pathlib import Path

UNIT = Path(__file__).parents[1] / "unit"
sys.path.append(str(UNIT))
sys.path.append(str(UNIT / "compare" / "toolchains"))
sys.path.append(str(UNIT / "render" / "html"))

from synthetic import case, compiled, day, sample
from test_html_in_browser import drawn
from test_upgrade import FAILING, Answer, Reply, bisect, bisection_sections, bisection_sentence, on, said

from warpwave.compare.trends import lines
from warpwave.compare.upgrade import upgrade as compare_toolchains
from warpwave.history import add, dtypes, series
from warpwave.records import Verdict
from warpwave.render.html import render_history, render_sections
from warpwave.render.sections.upgrade import sentence, upgrade_sections


def history() -> str:
    """Two targets over 24 days; a step on the twelfth."""
    runs = [
        day(number, *(time * (1 if number < 12 else 1.25) * slower for time in (0.1, 0.2, 0.4)), target=target)
        for number in range(1, 25)
        for target, slower in (("alpha", 1.0), ("beta", 1.2))
    ]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "history.sqlite"
        add(file, runs)
        return render_history(lines(series(file), dtypes(file)), "https://example.org/a/b")


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


PAGES = {"history": history, "upgrade": upgrade, "bisection": bisection, "codegen_diff": drawn}
