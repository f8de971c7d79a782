"""Triton's cache on disk: where it is, and how many kernels are in it."""

from __future__ import annotations

import importlib
import os
from pathlib import Path


def cache_folder() -> Path:
    """Return the folder that Triton's default cache manager uses."""
    return Path(os.environ.get("TRITON_CACHE_DIR") or Path(os.environ.get("TRITON_HOME") or Path.home()) / ".triton" / "cache")


def compiled_kernels() -> int:
    """Return how many compiled kernels the cache holds: each has a folder with a list of its files."""
    return sum(1 for _ in cache_folder().glob("*/__grp__*.json"))


def compiler_hash() -> str:
    """Return Triton's hash of itself, which is part of each key in the cache: version, sources and native code."""
    return str(importlib.import_module("triton.runtime.cache").triton_key())
