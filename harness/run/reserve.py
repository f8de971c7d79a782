"""Room on the disk of the results that is kept back, so that the last page of a run can be written however full the disk is by then."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO, Union

BYTES = 64 << 10  # a run.json has 2 to 20 KiB


class Reserve:
    """An open file without a name: the code under test can neither see nor remove it, and a kill gives its room back."""

    def __init__(self) -> None:
        """Hold nothing yet."""
        self._file: Union[IO[bytes], None] = None

    def take(self, folder: Path) -> None:
        """Keep the room back.

        Raises:
            OSError: the disk does not have it, or the folder cannot be written to.
        """
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by `free`
        os.posix_fallocate(self._file.fileno(), 0, BYTES)

    def free(self) -> None:
        """Give the room back, for whoever writes next."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None
