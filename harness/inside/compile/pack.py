"""Keep what the compile stage compiled, so that the machine with the card need not compile it again: `--save-compiled`.

The folder holds the entries of Triton's cache for the architectures that were asked for, and a manifest: what they were made of and with,
and the hash of each file. It holds no native code for the host: `precompile/unpack.py` takes none.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.inside.environment.triton_cache import cache_folder, compiler_hash
from harness.inside.process import sealing
from harness.records import COMPILED_FOLDER, COMPILED_KINDS, COMPILED_MANIFEST, Architecture, Job


def pack(job: Job) -> None:
    """Write the folder if it was asked for. Its manifest is sealed like a result, and so is every file that it lists."""
    wanted = [card for card in job.architectures if card.name in job.save_compiled]
    if not wanted:
        return
    folder = Path(job.output) / COMPILED_FOLDER
    shutil.rmtree(folder, ignore_errors=True)  # from an interrupted run
    facts = json.loads((Path(job.output) / "facts.json").read_text(encoding="utf-8"))
    files: dict[str, str] = {}
    for entry in _entries(wanted):
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


def _entries(wanted: list[Architecture]) -> Iterator[Path]:
    """Yield the folders of the cache with a kernel for one of these architectures."""
    targets = [(card.backend, card.arch) for card in wanted]
    for group in sorted(cache_folder().glob("*/__grp__*.json")):
        try:
            told: dict[str, Any] = json.loads((group.parent / group.name.removeprefix("__grp__")).read_text())["target"]
        except (OSError, ValueError, KeyError):
            continue
        if (told.get("backend"), told.get("arch")) in targets:
            yield group.parent
