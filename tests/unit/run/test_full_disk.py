"""The disk of the results is full, on a real file system of one megabyte: infrastructure, nothing finished is lost, and it goes on."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import command
import pytest
from engine_requests import make_options
from light import light_python
from slow_cases import slow_but

from warpwave.collect import collect
from warpwave.config.targets import load_targets
from warpwave.engines import results
from warpwave.engines.protocol import Layout
from warpwave.inside.process.journal import Audit, Journal, Tail
from warpwave.inside.process.supervise import supervise
from warpwave.inside.process.workers import JOURNAL_VARIABLE, spawned
from warpwave.records import UNWRITABLE, Environment, Exit, Stage, StageReport, Stages, Verdict, writing
from warpwave.report import write_report
from warpwave.run import attempt, run_target

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
def disk(tmp_path):
    """Mounts a file system of so many bytes, with room for so many files."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(size: str, files: str = "0") -> Path:
        words = ["mount", "-t", "tmpfs", "-o", f"size={size},nr_inodes={files}", "tmpfs", str(folder)]
        if os.getuid() != 0 or subprocess.run(words, capture_output=True).returncode:
            pytest.skip("only root can mount a small file system")
        return folder

    yield mount
    subprocess.run(["umount", "-l", str(folder)], capture_output=True)


@pytest.fixture
def small_disk(disk):
    return disk("1m")


@pytest.fixture
def run(tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "test_op.py").write_text(
        "import pytest\n\n@pytest.mark.parametrize('n', range(40))\ndef test_op(n):\n    print('x' * 4000)\n"
    )
    (tmp_path / "targets.yml").write_text("schema_version: 1\ntargets:\n  cpu: {interpret: false, stages: [test]}\n")

    def run(out: Path, *more: str, shell: str = "") -> subprocess.CompletedProcess[str]:
        words = ["--kernels", str(package), "--targets", str(tmp_path / "targets.yml"), "--out", str(out), "--engine", "local", *more]
        variables = {**os.environ, "COLUMNS": "200", "PYTHONPATH": str(Path(__file__).parents[3])}
        if not shell:
            return command.warpwave("run", "cpu", *words, env=variables, light=True)
        words = ["bash", "-c", f'{shell}; exec "$@"', "-", light_python(), "-m", "warpwave", "run", "cpu", *words]
        return subprocess.run(words, capture_output=True, text=True, timeout=300, env=variables)

    return run


def is_infrastructure(done: subprocess.CompletedProcess[str], *advice: str) -> None:
    """The answer of a run whose results have no room: never a verdict on the kernels, never `killed`, no traceback."""
    assert done.returncode == 3, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert "was killed" not in done.stdout
    assert any(word in done.stdout for word in advice), done.stdout


@pytest.mark.parametrize("kib", slow_but([4, 8, 12, 16, 24, 32, 48, 64, 80, 128], [8, 24, 128]))
def test_a_disk_that_is_too_small_from_the_start(disk, run, kib):
    """Whatever could be written: the terminal and the exit code are right, and so is the record where there is room for one."""
    out = disk(f"{kib}k") / "out"
    is_infrastructure(run(out), "Make room")
    written = out / "raw" / "cpu" / "run.json"
    assert kib < 16 or json.loads(written.read_text())["verdict"] == "infra"
    assert not written.exists() or command.warpwave("report", out, "--out", out.parents[1] / "report").returncode == 3


@pytest.mark.parametrize("kib", slow_but([0, 4, 48], [4]))
def test_a_limit_on_the_size_of_files(tmp_path, run, kib):
    """EFBIG, of `ulimit -f`: what a shell, a batch system or a container sets."""
    is_infrastructure(run(tmp_path / "out", "--no-report", shell=f"ulimit -f {kib}"), "ulimit -f")


ERRORS = [errno.EIO, errno.EMFILE, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.ESTALE]


@pytest.mark.parametrize("number", slow_but(ERRORS, [errno.EIO, errno.EFBIG]))
@pytest.mark.parametrize("moment", ["reserve", "first page", "job", "last page"])
def test_whatever_the_disk_answers_and_when(tmp_path, monkeypatch, number, moment):
    """Each moment at which the host writes, by an error that no mount makes on demand; the engine stands in for a container."""
    error = OSError(number, os.strerror(number), str(tmp_path))
    pages = iter(range(10))

    def fails(path, text):
        page = next(pages) if path.name == "run.json" else "job"
        if page == {"first page": 0, "job": "job", "last page": 2}.get(moment):
            raise error
        results.put(path, text)

    def refuses(self, folder):
        raise error

    monkeypatch.setattr(attempt, "put", fails)
    if moment == "reserve":
        monkeypatch.setattr(attempt.Reserve, "take", refuses)
    monkeypatch.setattr(attempt, "choose_engine", lambda *_: Standing())
    (tmp_path / "kernels").mkdir()
    settings = make_options("run-1", tmp_path / "out", tmp_path / "kernels")
    record = run_target(load_targets()["cpu"], settings, lambda line: None, lambda event: None)
    comparison = write_report([settings.where.out], settings.where.out, ["cpu"], [record])
    assert (record.verdict, comparison.exit_code) == (Verdict.INFRA, 3)
    assert os.strerror(number) in record.reason
    assert "--resume" in record.hint


