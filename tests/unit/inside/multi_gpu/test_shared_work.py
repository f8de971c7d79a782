"""Who does what where several cards share a stage, what becomes of a card that is lost, and what a report says of cards that differ."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections import Counter

import pytest
from synthetic import CEILING, case, facts, run, sample

from warpwave.cli.parse import chosen_gpus
from warpwave.compare import compare
from warpwave.compare.changed_speeds import changed_speeds
from warpwave.compare.model import Change
from warpwave.config.targets import load_targets
from warpwave.errors import UsageError
from warpwave.inside.bench.results import Sink
from warpwave.inside.facts.stage import ask_about_cards
from warpwave.inside.multi_gpu.ledger import SEAT_STEP, Ledger, cards
from warpwave.inside.multi_gpu.share import homes
from warpwave.records import CardShare, DeviceFacts, Job, Sample, Stage, Verdict, dump, to_json
from warpwave.render.html import render_html
from warpwave.render.markdown import render_markdown


@pytest.fixture
def ledgers(tmp_path):
    return [Ledger(tmp_path / "ledger", card) for card in (0, 1, 2)]


def fail():
    raise AssertionError("somebody waits where there is something to do, or nothing left")


def test_a_unit_is_claimed_once_and_at_home(ledgers):
    """Each card gets what is its own, in order; a card without any left waits for the others, and is done when they are."""
    zero, one, _ = ledgers
    units, home = ["a", "b", "c", "d"], {"a": 0, "b": 1, "c": 0, "d": 1}
    got = []
    for ledger in (zero, zero, one, one):
        got.append(ledger.next(units, home, fail))
        ledger.finish(got[-1])

    assert got == ["a", "c", "b", "d"]
    assert zero.next(units, home, fail) is None


class WaitedError(Exception):
    """Somebody waits."""


def test_who_is_through_waits_for_the_others_on_its_card_only(ledgers, monkeypatch):
    """Until then one of them may be lost, and leave something. Another card's work is not waited for: this card is given back."""

    def waits(seconds):
        raise WaitedError

    zero, one, _ = ledgers
    neighbour = Ledger(zero.path, SEAT_STEP)
    monkeypatch.setattr("warpwave.inside.multi_gpu.ledger.time.sleep", waits)
    assert one.next(["a"], {"a": 1}, fail) == "a"
    assert zero.next(["a"], {"a": 1}, fail) is None
    assert neighbour.next(["b"], {}, fail) == "b"
    with pytest.raises(WaitedError):
        zero.next(["b"], {}, fail)


def test_a_fresh_worker_goes_on_with_what_its_card_has_begun(ledgers, tmp_path):
    """After a crash; and nobody else gets it meanwhile."""
    units = ["a", "b", "c"]
    assert ledgers[0].next(units, {}, fail) == "a"

    assert Ledger(tmp_path / "ledger", 0).next(units, {}, fail) == "a"
    assert ledgers[1].next(units, {}, fail) == "b"


def test_what_a_lost_card_had_is_for_the_others(ledgers):
    """Also what was to be done on it alone, and the heir is told that it was begun."""
    zero, one, _ = ledgers
    units, home = ["a", "b", "c"], {"a": 0, "b": 1, "c": 1}
    zero.finish(zero.next(units, home, fail))
    assert one.next(units, home, fail) == "b"
    one.leave(during="b [triton]")
    taken = []
    while (unit := zero.next(units, home, fail)) is not None:
        taken.append((unit, zero.inherited))
        zero.finish(unit)

    assert taken == [("b", True), ("c", False)]
    assert zero.lost_during("b [triton]") == ()


def test_a_case_that_has_cost_two_cards_is_left_alone(ledgers):
    """One may be the card's fault."""
    for ledger in ledgers[:2]:
        ledger.leave(during="b [triton]")
    ledgers[2].finish("a")

    assert ledgers[2].lost_during("b [triton]") == (0, 1)


def test_a_torn_line_of_a_ledger_costs_only_itself(ledgers, tmp_path):
    """A worker that is killed while it writes."""
    assert ledgers[0].next(["a", "b"], {}, fail) == "a"
    with open(tmp_path / "ledger", "a") as file:
        file.write('{"event": "cla')

    assert ledgers[1].next(["a", "b"], {}, fail) == "b"
    assert ledgers[2].next(["a", "b", "c"], {}, fail) == "c"


