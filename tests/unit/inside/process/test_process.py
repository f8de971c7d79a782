"""Exceptions in one line."""

import contextlib
import dataclasses
import doctest
import errno
import importlib
import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import SimpleNamespace

import pytest
from _pytest.pathlib import ImportPathMismatchError, import_path
from engine_requests import make_job, make_options

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")


import signal
import threading

from light import light_python
from synthetic import facts

from warpwave.collect import collect
from warpwave.config.targets import load_targets
from warpwave.engines import local
from warpwave.inside import __main__ as inside
from warpwave.inside import environment, watchdog
from warpwave.inside import environment as imports
from warpwave.inside.environment import is_of_the_disk, why_unwritable
from warpwave.inside.facts import stage
from warpwave.inside.facts.stage import UnusableError
from warpwave.inside.process import forks, supervise, workers
from warpwave.inside.process.outcomes import describe, statement, with_child
from warpwave.inside.process.supervise import Death, _explain
from warpwave.inside.test import pytest_plugin
from warpwave.inside.watchdog import watch
from warpwave.records import OVERFULL, OVERTIME, DeviceFacts, Limits, Stage, StageReport, Verdict, to_json
from warpwave.records.isolated import isolated
from warpwave.run import run_target


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("out of memory\nmore of it", "ValueError: out of memory"),
        ("at 2:37:\n    x = load(p)\n        ^\nmask is not a block", "ValueError: mask is not a block (at 2:37)"),
        ("", "ValueError"),
        (
            "PTXAS error: Internal Triton PTX codegen error\n`ptxas` stderr:\nptxas /tmp/tmpa1.ptx, line 52; error   : '.cg' is refused\n"
            "ptxas fatal   : Ptx assembly aborted due to errors\n\nRepro command: ptxas -v",
            "ValueError: '.cg' is refused",
        ),
        ("Internal Triton PTX codegen error\n`ptxas` stderr:\nptxas fatal   : no memory", "ValueError: no memory"),
        ("broken\n`ptxas` stderr:\nKilled", "ValueError: broken"),
    ],
    ids=["first line", "compiler", "nothing said", "a tool's error", "a tool that ends", "a tool that says no error"],
)
def test_what_happened_is_reported(message, told):
    assert describe(ValueError(message)) == told


def test_what_happened_in_a_function_that_a_kernel_calls_is_reported(tmp_path, monkeypatch):
    """Triton's compiler then only marks the call; what is wrong is in the cause, or in the cause's cause."""
    inner = ValueError("at 9:8:\ndef put(x):\n    add(x)\n    ^\nno attribute 'ir'")
    middle, outer = ValueError("at 3:4:\n    put(x)\n    ^"), ValueError("at 36:4:\n    finish(x)\n    ^")
    middle.__cause__, outer.__cause__ = inner, middle

    assert describe(outer) == "ValueError: no attribute 'ir' (at 9:8)"
    assert describe(ValueError("at 3:4:\n    put(x)\n    ^")) == "ValueError: ^ (at 3:4)"

    # Not the one that imports it.
    (tmp_path / "broken.py").write_text("x = 1\n  y = 2\n")
    (tmp_path / "imports_it.py").write_text("import broken\n")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(IndentationError) as caught:
        importlib.import_module("imports_it")

    assert describe(caught.value) == "IndentationError: unexpected indent (broken.py:2)"


DOCTESTS = {
    ">>> 2 + 2\n5\n": "DocTestFailure: 2 + 2 shows 4, expected 5 (doubled.py:12)",
    ">>> [\n...     1,\n... ]\n": "DocTestFailure: [ 1, ] shows [1], expected nothing (doubled.py:12)",
    ">>> x = 2\n>>> x = 3\n3\n": "DocTestFailure: x = 3 shows nothing, expected 3 (doubled.py:13)",
    ">>> 1 / 0\n3\n": "UnexpectedException: 1 / 0 raises ZeroDivisionError: division by zero, expected 3 (doubled.py:12)",
}


@pytest.mark.parametrize("text", DOCTESTS)
def test_a_failed_example_of_a_docstring_says_what_it_shows(text):
    example = doctest.DocTestParser().get_doctest(text, {}, "doubled", "doubled.py", 11)
    with pytest.raises((doctest.DocTestFailure, doctest.UnexpectedException)) as caught:
        doctest.DebugRunner().run(example)

    assert describe(caught.value) == DOCTESTS[text]
    several = Exception()
    several.failures = [caught.value]  # as pytest keeps them with --doctest-continue-on-failure
    assert describe(several) == DOCTESTS[text]


def test_two_test_files_of_one_name_are_said_in_words(tmp_path):
    """pytest's error is a tuple."""
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "test_same_name.py").write_text("")
    import_path(tmp_path / "a" / "test_same_name.py", root=tmp_path, consider_namespace_packages=False)
    with pytest.raises(ImportPathMismatchError) as caught:
        import_path(tmp_path / "b" / "test_same_name.py", root=tmp_path, consider_namespace_packages=False)

    assert "test_same_name.py has the same name and was imported first: rename one" in describe(caught.value)


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("needs two GPUs\nassert 1 >= 2\n +  where 1 = device_count()", "needs two GPUs"),
        ("assert 1 >= 2\n +  where 1 = device_count()", "assert 1 >= 2"),
        ("Traceback (most recent call last):\n  File x\nOSError: bad\nassert 1 == 0", "OSError: bad (Traceback (most recent call last))"),
    ],
)
def test_an_assertion_says_its_authors_words(message, told):
    """What pytest writes below them, its own names included, says less."""
    assert describe(AssertionError(message)) == f"AssertionError: {told}"


