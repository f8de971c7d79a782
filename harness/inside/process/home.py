"""Another home for a package while it runs on a card that does not exist."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes.util import find_library
from pathlib import Path


@contextmanager
def temporary_home(folder: Path) -> Iterator[None]:
    """Give the package another home while it runs on a card that does not exist.

    Packages keep what they have tuned in the user's home (FlagGems: one database an architecture); with timings that are made up, a real
    run would find the wrong choice there. Triton's own cache stays where it is: it holds what was compiled, and no timing.
    """
    cache = os.environ.get("TRITON_CACHE_DIR") or Path(os.environ.get("TRITON_HOME") or Path.home()) / ".triton" / "cache"
    changed = {"TRITON_CACHE_DIR": str(cache), "HOME": tempfile.mkdtemp(prefix=".home-", dir=folder)} | _quick_malloc()
    before = {name: os.environ.get(name) for name in (*changed, "XDG_CACHE_HOME")}
    os.environ.update(changed)
    os.environ.pop("XDG_CACHE_HOME", None)  # then it is below the home
    try:
        yield
    finally:
        shutil.rmtree(changed["HOME"], ignore_errors=True)
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def _quick_malloc() -> dict[str, str]:
    """jemalloc for the workers, where this machine has it: a seventh of what LLVM and MLIR take is the C library's malloc."""
    library = find_library("jemalloc")
    return {"LD_PRELOAD": library} if library and not os.environ.get("LD_PRELOAD") else {}