def test_sizes_go_round_the_cards_and_stay_where_they_are():
    """Half of a sweep each, small and large; another kernel beside it changes nothing."""
    sweep = [f"softmax/N={n}" for n in range(1, 99)]
    alone = homes(sweep, (0, 1))
    beside = homes([f"add/N={n}" for n in range(3)] + sweep, (0, 1))

    assert Counter(alone.values()) == {0: 49, 1: 49}
    assert all(alone[one] != alone[two] for one, two in itertools.pairwise(sweep))
    assert {case: beside[case] for case in sweep} == alone


def test_a_row_of_a_kernel_that_all_cards_compile_is_there_once(tmp_path):
    """And a point that only one card tells of stays, however often it has been measured on it."""
    sink = Sink(tmp_path, "samples.jsonl")
    for card in (0, 1, 1):
        sink.on_event({"event": "kernel", "row": {"function": "f", "origin": f"case {card}", "seconds": float(card)}}, card)
    line = to_json(Sample("k/N=1", "k", "mine", {}, 1, Verdict.PASSED))
    sink.on_event({"event": "finish", "id": "k/N=1 [mine]", "verdict": "passed", "reason": "", "sample": line}, 1)

    assert len((tmp_path / "kernels.jsonl").read_text().splitlines()) == 1
    assert len((tmp_path / "samples.jsonl").read_text().splitlines()) == 1


def test_what_ends_first_is_not_first_on_disk(tmp_path):
    """The first provider of a benchmark is the kernel's own; in turns, a quieter one ends before it."""
    sink = Sink(tmp_path, "samples.jsonl")
    names = ("mine", "theirs", "copy")
    fields = {"case": "k/N=1", "kernel": "k", "params": {}, "unit": "GB/s", "device": 0}
    sink.on_event({"event": "collected", "points": {f"k/N=1 [{name}]": {**fields, "provider": name} for name in names}})
    for name in reversed(names):
        line = to_json(Sample("k/N=1", "k", name, {}, 1, Verdict.PASSED, reason="one\u2028two\x85three"))
        sink.on_event({"event": "finish", "id": f"k/N=1 [{name}]", "verdict": "passed", "reason": "", "sample": line})
    sink.report([])

    assert [json.loads(line)["provider"] for line in (tmp_path / "samples.jsonl").read_text().split("\n")[:-1]] == list(names)


# --- which cards ------------------------------------------------------------------------------------------------------------------------


def job_on(tmp_path, *uuids: str) -> Job:
    """A job whose facts stage has seen these cards."""
    devices = tuple(DeviceFacts(index, "Card", "sx1", 1 << 30, 4, uuid=uuid) for index, uuid in enumerate(uuids))
    dump(facts(devices=devices), tmp_path / "facts.json")
    return Job("run-1", "stub", (Stage.BENCH,), "/kernels", str(tmp_path), visible_devices="STUB_VISIBLE_DEVICES")


def test_a_worker_sees_its_card_by_the_name_that_the_host_gave(tmp_path, monkeypatch):
    """In a container cards are counted from 0; where a scheduler or the engine has chosen some, their names go on."""
    job = job_on(tmp_path, "u", "v")
    monkeypatch.delenv("STUB_VISIBLE_DEVICES", raising=False)
    assert [card.variables["STUB_VISIBLE_DEVICES"] for card in cards(job)] == ["0", "1"]
    monkeypatch.setenv("STUB_VISIBLE_DEVICES", "6,GPU-7")

    assert [(card.index, card.variables["STUB_VISIBLE_DEVICES"]) for card in cards(job)] == [(0, "6"), (1, "GPU-7")]


@pytest.mark.parametrize("uuids", [("u",), ("u", "u")])
def test_one_card_needs_no_sharing(tmp_path, uuids):
    """Also when it is there by two names: two processes on it would spoil each other's times."""
    assert cards(job_on(tmp_path, *uuids)) == ()


def test_nobody_shares_who_has_not_asked(tmp_path):
    """Without `--gpus` two visible cards are as ever: the first has all of it."""
    assert cards(dataclasses.replace(job_on(tmp_path, "u", "v"), visible_devices=None)) == ()


