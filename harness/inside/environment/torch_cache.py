"""The cache of torch's compiler: where this run has it, and under which keys.

torch's key of a backward graph leaves out which saved tensors it may overwrite, and the graph of `retain_graph=True` may overwrite none.
Among several processes the one would be found for the other. `tell_apart` adds it to the key.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

from harness.records import AHEAD_FILE, Job

VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
PREFIX = "warpwave-torch-compile-"  # of the folder's name, if it is this run's own
FOLDER = "generated"  # the key of its path in `bench/ahead.json`
_READY_S = 120  # for torch's compile workers to start


def folder_of(job: Job) -> Path | None:
    """Return the folder of what was generated for this run; None if nothing was."""
    try:
        return Path(json.loads((Path(job.output) / AHEAD_FILE).read_text(encoding="utf-8"))[FOLDER])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def name_folder(job: Job) -> None:
    """Name the folder to the processes that this one starts. torch reads it when it is imported."""
    if folder := folder_of(job):
        os.environ[VARIABLE] = str(folder)


def remove(job: Job) -> None:
    """Delete what was generated for this run alone."""
    folder = folder_of(job)
    if folder is not None and folder.name.startswith(PREFIX):
        shutil.rmtree(folder, ignore_errors=True)


def use(job: Job) -> None:
    """In the worker that measures: take what was generated, if anything was, and be ready to compile the rest."""
    if folder_of(job) is None:
        return
    with contextlib.suppress(Exception):
        tell_apart()
        importlib.import_module("torch._inductor.compile_fx")
        workers = importlib.import_module("torch._inductor.async_compile").AsyncCompile
        workers.wait_pool_ready(_READY_S)


def tell_apart() -> None:
    """Add to torch's keys of graphs which of the saved tensors a backward graph may overwrite."""
    details = importlib.import_module("torch._inductor.codecache").FxGraphHashDetails
    donated = importlib.import_module("torch._inductor.utils").get_donated_idxs
    begin = details.__init__

    def begin_with(self: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        self.donated = donated()

    details.__init__ = begin_with
