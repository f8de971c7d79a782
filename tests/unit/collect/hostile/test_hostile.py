"""Files that would take all memory or time, and folders with surprises: read within limits, or refused with a sentence."""

import ast
import csv
import io
import json
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import heavy
import pytest
from click.testing import CliRunner
from hostile import NAMES, any_of, target_runs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console
from slow_cases import slow_but
from synthetic import run, sample, write_raw

from warpwave.__main__ import _run_cli
from warpwave.collect import cases, collect, find_raw, untrusted
from warpwave.collect import raw_folder as collecting
from warpwave.collect.untrusted import read_lines, read_record
from warpwave.compare import compare
from warpwave.compare.changed_codegen import bundle, diff
from warpwave.errors import InvalidInputError, UsageError
from warpwave.records import (
    Ceiling,
    CompiledKernel,
    Facts,
    Inputs,
    Job,
    RunRecord,
    Sample,
    Stage,
    Stages,
    TargetRun,
    Verdict,
    dump,
    to_json,
)
from warpwave.render.charts.pictures import pictures
from warpwave.render.exports import FORMATS
from warpwave.render.sections.changes import code_sentence, diff_sections
from warpwave.render.terminal import render_terminal
from warpwave.report import WRITERS, write_report

REPOSITORY = Path(__file__).parents[4]
sys.path.append(str(REPOSITORY / "tests" / "fuzz"))

import readers

GIB, MOST_MIB, MOST_CPU_S = 1 << 30, 512, 100


def limits() -> None:
    """Limit the process that reads, so that a file cannot take down the machine that runs the tests."""
    resource.setrlimit(resource.RLIMIT_AS, (2 * GIB, 2 * GIB))
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_S, MOST_CPU_S))


@pytest.mark.slow
@pytest.mark.parametrize("name", heavy.NAMES)
def test_no_file_takes_all_memory_or_forever(name, tmp_path):
    """Below 512 MiB of memory and a limit of CPU time, whatever it holds; the message names no Python type."""
    heavy.write(name, tmp_path)
    command = [sys.executable, heavy.__file__, name, str(tmp_path)]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "harness")},
        preexec_fn=limits,
        capture_output=True,
        text=True,
        check=False,
    )
    (tmp_path / "file").unlink()

    assert done.returncode == 0, done.stderr
    peak = re.match(r"(\d+) MiB, ", done.stdout)
    assert peak, done.stdout
    assert int(peak[1]) < MOST_MIB, done.stdout
    assert "Error" not in done.stdout


@pytest.mark.parametrize("name", [b"\xff\xfe", b"a\nb", b"\x1b[2J", "é".encode(), b"x" * 200, b"=1+1", b"<script>"])
def test_a_folder_may_be_called_anything(tmp_path, name):
    """It replaces the target's name if run.json has none. Even bytes that are no text can be written to a report."""
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/raw/" + name))
    folder.mkdir(parents=True)

    comparison = write_report([tmp_path], tmp_path / "out")

    assert [problem for problem in comparison.problems if "not written" in problem] == []
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(WRITERS)
    assert len(comparison.targets[0].target) < 150


@pytest.mark.parametrize("parent", ["raw", "artifacts"])
def test_a_forest_of_folders_is_refused(tmp_path, parent, monkeypatch):
    monkeypatch.setattr(collecting, "MAX_FOLDERS", 5)
    for number in range(6):
        (tmp_path / parent / str(number)).mkdir(parents=True)

    with pytest.raises(InvalidInputError, match="more than 5 folders"):
        find_raw([tmp_path])


@pytest.mark.parametrize("kind", ["device", "socket", "directory link", "absolute link", "dangling link", "link to itself"])
def test_nothing_but_a_regular_file_is_opened(tmp_path, kind, monkeypatch):
    """A device is not even opened: opening alone has an effect on some."""
    raw = write_raw(tmp_path / "raw" / "alpha", run())
    path = raw / "facts.json"
    path.unlink()
    if kind == "device":
        try:
            os.mknod(path, 0o20666, os.makedev(1, 5))
        except PermissionError:
            pytest.skip("only root can make a device node")
    elif kind == "socket":
        import socket

        monkeypatch.chdir(raw)  # the path of a socket must be short
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("facts.json")
    else:
        targets = {
            "directory link": raw,
            "absolute link": Path("/proc/self/environ"),
            "dangling link": Path("nowhere"),
            "link to itself": path,
        }
        path.symlink_to(targets[kind])
    opened: list[object] = []
    real = os.open
    monkeypatch.setattr(os, "open", lambda name, *more, **keywords: opened.append(name) or real(name, *more, **keywords))

    found = collect(raw)

    assert found.facts is None
    assert found.problems[0].startswith("facts.json: invalid: it is")
    assert "facts.json" not in opened


