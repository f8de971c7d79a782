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

# What is in the user's cache and has nothing to do with timings: what was downloaded, and what the emulator was compiled to.
_KEPT = {"HF_HOME": "huggingface", "TORCH_HOME": "torch", "WARPWAVE_CACHE": "warpwave"}


@contextmanager
def temporary_home(folder: Path, *, compiles: bool = True) -> Iterator[None]:
    """Give the package another home while it runs on a fake GPU.

    Packages store tuning results in the user's home (FlagGems: one database per architecture). Timings on a fake GPU are invented, and a
    real run would then use the wrong choice. Triton's own cache stays in place: it holds compiled code and no timings. `compiles` says
    that the workers mostly compile.
    """
    cache, users = cache_folder(), Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))  # noqa: PTH111 - also without one
    changed = {"TRITON_CACHE_DIR": str(cache), "HOME": tempfile.mkdtemp(prefix=".home-", dir=folder)}
    changed |= {name: str(users / kept) for name, kept in _KEPT.items() if not os.environ.get(name)}
    changed |= _quick_malloc() if compiles else {}
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