class Standing:
    name = "local"

    def prepare(self, request, say):
        return Environment("local", sys.executable)

    def layout(self, request):
        return Layout("harness", "kernels", str(request.raw))

    def execute(self, request, environment, on_line):
        writing.dump(
            Stages(request.options.where.run_id, "cpu", True, (StageReport(Stage.TEST, Verdict.PASSED, exit_code=0),)),
            request.raw / "stages.json",
        )
        return environment, Exit(0, 1.0)


def test_a_full_disk_costs_no_other_target(tmp_path, monkeypatch):
    """A second target that finds no room for its folder is a row of the report; the first one's results are in it."""
    monkeypatch.setattr(attempt, "choose_engine", lambda *_: Standing())
    (tmp_path / "kernels").mkdir()
    settings, targets = make_options("run-1", tmp_path / "out", tmp_path / "kernels"), load_targets()
    records = [run_target(targets["cpu"], settings, lambda line: None, lambda event: None)]
    monkeypatch.setattr(Path, "mkdir", full)
    records.append(run_target(targets["cuda"], settings, lambda line: None, lambda event: None))
    monkeypatch.undo()
    comparison = write_report([settings.where.out], settings.where.out, ["cpu", "cuda"], records)
    assert [(row.target, row.verdict) for row in comparison.targets][1] == ("cuda", Verdict.INFRA)
    assert comparison.exit_code == 3


def full(self, *arguments, **more):
    raise OSError(errno.ENOSPC, "No space left on device", str(self))


def test_a_full_disk_is_infrastructure(small_disk, tmp_path):
    """Exit code 3, advice, no traceback, no test to blame; the last page says so. With room again, the rest is run."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "test_op.py").write_text(TESTS)
    (tmp_path / "targets.yml").write_text("schema_version: 1\ntargets:\n  cpu: {interpret: false, stages: [test]}\n")

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        words = ["--kernels", str(package), "--targets", str(tmp_path / "targets.yml"), "--out", str(small_disk / "out"), "--no-report"]
        words += ["--engine", "local", *more]
        return command.warpwave("run", "cpu", *words, env={**os.environ, "SMALL_DISK": str(small_disk)}, light=True)

    done = run()
    raw = small_disk / "out" / "raw" / "cpu"
    journal = (raw / "test" / "journal.jsonl").read_text()

    assert done.returncode == 3, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert "Make room" in done.stdout
    assert json.loads((raw / "run.json").read_text())["verdict"] == "infra"
    assert '"finish"' in journal
    assert not [case for case in collect(raw).cases if case.verdict not in (Verdict.PASSED, Verdict.NOT_RUN)]

    (small_disk / "filler").unlink()
    (small_disk / "roomy").touch()
    again = run("--resume", str(small_disk / "out"))
    assert again.returncode == 0, again.stdout + again.stderr
    assert [case.verdict for case in collect(raw).cases] == [Verdict.PASSED] * 3


def test_a_worker_that_is_stopped_between_the_count_of_a_test_and_its_line(tmp_path, monkeypatch):
    """The disk of the supervisor is full, so it stops the worker at any moment. A later attempt goes on from this journal."""
    from warpwave.inside.test.collection import Collection
    from warpwave.inside.test.pytest_plugin import Reporter

    def write(self, event, **fields):
        if event == "finish":
            raise KeyboardInterrupt
        plain(self, event, **fields)

    plain = Journal.write
    journal = Journal(tmp_path / "journal.jsonl")
    reporter = Reporter(journal, Collection(), pretended=False)
    journal.write("worker")
    journal.write("collected", ids=["a"])
    journal.write("start", id="a")
    monkeypatch.setattr(Journal, "write", write)
    with pytest.raises(KeyboardInterrupt) as caught:
        reporter._finish("a", "passed", "", "")
    reporter.pytest_keyboard_interrupt(caught)
    reporter.pytest_sessionfinish(SimpleNamespace(shouldfail=False, shouldstop=False))

    audit = Audit()
    assert all(audit.check({**event, "replaced": []}) for event in journal.read())
    assert audit.findings(Tail(tmp_path / "none")) == []


def test_a_worker_that_cannot_write_blames_nobody(tmp_path, monkeypatch):
    """It ends at once, with a code of its own; whoever supervises it makes no death of a test of that."""
    program = "from warpwave.inside.process.journal import Journal; Journal.from_environment().write('start', id='a'); print('on')"
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, JOURNAL_VARIABLE: "/dev/full"}, capture_output=True)
    assert (done.returncode, done.stdout) == (UNWRITABLE, b"")

    journal, log = Journal(tmp_path / "journal.jsonl"), tmp_path / "log.txt"
    lines = f'import os, sys; open(os.environ[\'{JOURNAL_VARIABLE}\'], \'a\').write(\'{{"event": "start", "id": "a"}}\\n\')'
    with pytest.raises(OSError, match="no space left"):
        supervise(spawned([sys.executable, "-c", f"{lines}; sys.exit({UNWRITABLE})"]), journal, 60.0, log, lambda event: None)
    assert journal.done() == set()