def test_a_folder_exchanged_for_a_link_is_not_followed(tmp_path, monkeypatch):
    """A link cannot replace the folder between the check and its use."""
    raw = write_raw(tmp_path / "raw" / "alpha", run())
    (raw / "test").rename(tmp_path / "elsewhere")
    (raw / "test").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setattr(untrusted, "_refuse_link", lambda part, at: os.stat(part, dir_fd=at).st_mode)

    assert collect(raw).cases == ()


@pytest.mark.parametrize("name", NAMES)
def test_what_is_printed_is_inert(tmp_path, name):
    """A run's reason, an error, and JSON on standard output go to job logs too."""
    raw = write_raw(tmp_path / "raw" / "alpha", run())
    (raw / "run.json").write_text(json.dumps({**json.loads((raw / "run.json").read_text()), "label": name, "reason": name, "hint": name}))
    for words in (
        ["report", str(tmp_path)],
        ["report", str(tmp_path), "--json"],
        ["report", str(tmp_path / "no" / name[:100].replace("\0", ""))],
    ):
        with CliRunner().isolation() as (out, err, *_):
            _run_cli(words)
            told = out.getvalue().decode() + err.getvalue().decode()

        assert {character for character in told if not character.isprintable()} <= {"\n"}
        assert not re.search(r"^\s*::(error|set-output|stop-commands)|##\[", told, re.MULTILINE)


UNPACKERS = {"tarfile", "zipfile", "gzip", "bz2", "lzma", "zlib", "shutil.unpack_archive", "pickle", "marshal", "shelve"}


def test_no_archive_is_ever_read():
    """Results come from a mount, artifacts as folders: there is no reader of zip, tar or pickle for them. Build contexts are only written.

    A wheel's metadata is read where the wheel was just built. A layer's list of packages and the results of a job on another machine arrive
    as a stream of tar, which `incoming.py` alone reads, without tarfile and within limits; the others pack what goes there. A page
    packs its data, which the browser unpacks, and the emulator keeps decoded code in its own cache. A stage's process tells the one that it
    forks workers from what they run: no code of the package has run in either, or has their channel.
    """
    found = {}
    for path in sorted((REPOSITORY / "harness").rglob("*.py")):
        source = path.read_text()
        nodes = list(ast.walk(ast.parse(source)))
        names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        names |= {f"{node.module}" for node in nodes if isinstance(node, ast.ImportFrom)}
        if names & UNPACKERS or "get_archive" in source or "unpack_archive" in source or "extractall" in source:
            found[path.relative_to(REPOSITORY).as_posix()] = names & UNPACKERS

    assert found == {
        "harness/warpwave/emulator/program.py": {"zlib"},
        "harness/warpwave/inside/fake_gpu/lanes.py": {"zlib"},  # a checksum
        "harness/warpwave/inside/process/forks.py": {"pickle"},
        "harness/warpwave/render/html/shell.py": {"zlib"},
        "harness/warpwave/engines/docker/images.py": set(),
        "harness/warpwave/engines/remote/container.py": set(),
        "harness/warpwave/engines/snapshot.py": {"tarfile"},
        "harness/warpwave/engines/packages/installing/requirements.py": {"zipfile"},
    }
    packing = (REPOSITORY / "harness/warpwave/engines/snapshot.py").read_text()
    assert re.findall(r"tarfile\.open\(.*?\)", packing) == ['tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT)']


# Hostile files of a raw folder: XML, lines, records, links and sizes. All data is synthetic.


def stage(found, name):
    return next(report for report in found.stages if report.stage is name)


DOCTYPE = '<!DOCTYPE testsuites SYSTEM "http://example.invalid/x.dtd"><testsuites/>'


BOMB = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]><testsuites><testsuite name="&b;"/></testsuites>'


XXE = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/hostname">]><testsuites><testsuite name="x">&a;</testsuite></testsuites>'


