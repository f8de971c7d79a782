"""Several cards of one host, on cards that do not exist: everything once, one process a card, nothing lost, disagreements shown."""

import contextlib
import dataclasses
import itertools
import json
import os
import re
from collections import Counter
from pathlib import Path

import pytest
from engine_requests import make_job

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

import command
from slow_cases import slow_but
from synthetic import CEILING, case, facts, run, sample

from warpwave.cli.parse import chosen_gpus
from warpwave.collect import collect
from warpwave.compare import compare
from warpwave.compare.changed_speeds import changed_speeds
from warpwave.compare.model import Change
from warpwave.compare.speeds import large_copies
from warpwave.config.targets import load_targets
from warpwave.errors import UsageError
from warpwave.inside.bench.results import Sink
from warpwave.inside.facts.stage import ask_about_cards
from warpwave.inside.multi_gpu.ledger import SEAT_STEP, Ledger, cards
from warpwave.inside.multi_gpu.pytest_plugin import Neighbours
from warpwave.inside.multi_gpu.share import homes, seats_for_tests, workers_of
from warpwave.inside.process.lease import Used
from warpwave.records import CardShare, DeviceFacts, Job, PytestSettings, Sample, Stage, Verdict, dump, to_json
from warpwave.render.html import render_html
from warpwave.render.markdown import render_markdown

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
        words = ["run", "stub", "--targets", "targets.yml", "--kernels", DATA / "package", *more]
        stub = {"STUB_CARDS": "2", "STUB_STATE": str(folder / "state"), "TMPDIR": str(folder), "TRITON_CACHE_DIR": str(folder / "cache")}
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "harness"), "COLUMNS": "200", **stub, **variables}
        done = command.warpwave(*words, cwd=folder, env=environment, light=True)
        return folder, done.stdout + done.stderr

    return start


@pytest.fixture(scope="module")
def shared(warpwave):
    """A run on both cards; the second is a quarter slower. Both are there for the whole of it."""
    return warpwave("--gpu", "0,1", "--out", "out", STUB_SLOW="1:1.25")


@pytest.fixture(scope="module")
def bereft(warpwave):
    """A bench in which one of the cards is lost, during the case that was its third."""
    home = homes([f"flat/N={2**i}" for i in range(7)], (0, 1))
    mine = [case.partition("=")[2] for case, card in home.items() if card == 1]
    folder, said = warpwave("--gpu", "all", "--stage", "bench", "--bench", "bench_flat.py", "--out", "out", STUB_LOSE=f"{mine[1]}@1")
    return folder, said, mine


