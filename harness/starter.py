"""`starter/` → an empty repository: one kernel with its test and its bench, gates, and a workflow that installs this warpwave."""

from __future__ import annotations

import json
from pathlib import Path

from harness.errors import UsageError


def starter() -> Path:
    """The folder as shipped: inside the installed package, or in the checkout beside it."""
    package = Path(__file__).resolve().parent
    packaged = package / "starter"
    return packaged if packaged.is_dir() else package.parent / "starter"


def starter_files() -> list[Path]:
    """Its files, relative to it."""
    source = starter()
    return sorted(path.relative_to(source) for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


_INSTALLED = '{WARPWAVE: "warpwave"}'  # in the workflow


def write_starter(folder: Path, requirement: str) -> list[Path]:
    """Copy the starter into `folder`; returns what was written. Nothing is written where a file of the same name is there already.

    `requirement` is what pip installs in the workflow.

    Raises:
        UsageError: a file is there already, the folder cannot be written to, or no pip could take `requirement`.
    """
    if not requirement.isprintable() or not requirement or requirement.startswith("-") or "${{" in requirement:
        raise UsageError(
            f"--from is nothing that pip installs: {requirement!r}.",
            "The workflow hands it to `pipx install` as it is.",
            "Give a requirement: 'warpwave==0.1.0', or git+https://HOST/OWNER/NAME@COMMIT.",
        )
    files = starter_files()
    if taken := [path for path in files if (folder / path).exists()]:
        raise UsageError(
            f"{', '.join(map(str, taken))} {'is' if len(taken) == 1 else 'are'} there already, below {folder}.",
            "`init` is for a repository without kernels yet, and overwrites nothing.",
            "Give another folder: `warpwave init my-kernels`. An existing package needs no init: `warpwave run cpu --kernels FOLDER`.",
        )
    try:
        for path in files:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            text = (starter() / path).read_text(encoding="utf-8")
            (folder / path).write_text(text.replace(_INSTALLED, f"{{WARPWAVE: {json.dumps(requirement)}}}"), encoding="utf-8")
    except OSError as error:
        meaning = "It is somebody else's, or a file."
        raise UsageError(f"{folder} cannot be written to: {error.strerror}.", meaning, "Give another folder.") from None
    return files