HOSTILE_XML = {
    "document type": (DOCTYPE, "document type"),
    "bomb": (BOMB, "document type"),
    "outside entity": (XXE, "document type"),
    "deep": ("<testsuites>" + "<testsuite>" * 200_000 + "</testsuite>" * 200_000 + "</testsuites>", "nested deeper"),
    "truncated": ('<testsuites>\n<testsuite name="x">\n<testcase name="a"', "line 3"),
    "empty": ("", "line 1"),
    "not xml": ("Segmentation fault\n", "line 1"),
    "html": ("<html><body>404</body></html>", "root element"),
    "another namespace": ('<testsuites xmlns="urn:x"/>', "root element"),
    "nameless": ("<testsuites><testsuite><testcase/></testsuite></testsuites>", "neither an id nor a name"),
    "no such encoding": ('<?xml version="1.0" encoding="nonsense"?><testsuites/>', "encoding"),
}


@pytest.mark.parametrize("name", HOSTILE_XML)
def test_a_hostile_junit_file_costs_the_test_stage_only(raw, name):
    content, word = HOSTILE_XML[name]
    (raw / "test/junit.xml").write_text(content)

    found = collect(raw)

    assert Verdict.INVALID is stage(found, Stage.TEST).verdict
    assert found.problems[0].startswith("test/junit.xml: invalid: ")
    assert word in found.problems[0]
    assert found.cases == ()
    assert (run().samples, run().compiled, run().facts) == (found.samples, found.compiled, found.facts)
    assert Verdict.PASSED is stage(found, Stage.BENCH).verdict


def test_bytes_that_are_no_text_are_invalid(raw):
    for name in ("test/junit.xml", "facts.json", "bench/samples.jsonl"):
        (raw / name).write_bytes(b"\xff\xfe\x00\xd8" * 10 + b"\n")

    found = collect(raw)

    assert len(found.problems) == 3
    assert {Verdict.INVALID} == {stage(found, name).verdict for name in (Stage.TEST, Stage.FACTS, Stage.BENCH)}


GOOD = to_json(sample(1024))


HOSTILE_LINES = {
    "NaN": (GOOD.replace("3000.0", "NaN"), "not a finite number"),
    "infinity": (GOOD.replace("3000.0", "-Infinity"), "not a finite number"),
    "1e999": (GOOD.replace("3000.0", "1e999"), "not a finite number"),
    "duplicate key": (GOOD.replace('"case"', '"provider": "other", "case"', 1), "occurs twice"),
    "duplicate key inside": (GOOD.replace('"N": 1024', '"N": 1024, "N": 2048'), "occurs twice"),
    "huge integer": (GOOD.replace('"N": 1024', '"N": ' + "9" * 5000), "too large"),
    "deep": (GOOD.replace('"N": 1024', '"N": ' + "[" * 200_000 + "]" * 200_000), "nested deeper"),
    "less deep": (GOOD.replace('"N": 1024', '"N": ' + "[" * 100 + "]" * 100), "nested deeper"),
    "unknown key": (GOOD.replace('"case"', '"surprise": 1, "case"', 1), "surprise"),
    "missing key": (GOOD.replace('"provider": "triton", ', ""), "provider"),
    "text for a number": (GOOD.replace("3000.0", '"3000"'), "value"),
    "number for a text": (GOOD.replace('"triton"', "1"), "provider"),
    "no such verdict": (GOOD.replace('"passed"', '"excellent"'), "verdict"),
    "lone surrogate": (GOOD.replace('"triton"', '"\\ud800"'), "JSON"),
    "long text": (GOOD.replace('"triton"', '"' + "x" * 200_000 + '"'), "200000 characters"),
    "a list": ("[1, 2]", "Input should be"),
    "not json": ("Traceback (most recent call last):", "not JSON"),
}


@pytest.mark.parametrize("name", HOSTILE_LINES)
def test_a_hostile_line_makes_the_stage_invalid_and_keeps_the_others(raw, name):
    """The good lines before and after it stay; the problem names the line."""
    content, word = HOSTILE_LINES[name]
    (raw / "bench/samples.jsonl").write_text(f"{GOOD}\n{content}\n{to_json(sample(2048))}\n")

    found = collect(raw)

    assert (sample(1024), sample(2048)) == found.samples
    assert Verdict.INVALID is stage(found, Stage.BENCH).verdict
    assert found.problems[0].startswith("bench/samples.jsonl: invalid: line 2: ")
    assert word in found.problems[0]
    assert Verdict.PASSED is stage(found, Stage.TEST).verdict


