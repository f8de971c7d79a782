"""Check the user's results folder before any work is done."""

from __future__ import annotations

import tempfile
from pathlib import Path

from harness.errors import explain, is_about_a_path


def check_writable(folder: Path) -> None:
    """Create the folder, and a file in it that is deleted at once. A full disk passes: it is the machine's fault, and found when writing.

    Raises:
        UsageError: nothing can be created there: the path is wrong, not writable for this user, or on a read-only disk.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        error.filename = error.filename and str(folder)  # not the temporary file's name, which the user never saw
        if is_about_a_path(error):
            raise explain(error) from None
