"""Several test workers on one card that does not exist: each test once, a neighbour's doing does not count, and a culprit has a name."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import command
import pytest

from warpwave.collect import collect
from warpwave.inside.multi_gpu.ledger import Ledger
from warpwave.inside.multi_gpu.pytest_plugin import Neighbours
from warpwave.inside.multi_gpu.share import seats_for_tests, workers_of
from warpwave.inside.process.lease import Used
from warpwave.records import Job, PytestSettings, Stage

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

REPOSITORY = Path(__file__).parents[4]
TARGET = f"""
schema_version: 1
targets:
  stub:
    label: a card that does not exist
    engine: local
    stages: [test]
    image: {{dockerfile: none, base: none}}
    visible_devices: STUB_VISIBLE_DEVICES
    environment: {{PYTHONPATH: "{REPOSITORY}:{REPOSITORY / "tests" / "data" / "cards" / "device"}"}}
    probe: {{require: torch.version.git_version}}
"""
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
def shared(tmp_path_factory):
    """A run of two files by two workers on one card; its folder, and what it said."""
    folder = tmp_path_factory.mktemp("shared")
    (folder / "package").mkdir()
    (folder / "state").mkdir()
    (folder / "targets.yml").write_text(TARGET)
    (folder / "package" / "test_one.py").write_text(ONE)
    (folder / "package" / "test_two.py").write_text(TWO)
    stub = {"STUB_CARDS": "1", "STUB_STATE": str(folder / "state"), "TMPDIR": str(folder), "TRITON_CACHE_DIR": str(folder / "cache")}
    words = ["run", "stub", "--targets", "targets.yml", "--kernels", "package", "--out", "out", "--test-workers", "2"]
    done = command.warpwave(
        *words, cwd=folder, env={**os.environ, "PYTHONPATH": str(REPOSITORY / "harness"), "COLUMNS": "200", **stub}, light=True
    )
    return folder, done.stdout + done.stderr


def events(folder: Path) -> list[dict]:
    journals = sorted((folder / "out" / "raw" / "stub" / "test").glob("*/journal.jsonl"))
    assert len(journals) == 2
    return [json.loads(line) for journal in journals for line in journal.read_text().splitlines()]


def test_each_test_has_the_outcome_that_it_has_alone(shared):
    """What neighbours may have caused is tried again without them; a failure that is the test's own is not."""
    folder, said = shared
    told = collect(folder / "out" / "raw" / "stub")
    ended = {case.id: case.verdict.value for case in told.cases}

    assert told.problems == (), said
    assert ended == {
        "test_one.py::test_meets": "passed",
        "test_one.py::test_lacks_memory": "passed",
        "test_one.py::test_skips_itself": "passed",
        "test_one.py::test_asks_for_memory": "passed",
        "test_one.py::test_fails": "failed",
        "test_one.py::test_ends": "passed",
        "test_two.py::test_meets": "passed",
        "test_two.py::test_dies": "crashed",
        "test_two.py::test_is_long": "passed",
        "test_two.py::test_marked": "not-run",
    }
    assert ((folder / "state" / "asked").read_text(), (folder / "state" / "failed").read_text()) == ("xx", "x")


def test_what_ran_again_is_reported_with_its_reason(shared):
    """Three tests, each once in the journal with a result; the report counts them."""
    folder, _ = shared
    seen = events(folder)
    why = {event["id"].partition("::")[2]: event["reason"] for event in seen if event["event"] == "postponed"}
    report = json.loads((folder / "out" / "raw" / "stub" / "test" / "report.json").read_text())

    assert why == {
        "test_lacks_memory": "beside other tests on this card, it lacked memory",
        "test_skips_itself": "beside other tests on this card, it was skipped, perhaps for what they hold",
        "test_asks_for_memory": "beside other tests on this card, it asked how much memory is free",
    }
    assert set(Counter(event["id"] for event in seen if event["event"] in ("finish", "death")).values()) == {1}
    assert report["notes"][0].startswith("3 tests ran again alone")


