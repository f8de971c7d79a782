"""Standard output and standard error that never interrupt the work: what cannot be written is remembered, and told once at the end.

A disk that is full behind `> file` must not cost a run its results, and `| head` must not change an exit code.
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
    """A descriptor whose writes never raise. `failure` is the first error, but for a reader that has left, which is no error."""

    failure: Union[OSError, None] = None
    _gone = False

    def write(self, data: Any) -> int:
        """Write, or drop what cannot be written."""
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
                select.select([], [self], [])  # somebody has made it non-blocking, and its reader is slow
        return size


class Streams:
    """The two streams of this process, in place of Python's."""

    def __init__(self) -> None:
        """Take the descriptors over; one that is closed becomes one that cannot be written to, so that no file of ours gets its number."""
        _fill_closed()
        self._out, self._err = _Forgiving(1, "w", closefd=False), _Forgiving(2, "w", closefd=False)
        sys.stdout, sys.stderr = _text(self._out, sys.stdout), _text(self._err, sys.stderr)

    def failure(self) -> OSError | None:
        """Why standard output could not be written, after all of it has been."""
        with suppress(ValueError):  # closed by somebody
            sys.stdout.flush()
        with suppress(ValueError):
            sys.stderr.flush()
        return self._out.failure


def _fill_closed() -> None:
    for number, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_RDONLY)):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, mode)  # a write to it fails, as one to a closed descriptor does
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)


def _text(raw: _Forgiving, before: Any) -> io.TextIOWrapper:
    """A text stream as Python makes it. A character that the terminal's encoding lacks is escaped, not an error."""
    encoding = getattr(before, "encoding", None) or "utf-8"
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, "backslashreplace", line_buffering=raw.fileno() == 2 or raw.isatty())
