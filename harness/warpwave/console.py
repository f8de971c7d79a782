"""The only way to print to a terminal or a job's log. Printed text may quote artifacts, containers, file names and arguments. It is always
printed as text: it cannot control the terminal, and no line is a command to a CI runner, except annotations that `order` prints. A test
checks that nothing else in the host prints."""

import errno
import io
import os
import re
import select
import sys
import threading
import traceback
from contextlib import suppress
from typing import IO, Any, Union, cast

from rich.console import Console, RenderableType

from warpwave.safe_text import Annotation, inert, inert_inside, json_text, visible

_UNWRAPPED = 4000  # columns
_ANNOTATION = re.compile(r"::(error|warning|notice)( title=[^:,]*(,file=[^:,]*)?(,line=\d+)?)?::.*")


class _Stream(io.TextIOBase):
    """The current standard output or standard error. A line that looks like a CI command is printed as text, whatever its source."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write whole lines. Characters that the stream cannot encode are escaped."""
        self.write_checked(inert(text))
        return len(text)

    def write_checked(self, text: str) -> None:
        """Write text that holds no command, or one of ours."""
        if self._stream is not None:  # None if the stream was closed before this process started
            self._stream.write(text.encode(self.encoding, "backslashreplace").decode(self.encoding))

    def flush(self) -> None:
        """Flush the stream."""
        if self._stream is not None:
            self._stream.flush()

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
        return self._stream is not None and bool(self._stream.isatty())

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of the underlying stream."""
        return getattr(self._stream, "encoding", None) or "utf-8"


def say(text: Union[str, list[str]] = "", *, err: bool = False) -> None:
    """Print a text as one line, or one line for each of several. Line breaks inside a text are escaped."""
    stream = _stream(err)
    stream.write("".join(f"{visible(line)}\n" for line in ([text] if isinstance(text, str) else text)))
    stream.flush()


def show(*parts: RenderableType, err: bool = False, **options: Any) -> None:
    """Print what rich renders. Its texts were made visible when they were created; wrapping cannot turn them into a command. Only what may
    not be wrapped, since it is copied, is wider than the terminal."""
    terminal(err=err).print(*parts, **{"crop": False, **options})


def document(text: str) -> None:
    """Print a document for a program, such as JSON or CSV. It is already safe text."""
    stream = _stream(err=False)
    stream.write(text)
    stream.flush()


def print_json(value: Any) -> None:
    """Print one JSON document, on one line."""
    document(json_text(value, default=str) + "\n")


def order(annotation: str) -> None:
    """Print an annotation that `ci/workflow_commands.py` made. Any other text is printed as text, never as a command."""
    if not (isinstance(annotation, Annotation) and _ANNOTATION.fullmatch(annotation) and annotation.isprintable()):
        say(annotation)
        return
    stream = _stream(err=False)
    stream.write_checked(inert_inside(annotation) + "\n")
    stream.flush()


def terminal(*, err: bool) -> Console:
    """Return a rich console for standard output or standard error. Lines for a pipe or a log are not wrapped: a search finds them."""
    stream = _stream(err)
    width = None if stream.isatty() or "COLUMNS" in os.environ else _UNWRAPPED
    return Console(file=cast("IO[str]", stream), width=width, highlight=False)


def watched() -> bool:
    """Return whether both streams go to a terminal: somebody reads the whole output, not a log of errors."""
    return _stream(err=False).isatty() and _stream(err=True).isatty()


def picture(drawn: RenderableType, title: str, width: int) -> str:
    """Return the terminal's view as SVG, for a file."""
    console = Console(record=True, width=width, file=io.StringIO(), highlight=False, force_terminal=True)
    console.print(drawn)
    return console.export_svg(title=title)


def print_tracebacks() -> None:
    """Print tracebacks of warpwave's own faults through this module too: they quote untrusted text."""
    sys.excepthook = lambda kind, error, trace: _trace(error)
    threading.excepthook = lambda failure: _trace(failure.exc_value)
    sys.unraisablehook = lambda failure: _trace(failure.exc_value)


def _trace(error: BaseException | None) -> None:
    if error is not None and not isinstance(error, SystemExit):
        say("".join(traceback.format_exception(error)).splitlines(), err=True)


def _stream(err: bool) -> _Stream:
    return _Stream(sys.stderr if err else sys.stdout)


# Replace standard output and standard error by streams whose writes never raise. A failed write is reported once, at the end.
#
# A full disk behind `> file` must not cost a run its results, and `| head` must not change an exit code.


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
        for number in range(3):
            try:
                os.fstat(number)
            except OSError:
                opened = os.open(os.devnull, os.O_RDONLY)  # read-only: a write to it fails, as it would on a closed descriptor
                if opened != number:
                    os.dup2(opened, number)
                    os.close(opened)
        self._out, self._err = _Forgiving(1, "w", closefd=False), _Forgiving(2, "w", closefd=False)
        sys.stdout, sys.stderr = _text(self._out, sys.stdout), _text(self._err, sys.stderr)

    def failure(self) -> OSError | None:
        """Flush both streams, and return the error if standard output could not be written."""
        with suppress(ValueError):  # the stream was closed
            sys.stdout.flush()
        with suppress(ValueError):
            sys.stderr.flush()
        return self._out.failure


def _text(raw: _Forgiving, before: Any) -> io.TextIOWrapper:
    """Return a text stream like Python's own. A character that the terminal's encoding lacks is escaped and raises no error."""
    encoding = getattr(before, "encoding", None) or "utf-8"
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, "backslashreplace", line_buffering=raw.fileno() == 2 or raw.isatty())