CHILD = [sys.executable, "-c", "import sys; print('device 7 is busy'); sys.exit(3)"]


KILLED = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]


@pytest.mark.parametrize(
    ("command", "checked", "captured", "printed", "told"),
    [
        (CHILD, True, False, "starts\ndevice 7 is busy\n", "ended with exit code 3; it printed: starts / device 7 is busy"),
        (CHILD, True, True, "", "ended with exit code 3; it printed: device 7 is busy"),
        (CHILD, False, True, None, "it failed: the child process ended with exit code 3; it printed: device 7 is busy"),
        (CHILD, True, False, None, "ended with exit code 3"),
        (KILLED, False, True, "", "it failed: the child process ended with signal 9; it printed nothing"),
    ],
)
def test_a_failed_child_process_has_its_exit_code_and_last_words(command, checked, captured, printed, told):
    with pytest.raises((subprocess.CalledProcessError, AssertionError)) as caught:  # noqa: PT012 - two ways to fail
        done = subprocess.run(command, check=checked, capture_output=captured)
        assert done.returncode == 0, "it failed"

    assert told in with_child(caught.value, "AssertionError: it failed\nmore", printed).splitlines()[0]
    assert with_child(ValueError("x"), "ValueError: x", "printed") == "ValueError: x"
    assert with_child(None, "x", "") == "x"


def test_a_statement_of_several_lines_is_one_line(tmp_path):
    file = tmp_path / "kernel.py"
    file.write_text("def put(p, v):\n    tl.store(\n        p,\n        v,  # the value\n    )\n    tl.store(p, v)  # again\n")
    whole = "tl.store(p, v)"

    assert [statement(str(file), line) for line in (1, 2, 4, 6, 99)] == ["def put(p, v):", whole, whole, f"{whole}  # again", ""]


# The first stage: a card that others use, or that does not answer, is told before anything runs on it.

GIB = 1 << 30


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only while somebody sleeps."""
    ticking = SimpleNamespace(now=0.0, monotonic=lambda: ticking.now, sleep=lambda seconds: setattr(ticking, "now", ticking.now + seconds))
    monkeypatch.setattr(stage, "time", ticking)
    return ticking


def card(*used_gib, total_gib=140):
    """A card on which others hold this much, from one look to the next; the last stays."""
    left = list(used_gib)

    def mem_get_info(index):
        used = left.pop(0) if len(left) > 1 else left[0]
        return int((total_gib - used) * GIB), total_gib * GIB

    return SimpleNamespace(mem_get_info=mem_get_info)


def test_a_card_that_others_use_is_refused(clock):
    """After a bound, with how much is taken of what, and what to do about it."""
    with pytest.raises(UnusableError) as caught:
        stage._wait_for_memory(card(90), 1)

    assert "GPU 1: 90.0 of 140.0 GiB are in use" in str(caught.value)
    assert "doctor" in caught.value.hint
    assert "--gpu" in caught.value.hint
    assert clock.now <= 61.0


def test_memory_that_is_given_back_late_is_waited_for(clock):
    """What a process before this one had may take a while; a context and a desktop are no reason to wait."""
    stage._wait_for_memory(card(90, 90, 30, 1), 0)
    assert clock.now == 3.0
    stage._wait_for_memory(card(1.5, total_gib=8), 0)
    assert clock.now == 3.0


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("print('|  0  ERR!  N/A |'); raise SystemExit(9)", "exited with 9: |  0  ERR!  N/A |"),
        ("import time; time.sleep(600)", "did not answer within 1 s"),
    ],
)
def test_a_sick_card_stops_the_run_before_a_kernel(run_inside, tmp_path, program, reason):
    """A probe that says so, or that hangs as drivers do: infrastructure, within a bound, and no test was started."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "test_op.py").write_text("def test_op(): pass\n")
    probe = (sys.executable, "-c", program)
    output = run_inside(package, Stage.TEST, light=True, interpret=False, probe=probe, probe_limit_s=1.0)
    told, test = json.loads((output / "stages.json").read_text())["reports"]

    assert told["verdict"] == "infra"
    assert reason in told["reason"]
    assert (test["verdict"], test["seconds"]) == ("not-run", 0.0)


@pytest.mark.parametrize(
    ("torch", "triton", "job", "refused"),
    [
        ("2.13.0+cpu", "3.5.1", {"interpret": True}, "Triton 3.5.1 is too old: warpwave needs Triton 3.6 or later"),
        ("2.5.1", "3.9.0", {"interpret": False}, "torch 2.5.1 is too old"),
        ("2.13.0+cpu", "3.6.0", {"interpret": True}, ""),
        ("2.13.0+cpu", "3.10.0+git1", {"interpret": True}, ""),
        ("2.13.0+cpu", "3.5.1", {"interpret": False}, ""),  # on a card, and emulated
        ("2.13.0+cpu", "3.5.1", {"interpret": True, "stages": (Stage.COMPILE,)}, ""),
    ],
)
def test_releases_that_are_too_old_are_refused_first(torch, triton, job, refused):
    """Before a stage crashes in them."""
    job = SimpleNamespace(interpret=job["interpret"], what=SimpleNamespace(stages=job.get("stages", (Stage.TEST, Stage.COMPILE))))
    with pytest.raises(UnusableError, match=refused) if refused else contextlib.nullcontext() as caught:
        stage._check_versions(job, torch, triton)

    assert not refused or "pip install --upgrade" in caught.value.hint


