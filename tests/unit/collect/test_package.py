"""What a package's files are: one rule for the host and the inside."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.collect.cases import read_cases
from harness.inside.benchmarks import find_benches, kernel_name
from harness.records import Shard
from harness.records.package import is_bench, is_test, kernel_of
from harness.run.sharding import restrict

KERNELS = {
    "softmax/bench_softmax.py": "softmax",
    "softmax/deep/test_rows.py": "softmax",
    "./softmax/test_rows.py": "softmax",
    "bench_add.py": "add",
    "./test_add.py": "add",
    "test_bench_add.py": "bench_add",
    "add.py": "add",
    "pkg.test_mod.TestX": "pkg.test_mod",
    "/softmax/test_rows.py": "softmax",
    "": "",
}


@pytest.mark.parametrize("path", KERNELS)
def test_a_file_is_about_one_kernel(path):
    """Its top folder, or its name without its role."""
    assert kernel_of(path) == KERNELS[path]


BENCHES = {
    ("bench_add.py", "bench_*.py"): True,
    ("deep/er/bench_add.py", "bench_*.py"): True,
    ("softmax/timing.py", "softmax/*.py"): True,
    ("softmax/timing.py", "timing.py"): True,
    ("softmax/timing.py", "bench_*.py"): False,
    ("./bench_add.py", "bench_*.py"): True,
    (".venv/lib/bench_add.py", "bench_*.py"): False,
    ("softmax/__pycache__/bench_add.py", "bench_*.py"): False,
    ("__init__.py", "*.py"): True,
    ("bench_add.py", ""): False,
}


@pytest.mark.parametrize(("path", "pattern"), BENCHES)
def test_a_pattern_matches_a_name_or_a_path(path, pattern):
    """Of files that are not in a hidden folder or a cache."""
    assert is_bench(path, ["nothing", pattern]) is BENCHES[path, pattern]


def test_tests_are_what_pytest_collects_by_name():
    """With the patterns of its own."""
    found = [is_test(path) for path in ("a/test_x.py", "x_test.py", "a/bench_x.py", "a/testing.py", "test_/x.py", "a/test_x.txt")]

    assert found == [True, True, False, False, False, False]


@pytest.mark.parametrize("path", [path for path in KERNELS if path.endswith(".py") and path[0].isalpha()])
def test_host_and_inside_agree(path, tmp_path):
    """On the kernel of a test in a JUnit file, of a bench, and of a shard; a bench in a hidden folder is none for either."""
    for name in (path, ".hidden/bench_x.py"):
        (tmp_path / "package" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "package" / name).touch()
    junit = f'<testsuite><testcase classname="{path}" name="test_x"/></testsuite>'
    (tmp_path / "junit.xml").write_text(junit)
    patterns, ignored = restrict(tmp_path / "package", "/kernels", ("*.py",), Shard(1, 1))

    assert [case.kernel for case in read_cases(tmp_path, "junit.xml")] == [KERNELS[path]]
    assert kernel_name(Path("/root", path), Path("/root")) == KERNELS[path]
    assert (patterns, ignored) == ((path,), ())
    assert find_benches(tmp_path / "package", ("*.py",)) == [tmp_path / "package" / path]