@pytest.mark.parametrize("name", ["run.json", "stages.json", "job.json", "facts.json"])
@pytest.mark.parametrize("content", ["", "null", '{"a": 1, "a": 2}', "[" * 100_000, '{"schema_version": 2}', '{"seconds": 1e999}'])
def test_a_hostile_record_never_raises_and_never_passes(raw, name, content):
    """Whatever a JSON file contains, the other files are read, and the run does not pass."""
    (raw / name).write_text(content)

    found = collect(raw)

    assert found.problems[0].startswith(f"{name}: invalid: ")
    assert Verdict.INVALID in {found.record.verdict, *(report.verdict for report in found.stages)}
    assert run().cases == found.cases


@pytest.mark.parametrize("name", ["test/junit.xml", "run.json", "bench/samples.jsonl"])
def test_symbolic_links_are_refused(raw, tmp_path, name):
    outside = tmp_path / "outside"
    (raw / name).rename(outside)
    (raw / name).symlink_to(outside)

    found = collect(raw)

    assert "symbolic link" in found.problems[0]
    assert Verdict.INVALID in {found.record.verdict, *(report.verdict for report in found.stages)}


def test_a_linked_folder_is_refused_too(raw, tmp_path):
    (raw / "test").rename(tmp_path / "elsewhere")
    (raw / "test").symlink_to(tmp_path / "elsewhere")

    assert Verdict.INVALID is stage(collect(raw), Stage.TEST).verdict


def test_what_is_not_a_regular_file_is_refused_at_once(raw):
    """A named pipe cannot block the report, and a folder is no file."""
    (raw / "test/junit.xml").unlink()
    os.mkfifo(raw / "test/junit.xml")
    (raw / "facts.json").unlink()
    (raw / "facts.json").mkdir()

    found = collect(raw)

    assert {stage(found, Stage.TEST).verdict, stage(found, Stage.FACTS).verdict} == {Verdict.INVALID}
    assert "test/junit.xml: invalid: it is not a regular file" in found.problems


@pytest.mark.parametrize(
    ("reader", "cap", "value", "name", "stage_name"),
    [
        (cases, "MAX_XML_BYTES", 300, "test/junit.xml", Stage.TEST),
        (cases, "MAX_XML_ELEMENTS", 5, "test/junit.xml", Stage.TEST),
        (cases, "MAX_XML_DEPTH", 2, "test/junit.xml", Stage.TEST),
        (cases, "MAX_CASES", 2, "test/junit.xml", Stage.TEST),
        (cases, "MAX_NAMES", 5, "test/junit.xml", Stage.TEST),
        (cases, "MAX_TAG_BYTES", -1, "test/junit.xml", Stage.TEST),
        (cases, "MAX_MEMORY", 1000, "test/junit.xml", Stage.TEST),
        (untrusted, "MAX_LINES_BYTES", 300, "bench/samples.jsonl", Stage.BENCH),
        (untrusted, "MAX_LINES", 2, "bench/samples.jsonl", Stage.BENCH),
        (untrusted, "MAX_LINE_BYTES", 300, "bench/samples.jsonl", Stage.BENCH),
        (untrusted, "MAX_VALUES", 20, "bench/samples.jsonl", Stage.BENCH),
        (untrusted, "MAX_STRING", 10, "bench/samples.jsonl", Stage.BENCH),
        (untrusted, "MAX_MEMORY", 4000, "bench/samples.jsonl", Stage.BENCH),
        (untrusted, "MAX_JSON_BYTES", 300, "facts.json", Stage.FACTS),
        (untrusted, "MAX_JSON_DEPTH", 1, "facts.json", Stage.FACTS),
        (untrusted, "MAX_SECONDS", 0.0, "facts.json", Stage.FACTS),
        (untrusted, "MAX_SECONDS", 0.0, "test/junit.xml", Stage.TEST),
        (untrusted, "MAX_SECONDS", 0.0, "bench/samples.jsonl", Stage.BENCH),
    ],
)
def test_a_file_above_its_cap_is_refused(raw, monkeypatch, reader, cap, value, name, stage_name):
    monkeypatch.setattr(reader, cap, value)

    found = collect(raw)

    assert any(problem.startswith(f"{name}: invalid: ") for problem in found.problems)
    assert Verdict.INVALID is stage(found, stage_name).verdict


XML_CASE = '<testsuite><testcase classname="c" name="n" time="{time}">{inner}</testcase></testsuite>'


@pytest.mark.parametrize("time", ["nan", "inf", "-1", "1e308", "1e999", "soon", ""])
def test_an_impossible_time_is_no_time(raw, time):
    """Seconds are finite and not negative, whatever the file says."""
    (raw / "test/junit.xml").write_text(XML_CASE.format(time=time, inner=""))

    assert [found.seconds for found in collect(raw).cases] == [0.0]


