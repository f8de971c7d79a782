"""`nox -s strangers`: what it runs is pinned, what it says of a failure follows from a control, and no package loses its row."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest

REPOSITORY = Path(__file__).parents[3]
sys.path.insert(0, str(REPOSITORY / "tests" / "strangers"))

import again
import controls
import failures
import plain_compile
import session
import sources
import table

TESTS = "def test_good():\n    pass\n\n\ndef test_bad():\n    assert [7, 8] == [7]\n"
ON_A_CARD = """
import pytest
import torch
import triton
import triton.language as tl

if not torch.cuda.is_available():
    pytest.skip("no GPU available", allow_module_level=True)


@triton.jit
def double(x):
    tl.store(x, tl.load(x) * 2)


def test_bad():
    x = torch.full((1,), 1.5, device="cuda")
    double[(1,)](x)
    torch.cuda.synchronize()
    assert x.is_cuda
    value = x.to("cuda:0").item()
    if value != 4.0:
        raise ValueError(f"the kernel doubled it to {value}")
"""


@pytest.fixture
def cache(tmp_path):
    """A folder with a clone of one package and the source archive of another; the clone's entry."""
    clone = tmp_path / "cache" / "ops"
    clone.mkdir(parents=True)
    (clone / "test_ops.py").write_text(TESTS)
    git = ["git", "-C", str(clone), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    with tarfile.open(tmp_path / "cache" / "some_ops-1.0.tar.gz", "w:gz") as tar:
        entry = tarfile.TarInfo("some_ops-1.0/tests/test_some.py")
        entry.size = len(TESTS)
        tar.addfile(entry, io.BytesIO(TESTS.encode()))
    return tmp_path / "cache", sources.Package("ops", "A", ".", repository="https://github.com/a/ops", commit=commit)


def failure(stage="test", message="AssertionError: 3 of 4", where=""):
    return failures.Failure(stage, "test_ops.py::test_bad", message, where)


def test_every_package_is_pinned():
    """Each by one version of PyPI or by a full commit, and never by both."""
    for package in sources.packages():
        pinned = [bool(re.fullmatch(r"[\w-]+==[\w.]+", package.pypi)), bool(re.fullmatch(r"[0-9a-f]{40}", package.commit))]
        assert sorted(pinned) == [False, True], package.name
        assert package.repository.startswith("https://github.com/") == pinned[1]


def test_a_commit_is_taken_from_a_clone(cache, tmp_path):
    """Only what is committed, and a second session finds it again."""
    folder, package = cache
    (folder / "ops" / "left.py").write_text("")

    root = sources.fetch(package, tmp_path / "work", folder)

    assert [path.name for path in root.iterdir()] == ["test_ops.py"]
    assert sources.fetch(package, tmp_path / "work", tmp_path / "nowhere") == root


def test_a_source_archive_is_taken_by_its_name(cache, tmp_path):
    """PyPI writes a hyphen as an underscore."""
    root = sources.fetch(sources.Package("some", "A", ".", pypi="some-ops==1.0"), tmp_path / "work", cache[0])

    assert (root / "tests" / "test_some.py").read_text() == TESTS


def test_what_cannot_be_reached_has_a_row(cache, tmp_path):
    """The row says where it was looked for."""
    asked = SimpleNamespace(work=tmp_path / "work", offline=cache[0], quick=True, seconds=None, no_controls=True)
    package = sources.Package("other", "B", ".", repository="https://github.com/b/other-ops", commit="0" * 40)

    result = session.measure(package, asked)

    assert result["not_reached"] == "no clone called other or other-ops in cache/"
    assert "| b/other-ops@000000000000 (B) | not run: no clone called" in table._row(package, result)


def test_failures_that_differ_in_numbers_are_one_class():
    """The largest class comes first."""
    several = [failure(message=f"AssertionError: {n} of 4 at 0x{n}f") for n in range(3)]

    found = failures.classes([failure(message="KeyError: 'a'"), *several])

    assert [(one.message, one.count) for one in found] == [("AssertionError: N of N at N", 3), ("KeyError: 'a'", 1)]


def test_findings_of_one_gate_in_several_files_are_one_class():
    """Where each of them is, the row says."""
    places = ("fw.py:1, fw.py:22", "a/bw_kernel.py:9")

    found = failures.classes([failure("compile", f"spills: 4 registers; precision: left at {place}") for place in places])

    assert [(one.message, one.count) for one in found] == [("spills: N registers; precision: left", 2)]


def test_a_control_compiles_the_function_of_the_file_that_the_row_names(tmp_path):
    """Files of one package may have functions of one name."""
    for name in ("first", "second"):
        (tmp_path / f"{name}.py").write_text(f"def kernel():\n    return {name!r}\n")

    assert plain_compile.module_with(tmp_path, "kernel", "second.py:1").kernel() == "second"


@pytest.mark.parametrize(("between", "early"), [("\ts_waitcnt vmcnt(0)\n", False), ("\ts_waitcnt lgkmcnt(0)\n\t.loc 1 2 3\n", True)])
def test_a_control_looks_for_the_wait_in_the_assembly_itself(between, early):
    """What stands in front of the write-back of the cache does not count."""
    code = f"\ts_waitcnt vmcnt(0)\n\tbuffer_wbl2 sc1\n{between}\tglobal_atomic_add_f32 v0, v1, s[0:1]\n\ts_waitcnt vmcnt(0)\n\ts_endpgm\n"

    assert plain_compile.publishes_early(code) is early


@pytest.mark.slow
def test_a_stand_in_for_a_card_lets_a_test_run_that_would_be_skipped(tmp_path):
    """The control then ends as the test did, and not with the author's word for a missing card."""
    pytest.importorskip("triton", reason="the stand-in replaces Triton's driver; `nox -s tests` installs it")
    (tmp_path / "test_ops.py").write_text(ON_A_CARD)
    repeated = failure(message="ValueError: the kernel doubled it to 3.0")

    stand_in = controls._plain_pytest_with_card(repeated, tmp_path, sys.executable, dict(os.environ))

    assert failures.same(stand_in, repeated.message)


def test_a_control_that_checks_no_memory_does_not_judge_what_was_found_there():
    """Plain pytest passes over a read that is out of bounds."""
    assert controls._fault(failure(message="Failed: out-of-bounds in kernel at a.py:1: load of x[9]"), "") == controls.UNDECIDED


@pytest.mark.parametrize(
    ("one", "said", "fault"),
    [
        (failure(), "", controls.OURS),
        (failure(), "AssertionError: 9 of 9", controls.PACKAGE),
        (failure(where="/x/site-packages/triton/runtime/interpreter.py"), "AssertionError: 9 of 9", "the package, or Triton"),
        (failure(message="Tensor-likes are not equal!"), "Tensor-likes are not equal!", "the package, or Triton"),
        (failure(where="/x/warpwave/inside/fake.py"), "AssertionError: 9 of 9", controls.OURS),
        (failure(), "needs a card: no NVIDIA driver", controls.UNDECIDED),
        (
            failure(message="AssertionError: Torch not compiled with CUDA enabled"),
            "AssertionError: Torch not compiled with CUDA enabled",
            "ours",
        ),
        (failure("compile"), "AssertionError: 9 of 9", "the package, or Triton"),
    ],
)
def test_a_control_decides_whose_fault_it_is(one, said, fault):
    """A control that passes convicts us, one with the same message acquits us; what a card would have said is ours to pretend."""
    assert controls._fault(one, said) == fault


@pytest.mark.parametrize(("seconds", "fault"), [(30, "the package, or Triton"), (0, "ours")])
def test_a_test_that_is_slow_without_us_is_not_ours(tmp_path, seconds, fault):
    """It has the same limit without us. One that is done within it convicts us."""
    (tmp_path / "test_ops.py").write_text(f"import time\n\n\ndef test_bad():\n    time.sleep({seconds})\n")
    slow = failures.Class("it ran longer than N s", 1, failure(message="it ran longer than 3 s"))

    assert controls.blame(slow, tmp_path, sys.executable, {})["fault"] == fault


ROW = {
    "name": "ops",
    "sentence": "3 failed",
    "facts": {"torch": "2.13.0", "triton": "3.9.0"},
    "test": {"counts": {"passed": 10, "failed": 2, "error": 1, "timeout": 1}, "not_run": {"skipped": 4}, "reason": "bad"},
    "compile": {"counts": {"passed": 7}, "not_run": {}},
    "failed_tests": {"t.py::a": "failed", "t.py::b": "failed", "t.py::c": "error", "t.py::slow": "timeout"},
    "classes": [
        {"stage": "test", "count": 2, "message": "assert N", "fault": "ours, fixed"},
        {"stage": "test", "count": 1, "message": "it ran longer than N s", "fault": "the package, or Triton"},
        {"stage": "compile", "count": 5, "message": "spills", "fault": "the package"},
    ],
}
REPEATED = {
    "date": "2026-11-27",
    "seconds": 9,
    "facts": ROW["facts"],
    "test": {"counts": {"timeout": 1, "failed": 1, "not-run": 1}, "not_run": {"not-pretended": 1}, "reason": "still bad"},
    "failed_tests": {"t.py::b": "failed", "t.py::c": "timeout"},
    "classes": [
        {"stage": "test", "count": 1, "message": "assert N", "fault": "the package"},
        {"stage": "test", "count": 1, "message": "it ran longer than N s", "fault": "undecided"},
    ],
}


def test_failed_tests_that_ran_again_change_their_row():
    """Their verdicts and classes replace the old ones; what was slow, passed or compiled stays."""
    assert again.to_repeat(ROW) == ["t.py::a", "t.py::b", "t.py::c"]

    row = again.merged(ROW, REPEATED)

    assert row["test"]["counts"] == {"passed": 10, "failed": 1, "timeout": 2, "not-run": 1}
    assert row["test"]["not_run"] == {"skipped": 4, "not-pretended": 1}
    assert row["compile"] == ROW["compile"]
    assert row["failed_tests"] == {"t.py::slow": "timeout", "t.py::b": "failed", "t.py::c": "timeout"}
    assert [(one["stage"], one["count"], one["message"], one["fault"]) for one in row["classes"]] == [
        ("test", 2, "it ran longer than N s", "the package, or Triton"),
        ("test", 1, "assert N", "the package"),
        ("compile", 5, "spills", "the package"),
    ]
    assert "sentence" not in row  # it counts the failures of before
    assert row["again"] == {"date": "2026-11-27", "seconds": 9, "tests": 3}


@pytest.mark.parametrize(("row", "word"), [({}, "no row yet"), ({"test": ROW["test"]}, "does not name")])
def test_tests_that_nobody_knows_do_not_run_again(row, word):
    """A row from before they were kept has failures, and is not left as it is without a word."""
    with pytest.raises(again.CannotMergeError, match=word):
        again.to_repeat(row)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"facts": {"torch": "2.13.0", "triton": "3.6.0"}}, "triton 3.9.0"),
        ({"failed_tests": {"t.py::other": "failed"}}, "3 tests"),
        ({"test": {"counts": {"passed": 2}, "not_run": {}, "reason": ""}}, "3 tests"),
        ({"not_reached": "GitHub is not reached"}, "not reached"),
    ],
)
def test_a_row_is_not_mixed_with_another_run(change, word):
    """Another toolchain, other tests or fewer of them: the row stays as it is."""
    with pytest.raises(again.CannotMergeError, match=word):
        again.merged(ROW, {**REPEATED, **change})


