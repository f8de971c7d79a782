"""Bench files as smoke tests: each must load."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.inside.benchmarks import load_module
from harness.inside.test.settings import settings
from harness.records.selection.package import TEST_FILES, is_bench, is_test

BENCHES_VARIABLE = "WARPWAVE_BENCHES"


class BenchModule(pytest.File):
    """A bench file as a test: it must load, and its assertions must hold."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield one item: the module itself."""
        yield BenchItem.from_parent(self, name="module")


class BenchItem(pytest.Item):
    """Loads the module without running its sweeps."""

    def runtest(self) -> None:
        """Run the module's top level."""
        load_module(self.path, Path(settings().get("kernels", self.config.rootpath)))

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return the location that a failure points to."""
        return self.path, None, f"{self.path.name} loads"


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect the job's benches, except those that pytest collects as test files anyway."""
    patterns = os.environ.get(BENCHES_VARIABLE, "").split(os.pathsep)
    root = parent.config.rootpath
    path = file_path.relative_to(root).as_posix() if file_path.is_relative_to(root) else file_path.name
    if is_test(path, settings().get("python_files", TEST_FILES)) or not is_bench(path, patterns):
        return None
    module: pytest.Collector = BenchModule.from_parent(parent, path=file_path)
    return module
