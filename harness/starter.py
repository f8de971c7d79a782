"""`starter/` → an empty repository: one kernel with its test and its bench, gates, and a workflow, copied as they are."""

from __future__ import annotations

import shutil
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


def write_starter(folder: Path) -> list[Path]:
    """Copy the starter into `folder`; returns what was written. Nothing is written where a file of the same name is there already.

    Raises:
        UsageError: a file is there already, or the folder cannot be written to.
    """
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
            shutil.copyfile(starter() / path, folder / path)
    except OSError as error:
        meaning = "It is somebody else's, or a file."
        raise UsageError(f"{folder} cannot be written to: {error.strerror}.", meaning, "Give another folder.") from None
    return files