def journal(folder: Path, card: int, stage: str = "bench") -> list[dict]:
    lines = (folder / "out" / "raw" / "stub" / stage / str(card) / "journal.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def outcomes(folder: Path, stage: str) -> Counter[str]:
    """How often a case has come to an outcome, over the journals of all cards."""
    return Counter(event["id"] for card in (0, 1) for event in journal(folder, card, stage) if event["event"] in ("finish", "death"))


def test_every_case_once_with_its_card(shared):
    """Points that pass, one that kills its process, a bench that loads nowhere, tests of all sorts: each once, and both cards had some.

    A sample's card is the one whose journal has it, a test's the one that it saw itself; each has a ceiling of its own. Providers of a case
    take turns on a card, or a drift would hit only one of them. The files list them in the authors' order, whichever ran first.
    """
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

    device = {f"{point.case} [{point.provider}]": point.device for point in told.samples}
    ran = dict(line.split() for line in (folder / "state" / "ran").read_text().splitlines())
    own = {entry.id.partition("::")[2]: entry.properties["gpu"] for entry in told.cases}
    for card in (0, 1):
        assert {device[event["id"]] for event in journal(folder, card) if "sample" in event} == {card}
    assert all(own[name] == card for name, card in ran.items())
    large = large_copies(told.ceilings)
    assert sorted((entry.device, entry.when) for entry in large) == [(0, "after"), (0, "before"), (1, "after"), (1, "before")]
    slow, fast = (min(entry.median_ms for entry in large if entry.device == card) for card in (1, 0))
    assert slow == pytest.approx(1.25 * fast)

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
    assert "<h3>Cards</h3>" in page
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


@pytest.mark.slow
def test_a_run_on_several_cards_is_taken_up_again(bereft, warpwave):
    """Killed after some points: they are not measured again, whichever card had them, and the files are whole."""
    folder, _, mine = bereft
    raw = folder / "out" / "raw" / "stub"
    before = collect(raw).samples
    kept = (raw / "bench" / "0" / "journal.jsonl").read_text().splitlines(keepends=True)[:12]
    (raw / "bench" / "0" / "journal.jsonl").write_text("".join(kept))
    (after_the_loss,) = (raw / "bench").glob("?????*/journal.jsonl")  # of the card that took over what the lost one left
    after_the_loss.unlink()
    stages = json.loads((raw / "stages.json").read_text())
    stages["reports"] = [report for report in stages["reports"] if report["stage"] == "facts"]
    (raw / "stages.json").write_text(json.dumps({**stages, "finished": False}))
    (folder / "state" / "lost-1").unlink()
    warpwave("--gpu", "all", "--stage", "bench", "--bench", "bench_flat.py", "--resume", "out", folder=folder)
    after = collect(raw)
    finished = {identity: count for identity, count in outcomes(folder, "bench").items() if "ceiling" not in identity}

    assert len(after.samples) == len(before) == 14
    assert (len(finished), set(finished.values())) == (14, {1})
    assert {point.device for point in after.samples if point.params["N"] in (int(mine[0]), int(mine[1]))} == {1}


def test_cards_that_are_not_there_are_reported(warpwave):
    """Two asked for, one visible: refused before anything is measured, with what was seen."""
    _, said = warpwave("--gpu", "0,1", "--stage", "bench", "--out", "out", STUB_CARDS="1")

    assert "2 GPUs were asked for, torch sees 1" in said


WAITS = """
import fcntl, time
def free(card):
    with open(f"{folder}/warpwave-stub-{{card}}.lock", "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
def test_the_other_card_is_free():
    until = time.monotonic() + 30
    while not (free(0) or free(1)):
        assert time.monotonic() < until, "both cards are held, and one of them has no work"
        time.sleep(0.05)
    assert not (free(0) and free(1))
"""


@pytest.mark.parametrize("gpus", slow_but(["0,1", "all"], ["0,1"]))
def test_a_card_without_work_is_given_back_while_the_other_has_some(warpwave, tmp_path, gpus):
    """Another run may take it. The report adds up the seconds of both cards, which is more than the stage took on one."""
    package = tmp_path / "package"
    for name, text in (("short", "def test_short():\n    pass\n"), ("long", WAITS.format(folder=tmp_path))):
        (package / name).mkdir(parents=True)
        (package / name / f"test_{name}.py").write_text(text)
    more = ("--kernels", str(package), "--stage", "test", "--gpu", gpus, "--test-workers", "1", "--out", "out")
    folder, said = warpwave(*more, folder=tmp_path)
    told = collect(folder / "out" / "raw" / "stub")

    assert {entry.id.partition("::")[2]: entry.verdict.value for entry in told.cases if "module" not in entry.id} == {
        "test_short": "passed",
        "test_the_other_card_is_free": "passed",
    }, said
    assert told.record.held["test"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 3), (3, 2)])
def test_another_number_of_workers_runs_no_finished_test_again(warpwave, tmp_path, before, after):
    """What each earlier worker finished counts, wherever its journal is; only the tests without an outcome run."""
    package, ran = tmp_path / "package", tmp_path / "ran"
    package.mkdir()
    body = f"def test_{{}}():\n    with open({str(ran)!r}, 'a') as file:\n        file.write('{{}}\\n')\n"
    for file in "abcd":
        (package / f"test_{file}.py").write_text("".join(body.format(f"{file}{n}", f"{file}{n}") for n in range(3)))
    more = ("--kernels", str(package), "--stage", "test")
    warpwave(*more, "--test-workers", str(before), "--out", "out", folder=tmp_path)
    raw = tmp_path / "out" / "raw" / "stub"
    stages = json.loads((raw / "stages.json").read_text())
    stages["reports"] = [report for report in stages["reports"] if report["stage"] == "facts"]
    (raw / "stages.json").write_text(json.dumps({**stages, "finished": False}))
    journals = sorted((raw / "test").rglob("journal.jsonl"))
    lost = 0
    for path in journals:  # a kill in the middle of each worker's last test
        lines = path.read_text().splitlines(keepends=True)
        finished = [at for at, line in enumerate(lines) if '"event": "finish"' in line and "::test_" in line]
        if not finished:
            continue
        last = finished[-1]
        path.write_text("".join(lines[:last]) + lines[last][:20])
        lost += 1
    _, said = warpwave(*more, "--test-workers", str(after), "--resume", "out", folder=tmp_path)
    told = collect(raw)

    assert Counter(entry.verdict.value for entry in told.cases) == {"passed": 12}, said
    assert told.problems == ()
    assert len(ran.read_text().splitlines()) == 12 + lost
    assert len(set(ran.read_text().splitlines())) == 12