CARD = DeviceFacts(0, "A card", "sy_90", 1 << 36, 100, uuid="GPU-1")
CHANGES = {
    "kernels_hash": ("other", "the kernels have changed"),
    "python": ("3.13.0", "python has changed from 3.12.0 to 3.13.0"),
    "torch": ("0", "torch has changed from 2.13.0+synthetic to 0"),
    "triton": ("0", "triton has changed from 3.9.0 to 0"),
    "runtime": ("none", "runtime has changed from synthetic 1.0 to none"),
    "driver": (None, "driver has changed from 1.0 to None"),
    "fp_fusion": ("0", "fp fusion has changed from 1 to 0"),
    "devices": ((dataclasses.replace(CARD, uuid="GPU-2"),), "the GPUs have changed"),
    "platform": ("another", ""),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_run_is_not_taken_up_in_another_environment(tmp_path, name):
    """Numbers of both would be mixed. A kernel of the operating system that was updated is no other environment.

    A first run has nothing to be held against, nor has one whose facts were cut off.
    """
    value, reason = CHANGES[name]
    before = facts(devices=(CARD,))
    (tmp_path / "facts.json").write_text(to_json(before))
    (tmp_path / "cut.json").write_text("{")

    assert stage._changed(before, tmp_path / "facts.json") == ""
    changed = dataclasses.replace(before, **{name: value})
    assert [stage._changed(changed, tmp_path / f"{file}.json") for file in ("facts", "none", "cut")] == [reason, "", ""]


def test_a_link_out_of_the_package_counts_with_what_it_says(tmp_path):
    """Its content is the user's, and a container does not have it: both then name the same sources."""
    package, outside = tmp_path / "package", tmp_path / "private.py"
    package.mkdir()
    outside.write_text("secret = 1\n")
    (package / "ops.py").write_text("")
    (package / "link.py").symlink_to("../private.py")
    (package / "within.py").symlink_to("ops.py")
    here = stage.source_hash(package)
    outside.unlink()

    assert stage.source_hash(package) == here
    (package / "ops.py").write_text("x = 1\n")
    assert stage.source_hash(package) != here


# What a package sets reaches the stages that run its code; those who judge it load nothing of it.

REPOSITORY = Path(__file__).parents[4]
PLANTED = "import sys\nwith open({seen!r}, 'a') as seen:\n    seen.write(' '.join(sys.orig_argv) + '\\n')\n"


def test_neither_guard_nor_supervisor_loads_what_is_planted(tmp_path):
    """Not by PYTHONPATH, and not from the folder in which they start. The guard starts the supervisor, which finds no job here."""
    seen = tmp_path / "seen"
    for name in ("sitecustomize", "json", "runpy", "signal"):
        (tmp_path / f"{name}.py").write_text(PLANTED.format(seen=str(seen)))
    variables = {**os.environ, "PYTHONPATH": str(tmp_path)}
    job = str(tmp_path / "job.json")

    def start(*words: str) -> str:
        return subprocess.run(words, env=variables, cwd=tmp_path, capture_output=True, text=True).stderr

    said = start(*isolated(sys.executable, str(REPOSITORY / "harness"), "warpwave.inside.watchdog", "60", "5", "1000000", "100", job))
    assert f"FileNotFoundError: [Errno 2] No such file or directory: '{job}'" in said
    assert not seen.exists()
    start(sys.executable, "-c", "")
    assert seen.exists(), "another Python does load it"


class Started(Exception):  # noqa: N818 - it ends a call
    """Holds the variables of a process that is not started."""


@pytest.fixture
def variables_of(tmp_path, monkeypatch):
    """Return the variables with which a stage, or what compiles ahead of it, would start."""
    job = make_job("r", "cpu", (Stage.TEST,), str(tmp_path), str(tmp_path), variables={"MYPKG_X": "1"})

    def refuse(command, env, **more):
        raise Started(env)

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(inside, "for_compiling", dict)  # looks for a library

    def ask(stage):
        with pytest.raises(Started) as started:
            inside._run_stage(job, tmp_path / "job.json", stage, 9.0) if stage else inside._Ahead(job, tmp_path / "job.json", 9.0)
        return started.value.args[0]

    return ask


@pytest.mark.parametrize("stage", [Stage.TEST, Stage.BENCH, Stage.COMPILE, None])
def test_stages_that_run_the_package_get_its_variables(variables_of, stage):
    """And what compiles for them. Facts are about the machine; and this process, which supervises, has none of them."""
    assert variables_of(stage).items() >= {"MYPKG_X": "1", "PATH": os.environ["PATH"]}.items()
    assert "MYPKG_X" not in variables_of(Stage.FACTS)
    assert "MYPKG_X" not in os.environ


# What a compiler printed before it ended the whole process stands in the row of the case that it ended.

SAID = {
    "ops.py error: couldn't allocate output register for constraint 'f'\n": "error: couldn't allocate output register for constraint 'f'",
    "/src/ops.py:12:9: error: 'tt.dot' op is not legal\n": "ops.py:12:9: error: 'tt.dot' op is not legal",
    "cantFail\ninput constraints do not match\nUNREACHABLE executed at /b/Error.h:779!\n": "input constraints do not match",
    "LLVM ERROR: Cannot select: t12\nStack dump:\n0. Running pass\n": "LLVM ERROR: Cannot select: t12",
    "python: /b/SLPVectorizer.cpp:6072: Assertion `x' failed.\n": "/b/SLPVectorizer.cpp:6072: Assertion `x' failed.",
    "python: /b/T.cpp:1: int f(): Assertion `y' failed.\nFatal Python error: Aborted\n": "/b/T.cpp:1: int f(): Assertion `y' failed.",
    "terminate called after throwing an instance of 'std::bad_alloc'\n": "terminate called after throwing an instance of 'std::bad_alloc'",
    "12 passed, 0 errors\n": "",
}


@pytest.mark.parametrize(
    ("said", "verdict", "by_others", "told"),
    [
        *((said, Verdict.CRASHED, False, f": {told}" if told else "") for said, told in SAID.items()),
        ("error: something else\n", Verdict.CRASHED, True, ""),
        ("error: something else\n", Verdict.TIMEOUT, False, ""),
        ("reason: GPU Hang\nerror: and more\n", Verdict.CRASHED, False, ": reason: GPU Hang"),  # the device's runtime comes first
    ],
)
def test_last_words_are_in_the_reason(tmp_path, said, verdict, by_others, told):
    """They explain no kill and no time limit."""
    log = tmp_path / "log.txt"
    log.write_text("LLVM ERROR: of an earlier worker\n")
    printed = log.stat().st_size
    log.write_text(log.read_text() + said)
    death = _explain(Death("a test", verdict, "its process ended", by_others), log, printed, {"GPU Hang": Verdict.GPU_HANG})

    assert death.reason == "its process ended" + told


# Linux counts the processes that it killed because memory ran out. Reading that counter tells such a kill from any other.


@pytest.fixture
def counters(tmp_path, monkeypatch):
    """The files of a container with cgroup version 2 and of the machine; none of version 1."""
    paths = (tmp_path / "memory.events", tmp_path / "memory.oom_control", tmp_path / "vmstat")
    monkeypatch.setattr(environment, "_COUNTERS", paths)
    paths[2].write_text("nr_free_pages 70\noom_kill 21\n")
    return paths


def test_a_kill_counts_in_a_container_or_on_the_whole_machine(counters):
    """Outside of a container, the root group's counter stays at 0, or there is none; a kernel without the counter says nothing."""
    group, _, machine = counters
    assert environment.memory_kills() == 21
    machine.write_text("nr_free_pages 70\noom_kill 22\n")
    assert environment.memory_kills() == 22
    group.write_text("low 0\noom 1\noom_kill 2\n")
    assert environment.memory_kills() == 24
    group.unlink()
    for text in ("", "oom_kill\n", "oom_kill many\n", "nr_free_pages 70\n"):
        machine.write_text(text)
        assert environment.memory_kills() == 0


# A device that no longer answers: the test that has done it is named, no other one is blamed, and a card that is lost blames nobody.


def outcomes(folder) -> dict[str, tuple[str, str]]:
    found = {}
    for case in ElementTree.parse(folder / "test" / "junit.xml").getroot().iter("testcase"):
        bad = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
        found[case.get("name")] = ("passed", "") if bad is None else (bad.get("type") or bad.tag, bad.get("message"))
    return found


@pytest.fixture
def package(data, tmp_path, monkeypatch):
    """A package of one test file, on a device that stops answering."""
    monkeypatch.setenv("POISON_STATE", str(tmp_path))

    def make(tests: str) -> Path:
        made = tmp_path / "package"
        made.mkdir()
        for name in ("conftest.py", tests):
            shutil.copyfile(data / "sticky" / name, made / name)
        return made

    return make


def test_a_sticky_error_has_one_culprit(run_inside, package):
    """Three culprits and a real failure among ten: four failures. Two of the culprits did not even wait for what they launched.

    A sanitizer that met its own limit ends the device, too, and is no culprit.
    """
    found = outcomes(run_inside(package("test_sticky.py"), Stage.TEST, light=True, benches=(), interpret=False))

    assert {name for name, (verdict, _) in found.items() if verdict != "passed"} == {
        "test_culprit_that_waits",
        "test_culprit_that_does_not_wait",
        "test_beyond_a_sanitizer",
        "test_culprit_that_was_not_followed",
        "test_fails",
    }
    assert found["test_beyond_a_sanitizer"] == ("not-followed", "more than 16 bits")
    assert found["test_culprit_that_was_not_followed"][0] == "failed"
    assert "illegal memory access" in found["test_culprit_that_waits"][1]
    assert found["test_culprit_that_does_not_wait"] == (
        "failed",
        "after this test the device no longer answers: CUDA error: an illegal memory access was encountered",
    )


def test_an_abort_for_want_of_a_card_is_no_failure(run_inside, tmp_path):
    """torch on a machine without a card aborts where it differentiates a tensor of its compiler that is on a card."""
    (tmp_path / "test_traced.py").write_text(
        "import torch\nfrom torch._subclasses.fake_tensor import FakeTensorMode\n"
        "def test_traced():\n    with FakeTensorMode():\n"
        "        (torch.ones(3, device='cuda', requires_grad=True) * 2).sum().backward()\n"
        "def test_after():\n    pass\n"
    )
    found = outcomes(run_inside(tmp_path, Stage.TEST, benches=()))

    assert found["test_after"][0] == "passed"
    assert found["test_traced"][0] == "not-pretended"
    assert "not linked with support for cuda devices" in found["test_traced"][1]


def test_a_runtime_that_aborts_is_understood(run_inside, data):
    """The signal is the same; what the runtime printed tells a hang of the GPU from a fault of the kernel."""
    faults = {pattern: Verdict(verdict) for pattern, verdict in load_targets()["rocm"].probe.faults.items()}
    options = {"benches": (), "interpret": False, "device_faults": faults, "limits": Limits(test_s=3.0)}
    found = outcomes(run_inside(data / "aborts", Stage.TEST, light=True, **options))

    assert {name: verdict for name, (verdict, _) in found.items()} == {
        "test_abort[hang]": "gpu-hang",
        "test_abort[fault]": "crashed",
        "test_compiler[aborts]": "crashed",
        "test_compiler[hangs]": "timeout",
        "test_after": "passed",
    }
    assert "SIGABRT while `kernel` (test_aborts.py:" in found["test_compiler[aborts]"][1]
    assert "longer than 3 s while `endless_kernel` (test_aborts.py:" in found["test_compiler[hangs]"][1]
    assert "was compiled" not in found["test_abort[fault]"][1]
    assert "SIGABRT" in found["test_abort[hang]"][1]
    assert "GPU Hang" in found["test_abort[hang]"][1]
    assert "read-only page" in found["test_abort[fault]"][1]


def test_a_lost_card_is_infrastructure_and_tried_once_more(package, tmp_path):
    """No test fails for it; what was finished is kept, the rest runs in the second attempt, and both attempts are on record."""
    target = dataclasses.replace(load_targets()["cpu"], interpret=False, stages=(Stage.TEST,))
    said: list[str] = []
    settings = make_options("run-1", tmp_path / "out", package("test_lost.py"), benches=(), python=light_python())
    record = run_target(target, settings, said.append, lambda event: None)
    run = collect(tmp_path / "out" / "raw" / "cpu")
    events = [json.loads(line) for line in (tmp_path / "out" / "raw" / "cpu" / "test" / "journal.jsonl").read_text().splitlines()]
    ends = [event["id"].rpartition("::")[2] for event in events if event["event"] == "finish"]

    assert [attempt.verdict for attempt in record.attempts] == [Verdict.INFRA]
    assert "the device was lost during test_lost.py::test_under_way" in record.attempts[0].reason
    assert "once more" in said[-1]
    assert {case.id.rpartition("::")[2] for case in run.cases if case.verdict is not Verdict.PASSED} == {"test_fails"}
    assert sorted(ends) == sorted(set(ends))  # what failed was not tried again, nor what passed
    assert (record.verdict, len(run.cases), run.problems) == (Verdict.FAILED, 8, ())


@pytest.mark.slow
def test_a_card_that_stays_away_is_given_up(package, tmp_path):
    """Once more, not for ever: the second attempt finds the same, and says what to do; nothing is counted as failed but what failed."""
    kernels = package("test_lost.py")
    conftest = kernels / "conftest.py"
    conftest.write_text(conftest.read_text().replace("        if not LOST.exists():\n            LOST", "        LOST"))
    target = dataclasses.replace(load_targets()["cpu"], interpret=False, stages=(Stage.TEST,))
    options = make_options("run-1", tmp_path / "out", kernels, benches=(), python=light_python())
    record = run_target(target, options, lambda line: None, lambda event: None)
    verdicts = {case.id.rpartition("::")[2]: case.verdict for case in collect(tmp_path / "out" / "raw" / "cpu").cases}

    assert (record.verdict, len(record.attempts)) == (Verdict.INFRA, 1)
    assert "does not answer in a fresh process either" in record.reason
    assert "doctor" in record.hint
    assert [name for name, verdict in verdicts.items() if verdict is Verdict.FAILED] == ["test_fails"]
    assert verdicts["test_under_way"] is Verdict.NOT_RUN


# The form of PyTorch's message; the figures are made up.
OUT_OF_MEMORY = (
    "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 16.00 GiB of which 10.25 GiB is free. "
    "Process 4242 has 5.50 GiB memory in use."
)


def test_a_gpu_without_memory_fails_one_test(run_inside, tmp_path):
    """A kernel that asks for too much is the kernel's fault: failed, with what was free, of what, and who has the rest; others run."""
    package = tmp_path / "package"
    package.mkdir()
    text = f"import torch\ndef test_large():\n    raise torch.OutOfMemoryError({OUT_OF_MEMORY!r})\ndef test_after(): pass\n"
    (package / "test_op.py").write_text(text)
    found = outcomes(run_inside(package, Stage.TEST, benches=(), interpret=False))

    assert found["test_large"][0] == "failed"
    assert "10.25 GiB is free" in found["test_large"][1]
    assert "Process 4242" in found["test_large"][1]
    assert found["test_after"] == ("passed", "")


# The limit of a case: time in which other processes had the cores is not the case's.


def test_a_limit_does_not_count_the_wait_for_a_core(monkeypatch, tmp_path):
    """100 s passed, of which the worker waited 70 s for a core: a limit of 40 s has not passed, one of 20 s has."""
    now, waited = [0.0], [5.0]
    monkeypatch.setattr(supervise.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(supervise, "waited_s", lambda pid: waited[0])
    clock = supervise._Clock(1)

    now[0], waited[0] = 100.0, 75.0

    assert not clock.is_past(40.0)
    assert clock.is_past(20.0)

    # A process that is gone, and a kernel that keeps no account, have waited for nothing: then the limit is one of the wall clock.
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "schedstat").write_text("12000000000 3500000000 41\n")

    assert workers.waited_s(7, tmp_path) == 3.5
    assert workers.waited_s(8, tmp_path) == 0.0
    assert workers.waited_s(os.getpid()) >= 0.0


# A cache that cannot be written to is a fault of the disk, not of a test.


def test_a_folder_that_cannot_be_made_is_named(tmp_path, monkeypatch):
    """Triton writes each kernel there before it is launched. A fresh machine has no cache yet."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert str(tmp_path / "file" / "cache") in why_unwritable()
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "a" / "cache"))
    assert why_unwritable() == ""


@pytest.mark.parametrize(
    ("file", "number", "expected"),
    [
        ("/lib/triton/runtime/cache.py", errno.ENOSPC, True),
        ("/lib/triton/runtime/cache.py", errno.EROFS, True),
        ("/lib/triton/runtime/cache.py", errno.ENOENT, False),
        ("/package/test_own.py", errno.ENOSPC, False),
    ],
)
def test_only_the_disk_below_the_cache_is_to_blame(file, number, expected):
    """A test that fills a disk of its own fails."""
    code = compile(f"raise OSError({number}, 'why')", file, "exec")
    with pytest.raises(OSError, match="why") as caught:
        exec(code)

    assert is_of_the_disk(caught.value) is expected


# Forks of what has imported: each has variables, output and an exit code of its own, and none outlives who asked.

FORKS = """
import json, os, subprocess, sys, time
from warpwave.inside.process import forks
def fails():
    print("said", os.environ["GIVEN"], os.environ.get("HOME"), sorted(os.listdir("/proc/self/fd"))[:4], flush=True)
    raise SystemExit(7)
def stays():
    time.sleep(600)
def dies():
    os.abort()
channel, theirs = forks.open_channel()
if not forks.fork():
    forks.apart()
    forks.close_all_but(theirs.fileno())
    forks.run(forks.serve(theirs))
output = open("output", "ab")
ended = [forks.start(channel, forks.Task(function, (), {"GIVEN": "1"}), output.fileno()) for function in (fails, dies)]
print(json.dumps([each.wait(60) for each in ended]))
left = forks.start(channel, forks.Task(stays, (), {}), output.fileno())
print(json.dumps(left.poll()))
pid = left.pid
del left
until = time.monotonic() + 60
while os.path.exists(f"/proc/{pid}") and time.monotonic() < until:
    time.sleep(0.05)
print(json.dumps(os.path.exists(f"/proc/{pid}")))
"""


def test_a_fork_is_a_process_of_its_own(tmp_path):
    """Its exit code is told as that of a child would be, and one that nobody waits for is killed."""
    variables = {**os.environ, "PYTHONPATH": str(REPOSITORY / "harness")}
    done = subprocess.run([sys.executable, "-c", FORKS], cwd=tmp_path, env=variables, capture_output=True, text=True)

    assert [json.loads(line) for line in done.stdout.splitlines()] == [[7, -6], None, False], done.stderr
    assert (tmp_path / "output").read_text().splitlines()[0] == "said 1 None ['0', '1', '2', '3']"


@pytest.mark.parametrize(("name", "fits"), [("WARPWAVE_X", True), ("TRITON_INTERPRET", True), ("OMP_NUM_THREADS", False)])
def test_variables_that_were_read_at_an_import_need_a_new_python(tmp_path, monkeypatch, name, fits):
    monkeypatch.setattr(forks, "start", lambda *asked: "a fork")
    channel, theirs = forks.open_channel()
    with channel, theirs:
        theirs.send(b".")
        warm = forks.Warm({"PATH": "/bin"}, tmp_path / "log.txt", os.dup(channel.fileno()))
        found = warm.start(forks.Task("module", (), {"PATH": "/bin", name: "1"}), 1, {}, 9.0)
        warm.end()

    assert found == ("a fork" if fits else None)


def test_a_stage_is_forked_from_what_has_imported_for_it_beside_others(tmp_path):
    """That one goes on when a stage ends; what the stage left behind does not."""
    for name in ("torch", "triton", "pytest"):
        (tmp_path / f"{name}.py").write_text("raise ImportError")
    (tmp_path / "needed.py").write_text("")
    says = "import subprocess, sys\nprint('needed' in sys.modules, subprocess.Popen(['sleep', '600'], start_new_session=True).pid)\n"
    for name in ("first", "second"):
        (tmp_path / f"{name}.py").write_text(says)
    path = os.pathsep.join([str(tmp_path), str(REPOSITORY / "harness")])
    variables = {name: value for name, value in os.environ.items() if not name.startswith("WARPWAVE_")} | {"PYTHONPATH": path}
    warm = forks.Warm(variables, tmp_path / "log.txt")
    with open(tmp_path / "output", "ab") as output, open(tmp_path / "log.txt", "ab") as log:
        for position, name in enumerate(("first", "second", "first")):
            process = warm.start(forks.Task(name, (), variables, os.sep), output.fileno(), {}, 60.0)
            assert process is not None
            assert process.wait(60) == 0
            if position == 0:
                warm.also("second", ["needed"], log.fileno())
    warm.end()

    found = [line.split() for line in (tmp_path / "output").read_text().splitlines()]
    assert [imported for imported, _ in found] == ["False", "True", "False"]
    assert not [pid for _, pid in found if Path("/proc", pid).exists()]
    assert not (tmp_path / "log.txt").read_text()


# The first process of a container: it ends what nobody else watches.


@pytest.fixture(autouse=True)
def handlers():
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def python(code: str) -> list[str]:
    return [sys.executable, "-S", "-c", code]


STUBBORN = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"


def test_a_run_that_ends_has_its_own_code(tmp_path):
    """A code, or a signal as 128 + n, as engines report them."""
    assert watch(python("import sys; sys.exit(7)"), tmp_path, 60, 1, 1 << 20, 100) == 7
    assert watch(python("import os; os.kill(os.getpid(), 11)"), tmp_path, 60, 1, 1 << 20, 100) == 139


def test_a_run_past_its_time_may_write_its_results(tmp_path):
    polite = f"import time\ntry: time.sleep(60)\nexcept KeyboardInterrupt: open({str(tmp_path / 'kept')!r}, 'w')"

    assert watch(python(polite), tmp_path, 1.5, 30, 1 << 20, 100) == OVERTIME
    assert (tmp_path / "kept").exists()


def test_a_run_that_does_not_listen_is_killed(tmp_path):
    assert watch(python(STUBBORN), tmp_path, 1.0, 0.2, 1 << 20, 100) == OVERTIME


@pytest.mark.parametrize(
    "fill", ["open(f'{n}/{i}', 'w').write('x')", "open(f'{n}/big', 'ab').write(b'x' * 100_000)"], ids=["files", "bytes"]
)
def test_a_run_that_fills_the_disk_is_ended(tmp_path, monkeypatch, fill):
    """By the number of files, or by their size."""
    monkeypatch.setattr(watchdog, "_LOOK_S", 0.05)
    code = f"import time\nn = {str(tmp_path)!r}\nfor i in range(100_000):\n    {fill}\n    time.sleep(0.001)"

    assert watch(python(code), tmp_path, 60, 5, 1 << 20, 50) == OVERFULL


def test_a_folder_that_cannot_be_measured_is_over_its_limit(tmp_path):
    assert watchdog.Meter(tmp_path / ("x" * 300), 1 << 20, 100).look()


def test_signals_are_passed_on(tmp_path):
    """The client's SIGINT reaches the run, and its code is the run's."""
    code = "import time\ntry: print('ready', flush=True); time.sleep(60)\nexcept KeyboardInterrupt: raise SystemExit(130)"
    program = (
        f"import sys; from pathlib import Path; from warpwave.inside.watchdog import watch; "
        f"sys.exit(watch([sys.executable, '-S', '-c', {code!r}], Path({str(tmp_path)!r}), 60, 1, 1 << 20, 100))"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    threading.Timer(0.1, lambda: os.kill(process.pid, signal.SIGINT)).start()

    assert process.wait(30) == 130
    process.stdout.close()


def test_a_request_to_stop_may_come_as_a_file(tmp_path):
    """Where a runtime passes no signal on; it is made while the run works, and passed on once."""
    threading.Timer(1.0, (tmp_path / ".stop").mkdir).start()
    code = "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(130))\ntime.sleep(60)"

    assert watch(python(code), tmp_path, 60, 5, 1 << 20, 100) == 130


# A test worker imports torch's compiler before it waits for the card, if the package names something that needs it.


@pytest.fixture(autouse=True)
def _no_word(monkeypatch):
    monkeypatch.delenv(imports._VARIABLE, raising=False)
    monkeypatch.setattr(os, "environ", dict(os.environ))


@pytest.mark.parametrize(
    ("text", "needs_card", "told"),
    [
        *(("torch.compile(f)", True, "1"), ("torch.library.opcheck(op, ())", True, "1"), ("assert f(x) == x", True, "")),
        ("torch.compile(f)", False, ""),
    ],
)
def test_it_is_imported_if_a_file_names_what_needs_it(text, needs_card, told, tmp_path):
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "test_it.py").write_text(text)
    imports.tell_workers(SimpleNamespace(kernels=str(tmp_path), package_root="", needs_card=needs_card))
    assert os.environ[imports._VARIABLE] == told


def test_a_worker_imports_it_before_it_waits_for_the_card(monkeypatch):
    calls = []
    monkeypatch.setattr(pytest_plugin, "import_compiler", lambda: calls.append("import"))
    monkeypatch.setattr(pytest_plugin, "await_card", lambda journal: calls.append("card"))
    monkeypatch.setattr(pytest_plugin.Journal, "from_environment", lambda: None)
    for items in ([], ["a test"]):
        pytest_plugin.pytest_runtestloop(SimpleNamespace(items=items, config=SimpleNamespace(option=SimpleNamespace(collectonly=False))))
    assert calls == ["import", "card"]


@pytest.mark.parametrize(("told", "names"), [("1", [imports._MODULE]), ("", [])])
def test_it_is_imported_if_the_stage_says_so(told, names, monkeypatch):
    monkeypatch.setenv(imports._VARIABLE, told)
    found = []
    monkeypatch.setattr(imports.importlib, "import_module", found.append)
    imports.import_compiler()
    assert found == names


@pytest.mark.slow
@pytest.mark.parametrize("told", ["1", ""])
def test_what_is_imported(told):
    code = "import sys, warpwave.inside.environment as i; i.import_compiler(); print(i._MODULE in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, imports._VARIABLE: told}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[-1] == str(bool(told))


class _Ended:
    """A fork that has ended. Its exit code is known only at the third question."""

    def __init__(self) -> None:
        child = subprocess.Popen(["true"])
        child.wait()
        self.pid, self.answers = child.pid, iter([None, None, 0, 0])

    def poll(self):
        return next(self.answers)

    def wait(self, timeout):
        return 0


def test_a_fork_that_ends_while_it_is_ended_is_no_error():
    workers.end(_Ended(), 1.0)


def test_a_kept_interpreter_reads_an_edited_module_anew(tmp_path):
    """Two runs are forked from the same one, and nothing of the package, of the run's folder or of its end stays in it."""
    kernels, seen = tmp_path / "kernels", tmp_path / "seen"
    kernels.mkdir()
    (kernels / "test_value.py").write_text(
        "import os, pathlib, value, warpwave.inside.watchdog\n"  # what no stage has imported before
        "def parents(pid):\n"
        "    text = pathlib.Path(f'/proc/{pid}/stat').read_text()\n"
        "    return [pid, *parents(int(text.rpartition(')')[2].split()[1]))] if pid > 1 else []\n"
        f"def test_value():\n    pathlib.Path({str(seen)!r}).write_text(' '.join(map(str, [value.VALUE, *parents(os.getpid())])))\n"
    )
    target = dataclasses.replace(load_targets()["cpu"], stages=(Stage.TEST,))
    with local.keeping_warm():
        for value in ("one", "other"):
            (kernels / "value.py").write_text(f"VALUE = {value!r}\n")
            options = make_options(f"run-{value}", tmp_path / value, kernels, benches=(), python=light_python())
            assert run_target(target, options, lambda line: None, lambda event: None).verdict is Verdict.PASSED
            (warm,) = local._kept.values()
            found, *parents = seen.read_text().split()
            assert found == value
            assert str(warm.process.pid) in parents
    assert warm.process.poll() is not None


@pytest.mark.parametrize(
    ("stages", "target", "source", "imported"),
    [
        ("test compile", "cpu", "x = 1", ["warpwave.inside.compile.preload"]),
        ("test compile", "cpu", "from torch import optim", ["torch._dynamo", "warpwave.inside.compile.preload"]),
        ("compile", "cpu", "x = 1", None),
        ("test", "cpu", "x = 1", None),
        ("test compile", "rocm", "x = 1", None),
    ],
)
def test_what_compiling_needs_is_imported_beside_tests_without_a_card(tmp_path, monkeypatch, stages, target, source, imported):
    seen = []
    warm = SimpleNamespace(also=lambda stage, modules, output: seen.append(list(modules)), end=lambda: None)
    (tmp_path / "ops.py").write_text(source)
    monkeypatch.setattr(inside.forks, "Warm", lambda *given: warm)
    monkeypatch.setattr(inside, "for_compiling", dict)
    monkeypatch.setattr(inside, "_run_stage", lambda job, path, stage, *given: StageReport(stage, Verdict.PASSED))
    job = make_job("r", target, tuple(map(Stage, stages.split())), str(tmp_path), str(tmp_path), interpret=target == "cpu")
    inside.run(job, tmp_path / "job.json")

    assert seen == ([imported] if imported else [])


def test_operations_without_data_do_not_import_torchs_compiler():
    """Also not where torch was frozen, as in what the stages are forked from."""
    code = "import gc, sys, torch\ngc.freeze()\nimport warpwave.inside.compile.preload\n"
    code += "(torch.rand(3, device='meta') * 2).sum()\nprint('torch._dynamo' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(REPOSITORY / "harness")}, capture_output=True)

    assert done.stdout.split() == [b"False"], done.stderr


@pytest.mark.parametrize(
    ("stages", "compiled", "happened"),
    [
        ("test bench", "", ["begin", "facts beside it", "go", "test beside it", "wait", "bench", "remember"]),
        ("bench", "", ["begin", "facts beside it", "go", "wait", "bench", "remember"]),
        ("test", "", ["begin", "facts beside it", "go", "test beside it", "kill", "remember"]),
        ("test bench", "for this card", ["facts", "test", "bench"]),
        ("test", "for another card", ["facts", "begin", "go", "test beside it", "kill", "remember"]),
        ("test", "no such card", ["begin", "facts beside it", "kill", "test"]),
        ("compile", "", ["facts", "compile"]),
    ],
)
def test_tests_begin_while_kernels_are_compiled_and_nothing_is_measured_then(tmp_path, monkeypatch, stages, compiled, happened):
    """It imports beside the facts stage. If an earlier run of the same sources has compiled everything for this card, nothing is begun."""
    seen: list[str] = []

    class Ahead:
        goes_on = True

        def __init__(self, *given):
            seen.append("begin")

        def go(self):
            seen.append("go")

        def end(self, warm, waits=True):
            self.goes_on = False
            seen.append("wait" if waits else "kill")
            return 0, ()

        def remember(self):
            seen.append("remember")

    def run_stage(job, path, stage, left_s, warm, beside):
        seen.append(stage.value + " beside it" * bool(beside and beside.goes_on))
        return StageReport(stage, Verdict.PASSED)

    monkeypatch.setattr(inside, "_Ahead", Ahead)
    monkeypatch.setattr(inside, "_run_stage", run_stage)
    monkeypatch.setattr(inside.remembered, "is_known", lambda job: compiled.startswith("for"))
    monkeypatch.setattr(inside.remembered, "is_compiled", lambda job: compiled == "for this card")
    monkeypatch.setattr(inside, "devices_here", lambda job: [{"architecture": "gfx999" if "no such" in compiled else "gfx942"}])
    card = next(card for card in load_targets()["cpu"].architectures if card.name == "gfx942")
    job = make_job("r", "rocm", tuple(map(Stage, stages.split())), str(tmp_path), str(tmp_path), interpret=False, architectures=(card,))
    inside.run(job, tmp_path / "job.json")

    assert seen == happened


COMPARES = """
import sys, torch
from warpwave.inside.process import warm
comparison = sys.modules["torch.testing._comparison"]
comparison._unwrap_dtensor_for_comparison = lambda *given: (asked.append(given), given)[1]
asked = []
warm._compare_without_dtensor()
for _ in range(2):
    torch.testing.assert_close(torch.ones(2), torch.ones(2))
    print(len(asked), "torch.distributed.tensor" in sys.modules)
    sys.modules["torch.distributed.tensor"] = sys
"""


def test_a_comparison_asks_for_distributed_tensors_only_where_there_may_be_some():
    done = subprocess.run([sys.executable, "-c", COMPARES], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["0 False", "1 True"], done.stderr