def test_an_unreadable_file_is_a_problem_not_a_traceback(raw, monkeypatch):
    def refuse(path, *_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)

    assert Verdict.INVALID is collect(raw).record.verdict


# Records of valid types with values that no machine produces: they are read back unchanged, and every report of them is written.

RECORDS = (Job, Inputs, Facts, Stages, RunRecord)
LINES = (Sample, Ceiling, CompiledKernel)
COMMAND = re.compile(r"^\s*::(add-mask|debug|echo|error|group|notice|set-env|set-output|stop-commands|warning)", re.MULTILINE)
# Shrinking a finding takes minutes: only `nox -s fuzz` runs these.
searching = pytest.mark.skipif("WARPWAVE_SEARCH" not in os.environ, reason="a search of minutes: nox -s fuzz")
slow = settings(max_examples=20 if "WARPWAVE_SEARCH" in os.environ else 8, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("kind", slow_but([*RECORDS, *LINES], [*RECORDS[1:], *LINES]))
def test_a_record_comes_back_as_it_was(kind, tmp_path_factory):
    """As a separate file and as a line among others: equal, and without a fault."""
    folder = tmp_path_factory.mktemp("records")

    @slow
    @given(any_of(kind), any_of(kind))
    def check(first, second):
        dump(first, folder / "one.json")
        (folder / "many.jsonl").write_text(f"{to_json(first)}\n{to_json(second)}\n", encoding="utf-8")

        assert read_record(folder, "one.json", kind) == (first, None)
        assert read_lines(folder, "many.jsonl", kind) == ((first, second), None)

    check()


def check_inert(name: str, text: str) -> None:
    """Text printed to a terminal or a job's log controls neither."""
    assert {character for character in text if not character.isprintable()} <= {"\n"}, name
    assert not COMMAND.search(text), name
    assert "##[" not in text, name


@searching
@slow
@given(st.lists(target_runs, min_size=1, max_size=3))
def test_no_values_keep_a_report_from_being_written(tmp_path_factory, runs):
    """Every file of a report, the terminal and every export is written completely, and strictly if the format has a parser."""
    out = tmp_path_factory.mktemp("report")
    comparison = compare(runs, ["alpha"])
    for name, write in WRITERS.items():
        write(comparison, out / name)

    def refuse(text):
        raise AssertionError(text)

    json.loads((out / "comparison.json").read_text("utf-8"), parse_constant=refuse)
    ElementTree.parse(out / "junit.xml")
    widths = {len(row) for row in csv.reader(io.StringIO((out / "bandwidth.csv").read_text("utf-8")))}
    assert len(widths) == 1
    console = Console(file=io.StringIO(), width=80)
    console.print(render_terminal(comparison, full=True))
    for picture in pictures(comparison, "auto"):
        ElementTree.fromstring(picture.svg)
    for name, render in FORMATS.items():
        text = render(comparison)
        assert name in ("csv", "openmetrics") or json.loads(text, parse_constant=refuse) is not None
        check_inert(name, text)
    check_inert("terminal", console.file.getvalue())
    for name in WRITERS:
        if name != "junit.xml":  # for machines: a parser must read the same text back
            check_inert(name, (out / name).read_text("utf-8"))


@searching
@slow
@given(target_runs, target_runs)
def test_no_values_keep_generated_code_from_being_compared(first: TargetRun, second: TargetRun):
    """The same is true of the diff of two runs."""
    try:
        sides = bundle("a", [first]), bundle("b", [second])
    except UsageError:
        return
    found = diff(sides[0].kernels, sides[1].kernels)
    code_sentence(found, ())
    diff_sections(*sides, found, (), True)


@pytest.fixture(scope="module")
def readers_folder():
    """The readers' own folder, removed afterwards."""
    readers.FOLDER.mkdir(exist_ok=True)
    yield
    shutil.rmtree(readers.FOLDER)


@pytest.mark.parametrize("name", readers.READERS)
def test_what_the_fuzzer_found_is_read_or_refused(name, readers_folder):
    """Inputs with which it reached new code (`tests/fuzz/session.py --keep` writes them) raise no exception."""
    inputs = sorted((REPOSITORY / "tests" / "data" / "corpus" / name).iterdir())

    assert inputs
    for path in inputs:
        readers.READERS[name](path.read_bytes())
