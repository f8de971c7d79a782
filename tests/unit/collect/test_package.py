"""What a package's files are: one rule for the host and the inside."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from warpwave.collect.cases import read_cases
from warpwave.config.package import package_names
from warpwave.inside.benchmarks import find_benches, kernel_name
from warpwave.records import Job
from warpwave.records.selection import is_bench, is_test, kernel_of

JOB = Job("r", "t", (), "/root", "/out")
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
    # Folders that only have a role are skipped.
    "tests/test_softmax.py": "softmax",
    "tests/unit/softmax_test.py": "softmax",
    "op_tests/triton_tests/test_gemm.py": "gemm",
    "test/transformers/test_rms_norm.py": "rms_norm",
    "benchmarks/softmax_benchmark.py": "softmax",
    "benchmark/scripts/benchmark_geglu.py": "geglu",
    "python/tutorials/01-vector-add.py": "01-vector-add",
    "src/kernels/softmax/bench_rows.py": "softmax",
    "tests/test.py": "test",
    "latest/test_rows.py": "latest",
    "tests/conftest.py": "conftest",
}
# With a package that is called flash-ops.
OWN = {
    "flash_ops/test_rows.py": "rows",
    "Flash-Ops/tests/attention/test_rows.py": "attention",
    "flash/test_rows.py": "flash",
    "softmax/flash_ops/test_rows.py": "softmax",
}


@pytest.mark.parametrize("path", KERNELS)
def test_a_file_is_about_one_kernel(path):
    """Its top folder, or its name without its role."""
    assert kernel_of(path) == KERNELS[path]


@pytest.mark.parametrize("path", OWN)
def test_a_folder_with_the_package_s_name_says_nothing(path):
    """In any spelling; `kernel_name` asks the job for the name."""
    job = dataclasses.replace(JOB, package_names=("flash-ops",))

    assert kernel_of(path, ["flash-ops"]) == kernel_name(Path("/root", path), job) == OWN[path]


def test_a_package_is_called_as_its_folder_and_its_project_are(tmp_path):
    """Whichever of them is there."""
    (tmp_path / "checkout").mkdir()
    bare = package_names(tmp_path / "checkout")
    (tmp_path / "checkout" / "setup.cfg").write_text("[metadata]\nname = old\n")
    old = package_names(tmp_path / "checkout")
    (tmp_path / "checkout" / "pyproject.toml").write_text("[project]\nname = 'flash-ops'\n")

    assert (bare, old, package_names(tmp_path / "checkout")) == (("checkout",), ("checkout", "old"), ("checkout", "flash-ops"))


def test_the_bundled_package_keeps_its_rows():
    """A folder a kernel."""
    root = Path(__file__).parents[3] / "kernels"
    files = [path.relative_to(root) for path in root.rglob("*.py") if path.name.startswith(("test_", "bench_")) and path.parent != root]

    assert len(files) > 10
    assert {kernel_of(path.as_posix(), package_names(root.parent)) for path in files} == {path.parts[0] for path in files}


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
    """On the kernel of a test in a JUnit file and of a bench; a bench in a hidden folder is none for either."""
    for name in (path, ".hidden/bench_x.py"):
        (tmp_path / "package" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "package" / name).touch()
    junit = f'<testsuite><testcase classname="{path}" name="test_x"/></testsuite>'
    (tmp_path / "junit.xml").write_text(junit)

    assert [case.kernel for case in read_cases(tmp_path, "junit.xml")] == [KERNELS[path]]
    assert kernel_name(Path("/root", path), JOB) == KERNELS[path]
    assert find_benches(tmp_path / "package", ("*.py",)) == [tmp_path / "package" / path]
