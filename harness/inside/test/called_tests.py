"""Check that a test's function was really called, whatever pytest's hooks report."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import pytest


def code_of(item: pytest.Item) -> CodeType | None:
    """Return the code of a plain test function; None for items that pytest or a plugin runs in another way."""
    if type(item) is not pytest.Function:
        return None
    code = getattr(item.obj, "__code__", None)
    return code if isinstance(code, CodeType) else None


@contextmanager
def watched(code: CodeType | None) -> Iterator[list[bool]]:
    """Yield a list that becomes non-empty when `code` is entered. Profiling stops there, so the test itself is not slowed down.

    The list starts non-empty if there is nothing to watch, or another profiler is active.
    """
    if code is None or sys.getprofile() is not None:
        yield [True]
        return
    entered: list[bool] = []

    def notice(frame: FrameType, event: str, argument: Any) -> None:
        if entered or (event == "call" and frame.f_code is code):
            entered.append(True)
            sys.setprofile(None)

    threading.setprofile(notice)  # a plugin may call the test in another thread
    sys.setprofile(notice)
    try:
        yield entered
    finally:
        threading.setprofile(None)
        if sys.getprofile() is notice:
            sys.setprofile(None)
