"""A folder that the user named for results, tried before any work is done for it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from harness.errors import explain, is_about_a_path


def check_writable(folder: Path) -> None:
    """Make the folder and a file in it, which is gone at once. A full disk passes: it is the machine's fault and met where one writes.

    Raises:
        UsageError: nothing can be made there; the path is wrong, closed to this user, or on a read-only disk.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        error.filename = error.filename and str(folder)  # not that of a file that nobody has named
        if is_about_a_path(error):
            raise explain(error) from None
