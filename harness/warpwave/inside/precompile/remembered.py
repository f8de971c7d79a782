"""What an earlier run compiled ahead for the same sources. If Triton's cache still has it, nothing is started.

The record is a file in that cache, which is removed with it. A wrong answer costs time only: a kernel that is not in the cache is compiled
when it is launched, as usual. So the key needs to cover what usually changes: the package's modules, what is asked for, the card, and the
versions of the compiler.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from warpwave.inside.environment import cache_folder, devices_here, modules_of, root_of
from warpwave.records import Job, write_text

_MOST_NAMES = 20_000


def entries() -> set[str]:
    """Return the names of the compiled kernels in the cache: each is a folder."""
    with contextlib.suppress(OSError), os.scandir(cache_folder()) as found:
        return {entry.name for entry in found if entry.is_dir()}
    return set()


def is_known(job: Job) -> bool:
    """Return whether an earlier run compiled ahead what this job launches, for some card."""
    return not job.what.compiled and _record(job).exists()  # what was compiled elsewhere is checked and unpacked


def is_compiled(job: Job) -> bool:
    """Return whether an earlier run compiled ahead, for the card that is here, what this job launches, and all of it is still there."""
    try:
        card, names = json.loads(_record(job).read_text(encoding="utf-8"))
        return not job.what.compiled and card == _card(job) and entries().issuperset(names)
    except (OSError, ValueError, TypeError):
        return False


def remember(job: Job, made: Iterable[str]) -> None:
    """Note that all of this job is compiled, of it the entries `made` by this run. Those that it found were remembered before."""
    names = sorted(made)
    if len(names) <= _MOST_NAMES:
        with contextlib.suppress(OSError):
            write_text(_record(job), json.dumps([_card(job), names]) + "\n")


def _record(job: Job) -> Path:
    digest = hashlib.sha256()
    asked = [job.kernels, sorted(map(str, job.what.stages)), repr(job.what), repr(job.declared)]
    digest.update(json.dumps([*asked, sys.version, _version("triton"), _version("torch")]).encode())
    for path in modules_of(root_of(job)):
        digest.update(os.fsencode(path) + b"\0")
        with contextlib.suppress(OSError):
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return cache_folder() / f"warpwave-ahead-{digest.hexdigest()[:32]}.json"


def _card(job: Job) -> list[object]:
    device = next(iter(devices_here(job)), {})
    return [device.get("name"), device.get("architecture")]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
