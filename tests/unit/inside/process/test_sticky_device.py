"""A device that no longer answers: the test that has done it is named, no other one is blamed, and a card that is lost blames nobody."""

from __future__ import annotations

import dataclasses
import json
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from light import light_python

from warpwave.collect import collect
from warpwave.config.targets import load_targets
from warpwave.options import RunOptions
from warpwave.records import Stage, Verdict
from warpwave.run import run_target

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")


def outcomes(folder) -> dict[str, tuple[str, str]]:
    """Each test's verdict and message, by name."""
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
    """Two culprits and a real failure among seven: three failures. One of the culprits did not even wait for what it launched."""
    found = outcomes(run_inside(package("test_sticky.py"), Stage.TEST, light=True, benches=(), interpret=False))

    assert {name for name, (verdict, _) in found.items() if verdict != "passed"} == {
        "test_culprit_that_waits",
        "test_culprit_that_does_not_wait",
        "test_fails",
    }
    assert "illegal memory access" in found["test_culprit_that_waits"][1]
    assert found["test_culprit_that_does_not_wait"] == (
        "failed",
        "after this test the device no longer answers: CUDA error: an illegal memory access was encountered",
    )


def test_a_runtime_that_aborts_is_understood(run_inside, data):
    """The signal is the same; what the runtime printed tells a hang of the GPU from a fault of the kernel."""
    faults = {pattern: Verdict(verdict) for pattern, verdict in load_targets()["rocm"].probe.faults.items()}
    found = outcomes(run_inside(data / "aborts", Stage.TEST, light=True, benches=(), interpret=False, device_faults=faults))

    assert {name: verdict for name, (verdict, _) in found.items()} == {
        "test_abort[hang]": "gpu-hang",
        "test_abort[fault]": "crashed",
        "test_after": "passed",
    }
    assert "SIGABRT" in found["test_abort[hang]"][1]
    assert "GPU Hang" in found["test_abort[hang]"][1]
    assert "read-only page" in found["test_abort[fault]"][1]


def test_a_lost_card_is_infrastructure_and_tried_once_more(package, tmp_path):
    """No test fails for it; what was finished is kept, the rest runs in the second attempt, and both attempts are on record."""
    target = dataclasses.replace(load_targets()["cpu"], interpret=False, stages=(Stage.TEST,))
    said: list[str] = []
    settings = RunOptions("run-1", tmp_path / "out", package("test_lost.py"), benches=(), python=light_python())
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
    options = RunOptions("run-1", tmp_path / "out", kernels, benches=(), python=light_python())
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