# Several test workers on one card that does not exist: each test once, a neighbour's doing does not count, and a culprit has a name.

# Each file waits until the other worker has begun, so that both have a neighbour; what runs alone finds a file of its own.
MEET = """
import os, time
from pathlib import Path
import pytest, torch
STATE = Path(os.environ["STUB_STATE"])
def meet(mine, theirs):
    (STATE / mine).touch()
    until = time.monotonic() + 120
    while not (STATE / theirs).exists() and time.monotonic() < until:
        time.sleep(0.01)
def is_first(name):
    first = not (STATE / name).exists()
    (STATE / name).touch()
    return first
"""
ONE = f"""{MEET}
def test_meets():
    meet("one", "two")
def test_lacks_memory():
    if is_first("lacked"):
        raise torch.OutOfMemoryError("out of memory. Tried to allocate 64.00 GiB")
def test_skips_itself():
    if is_first("skipped"):
        pytest.skip("too little memory")
def test_asks_for_memory():
    torch.get_device_module().mem_get_info()
    (STATE / "asked").open("a").write("x")
def test_fails():
    (STATE / "failed").open("a").write("x")
    assert False
def test_ends():
    (STATE / "one-done").touch()
"""
TWO = f"""{MEET}
def test_meets():
    meet("two", "one")
def test_dies():
    os.abort()
def test_is_long():
    meet("two-waits", "one-done")
@pytest.mark.skip(reason="by a mark")
def test_marked():
    pass
"""


@pytest.fixture(scope="module")
def shared_of_neighbours(warpwave, tmp_path_factory):
    """A run of two files by two workers on one card; its folder, and what it said."""
    folder = tmp_path_factory.mktemp("shared")
    (folder / "package").mkdir()
    (folder / "package" / "test_one.py").write_text(ONE)
    (folder / "package" / "test_two.py").write_text(TWO)
    more = ("--kernels", folder / "package", "--stage", "test", "--out", "out", "--test-workers", "2")
    return warpwave(*more, folder=folder, STUB_CARDS="1")


def test_each_test_has_the_outcome_that_it_has_alone(shared_of_neighbours):
    """What neighbours may have caused is tried again without them; a failure of the test's own is not. The report counts the former."""
    folder, said = shared_of_neighbours
    told = collect(folder / "out" / "raw" / "stub")
    ended = {case.id: case.verdict.value for case in told.cases}
    journals = sorted((folder / "out" / "raw" / "stub" / "test").glob("*/journal.jsonl"))
    seen = [json.loads(line) for path in journals for line in path.read_text().splitlines()]
    why = {event["id"].partition("::")[2]: event["reason"] for event in seen if event["event"] == "postponed"}
    report = json.loads((folder / "out" / "raw" / "stub" / "test" / "report.json").read_text())

    assert told.problems == (), said
    passed = [f"test_one.py::test_{name}" for name in ("meets", "lacks_memory", "skips_itself", "asks_for_memory", "ends")]
    assert ended == {
        **dict.fromkeys([*passed, "test_two.py::test_meets", "test_two.py::test_is_long"], "passed"),
        "test_one.py::test_fails": "failed",
        "test_two.py::test_dies": "crashed",
        "test_two.py::test_marked": "not-run",
    }
    assert ((folder / "state" / "asked").read_text(), (folder / "state" / "failed").read_text()) == ("xx", "x")
    assert len(journals) == 2
    assert why == {
        "test_lacks_memory": "beside other tests on this card, it lacked memory",
        "test_skips_itself": "beside other tests on this card, it was skipped, perhaps for what they hold",
        "test_asks_for_memory": "beside other tests on this card, it asked how much memory is free",
    }
    assert set(Counter(event["id"] for event in seen if event["event"] in ("finish", "death")).values()) == {1}
    assert [note for note in report["notes"] if note.startswith("3 tests ran again alone")]


