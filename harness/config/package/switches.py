"""A package's own switch that leaves out what is no Triton kernel: operators in C++ that its import builds with a vendor's compiler."""

from __future__ import annotations

import re
from pathlib import Path

from harness.config.package.root import import_folders

# A package reads such a variable while it is imported: `os.getenv("ATTN_TRITON_ONLY", "0")`.
_READ = re.compile(r"(?:getenv|environ(?:\.get)?)\s*[(\[]\s*['\"](?P<name>[A-Z][A-Z0-9_]*_TRITON_ONLY)['\"]")
_ON = "1"
_MOST_BYTES = 1 << 20


def switches(root: Path) -> dict[str, str]:
    """Return the variables that a package reads to load its Triton kernels alone, switched on. Its files are read and never run."""
    files = [path for folder in import_folders(root) for path in sorted((root / folder).glob("*/__init__.py"))]
    names = {match["name"] for path in files if path.stat().st_size < _MOST_BYTES for match in _READ.finditer(_text(path))}
    return dict.fromkeys(sorted(names), _ON)


def notes(root: Path, variables: dict[str, str]) -> tuple[str, ...]:
    """Return what a user should know of the switches that are on among the `variables` of a run."""
    return tuple(
        f"{name}={value}: {root.name} loads its Triton kernels alone, because what else it has needs the toolchain of a card's vendor; "
        f"--env {name}=0 loads all of it"
        for name, value in switches(root).items()
        if variables.get(name) == value
    )


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
