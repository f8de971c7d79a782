"""`starter/` → an empty repository: a kernel with its test and bench, gates, and a workflow that installs this warpwave."""

from __future__ import annotations

import json
from pathlib import Path

from harness.errors import UsageError


def starter() -> Path:
    """Return the starter folder: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parent
    packaged = package / "starter"
    return packaged if packaged.is_dir() else package.parent / "starter"


def starter_files() -> list[Path]:
    """Return the starter's files, relative to its folder."""
    source = starter()
    return sorted(path.relative_to(source) for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


_INSTALLED = '{WARPWAVE: "warpwave"}'  # in the workflow


def write_starter(folder: Path, requirement: str) -> list[Path]:
    """Copy the starter into `folder` and return what was written. If any file exists already, write nothing.

    `requirement` is what pip installs in the workflow.

    Raises:
        UsageError: a file exists already, the folder is not writable, or pip cannot install `requirement`.
    """
    if not requirement.isprintable() or not requirement or requirement.startswith("-") or "${{" in requirement:
        raise UsageError(
            f"--from is not a requirement for pip: {requirement!r}.",
            "The workflow passes it to `pipx install` unchanged.",
            "Give a requirement: 'warpwave==0.1.0', or git+https://HOST/OWNER/NAME@COMMIT.",
        )
    files = starter_files()
    if taken := [path for path in files if (folder / path).exists()]:
        raise UsageError(
            f"{', '.join(map(str, taken))} {'is' if len(taken) == 1 else 'are'} already in {folder}.",
            "`init` is for a repository without kernels, and never overwrites files.",
            "Give another folder: `warpwave init my-kernels`. An existing package needs no init: `warpwave run cpu --kernels FOLDER`.",
        )
    try:
        for path in files:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            text = (starter() / path).read_text(encoding="utf-8")
            (folder / path).write_text(text.replace(_INSTALLED, f"{{WARPWAVE: {json.dumps(requirement)}}}"), encoding="utf-8")
    except OSError as error:
        meaning = "The folder belongs to someone else, or it is a file."
        raise UsageError(f"{folder} cannot be written to: {error.strerror}.", meaning, "Give another folder.") from None
    return files
