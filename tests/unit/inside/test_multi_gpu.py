"""Several cards of one host, on cards that do not exist: everything once, one process a card, nothing lost, disagreements shown."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from synthetic import CEILING, case, facts, run, sample

from harness.collect import collect
from harness.commands.options import chosen_gpus
from harness.compare import compare
from harness.compare.comparison import Change
from harness.compare.speeds.changed_speeds import changed_speeds
from harness.errors import UsageError
from harness.inside.bench.results import Sink
from harness.inside.facts.stage import ask_about_cards
from harness.inside.multi_gpu.cards import cards
from harness.inside.multi_gpu.claims import homes
from harness.inside.multi_gpu.ledger import Ledger
from harness.records import CardShare, DeviceFacts, Job, Sample, Stage, Verdict, dump, to_json
from harness.render.html import render_html
from harness.render.markdown import render_markdown
from harness.targets import load_targets

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

REPOSITORY = Path(__file__).parents[3]
DATA = REPOSITORY / "tests" / "data" / "cards"
TARGET = f"""
schema_version: 1
targets:
  stub:
    label: cards that do not exist
    engine: local
    stages: [test, bench]
    image: {{dockerfile: none, base: none}}
    visible_devices: STUB_VISIBLE_DEVICES
    environment: {{PYTHONPATH: "{REPOSITORY}:{DATA / "device"}"}}
    probe:
      require: torch.version.git_version
      cards:
        run: [printf, 'stub-0, 700 W\\nstub-1, 500 W\\n']
        rows: '(?P<uuid>[\\w-]+), (?P<power_limit>.+)$'
"""


@pytest.fixture(scope="module")
def warpwave(tmp_path_factory):
    """The command on a host with two such cards; returns its folder and what it said."""

    def start(*more: str, folder: Path | None = None, **variables: str) -> tuple[Path, str]:
        folder = folder or tmp_path_factory.mktemp("host")
        (folder / "state").mkdir(exist_ok=True)
        (folder / "targets.yml").write_text(TARGET)
        command = [sys.executable, "-m", "harness", "run", "stub", "--targets", "targets.yml", "--kernels", str(DATA / "package"), *more]
        stub = {"STUB_CARDS": "2", "STUB_STATE": str(folder / "state"), "TMPDIR": str(folder), "TRITON_CACHE_DIR": str(folder / "cache")}
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "COLUMNS": "200", **stub, **variables}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
        return folder, done.stdout + done.stderr

    return start


@pytest.fixture(scope="module")
def shared(warpwave):
    """A run on both cards; the second is a quarter slower. Both are there for the whole of it."""
    return warpwave("--gpus", "0,1", "--out", "out", STUB_SLOW="1:1.25")


@pytest.fixture(scope="module")
def bereft(warpwave):
    """A bench in which one of the cards is lost, during the case that was its third."""
    home = homes([f"flat/N={2**i}" for i in range(7)], (0, 1))
    mine = [case.partition("=")[2] for case, card in home.items() if card == 1]
    folder, said = warpwave("--gpus", "all", "--stage", "bench", "--bench", "bench_flat.py", "--out", "out", STUB_LOSE=f"{mine[1]}@1")
    return folder, said, mine


def journal(folder: Path, card: int, stage: str = "bench") -> list[dict]:
    lines = (folder / "out" / "raw" / "stub" / stage / str(card) / "journal.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def outcomes(folder: Path, stage: str) -> Counter[str]:
    """How often a case has come to an outcome, over the journals of all cards."""
    return Counter(event["id"] for card in (0, 1) for event in journal(folder, card, stage) if event["event"] in ("finish", "death"))


def test_every_case_once_with_its_card(shared):
    """Points that pass, one that kills its process, a bench that loads nowhere, tests of all sorts: each once, and both cards had some."""
    folder, said = shared
    told = collect(folder / "out" / "raw" / "stub")
    points = Counter((point.case, point.provider) for point in told.samples)
    verdicts = Counter(point.verdict.value for point in told.samples)

    assert told.problems == (), said
    assert set(points.values()) == set(Counter(entry.id for entry in told.cases).values()) == {1}
    assert verdicts == {"passed": 14 + 4, "crashed": 1, "error": 1}
    assert Counter(entry.verdict.value for entry in told.cases) == {"passed": 10, "failed": 2, "crashed": 1, "error": 1}
    assert {point.device for point in told.samples} == {0, 1} == {int(entry.properties["gpu"]) for entry in told.cases}
    measured = {identity: count for identity, count in outcomes(folder, "bench").items() if "[loading" not in identity}
    assert set(measured.values()) == {1}
    assert "flat/test_flat.py::test_flat[0]" in outcomes(folder, "test")
    assert len((folder / "state" / "ran").read_text().splitlines()) == 6
    assert len((folder / "state" / "set-up").read_text().splitlines()) == 1


def test_results_keep_the_card_that_they_ran_on(shared):
    """A sample's card is the one whose journal has it, a test's the one that it saw itself; each has a ceiling of its own."""
    folder, _ = shared
    told = collect(folder / "out" / "raw" / "stub")
    device = {f"{point.case} [{point.provider}]": point.device for point in told.samples}
    ran = dict(line.split() for line in (folder / "state" / "ran").read_text().splitlines())
    own = {entry.id.partition("::")[2]: entry.properties["gpu"] for entry in told.cases}

    for card in (0, 1):
        assert {device[event["id"]] for event in journal(folder, card) if "sample" in event} == {card}
    assert all(own[name] == card for name, card in ran.items())
    assert sorted((entry.device, entry.when) for entry in told.ceilings) == [(0, "after"), (0, "before"), (1, "after"), (1, "before")]
    slow, fast = (min(entry.median_ms for entry in told.ceilings if entry.device == card) for card in (1, 0))
    assert slow == pytest.approx(1.25 * fast)


def test_a_case_is_on_one_card_with_all_of_its_providers_and_files_keep_their_order(shared):
    """Providers take turns on a card, or a drift would hit one alone; what lies on disk is in the authors' order, whoever was first."""
    folder, _ = shared
    told = collect(folder / "out" / "raw" / "stub")
    flat = [point for point in told.samples if point.kernel == "flat"]

    assert all(len({point.device for point in flat if point.case == case}) == 1 for case in {point.case for point in flat})
    assert [point.params["N"] for point in flat] == [2**i for i in range(7) for _ in range(2)]


