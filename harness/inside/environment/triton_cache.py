"""Triton's cache on disk: where it is, and how many kernels are in it."""

from __future__ import annotations

import errno
import importlib
import os
import tempfile
from pathlib import Path

# What a disk answers that is full, broken or read-only.
_OF_THE_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG, errno.ESTALE}
_PROBE_BYTES = 1 << 20  # more than the files of one kernel usually have


def cache_folder() -> Path:
    """Return the folder that Triton's default cache manager uses."""
    return Path(os.environ.get("TRITON_CACHE_DIR") or Path(os.environ.get("TRITON_HOME") or Path.home()) / ".triton" / "cache")


def why_unwritable() -> str:
    """Return why nothing can be written to the cache; empty if something can. Every kernel is written there before it is launched."""
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_PROBE_BYTES))
            file.flush()
    except OSError as error:
        return f"Triton cannot write to its cache, {folder}: {error.strerror or error}"
    return ""


def is_of_the_disk(error: BaseException | None) -> bool:
    """Return whether Triton's cache raised this error because its disk is full, broken or read-only. No kernel is to blame for it."""
    if not isinstance(error, OSError) or error.errno not in _OF_THE_DISK:
        return False
    files, trace = set(), error.__traceback__
    while trace is not None:
        files.add(trace.tb_frame.f_code.co_filename)
        trace = trace.tb_next
    return any(file.endswith("triton/runtime/cache.py") for file in files)


def compiled_kernels() -> int:
    """Return how many compiled kernels the cache holds: each has a folder with a list of its files."""
    return sum(1 for _ in cache_folder().glob("*/__grp__*.json"))


def compiler_hash() -> str:
    """Return Triton's hash of itself, which is part of each key in the cache: version, sources and native code."""
    return str(importlib.import_module("triton.runtime.cache").triton_key())
