"""`nox -s strangers`: what it runs is pinned, and no package loses its row."""

import io
import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest

REPOSITORY = Path(__file__).parents[3]
sys.path.insert(0, str(REPOSITORY / "tests" / "strangers"))

import rows
import session
import sources

TESTS = "def test_good():\n    pass\n\n\ndef test_bad():\n    assert [7, 8] == [7]\n"


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


def failure(message, stage="test"):
    return rows.Failure(stage, "test_ops.py::test_bad", message)


def test_every_package_is_pinned():
    for package in sources.packages():
        pinned = [bool(re.fullmatch(r"[\w-]+==[\w.]+", package.pypi)), bool(re.fullmatch(r"[0-9a-f]{40}", package.commit))]
        assert sorted(pinned) == [False, True], package.name
        assert package.repository.startswith("https://github.com/") == pinned[1]


def test_a_commit_is_taken_from_a_clone(cache, tmp_path):
    folder, package = cache
    (folder / "ops" / "left.py").write_text("")

    root = sources.fetch(package, tmp_path / "work", folder)

    assert [path.name for path in root.iterdir()] == ["test_ops.py"]
    assert sources.fetch(package, tmp_path / "work", tmp_path / "nowhere") == root


def test_what_cannot_be_reached_has_a_row(cache, tmp_path):
    asked = SimpleNamespace(work=tmp_path / "work", offline=cache[0], quick=True, seconds=None)
    package = sources.Package("other", "B", ".", repository="https://github.com/b/other-ops", commit="0" * 40)

    result = session.measure(package, asked)

    assert result["not_reached"] == "no clone called other or other-ops in cache/"
    assert "| b/other-ops@000000000000 (B) | not run: no clone called" in rows._row(package, result)


def test_failures_that_differ_in_numbers_are_one_class():
    several = [failure(message=f"AssertionError: {n} of 4 at 0x{n}f") for n in range(3)]

    found = rows.classes([failure(message="KeyError: 'a'"), *several])

    assert [(one.message, one.count) for one in found] == [("AssertionError: N of N at N", 3), ("KeyError: 'a'", 1)]


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
    assert rows.to_repeat(ROW) == ["t.py::a", "t.py::b", "t.py::c"]

    row = rows.merged(ROW, REPEATED)

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
    with pytest.raises(rows.CannotMergeError, match=word):
        rows.to_repeat(row)


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
    with pytest.raises(rows.CannotMergeError, match=word):
        rows.merged(ROW, {**REPEATED, **change})


@pytest.mark.slow
def test_a_whole_run_becomes_a_row(cache, tmp_path, monkeypatch):
    pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")
    folder, package = cache
    page = tmp_path / "page.md"
    page.write_text(f"before\n{rows.BEGIN}\nold\n{rows.END}\nafter\n")
    monkeypatch.setattr(rows, "PAGE", page)
    monkeypatch.setattr(rows, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(session, "packages", lambda: [package])
    monkeypatch.setattr(sys, "argv", ["session.py", "--offline", str(folder), "--work", str(tmp_path / "work")])

    assert session.main() == 0

    result = json.loads((tmp_path / "results" / "ops.json").read_text())
    assert (result["exit_code"], result["test"]["counts"]) == (1, {"failed": 1, "passed": 1})
    assert [(one["count"], one["message"]) for one in result["classes"]] == [(1, "assert [N, N] == [N]")]
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith(f"{rows.END}\nafter\n")
    assert "old" not in text
    triton = result["facts"]["triton"]
    assert f"| a/ops@{package.commit[:12]} (A) | 1 pass, 1 do not | none |  |  | {triton} | `--kernels .` |" in text

    assert result["failed_tests"] == {"test_ops.py::test_bad": "failed"}
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--again"])
    assert session.main() == 0
    repeated = json.loads((tmp_path / "results" / "ops.json").read_text())
    assert (repeated["test"]["counts"], repeated["classes"]) == (result["test"]["counts"], result["classes"])
