"""Two vendors' cards beside each other, as a terminal, Markdown, a page and JSON have them. All data is synthetic."""

from __future__ import annotations

import dataclasses
import io
import json

import pytest
from rich.console import Console
from synthetic import CEILING, GPU_B, MADE_UP, case, compared, compiled, facts, no_gpu, record, run, sample, two_targets

from warpwave.compare import compare
from warpwave.compare.answer import headline, overview
from warpwave.records import Verdict
from warpwave.render.files import json_pieces
from warpwave.render.html import render_html
from warpwave.render.markdown import render_markdown
from warpwave.render.terminal import render_terminal

CARD_B = dataclasses.replace(facts(GPU_B), devices=(dataclasses.replace(facts(GPU_B).devices[0], architecture="syn942"),))


def beside(*more):
    """Two made-up cards, the second half as near its copy, and its code spills; and a target without a card."""
    here = (sample(value=3800.0),)
    there = (sample(value=1900.0), sample(value=3000.0, provider="torch"))
    code = {card: (compiled(card, origin="softmax/N=1024 [triton]", spills=spills),) for card, spills in (("sy_90", 0), ("syn942", 12))}
    alpha = run("alpha", samples=here, compiled=code["sy_90"])
    beta = run("beta", facts=CARD_B, record=record("beta"), samples=there, compiled=code["syn942"])
    return compare([alpha, beta, *more])


def terminal(comparison, width=80, full=False):
    text = io.StringIO()
    Console(file=text, width=width, force_terminal=False, highlight=False).print(render_terminal(comparison, full), crop=False)
    return " ".join(text.getvalue().split())


def page(comparison):
    from test_html import Page

    return Page(render_html(comparison)).text


def markdown(comparison):
    return render_markdown(comparison).replace("`", "")


@pytest.mark.parametrize("draw", [terminal, markdown, page])
def test_each_page_has_what_a_reader_of_two_vendors_asks_for(draw):
    """The cards, the tests of each, share, value with unit, the ratio, and the cause of the gap; what had no card is one line."""
    text = draw(beside(no_gpu()))

    for word in ("Synthetic GPU A", GPU_B, "3 passed", "95%", "48%", "1900 GB/s", "0.50", "12 registers spilled", "27 passed, 96 binaries"):
        assert word in text, word
    assert text.index("27 passed, 96 binaries") < text.index("1900 GB/s")


def test_a_target_without_a_card_has_no_column():
    head = next(line for line in render_markdown(beside(no_gpu())).splitlines() if line.startswith("| kernel"))

    assert head == "| kernel | `alpha` | `beta` | ratio | portable | largest gap |"


def test_json_has_the_rows():
    written = json.loads("".join(json_pieces(beside(no_gpu()))))["side_by_side"]
    (row,) = [row for row in written if row["kernel"] == "softmax"]

    assert (row["ratios"], row["gap_on"], row["cause"]) == ({"beta": 0.5}, "beta", "12 registers spilled")
    assert [(card["target"], card["passed"], card["share"], card["value"], card["unit"]) for card in row["cards"]] == [
        ("alpha", 3, 0.95, 3800.0, "GB/s"),
        ("beta", 3, 0.475, 1900.0, "GB/s"),
    ]
    assert compare(two_targets()[:1]).side_by_side == ()


FAILED = tuple(case(f"softmax/t.py::t[{n}]", Verdict.FAILED) for n in range(3))
BROKEN = record("beta", verdict=Verdict.INFRA, reason="the driver of the made-up card is older than what this made-up image needs, by far")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"cases": FAILED},
        {"cases": (case("a", Verdict.TIMEOUT), case("b", Verdict.CRASHED), case("c", Verdict.OOM), case("d", Verdict.GPU_HANG))},
        {"record": BROKEN},
        {"compiled": (compiled("syn942", verdict=Verdict.FAILED, registers=None, reason="out of resource"),), "cases": FAILED},
    ],
)
def test_the_headline_has_at_most_twelve_words_and_the_rest_is_not_lost(changes):
    alpha, beta = run("alpha"), run("beta", **{"facts": CARD_B, "record": record("beta"), **changes})
    comparison = compare([alpha, beta])
    alone = compare([dataclasses.replace(beta, facts=facts(None))])
    found = headline(comparison, overview(comparison))

    assert 0 < len(found.text.split()) <= 12
    assert found.text.endswith((".", "…"))
    for clause in headline(alone, overview(alone)).text.removesuffix(".").split("; "):
        if "beta" in clause and not clause.startswith("All"):
            assert clause.partition(" (")[0].lower() in f"{found.text} {found.more}".lower()


SLOW = (sample(value=1900.0),)


def test_good_never_stands_beside_what_is_slow():
    """The exit code is 0, and still there is something to look at."""
    slow, fine = compare([run("alpha", samples=SLOW)]), compare([run("alpha", samples=(sample(value=3900.0),))])
    text = io.StringIO()
    Console(file=text, width=80, force_terminal=True, highlight=False).print(render_terminal(slow))

    assert slow.exit_code == fine.exit_code == 0
    assert "Passed, with something to look at" in page(slow)
    assert "Good" in page(fine)
    assert "Good" not in page(slow).partition("less than 70%")[0]
    assert render_markdown(slow).startswith("### ⚠️ 1 kernel reaches less than 70% of the copy")
    assert render_markdown(fine).startswith("### ✅")
    assert "\x1b[1;33m1 kernel reaches less" in text.getvalue()


def test_a_kernel_of_small_cases_alone_is_called_launch_bound():
    tiny = (sample(1, 40.0, median_ms=0.005, bytes_moved=200_000),)
    comparison = compare([run("alpha", samples=tiny, ceilings=(CEILING,)), run("beta", facts=CARD_B, record=record("beta"), samples=SLOW)])

    assert all("launch-bound" in draw(comparison) for draw in (terminal, markdown, page))


def test_names_of_a_made_up_card_are_whole_in_each_page():
    assert MADE_UP in terminal(compared())
    assert all(MADE_UP in draw(compared()) for draw in (markdown, page))
