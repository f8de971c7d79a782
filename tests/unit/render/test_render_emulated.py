"""Every page says of an emulated result that it was emulated, and of a failure that only the emulator sees that it is suspected."""

import io
import json

import pytest
from rich.console import Console
from synthetic import GPU_A, case, emulated, facts, run

from warpwave.compare import compare
from warpwave.records import DeviceFacts, Verdict
from warpwave.render.exports import FORMATS
from warpwave.render.files import json_pieces
from warpwave.render.html import render_html
from warpwave.render.junit import render_junit
from warpwave.render.markdown import render_markdown
from warpwave.render.terminal import render_terminal

FAILED = case(verdict=Verdict.FAILED, message="AssertionError: 0.3 > 1e-5")
OPEN = "suspected: it passed on cpu; a run on a syn942 card settles whether the kernel or the emulator is wrong"
CLOSED = "suspected: it passed on beta, a syn942 card, so the emulator is wrong; report it"


def terminal(comparison) -> str:
    console = Console(file=io.StringIO(), width=400)
    console.print(render_terminal(comparison))
    return console.file.getvalue()


PAGES = {"terminal": terminal, "markdown": render_markdown, "html": render_html, "junit": render_junit}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_says_emulated_and_suspected(page):
    """Beside the name of the target, which says it as well, stands the architecture; and what would settle the failure."""
    text = PAGES[page](compare([run("cpu", None, cases=(case(),), samples=(), ceilings=()), emulated(FAILED)]))

    assert "syn942-emulated" in text
    assert ('name="emulated" value="syn942"' if page == "junit" else "syn942, emulated") in text
    assert OPEN in text


@pytest.mark.parametrize("page", PAGES)
def test_a_card_of_that_kind_settles_it(page):
    """Its word counts, not the emulator's."""
    card = facts(devices=(DeviceFacts(0, GPU_A, "syn942", 1 << 36, 100),))
    text = PAGES[page](compare([run("beta", facts=card, cases=(case(),)), emulated(FAILED)]))

    assert CLOSED in text


def test_json_has_both_as_fields():
    """A reader need not parse a name."""
    found = json.loads("".join(json_pieces(compare([run("cpu", None, cases=(case(),)), emulated(FAILED)]))))

    assert [target["emulated"] for target in found["targets"]] == ["", "syn942"]
    assert found["tests"][0]["suspected"] == ["syn942-emulated"]


@pytest.mark.parametrize("name", FORMATS)
def test_no_export_has_a_number_of_it(name):
    """Exports hold speeds. OpenMetrics also counts tests, by the target's name."""
    write = FORMATS[name]
    lines = [line for line in write(compare([run("alpha"), emulated()])).splitlines() if "emulated" in line]

    assert all(line.startswith(("warpwave_tests{", "warpwave_target_complete{")) for line in lines)
    assert bool(lines) == (name == "openmetrics")
