"""A temporary home for a package that runs on a fake GPU."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes.util import find_library
from pathlib import Path

from harness.inside.environment.triton_cache import cache_folder


@contextmanager
def temporary_home(folder: Path) -> Iterator[None]:
    """Give the package another home while it runs on a fake GPU.

    Packages store tuning results in the user's home (FlagGems: one database per architecture). Timings on a fake GPU are invented, and a
    real run would then use the wrong choice. Triton's own cache stays in place: it holds compiled code and no timings.
    """
    cache = cache_folder()
    changed = {"TRITON_CACHE_DIR": str(cache), "HOME": tempfile.mkdtemp(prefix=".home-", dir=folder)} | _quick_malloc()
    before = {name: os.environ.get(name) for name in (*changed, "XDG_CACHE_HOME")}
    os.environ.update(changed)
    os.environ.pop("XDG_CACHE_HOME", None)  # then it defaults to a folder in the new home
    try:
        yield
    finally:
        shutil.rmtree(changed["HOME"], ignore_errors=True)
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def _quick_malloc() -> dict[str, str]:
    """Use jemalloc in the workers, if installed: LLVM and MLIR spend a seventh of their time in the C library's malloc."""
    library = find_library("jemalloc")
    return {"LD_PRELOAD": library} if library and not os.environ.get("LD_PRELOAD") else {}
