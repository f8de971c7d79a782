"""What is fuzzed: every reader of something that came from elsewhere, as a function of bytes. Any exception out of one is a finding.

`fuzz.py` drives them by coverage; tests/unit/collect/hostile/test_hostile.py replays what that found, without a fuzzer.
"""

import contextlib
import io
import json
import os
import tempfile
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from rich.console import Console

from warpwave.ci.job import SUMMARY_BYTES, annotate, summary
from warpwave.cli.progress import Progress
from warpwave.collect import collect, collect_all
from warpwave.collect.cases import read_cases
from warpwave.collect.untrusted import Fault, guarded, read_lines, read_record
from warpwave.compare import compare
from warpwave.compare.changed_codegen import Concern, bundle, diff
from warpwave.compare.changed_speeds import changed_speeds
from warpwave.compare.history import lines, series
from warpwave.compare.runs import join
from warpwave.compare.tests import changed_tests
from warpwave.engines.incoming import UnusableError, first_file, unpack
from warpwave.engines.waiting import MAX_LINE, split_lines
from warpwave.errors import InfrastructureError, UsageError
from warpwave.records import Cap, CardShare, Ceiling, CompiledKernel, Facts, Inputs, Job, RunRecord, Sample, Stages, TargetRun, to_json
from warpwave.render.charts.pictures import pictures
from warpwave.render.exports import FORMATS
from warpwave.render.html import render_sections
from warpwave.render.markdown import render_page
from warpwave.render.sections.changes import changed_speed_sections, changed_test_sections, diff_sections, history_sections
from warpwave.render.terminal import draw_page, render_terminal
from warpwave.report import WRITERS, write_files
from warpwave.run.attempt import _dispatch
from warpwave.run.cards import Lease
from warpwave.safe_text import json_text

# In memory where there is such a place: a fuzzer writes thousands of files a second.
_SHARED = Path("/dev/shm")
FOLDER = Path(tempfile.mkdtemp(prefix="warpwave-fuzz-", dir=_SHARED if os.access(_SHARED, os.W_OK) else None))

MORE_FILES = ("bench/again.jsonl", "test/cards.jsonl", "bench/cards.jsonl", "bench/journal.jsonl")

# Between the files of a raw folder, in this order, where one input is all of them.
SEPARATOR = b"\x1e"
FILES = (
    *("run.json", "job.json", "stages.json", "facts.json", "test/junit.xml"),
    *("bench/samples.jsonl", "bench/ceilings.jsonl", "compile/kernels.jsonl", "bench/kernels.jsonl"),
)


def _check(fault: Fault | None) -> None:
    assert fault is None or len(str(fault)) < 1000, "a fault is one sentence"


def junit(data: bytes) -> None:
    (FOLDER / "junit.xml").write_bytes(data)
    cases, fault = guarded("junit.xml", lambda: read_cases(FOLDER, "junit.xml"))
    _check(fault)
    for case in cases or ():
        assert len(case.detail) < 20_100
        assert 0 <= case.seconds < float("inf")


def _record(kind: type) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        (FOLDER / "record.json").write_bytes(data)
        record, fault = read_record(FOLDER, "record.json", kind)
        _check(fault)
        if record is not None:  # what was let in is strict JSON again
            (FOLDER / "record.json").write_text(to_json(record), encoding="utf-8")
            assert read_record(FOLDER, "record.json", kind) == (record, None)

    read.__doc__ = f"One {kind.__name__} in a file of its own."
    return read


def _lines(kind: type) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        (FOLDER / "lines.jsonl").write_bytes(data)
        records, fault = read_lines(FOLDER, "lines.jsonl", kind)
        _check(fault)
        (FOLDER / "lines.jsonl").write_text("".join(to_json(record) + "\n" for record in records), encoding="utf-8")
        assert read_lines(FOLDER, "lines.jsonl", kind) == (records, None)

    read.__doc__ = f"Lines of {kind.__name__}."
    return read


def archive(data: bytes) -> None:
    """Results that come from another machine: refused, or files and folders within the limits. As they are, and with right checksums."""
    _unpack(data)
    blocks = [bytearray(data[start : start + 512]) for start in range(0, len(data), 512)]
    for block in blocks:
        if block[257:262] == b"ustar" and len(block) == 512:
            block[148:156] = b"%06o\0 " % (sum(block[:148]) + 8 * 32 + sum(block[156:]))
    _unpack(b"".join(blocks))


def _unpack(data: bytes) -> None:
    raw = FOLDER / "arrived"
    raw.mkdir(exist_ok=True)
    (raw / "run.json").write_text("ours")
    cap = Cap(bytes=1 << 16, files=50)
    with contextlib.suppress(InfrastructureError):
        unpack((data[start : start + 300] for start in range(0, len(data), 300)), raw, cap, "there")
    found = list(raw.rglob("*"))
    assert (raw / "run.json").read_text() == "ours"
    assert not any(path.is_symlink() or not (path.is_file() or path.is_dir()) for path in found)
    assert len(found) <= 2 * cap.files + 1
    assert sum(path.stat().st_size for path in found if path.is_file()) <= cap.bytes + 4
    assert not any(os.path.lexists(raw / name) for name in ("raw", "job.json", ".incoming"))
    with contextlib.suppress(UnusableError):
        assert len(first_file(iter([data]), 1000)) <= 1000


