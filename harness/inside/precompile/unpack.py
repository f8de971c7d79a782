"""Put kernels that another machine compiled into Triton's cache: `--compiled`.

The host has compared the hash of their list with the planned one. Here the list is held against this machine: the same Triton, the same
sources, this card's architecture. Only files of compiled kernels are taken, each by its hash, and none that a processor would execute.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from harness.inside.environment.triton_cache import cache_folder, compiler_hash
from harness.inside.process import sealing
from harness.records import COMPILED_HERE, COMPILED_KINDS, COMPILED_MANIFEST, COMPILED_NAME, Architecture, Job


class RefusedError(Exception):
    """The kernels are not for this machine, or are none."""


def unpack(job: Job, card: Architecture) -> tuple[int, str]:
    """Take the kernels of this job's folder, and delete it. Return their number, and why they were refused; empty if they were not."""
    folder = Path(job.output) / COMPILED_HERE
    try:
        if sealing.digest_of(folder / COMPILED_MANIFEST) != job.compiled:
            raise RefusedError("their list was changed after this run had begun")
        manifest = json.loads((folder / COMPILED_MANIFEST).read_text(encoding="utf-8"))
        _check(manifest, job, card)
        return sum(_take(folder, name, manifest["files"]) for name in manifest["files"]), ""
    except RefusedError as error:
        return 0, str(error)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return 0, f"they cannot be read ({type(error).__name__}: {error})"[:300]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _check(manifest: dict[str, Any], job: Job, card: Architecture) -> None:
    """Raises RefusedError with what differs."""
    facts = json.loads((Path(job.output) / "facts.json").read_text(encoding="utf-8"))
    if manifest["triton"] != compiler_hash():
        raise RefusedError(f"they were compiled by another Triton: {str(manifest['version'])[:40]}, and this is {facts['triton']}")
    if manifest["kernels_hash"] != facts["kernels_hash"]:
        raise RefusedError("they were compiled from other sources than those of this run")
    if card.name not in manifest["architectures"]:
        made = ", ".join(map(str, manifest["architectures"]))[:100]
        raise RefusedError(f"they were compiled for {made}, and this card is {card.name}")
    if wrong := next((name for name in manifest["files"] if not COMPILED_NAME.fullmatch(name) or _kind(name) not in COMPILED_KINDS), None):
        raise RefusedError(f"their list names something other than compiled kernels: {wrong[:100]!r}")


def _take(folder: Path, name: str, files: dict[str, str]) -> bool:
    """Copy a file to where Triton looks for it. Return whether it stands for a kernel."""
    if sealing.digest_of(folder / name) != files[name]:
        raise RefusedError(f"a file was changed: {name}")
    data, place = (folder / name).read_bytes(), cache_folder() / name
    group = place.name.startswith("__grp__")
    if not place.exists():  # what was compiled here stays
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(_moved(data, place.parent, files) if group else data)
    return group


def _moved(group: bytes, entry: Path, files: dict[str, str]) -> bytes:
    """Return the list of an entry's files with their paths on this machine. Triton would open whatever it names, so it names ours alone."""
    listed = json.loads(group)
    listed["child_paths"] = {name: str(entry / name) for name in listed["child_paths"] if f"{entry.name}/{name}" in files}
    return json.dumps(listed).encode()


def _kind(name: str) -> str:
    return Path(name).suffix
