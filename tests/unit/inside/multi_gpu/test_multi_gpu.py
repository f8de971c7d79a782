"""Several cards of one host, on cards that do not exist: everything once, one process a card, nothing lost, disagreements shown."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path

import command
import pytest
from slow_cases import slow_but

from warpwave.collect import collect
from warpwave.inside.multi_gpu.share import homes
from warpwave.records import Verdict

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

REPOSITORY = Path(__file__).parents[4]
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
    warpwave("--gpus", "all", "--stage", "bench", "--bench", "bench_flat.py", "--resume", "out", folder=folder)
    after = collect(raw)
    finished = {identity: count for identity, count in outcomes(folder, "bench").items() if "ceiling" not in identity}

    assert len(after.samples) == len(before) == 14
    assert (len(finished), set(finished.values())) == (14, {1})
    assert {point.device for point in after.samples if point.params["N"] in (int(mine[0]), int(mine[1]))} == {1}


@pytest.mark.slow
def test_one_card_is_not_shared_out(warpwave):
    """`--gpus` with one card: the files of ever, no folder of a card's, no ledger."""
    folder, said = warpwave("--gpus", "1", "--stage", "bench", "--bench", "bench_flat.py", "--out", "out")
    bench = folder / "out" / "raw" / "stub" / "bench"

    assert {point.device for point in collect(bench.parent).samples} == {0}, said
    assert (bench / "journal.jsonl").exists()
    assert not [path.name for path in bench.iterdir() if path.is_dir() or "ledger" in path.name or "cards" in path.name]


def test_cards_that_are_not_there_are_reported(warpwave):
    """Two asked for, one visible: refused before anything is measured, with what was seen."""
    _, said = warpwave("--gpus", "0,1", "--stage", "bench", "--out", "out", STUB_CARDS="1")

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
    more = ("--kernels", str(package), "--stage", "test", "--gpus", gpus, "--test-workers", "1", "--out", "out")
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