@pytest.mark.parametrize(
    ("gpu", "gpus", "chosen"),
    [(None, None, (None, False)), ("1", None, ("1", False)), (None, "all", (None, True)), (None, "0, 3", ("0,3", True))],
)
def test_what_the_options_come_to(gpu, gpus, chosen):
    """All that are visible have no names yet."""
    assert chosen_gpus(gpu, gpus) == chosen


@pytest.mark.parametrize(("gpu", "gpus"), [("0", "0,1"), (None, "0,0"), (None, ""), (None, "0,"), (None, "0,all")])
def test_what_they_cannot_come_to(gpu, gpus):
    """One card twice, above all."""
    with pytest.raises(UsageError):
        chosen_gpus(gpu, gpus)


def test_what_a_tool_tells_of_cards_is_read_by_their_id():
    """The shipped pattern, on lines of the form that the tool prints, with made-up figures. Without the tool nothing fails."""
    asked = load_targets()["cuda"].probe.cards
    lines = "GPU-0aB1-2, 700.00 W, 1980 MHz, 3201 MHz, Enabled\nGPU-0ab1-3, 600.00 W, 1980 MHz, 3201 MHz, Disabled\n"
    told = ask_about_cards(("printf", lines), asked.rows)

    assert told["0ab1-2"] == {"power limit": "700.00 W", "highest clock": "1980 MHz", "highest memory clock": "3201 MHz", "ecc": "Enabled"}
    assert told["0ab1-3"]["power limit"] == "600.00 W"
    assert ask_about_cards(("no-such-tool",), asked.rows) == {}


# --- the report, on made-up figures -----------------------------------------------------------------------------------------------------


def on_two_cards(second=CEILING, **more):
    """A run whose points went round two cards."""
    devices = tuple(dataclasses.replace(facts().devices[0], index=index, uuid=f"0000-{index}") for index in (0, 1))
    points = tuple(sample(2**n, 1000.0 + n, device=n % 2) for n in range(10, 18))
    tests = tuple(case(f"softmax/test_softmax.py::test_softmax[{n}]", properties={"gpu": str(n % 2)}) for n in range(4))
    shares = tuple(CardShare(Stage.BENCH, index, 4, 1.0) for index in (0, 1))
    ceilings = (CEILING, dataclasses.replace(second, device=1))
    return run(facts=facts(devices=devices), samples=points, cases=tests, shares=shares, ceilings=ceilings, **more)


def test_a_sweep_that_cards_of_a_kind_have_shared_is_one():
    """One line of the table, one curve; each number is still the card's that it was taken on."""
    comparison = compare([on_two_cards()])

    assert [(speed.n, speed.provider) for speed in comparison.speeds] == [(8, "triton")]
    assert render_html(comparison).count("data-figure=") == 1
    assert [row.cells[0].device for row in comparison.rows] == [0, 1] * 4
    assert [(device.tests, device.points) for device in comparison.targets[0].devices] == [(2, 4), (2, 4)]
    assert comparison.targets[0].disagreements == ()


@pytest.mark.parametrize(
    ("median_ms", "spread", "shown"),
    [(1.005, 0.0, False), (1.02, 0.0, True), (1.02, 0.03, False), (1.5, 0.01, True)],
    ids=["too little", "enough", "within the scatter", "plainly"],
)
def test_copies_that_differ_are_shown_where_it_matters(median_ms, spread, shown):
    """At least 1%, and further apart than the copies scatter."""
    slow = dataclasses.replace(CEILING, median_ms=median_ms, p20_ms=median_ms * (1 - spread), p80_ms=median_ms * (1 + spread))
    page = render_markdown(compare([on_two_cards(slow)]))

    assert ("copy: GPU 1 is" in page) is shown


def test_a_case_on_another_card_is_not_compared():
    """Between two runs a case may have changed its card; that is no change of the code, and the reason names both cards."""
    base = on_two_cards()
    head = dataclasses.replace(
        base, samples=tuple(dataclasses.replace(point, device=1 - point.device) for point in base.samples[:2]) + base.samples[2:]
    )
    moved = changed_speeds([base], [head]).of(Change.REFUSED)

    assert {point.case for point in moved} == {"softmax/N=1024", "softmax/N=2048"}
    assert any("on GPU 1 in BASE, here on GPU 0" in point.reason for point in moved)
