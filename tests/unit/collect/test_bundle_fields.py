"""Every field of a raw folder is validated when it is read: one bad field affects only its own file. All data is synthetic."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from slow_cases import slow_but
from synthetic import edit, run, two_targets, write_raw

from warpwave.__main__ import _run_cli
from warpwave.collect import collect
from warpwave.errors import ExitCode, UsageError
from warpwave.records import Stage, StageReport, Verdict
from warpwave.run.shards import parse_shard

NO_SHARDS = (
    *("x", "1/999999999", "²/³", "1/2/3", "0/3", "4/3", "-1/2", "１/２", "1/65", "1/", "/2", " 1/2", "1/2\n", "+1/2", "1_0/20", "01/2"),  # noqa: RUF001
    *("1" * 5000 + "/2", "1/٣", "9" * 40_000 + "/" + "9" * 40_000),
)


@pytest.mark.parametrize("text", slow_but(NO_SHARDS, ("x", "1/999999999", "²/³", "4/3")), ids=lambda text: ascii(text[:12]))
def test_a_shard_of_a_bundle_is_read_as_the_command_line_reads_it(tmp_path, text):
    """The reader refuses what `--shard` refuses: the file is invalid, and every other target is in the report."""
    for source in two_targets():
        write_raw(tmp_path / "raw" / source.record.target, source)
    edit(tmp_path / "raw" / "alpha" / "run.json", shard=text)
    with pytest.raises(UsageError):
        parse_shard(text)

    for words in (
        ["report", str(tmp_path), "--out", str(tmp_path / "out")],
        ["ci", "report", str(tmp_path), "--out", str(tmp_path / "ci"), "--base", str(tmp_path)],
        ["ci", "comment", str(tmp_path), "--out", str(tmp_path / "comment.md")],
    ):
        with CliRunner().isolation():
            assert _run_cli(words) in (ExitCode.GOOD, ExitCode.FAILED, ExitCode.INCOMPLETE)
    comparison = json.loads((tmp_path / "out" / "comparison.json").read_text())

    assert [target["verdict"] for target in comparison["targets"]] == ["invalid", "failed"]
    assert comparison["problems"][0].startswith("alpha: run.json: invalid: shard: ")


DEEP = "a" * 3000
FIELDS = {
    "run.json": (
        *(("target", DEEP), ("run_id", DEEP), ("seconds", 1e308), ("seconds", -1.0)),
        *(("attempts", [{"started": "", "seconds": 0.0, "verdict": "infra", "reason": ""}] * 2000), ("command", ["a"] * 3000)),
        ("attempts", [{"started": "", "seconds": 1e300, "verdict": "infra", "reason": ""}]),
    ),
    "facts.json": (
        ("devices", [{"index": n, "name": "g", "architecture": "a", "memory_bytes": 1, "multiprocessors": 1} for n in range(5000)]),
        ("devices", [{"index": 1 << 62, "name": "g", "architecture": "a", "memory_bytes": 1, "multiprocessors": 1}]),
        ("devices", [{"index": -1, "name": "g", "architecture": "a", "memory_bytes": 1, "multiprocessors": 1}]),
        ("devices", [{"index": 0, "name": "g", "architecture": "a", "memory_bytes": 1, "multiprocessors": 1, "clock_mhz": 1e308}]),
    ),
    "stages.json": (
        ("reports", [{"stage": "test", "verdict": "passed", "seconds": 1e300}]),
        ("reports", [{"stage": "test", "verdict": "passed", "seconds": -1}]),
        ("reports", [{"stage": "test", "verdict": "passed", "counts": {"passed": -5}}]),
        ("reports", [{"stage": "test", "verdict": "passed", "counts": {str(n): n for n in range(1000)}}]),
        ("reports", [{"stage": "test", "verdict": "passed"}] * 1000),
    ),
    "job.json": (
        ("what", {"peers": ["a"] * 5000}),
        ("what", {"stages": ["test"] * 5000}),
    ),
    "bench/samples.jsonl": (
        *(("device", -1), ("device", 1 << 40), ("kernel", DEEP), ("provider", DEEP), ("case", DEEP)),
        *(("params", {str(n): n for n in range(5000)}), ("rounds", [-1]), ("flush_bytes", -1), ("warmup", -1)),
    ),
    "bench/ceilings.jsonl": (("device", -1), ("device", 1 << 40)),
    "compile/kernels.jsonl": (
        *(("kernel", DEEP), ("function", DEEP), ("architecture", DEEP), ("seconds", 1e308), ("occupancy", 1e308), ("occupancy", -0.5)),
        *(("signature", {str(n): "i32" for n in range(5000)}), ("constants", {str(n): n for n in range(5000)})),
        *(("load_widths", [8] * 5000), ("instructions", {str(n): n for n in range(5000)}), ("matrix", ["a"] * 5000)),
    ),
}


@pytest.mark.parametrize(("name", "key", "value"), [(name, *entry) for name, found in FIELDS.items() for entry in found])
def test_a_field_beyond_its_bound_costs_its_file_or_line(tmp_path, name, key, value):
    """The fault names the field, and no other file is affected."""
    raw = write_raw(tmp_path / "raw" / "alpha", run())
    lines = (raw / name).read_text().splitlines()
    lines[0] = json.dumps({**json.loads(lines[0]), key: value})
    (raw / name).write_text("\n".join(lines) + "\n")

    problems = collect(raw).problems

    assert len(problems) == 1
    assert problems[0].startswith(f"{name}: invalid: ")
    assert key in problems[0]


CLIPPED = {
    "run.json": ("label", "reason", "hint", "commit", "started"),
    "facts.json": ("torch", "triton", "runtime", "driver", "platform", "python", "kernels_hash"),
    "bench/samples.jsonl": ("timer", "unit", "weak", "reason"),
    "compile/kernels.jsonl": ("reason", "binary_hash"),
}


@pytest.mark.parametrize(("name", "key"), [(name, key) for name, keys in CLIPPED.items() for key in keys])
def test_prose_is_cut_and_costs_nothing(tmp_path, name, key):
    """A long reason is cut once, and stays the same when it is read again."""
    raw = write_raw(tmp_path / "raw" / "alpha", run())
    lines = (raw / name).read_text().splitlines()
    lines[0] = json.dumps({**json.loads(lines[0]), key: "é" * 50_000})
    (raw / name).write_text("\n".join(lines) + "\n")

    found = collect(raw)
    record = {"run.json": found.record, "facts.json": found.facts, "bench/samples.jsonl": found.samples[0]}.get(name, found.compiled[0])

    assert found.problems == ()
    assert len(getattr(record, key)) <= 10_000
    assert getattr(record, key).endswith("…")


def _limits() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
    resource.setrlimit(resource.RLIMIT_CPU, (60, 60))


def test_a_shard_of_a_billion_takes_no_memory(tmp_path):
    """In a process with a memory limit: the reader never enumerates shards up to the number."""
    edit(write_raw(tmp_path / "raw" / "alpha", run()) / "run.json", shard="1/999999999")
    command = [sys.executable, "-m", "warpwave", "report", str(tmp_path)]
    done = subprocess.run(command, cwd=Path(__file__).parents[3], preexec_fn=_limits, capture_output=True, text=True, check=False)

    assert done.returncode == ExitCode.INCOMPLETE, done.stderr


# Files that are not what their stage wrote or counted. All data is synthetic.


def stage(found, name):
    return next(report for report in found.stages if report.stage is name)


MISCOUNTED = {
    "fewer": ({"passed": 4}, "3 tests are in the file, the stage counted 4"),
    "others": ({"passed": 2, "failed": 1}, "0 tests in the file are failed, the stage counted 1"),
}


@pytest.mark.parametrize("name", MISCOUNTED)
def test_other_tests_in_the_file_than_the_stage_counted_are_invalid(tmp_path, name):
    """A well-formed file is not enough: the counts must agree, and the problem names both. The tests are kept."""
    counts, text = MISCOUNTED[name]
    reports = tuple(StageReport(entry, Verdict.PASSED, counts=counts if entry is Stage.TEST else {}) for entry in Stage)

    found = collect(write_raw(tmp_path / "alpha", run(stages=reports)))

    assert Verdict.INVALID is stage(found, Stage.TEST).verdict
    assert (stage(found, Stage.TEST).reason, found.problems) == (text, (f"test/junit.xml: invalid: {text}",))
    assert len(found.cases) == 3


SEALED = ("facts.json", "test/junit.xml", "bench/samples.jsonl", "bench/ceilings.jsonl", "compile/kernels.jsonl")


def sealed(folder):
    """A run whose stages and host recorded the hashes of what they wrote."""
    written = write_raw(folder, run())
    hashes = {name: hashlib.sha256((written / name).read_bytes()).hexdigest() for name in SEALED}
    own = {Stage.FACTS: "facts.json", Stage.TEST: "test/", Stage.BENCH: "bench/", Stage.COMPILE: "compile/"}
    files = {entry: {name: text for name, text in hashes.items() if name.startswith(own[entry])} for entry in Stage}
    reports = tuple(dataclasses.replace(report, files=files[report.stage]) for report in run().stages)
    write_raw(folder, run(stages=reports))
    edit(folder / "run.json", stages_hash=hashlib.sha256((folder / "stages.json").read_bytes()).hexdigest())
    return folder


def test_files_that_nobody_has_changed_are_believed(tmp_path):
    """Their hashes are those that the run recorded."""
    found = collect(sealed(tmp_path / "alpha"))

    assert (found.record.verdict, found.problems) == (Verdict.PASSED, ())


@pytest.mark.parametrize("name", SEALED)
def test_a_file_that_was_changed_after_it_was_written_is_invalid(tmp_path, name):
    """Its stage is invalid and the others stay as they were. The changed content is still shown."""
    folder = sealed(tmp_path / "alpha")
    with open(folder / name, "a", encoding="utf-8") as file:
        file.write("\n")
    found = collect(folder)

    assert found.problems == (f"{name}: invalid: it was changed after it was written",)
    assert [report.verdict for report in found.stages].count(Verdict.INVALID) == 1
    assert (len(found.cases), len(found.samples)) == (3, 3)


def test_stages_that_were_changed_after_the_run_are_invalid(tmp_path):
    """Otherwise the hashes of files could be changed too. The host has the hash of stages.json in run.json."""
    folder = sealed(tmp_path / "alpha")
    (folder / "stages.json").write_text((folder / "stages.json").read_text() + " ")
    found = collect(folder)

    assert (found.record.verdict, found.problems) == (Verdict.INVALID, ("stages.json: invalid: it was changed after it was written",))
