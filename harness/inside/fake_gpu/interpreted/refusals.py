"""What the language refuses is the compiler's error on a card: `pytest.raises(triton.CompilationError)` holds in the interpreter, too."""

from __future__ import annotations

import functools
from pathlib import Path
from types import TracebackType

import triton
from triton.compiler.errors import CompilationError, CompileTimeAssertionFailure
from triton.runtime.errors import InterpreterError

from harness.inside.process.exceptions import raised_in_kernel

_LANGUAGE = Path(triton.__file__).parent / "language"
_REFUSES = (AssertionError, NotImplementedError, TypeError, ValueError)


def as_compiled(error: InterpreterError) -> InterpreterError:
    """Return the error of a launch; if the language refused an argument, or `static_assert` failed, it is one of the compiler's as well."""
    found = raised_in_kernel(error)
    if not isinstance(found, _REFUSES) or isinstance(error, CompilationError):
        return error
    file, function = _innermost(found.__traceback__)
    if function == "_new_static_assert":
        return _both(CompileTimeAssertionFailure)(error.error_message)
    return _both(CompilationError)(error.error_message) if _LANGUAGE in Path(file).parents else error


def _innermost(trace: TracebackType | None) -> tuple[str, str]:
    """Return the file and the function in which an error was raised."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return (trace.tb_frame.f_code.co_filename, trace.tb_frame.f_code.co_name) if trace is not None else ("", "")


@functools.cache
def _both(compilers: type[CompilationError]) -> type[InterpreterError]:
    def start(self: InterpreterError, message: str | None = None) -> None:
        self.error_message = self.message = message  # type: ignore[attr-defined]
        self.src = self.node = None  # type: ignore[attr-defined]

    return type("InterpreterError", (InterpreterError, compilers), {"__init__": start, "__reduce__": lambda self: (as_plain, (str(self),))})


def as_plain(message: str) -> InterpreterError:
    """Return an error as another process gets it."""
    return InterpreterError(message)