def test_who_holds_the_card_and_what_for_is_in_every_report(shared_of_neighbours):
    """The facts stage and the test stage had it, and gave it back; nothing was compiled."""
    folder, said = shared_of_neighbours
    record = json.loads((folder / "out" / "raw" / "stub" / "run.json").read_text())
    summary = json.loads((folder / "out" / "comparison.json").read_text())["targets"][0]["card_use"]

    assert set(record["held"]) == {"facts", "test"}
    assert summary["held_s"] == pytest.approx(sum(record["held"].values()), abs=0.01)
    assert 0 < summary["used_s"] <= summary["held_s"]
    assert (summary["compiled_ahead"], summary["compiled_meanwhile"]) == (0, 0)
    for text in (said, (folder / "out" / "comparison.md").read_text(), (folder / "out" / "comparison.html").read_text()):
        assert "held its card for" in text


def test_a_file_is_claimed_before_the_one_before_it_ends(ledger):
    zero, beside, one = (ledger(seat) for seat in (0, SEAT_STEP, 1))
    for seated in (zero, beside, one):
        seated.sit()
    assert zero.next(["a", "b"], {}, fail) == "a"
    assert zero.next(["a", "b"], {}, fail, wait=False, but="a") == "b"

    assert beside.next(["a", "b"], {}, fail, wait=False) is None


def fail() -> None:
    raise AssertionError("nobody is to wait here")


@pytest.fixture
def ledger(tmp_path):
    """A function that opens the ledger for a worker: of the first card 0, 1000 and so on, of the second 1."""
    return lambda seat: Ledger(tmp_path / "ledger", seat)


@pytest.mark.parametrize(
    ("outcome", "text", "in_body", "poisoned", "again"),
    [
        ("failed", "torch.OutOfMemoryError: CUDA out of memory.", False, False, True),
        ("failed", "AssertionError: 1 != 2", False, False, False),
        ("failed", "", False, True, True),
        ("skipped", "", True, False, True),
        ("skipped", "", False, False, False),
        ("passed", "out of memory", False, False, False),
    ],
)
def test_what_counts_beside_neighbours(ledger, outcome, text, in_body, poisoned, again):
    zero, beside = ledger(0), ledger(SEAT_STEP)
    zero.sit()
    beside.sit()
    assert bool(Neighbours(zero).why_again(outcome, text, in_body, poisoned)) is again
    beside.leave()

    assert Neighbours(zero).why_again(outcome, text, in_body, poisoned) == ""


def job(tmp_path: Path, **more: object) -> Job:
    (tmp_path / "facts.json").write_text(json.dumps({"devices": [{"index": 0, "memory_bytes": 24 << 30}]}))
    return make_job("run-1", "stub", (Stage.TEST,), "", str(tmp_path), **{"test_workers": 0, **more})  # type: ignore[arg-type]


def test_as_many_workers_as_fit(tmp_path, monkeypatch):
    """By cores, by the memory of card and host, and by files; what stops after a failure is one process. Each has a share of the card."""
    monkeypatch.setattr("warpwave.inside.multi_gpu.share._cores", lambda: 8)
    monkeypatch.setattr("warpwave.inside.multi_gpu.share.free_memory", lambda: 1 << 40)
    assert workers_of(job(tmp_path), 1, 50) == 4
    assert workers_of(job(tmp_path, interpret=True), 1, 50) == 8
    assert workers_of(job(tmp_path, interpret=True), 1, 3) == 3
    assert workers_of(job(tmp_path, test_workers=6), 1, 50) == 6
    assert workers_of(job(tmp_path, test_workers=6, pytest_args=("-x",)), 1, 50) == 1
    assert workers_of(job(tmp_path, pytest=PytestSettings(addopts=("-n", "4"))), 1, 50) == 1
    monkeypatch.setattr("warpwave.inside.multi_gpu.share.free_memory", lambda: 5 << 30)
    assert workers_of(job(tmp_path), 1, 50) == 2
    seats = seats_for_tests(job(tmp_path, test_workers=2), (), 9)
    assert [(seat.number, seat.card, seat.variables["WARPWAVE_MEMORY_SHARE"]) for seat in seats] == [(0, None, "0.5"), (1000, None, "0.5")]
    assert seats_for_tests(job(tmp_path, test_workers=1), (), 9) == []


def test_used_is_where_any_test_ran_and_did_not_compile():
    used = Used()
    for at, kind, name, more in (
        (10, "start", "a", {}),
        (11, "start", "b", {}),
        (14, "finish", "a", {"compiling_s": 1.0}),
        (15, "finish", "b", {}),
        (20, "start", "c", {}),
        (23, "postponed", "c", {}),
    ):
        used.note({"event": kind, "id": name, "at": at, **more})

    assert used.seconds == pytest.approx(4 + 3)


