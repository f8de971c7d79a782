"""The disk of the results is full, on a real file system of one megabyte: infrastructure, nothing finished is lost, and it goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from harness.collect import collect
from harness.inside.supervise import Journal, supervise
from harness.inside.workers import JOURNAL_VARIABLE, spawned
from harness.records import UNWRITABLE, Verdict

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

TESTS = """
import os
from pathlib import Path

OUT = Path(os.environ["SMALL_DISK"])

def test_before():
    pass

def test_that_fills_the_disk():
    if (OUT / "roomy").exists():
        return
    with open(OUT / "filler", "wb", buffering=0) as file:
        try:
            while file.write(b"x" * 512):
                pass
        except OSError:
            pass

def test_after():
    pass
"""


@pytest.fixture
def small_disk(tmp_path):
    """A mount of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.getuid() != 0 or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("only root can mount a small file system")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_is_infrastructure(small_disk, tmp_path):
    """Exit code 3, advice, no traceback, no test to blame; the page from the start is whole. With room again, the rest is run."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "test_op.py").write_text(TESTS)
    (tmp_path / "targets.yml").write_text("schema_version: 1\ntargets:\n  cpu: {interpret: false, stages: [test]}\n")

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        words = ["--kernels", str(package), "--targets", str(tmp_path / "targets.yml"), "--out", str(small_disk / "out"), "--no-report"]
        command = [sys.executable, "-m", "harness", "run", "cpu", "--engine", "local", *words, *more]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, "SMALL_DISK": str(small_disk)})

    done = run()
    raw = small_disk / "out" / "raw" / "cpu"
    journal = (raw / "test" / "journal.jsonl").read_text()

    assert done.returncode == 3, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert "Make room" in done.stdout
    assert json.loads((raw / "run.json").read_text())["verdict"] == "incomplete"
    assert '"finish"' in journal
    assert not [case for case in collect(raw).cases if case.verdict not in (Verdict.PASSED, Verdict.NOT_RUN)]

    (small_disk / "filler").unlink()
    (small_disk / "roomy").touch()
    again = run("--resume", str(small_disk / "out"))
    assert again.returncode == 0, again.stdout + again.stderr
    assert [case.verdict for case in collect(raw).cases] == [Verdict.PASSED] * 3


def test_a_worker_that_cannot_write_blames_nobody(tmp_path, monkeypatch):
    """It ends at once, with a code of its own; whoever supervises it makes no death of a test of that."""
    program = "from harness.inside.supervise import Journal; Journal.from_environment().write('start', id='a'); print('on')"
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, JOURNAL_VARIABLE: "/dev/full"}, capture_output=True)
    assert (done.returncode, done.stdout) == (UNWRITABLE, b"")

    journal, log = Journal(tmp_path / "journal.jsonl"), tmp_path / "log.txt"
    lines = f'import os, sys; open(os.environ[\'{JOURNAL_VARIABLE}\'], \'a\').write(\'{{"event": "start", "id": "a"}}\\n\')'
    with pytest.raises(OSError, match="no space left"):
        supervise(spawned([sys.executable, "-c", f"{lines}; sys.exit({UNWRITABLE})"]), journal, 60.0, log, lambda event: None)
    assert journal.done() == set()
