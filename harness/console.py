"""Everything that leaves for a terminal or a job's log, through one door.

What is printed may quote artifacts, containers, file names and arguments. All of it is written as text: nothing steers the terminal, and
no line is an order to a CI runner, except the annotations that `order` prints. A test holds that nothing else in the host prints.
"""

from __future__ import annotations

import io
import re
import sys
import threading
import traceback
from typing import IO, Any, Union, cast

from rich.console import Console, RenderableType

from harness.render.text import Annotation, inert, inert_inside, json_text, visible

_ANNOTATION = re.compile(r"::(error|warning|notice)( title=[^:,]*)?::.*")


class _Stream(io.TextIOBase):
    """Standard output or standard error as they are now. A line that reads as an order is written as text, whoever made it."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write whole lines; a character that the stream cannot hold is spelt out."""
        self.write_checked(inert(text))
        return len(text)

    def write_checked(self, text: str) -> None:
        """The same for what holds no order, or is one of ours."""
        if self._stream is not None:  # None if the stream was closed before this process started
            self._stream.write(text.encode(self.encoding, "backslashreplace").decode(self.encoding))

    def flush(self) -> None:
        """Hand on what is written."""
        if self._stream is not None:
            self._stream.flush()

    def isatty(self) -> bool:
        """Whether somebody is watching."""
        return self._stream is not None and bool(self._stream.isatty())

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """That of the stream below."""
        return getattr(self._stream, "encoding", None) or "utf-8"


def say(text: Union[str, list[str]] = "", *, err: bool = False) -> None:
    """Print a text as one line, or each of several as a line of its own; a line break in one of them is spelt out."""
    stream = _stream(err)
    stream.write("".join(f"{visible(line)}\n" for line in ([text] if isinstance(text, str) else text)))
    stream.flush()


def show(*parts: RenderableType, err: bool = False, **options: Any) -> None:
    """Print what rich draws. Its texts have been made visible by whoever made them; a fold cannot make an order of their parts."""
    terminal(err=err).print(*parts, **options)


def document(text: str) -> None:
    """Print a document for a program: JSON, CSV and the like, which is text already."""
    stream = _stream(err=False)
    stream.write(text)
    stream.flush()


def print_json(value: Any) -> None:
    """Print one JSON document, on one line."""
    document(json_text(value, default=str) + "\n")


def order(annotation: str) -> None:
    """Print an annotation that `ci/workflow_commands.py` made. No other order goes to a runner: other text is printed as text."""
    if not (isinstance(annotation, Annotation) and _ANNOTATION.fullmatch(annotation) and annotation.isprintable()):
        say(annotation)
        return
    stream = _stream(err=False)
    stream.write_checked(inert_inside(annotation) + "\n")
    stream.flush()


def terminal(*, err: bool) -> Console:
    """What draws on standard output or standard error."""
    return Console(file=cast("IO[str]", _stream(err)), highlight=False)


def picture(drawn: RenderableType, title: str, width: int) -> str:
    """The terminal's view as SVG. It goes to a file, and to no terminal."""
    console = Console(record=True, width=width, file=io.StringIO(), highlight=False, force_terminal=True)
    console.print(drawn)
    return console.export_svg(title=title)


def print_tracebacks() -> None:
    """Print the tracebacks of our own faults through here too: they quote what they failed on."""
    sys.excepthook = lambda kind, error, trace: _trace(error)
    threading.excepthook = lambda told: _trace(told.exc_value)
    sys.unraisablehook = lambda told: _trace(told.exc_value)


def _trace(error: BaseException | None) -> None:
    if error is not None and not isinstance(error, SystemExit):
        say("".join(traceback.format_exception(error)).splitlines(), err=True)


def _stream(err: bool) -> _Stream:
    return _Stream(sys.stderr if err else sys.stdout)
