"""Keep what the compile stage compiled, so that the machine with the card need not compile it again: `--save-compiled`.

The folder holds the entries of Triton's cache for the architectures that were asked for, and a manifest: what they were made of and with,
and the hash of each file. It holds no native code for the host, and `unpack` takes none.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

from warpwave.inside.environment import cache_folder, compiler_hash
from warpwave.inside.process import sealing
from warpwave.records import COMPILED_FOLDER, COMPILED_HERE, COMPILED_KINDS, COMPILED_MANIFEST, COMPILED_NAME, Architecture, Job


def pack(job: Job) -> None:
    """Write the folder if it was asked for. Its manifest is sealed like a result, and so is every file that it lists."""
    wanted = [card for card in job.architectures if card.name in job.what.save_compiled]
    if not wanted:
        return
    folder = Path(job.output) / COMPILED_FOLDER
    shutil.rmtree(folder, ignore_errors=True)  # from an interrupted run
    facts = json.loads((Path(job.output) / "facts.json").read_text(encoding="utf-8"))
    files: dict[str, str] = {}
    targets = [(card.backend, card.arch) for card in wanted]
    for group in sorted(cache_folder().glob("*/__grp__*.json")):
        try:
            target: dict[str, Any] = json.loads((group.parent / group.name.removeprefix("__grp__")).read_text())["target"]
        except (OSError, ValueError, KeyError):
            continue
        if (target.get("backend"), target.get("arch")) not in targets:
            continue
        entry = group.parent
        (folder / entry.name).mkdir(parents=True)
        for file in sorted(entry.iterdir()):
            if file.is_file() and file.suffix in COMPILED_KINDS:
                data = file.read_bytes()
                (folder / entry.name / file.name).write_bytes(data)
                files[f"{entry.name}/{file.name}"] = hashlib.sha256(data).hexdigest()
    manifest = {
        "triton": compiler_hash(),
        "version": facts["triton"],
        "kernels_hash": facts["kernels_hash"],
        "architectures": [card.name for card in wanted],
        "files": files,
    }
    sealing.replace(folder / COMPILED_MANIFEST, json.dumps(manifest, indent=0) + "\n")


# Put kernels that another machine compiled into Triton's cache: `--compiled`.
#
# The host has compared the hash of their list with the planned one. Here the list is held against this machine: the same Triton, the same
# sources, this card's architecture. Only files of compiled kernels are taken, each by its hash, and none that a processor would execute.


class RefusedError(Exception):
    """The kernels are not for this machine, or are none."""


def unpack(job: Job, card: Architecture) -> tuple[int, str]:
    """Take the kernels of this job's folder, and delete it. Return their number, and why they were refused; empty if they were not."""
    folder = Path(job.output) / COMPILED_HERE
    try:
        if sealing.digest_of(folder / COMPILED_MANIFEST) != job.what.compiled:
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
    for name in manifest["files"]:
        if not COMPILED_NAME.fullmatch(name) or Path(name).suffix not in COMPILED_KINDS:
            raise RefusedError(f"their list names something other than compiled kernels: {name[:100]!r}")


def _take(folder: Path, name: str, files: dict[str, str]) -> bool:
    """Copy a file to where Triton looks for it. Return whether it stands for a kernel."""
    if sealing.digest_of(folder / name) != files[name]:
        raise RefusedError(f"a file was changed: {name}")
    data, place = (folder / name).read_bytes(), cache_folder() / name
    group = place.name.startswith("__grp__")
    if (
        group
    ):  # the list of an entry's files, with their paths on this machine. Triton would open whatever it names, so it names ours alone.
        listed, entry = json.loads(data), place.parent
        listed["child_paths"] = {name: str(entry / name) for name in listed["child_paths"] if f"{entry.name}/{name}" in files}
        data = json.dumps(listed).encode()
    if not place.exists():  # what was compiled here stays
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    return group
