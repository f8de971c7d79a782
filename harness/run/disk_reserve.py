"""Reserve disk space for results, so that a run can write its final record even if the disk is full by then."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO, Union

BYTES = 64 << 10  # a run.json has 2 to 20 KiB


class Reserve:
    """An open file without a name. The code under test can neither see nor remove it, and a killed process frees its space."""

    def __init__(self) -> None:
        """Reserve nothing yet."""
        self._file: Union[IO[bytes], None] = None

    def take(self, folder: Path) -> None:
        """Reserve the space.

        Raises:
            OSError: the disk is full, or the folder cannot be written to.
        """
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by `free`
        os.posix_fallocate(self._file.fileno(), 0, BYTES)

    def free(self) -> None:
        """Free the space, so that the final record can be written."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None