def test_who_holds_the_card_and_what_for_is_in_every_report(shared):
    """The facts stage and the test stage had it, and gave it back; nothing was compiled."""
    folder, said = shared
    record = json.loads((folder / "out" / "raw" / "stub" / "run.json").read_text())
    summary = json.loads((folder / "out" / "comparison.json").read_text())["targets"][0]["card_use"]

    assert set(record["held"]) == {"facts", "test"}
    assert summary["held_s"] == pytest.approx(sum(record["held"].values()), abs=0.01)
    assert 0 < summary["used_s"] <= summary["held_s"]
    assert (summary["compiled_ahead"], summary["compiled_meanwhile"]) == (0, 0)
    for text in (said, (folder / "out" / "comparison.md").read_text(), (folder / "out" / "comparison.html").read_text()):
        assert "held its card for" in text


@pytest.fixture
def ledgers(tmp_path):
    """Two workers on the first card, and one on the second."""
    found = [Ledger(tmp_path / "ledger", seat) for seat in (0, 1000, 1)]
    for ledger in found:
        ledger.sit()
    return found


def test_neighbours_are_on_the_same_card_and_alive(ledgers):
    """Another card's worker is none."""
    zero, beside, other = ledgers
    assert (zero.neighbours(), beside.neighbours(), other.neighbours()) == ({1000}, {0}, set())
    beside.leave()

    assert zero.neighbours() == set()


def test_a_file_is_claimed_before_the_one_before_it_ends(ledgers):
    """Without waiting, and never the same again."""
    zero, beside, _ = ledgers
    units = ["a", "b"]
    assert zero.next(units, {}, fail) == "a"
    assert zero.next(units, {}, fail, wait=False, but="a") == "b"

    assert beside.next(units, {}, fail, wait=False) is None


def fail() -> None:
    raise AssertionError("nobody is to wait here")


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
def test_what_counts_beside_neighbours(ledgers, outcome, text, in_body, poisoned, again):
    """And alone, everything does."""
    zero, beside, _ = ledgers
    assert bool(Neighbours(zero).why_again(outcome, text, in_body, poisoned)) is again
    beside.leave()

    assert Neighbours(zero).why_again(outcome, text, in_body, poisoned) == ""


def job(tmp_path: Path, **more: object) -> Job:
    (tmp_path / "facts.json").write_text(json.dumps({"devices": [{"index": 0, "memory_bytes": 24 << 30}]}))
    return Job("run-1", "stub", (Stage.TEST,), "", str(tmp_path), **{"test_workers": 0, **more})  # type: ignore[arg-type]


def test_as_many_workers_as_fit(tmp_path, monkeypatch):
    """By cores, by the memory of card and host, and by files; what stops after a failure is one process."""
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


def test_each_worker_has_a_share_of_the_card(tmp_path):
    """None if there is one worker only: then nothing changes."""
    seats = seats_for_tests(job(tmp_path, test_workers=2), (), 9)

    assert [(seat.number, seat.card, seat.variables["WARPWAVE_MEMORY_SHARE"]) for seat in seats] == [(0, None, "0.5"), (1000, None, "0.5")]
    assert seats_for_tests(job(tmp_path, test_workers=1), (), 9) == []


def test_used_is_where_any_test_ran_and_did_not_compile():
    """Two that overlap count once, and compiling does not."""
    used = Used()
    for at, kind, case, more in (
        (10, "start", "a", {}),
        (11, "start", "b", {}),
        (14, "finish", "a", {"compiling_s": 1.0}),
        (15, "finish", "b", {}),
        (20, "start", "c", {}),
        (23, "postponed", "c", {}),
    ):
        used.note({"event": kind, "id": case, "at": at, **more})

    assert used.seconds == pytest.approx(4 + 3)
