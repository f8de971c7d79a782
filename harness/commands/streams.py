"""Replace standard output and standard error by streams whose writes never raise. A failed write is reported once, at the end.

A full disk behind `> file` must not cost a run its results, and `| head` must not change an exit code.
"""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from contextlib import suppress
from typing import Any, Union


class _Forgiving(io.FileIO):
    """A descriptor whose writes never raise. `failure` is the first error. A reader that has closed its end is not an error."""

    failure: Union[OSError, None] = None
    _gone = False

    def write(self, data: Any) -> int:
        """Write the data, or drop it if it cannot be written."""
        size = memoryview(data).nbytes
        while not self._gone:
            try:
                written = super().write(data)
            except OSError as error:
                self._gone = True
                if error.errno != errno.EPIPE:
                    self.failure = error
            else:
                if written is not None:
                    return written
                select.select([], [self], [])  # another process made the descriptor non-blocking, and its reader is slow
        return size


class Streams:
    """The two streams of this process, which replace Python's."""

    def __init__(self) -> None:
        """Take over the descriptors. Fill closed ones with an unwritable descriptor, so that no file that we open gets their numbers."""
        _fill_closed()
        self._out, self._err = _Forgiving(1, "w", closefd=False), _Forgiving(2, "w", closefd=False)
        sys.stdout, sys.stderr = _text(self._out, sys.stdout), _text(self._err, sys.stderr)

    def failure(self) -> OSError | None:
        """Flush both streams, and return the error if standard output could not be written."""
        with suppress(ValueError):  # the stream was closed
            sys.stdout.flush()
        with suppress(ValueError):
            sys.stderr.flush()
        return self._out.failure


def _fill_closed() -> None:
    for number, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_RDONLY)):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, mode)  # read-only: a write to it fails, as it would on a closed descriptor
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)


def _text(raw: _Forgiving, before: Any) -> io.TextIOWrapper:
    """Return a text stream like Python's own. A character that the terminal's encoding lacks is escaped and raises no error."""
    encoding = getattr(before, "encoding", None) or "utf-8"
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, "backslashreplace", line_buffering=raw.fileno() == 2 or raw.isatty())
