"""Exceptions of a package's code and of compilers, in words for a row of a report."""

from __future__ import annotations


def describe(error: BaseException) -> str:
    """An exception in one line: its first, or its last where the first only says where (as Triton's compiler does: `at 2:37:`).

    Where that is in a function that a kernel calls, the last line is a mark under the call, and what happened is in the cause.
    """
    while str(error).rstrip().endswith("^") and error.__cause__:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    said = f"{lines[-1]} ({lines[0].rstrip(':')})" if lines[0].endswith(":") else lines[0]
    return f"{type(error).__name__}: {said[:300]}"