@pytest.mark.slow
def test_a_whole_run_becomes_a_row(cache, tmp_path, monkeypatch):
    """One test passes, one fails with and without warpwave; the page gets both between its marks, and keeps the rest."""
    pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")
    folder, package = cache
    page = tmp_path / "page.md"
    page.write_text(f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n")
    monkeypatch.setattr(table, "PAGE", page)
    monkeypatch.setattr(table, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(session, "packages", lambda: [package])
    monkeypatch.setattr(sys, "argv", ["session.py", "--offline", str(folder), "--work", str(tmp_path / "work")])

    assert session.main() == 0

    result = json.loads((tmp_path / "results" / "ops.json").read_text())
    assert (result["exit_code"], result["test"]["counts"]) == (1, {"failed": 1, "passed": 1})
    assert [(one["count"], one["fault"], one["message"]) for one in result["classes"]] == [(1, "the package", "assert [N, N] == [N]")]
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith(f"{table.END}\nafter\n")
    assert "old" not in text
    triton = result["facts"]["triton"]
    assert f"| a/ops@{package.commit[:12]} (A) | 1 pass, 1 do not | none |  |  | {triton} | `--kernels .` |" in text

    assert result["failed_tests"] == {"test_ops.py::test_bad": "failed"}
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--again"])
    assert session.main() == 0
    repeated = json.loads((tmp_path / "results" / "ops.json").read_text())
    assert (repeated["test"]["counts"], repeated["classes"]) == (result["test"]["counts"], result["classes"])
