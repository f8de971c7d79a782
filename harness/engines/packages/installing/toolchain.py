"""Install a toolchain: Triton without what it names, and torch if it is another one than this Python has."""

from __future__ import annotations

import importlib.metadata
import tempfile
from pathlib import Path
from typing import Any

from .calls import run_pip
from .requirements import name_of, own_packages, present


def install_toolchain(plan: Path, wanted: dict[str, Any]) -> dict[str, Any]:
    """Install what this Python does not have already, and return what is in the environment.

    Raises:
        FailedError: a version cannot be had.
    """
    here = present()
    notes: list[str] = []
    if wanted["torch"] and here.get("torch", "").split("+")[0] != wanted["torch"]:
        _install_torch(plan, wanted)
        notes.append(f"torch {wanted['torch']} was installed for this toolchain; below it is {here.get('torch', 'none')}")
    lines = [f"triton=={wanted['triton']}"] if wanted["triton"] and here.get("triton") != wanted["triton"] else []
    lines += wanted["packages"]
    if lines:
        run_pip(plan, "install", "--no-deps", "--ignore-installed", *_source(wanted["index"]), *lines)
    return {"packages": own_packages(), "notes": notes}


def _install_torch(plan: Path, wanted: dict[str, Any]) -> None:
    """Install torch, and what it needs but another Triton."""
    source = _source(wanted["torch_index"])
    run_pip(plan, "install", "--no-deps", "--ignore-installed", *source, f"torch=={wanted['torch']}")
    importlib.invalidate_caches()
    needs = [line for line in importlib.metadata.requires("torch") or () if "triton" not in name_of(line)]
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, "torch.txt")
        file.write_text("\n".join(needs) + "\n")
        run_pip(plan, "install", *source, "--requirement", str(file))


def _source(index: str) -> list[str]:
    """Return pip's options for an index, or for a folder of wheels."""
    if not index:
        return []
    return ["--no-index", "--find-links", index] if Path(index).is_dir() else ["--index-url", index]