def test_no_two_bench_processes_on_one_card(shared):
    """The benches hold a lock of their card for as long as their process lives: a second one on the card would have failed its points."""
    folder, _ = shared
    flat = [point for point in collect(folder / "out" / "raw" / "stub").samples if point.kernel == "flat"]

    assert {point.verdict for point in flat} == {Verdict.PASSED}
    for card in (0, 1):
        assert (folder / "state" / f"held-{card}").exists()
        kinds = [event["event"] for event in journal(folder, card)]
        # A worker is started when the one before it has come to its end, and works on one case at a time.
        assert kinds.count("worker") == 1 + kinds.count("death")
        assert kinds[-1] == "end"


def test_cards_that_disagree_are_shown(shared):
    """The copy, the clock and the power limit, in Markdown and on the page; and what each card did."""
    folder, _ = shared
    summary, page = ((folder / "out" / name).read_text() for name in ("comparison.md", "comparison.html"))
    for text in (summary, page):
        assert "copy: GPU 1 is 20.0% slower than GPU 0" in text
        assert "clock: 1000 MHz on GPU 0, 900 MHz on GPU 1" in text
        assert "power limit: 700 W on GPU 0, 500 W on GPU 1" in text
    assert "Cards of stub" in page
    assert re.search(r"\| `stub` \| 1 \| `Stub Card` \| `stub-1` \| \d+ \| \d+ \| 0\.839 \|", summary)
    assert "`stub` ❌ crashed on GPU `" in summary


def test_a_card_that_is_lost_leaves_its_work_to_the_other(bereft):
    """What it had finished is kept, what it had not is measured by the other, also the case in which it was lost; and that is told."""
    folder, said, mine = bereft
    told = collect(folder / "out" / "raw" / "stub")
    device = {(point.params["N"], point.provider): point.device for point in told.samples}

    assert {point.verdict for point in told.samples} == {Verdict.PASSED}
    assert (len(device), len(told.samples), told.problems) == (14, 14, ())
    assert device[int(mine[0]), "mine"] == 1
    assert [device[int(n), "theirs"] for n in mine[1:]] == [0] * (len(mine) - 1)
    assert [(share.device, bool(share.lost)) for share in told.shares] == [(0, False), (1, True)]
    assert "GPU 1 was lost, and the other GPUs did its work: the device was lost during flat/N=" in said
    assert "GPU 1 was lost" in (folder / "out" / "comparison.md").read_text()
    assert "GPU 1 was lost" in (folder / "out" / "comparison.html").read_text()