def events(data: bytes) -> None:
    """What a container prints, on its way to the user's terminal and into a run's reason."""
    screen = io.StringIO()
    noise: deque[str] = deque(maxlen=20)
    with Progress(Console(file=screen, highlight=False), "alpha") as progress:
        for line in split_lines(data[start : start + 100] for start in range(0, len(data), 100)):
            assert len(line) < MAX_LINE + 100
            _dispatch(line, noise, progress.on_event, deque(maxlen=1), Lease(None, FOLDER))
    assert all(character.isprintable() for line in screen.getvalue().split("\n") for character in line)


def folder(data: bytes) -> None:
    """A whole raw folder, all the way to every file of a report."""
    raw = FOLDER / "raw" / "alpha"
    for name in ("test", "bench", "compile"):
        (raw / name).mkdir(parents=True, exist_ok=True)
    pieces = data.split(SEPARATOR)
    for position, name in enumerate(FILES):
        if position < len(pieces):
            (raw / name).write_bytes(pieces[position])
        else:
            (raw / name).unlink(missing_ok=True)
    run = collect(raw)
    comparison = compare([run, run], ["alpha"])
    for name, write in WRITERS.items():
        write(comparison, FOLDER / name)
    json.loads((FOLDER / "comparison.json").read_bytes())
    guarded("junit.xml", lambda: read_cases(FOLDER, "junit.xml"))
    Console(file=io.StringIO(), width=80).print(render_terminal(comparison, full=True))
    pictures(comparison, "auto")
    for render in FORMATS.values():
        render(comparison)


def _strict(text: str) -> None:
    """JSON without NaN and infinity."""

    def refuse(name: str) -> None:
        raise AssertionError(name)

    json.loads(text, parse_constant=refuse)


def bundles(data: bytes) -> None:
    """Two whole bundles, whose shards are joined: reported, held against each other, exported, drawn and put in a history."""
    runs = []
    pieces = data.split(SEPARATOR)
    for side in range(2):
        raw = FOLDER / "bundles" / str(side)
        for name in ("test", "bench", "compile"):
            (raw / name).mkdir(parents=True, exist_ok=True)
        for position, name in enumerate((*FILES, *MORE_FILES)):
            at = side * len((*FILES, *MORE_FILES)) + position
            if at < len(pieces):
                (raw / name).write_bytes(pieces[at])
            else:
                (raw / name).unlink(missing_ok=True)
        runs.append(raw)
    found = collect_all(runs)
    made = write_files(compare(join(found), ["alpha"]), FOLDER / "report")
    assert len(made.files) == len(WRITERS), made.comparison.problems
    _strict((FOLDER / "report" / "comparison.json").read_text())
    console = Console(file=io.StringIO(), width=80)
    console.print(render_terminal(made.comparison))
    pictures(made.comparison, "light")
    for render in FORMATS.values():
        render(made.comparison)
    summary(made.comparison, "", SUMMARY_BYTES)
    list(annotate(made.comparison))
    _hold_against(found, console)
    kept, left_out = series(found)
    drawn = lines(kept, 20)
    _strict(json_text([asdict(one) for one in drawn]))
    console.print(draw_page("x", history_sections(drawn, left_out), good=True))


def _hold_against(found: list[TargetRun], console: Console) -> None:
    base, head = join(found[:1]), join(found[1:])
    head = [replace(run, record=replace(run.record, target=base[0].record.target)) for run in head]
    page = changed_test_sections(changed_tests(base, head))
    with contextlib.suppress(UsageError):
        moved = changed_speeds(base, head)
        page += changed_speed_sections(moved, full=True)
        _strict(json_text(asdict(moved)))
    with contextlib.suppress(UsageError):
        sides = bundle("a", base), bundle("b", head)
        changed = diff(sides[0].kernels, sides[1].kernels)
        page += diff_sections(*sides, changed, tuple(Concern), True)
        _strict(json_text(asdict(changed)))
    render_page("x", page, good=True)
    render_sections("x", page, exit_code=0, kind="x", source="x")
    console.print(draw_page("x", page, good=True))


def code(data: bytes) -> None:
    """Two files of compiled kernels, held against each other."""
    from warpwave.render.sections.changes import code_sentence

    sides = []
    for position, piece in enumerate((data + SEPARATOR).split(SEPARATOR)[:2]):
        raw = FOLDER / f"side{position}" / "alpha"
        (raw / "compile").mkdir(parents=True, exist_ok=True)
        (raw / "compile/kernels.jsonl").write_bytes(piece)
        try:
            sides.append(bundle("x", [collect(raw)]))
        except UsageError:
            return
    found = diff(sides[0].kernels, sides[1].kernels)
    said = code_sentence(found, ())
    render_page(said, diff_sections(*sides, found, (), True), good=True, all_in="x")


def code_object(data: bytes) -> None:
    """A code object for an AMD card: it is read, decoded and executed, or refused."""
    from warpwave.emulator import EmulatorError, Launch, execute, load

    with contextlib.suppress(EmulatorError):
        kernel = load(data)
        execute(kernel, Launch((1, 1, 1), 64, bytes(max(kernel.kernarg_bytes, 64))), limit_instructions=10_000)


READERS: dict[str, Callable[[bytes], None]] = {
    "junit": junit,
    "run": _record(RunRecord),
    "job": _record(Job),
    "inputs": _record(Inputs),
    "stages": _record(Stages),
    "facts": _record(Facts),
    "samples": _lines(Sample),
    "ceilings": _lines(Ceiling),
    "kernels": _lines(CompiledKernel),
    "archive": archive,
    "events": events,
    "folder": folder,
    "bundles": bundles,
    "shares": _lines(CardShare),
    "code": code,
    "code_object": code_object,
}