# Who does what where several cards share a stage, what becomes of a card that is lost, and what a report says of cards that differ.


def test_a_unit_is_claimed_once_and_at_home(ledger):
    """Each card gets what is its own, in order; a card without any left waits for the others, and is done when they are."""
    zero, one = ledger(0), ledger(1)
    units, home = ["a", "b", "c", "d"], {"a": 0, "b": 1, "c": 0, "d": 1}
    got = []
    for card in (zero, zero, one, one):
        got.append(card.next(units, home, fail))
        card.finish(got[-1])

    assert got == ["a", "c", "b", "d"]
    assert zero.next(units, home, fail) is None


class WaitedError(Exception):
    """Somebody waits."""


def test_who_is_through_waits_for_the_others_on_its_card_only(ledger, monkeypatch):
    """Until then one of them may be lost, and leave something. Another card's work is not waited for: this card is given back."""

    def waits(seconds):
        raise WaitedError

    zero, one, neighbour = ledger(0), ledger(1), ledger(SEAT_STEP)
    monkeypatch.setattr("warpwave.inside.multi_gpu.ledger.time.sleep", waits)
    assert one.next(["a"], {"a": 1}, fail) == "a"
    assert zero.next(["a"], {"a": 1}, fail) is None
    assert neighbour.next(["b"], {}, fail) == "b"
    with pytest.raises(WaitedError):
        zero.next(["b"], {}, fail)


def test_a_fresh_worker_goes_on_with_what_its_card_has_begun(ledger, tmp_path):
    """A line that was torn by a kill costs only itself."""
    assert ledger(0).next(["a", "b", "c"], {}, fail) == "a"
    assert ledger(0).next(["a", "b", "c"], {}, fail) == "a"
    with open(tmp_path / "ledger", "a") as file:
        file.write('{"event": "cla')

    assert ledger(1).next(["a", "b", "c"], {}, fail) == "b"
    assert ledger(2).next(["a", "b", "c"], {}, fail) == "c"


def test_what_a_lost_card_had_is_for_the_others(ledger):
    """Also what was to be done on it alone, and the heir is told that it was begun."""
    zero, one = ledger(0), ledger(1)
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


def test_a_case_that_has_cost_two_cards_is_left_alone(ledger):
    for card in (0, 1):
        ledger(card).leave(during="b [triton]")
    two = ledger(2)
    two.finish("a")

    assert two.lost_during("b [triton]") == (0, 1)


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
    devices = tuple(DeviceFacts(index, "Card", "sx1", 1 << 30, 4, uuid=uuid) for index, uuid in enumerate(uuids))
    dump(facts(devices=devices), tmp_path / "facts.json")
    return make_job("run-1", "stub", (Stage.BENCH,), "/kernels", str(tmp_path), visible_devices="STUB_VISIBLE_DEVICES")


def test_a_worker_sees_its_card_by_the_name_that_the_host_gave(tmp_path, monkeypatch):
    """In a container cards are counted from 0; where a scheduler or the engine has chosen some, their names go on."""
    job = job_on(tmp_path, "u", "v")
    monkeypatch.delenv("STUB_VISIBLE_DEVICES", raising=False)
    assert [card.variables["STUB_VISIBLE_DEVICES"] for card in cards(job)] == ["0", "1"]
    monkeypatch.setenv("STUB_VISIBLE_DEVICES", "6,GPU-7")

    assert [(card.index, card.variables["STUB_VISIBLE_DEVICES"]) for card in cards(job)] == [(0, "6"), (1, "GPU-7")]


@pytest.mark.parametrize(("uuids", "more"), [(("u",), {}), (("u", "u"), {}), (("u", "v"), {"visible_devices": None})])
def test_nothing_is_shared(tmp_path, uuids, more):
    """One card, also by two names, on which processes would spoil each other's times; and two without `--gpu`: the first has all of it."""
    assert cards(dataclasses.replace(job_on(tmp_path, *uuids), **more)) == ()


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        (None, (None, False)),
        ("1", ("1", False)),
        ("all", (None, True)),
        ("0, 3", ("0,3", True)),
        *((text, None) for text in ("0,0", "", "0,", "0,all")),
    ],
)
def test_what_the_option_comes_to(text, chosen):
    with pytest.raises(UsageError) if chosen is None else contextlib.nullcontext():
        assert chosen_gpus(text) == chosen


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