def test_a_run_on_several_cards_is_taken_up_again(bereft, warpwave):
    """Killed after some points: they are not measured again, whichever card had them, and the files are whole."""
    folder, _, mine = bereft
    raw = folder / "out" / "raw" / "stub"
    before = collect(raw).samples
    kept = (raw / "bench" / "0" / "journal.jsonl").read_text().splitlines(keepends=True)[:12]
    (raw / "bench" / "0" / "journal.jsonl").write_text("".join(kept))
    stages = json.loads((raw / "stages.json").read_text())
    stages["reports"] = [report for report in stages["reports"] if report["stage"] == "facts"]
    (raw / "stages.json").write_text(json.dumps({**stages, "finished": False}))
    (folder / "state" / "lost-1").unlink()
    warpwave("--gpus", "all", "--stage", "bench", "--bench", "bench_flat.py", "--resume", "out", folder=folder)
    after = collect(raw)
    finished = {identity: count for identity, count in outcomes(folder, "bench").items() if "ceiling" not in identity}

    assert len(after.samples) == len(before) == 14
    assert (len(finished), set(finished.values())) == (14, {1})
    assert {point.device for point in after.samples if point.params["N"] in (int(mine[0]), int(mine[1]))} == {1}


def test_one_card_is_not_shared_out(warpwave):
    """`--gpus` with one card: the files of ever, no folder of a card's, no ledger."""
    folder, said = warpwave("--gpus", "1", "--stage", "bench", "--bench", "bench_flat.py", "--out", "out")
    bench = folder / "out" / "raw" / "stub" / "bench"

    assert {point.device for point in collect(bench.parent).samples} == {0}, said
    assert (bench / "journal.jsonl").exists()
    assert not [path.name for path in bench.iterdir() if path.is_dir() or "ledger" in path.name or "cards" in path.name]


def test_cards_that_are_not_there_are_told(warpwave):
    """Two asked for, one visible: refused before anything is measured, with what was seen."""
    _, said = warpwave("--gpus", "0,1", "--stage", "bench", "--out", "out", STUB_CARDS="1")

    assert "2 GPUs were asked for, torch sees 1" in said


# --- who does what ----------------------------------------------------------------------------------------------------------------------


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


def test_who_is_through_waits_for_the_others(ledgers, monkeypatch):
    """Until then one of them may be lost, and leave something."""

    def waits(seconds):
        raise WaitedError

    zero, one, _ = ledgers
    assert one.next(["a"], {"a": 1}, fail) == "a"
    monkeypatch.setattr("harness.inside.multi_gpu.ledger.time.sleep", waits)
    with pytest.raises(WaitedError):
        zero.next(["a"], {"a": 1}, fail)
    one.finish("a")

    assert zero.next(["a"], {"a": 1}, fail) is None


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
    ("median_ms", "spread", "told"),
    [(1.005, 0.0, False), (1.02, 0.0, True), (1.02, 0.03, False), (1.5, 0.01, True)],
    ids=["too little", "enough", "within the scatter", "plainly"],
)
def test_copies_that_differ_are_told_where_it_matters(median_ms, spread, told):
    """At least 1 %, and further apart than the copies scatter."""
    slow = dataclasses.replace(CEILING, median_ms=median_ms, p20_ms=median_ms * (1 - spread), p80_ms=median_ms * (1 + spread))
    page = render_markdown(compare([on_two_cards(slow)]))

    assert ("copy: GPU 1 is" in page) is told


def test_a_case_on_another_card_is_not_compared():
    """Between two runs a case may have changed its card; that is no change of the code, and the reason names both cards."""
    base = on_two_cards()
    head = dataclasses.replace(
        base, samples=tuple(dataclasses.replace(point, device=1 - point.device) for point in base.samples[:2]) + base.samples[2:]
    )
    moved = changed_speeds([base], [head]).of(Change.REFUSED)

    assert {point.case for point in moved} == {"softmax/N=1024", "softmax/N=2048"}
    assert any("on GPU 1 in BASE, here on GPU 0" in point.reason for point in moved)
