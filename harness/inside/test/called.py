"""Whether the function of a test was called at all, whatever pytest's hooks say of it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import pytest


def code_of(item: pytest.Item) -> CodeType | None:
    """The code of a plain test function; None for all that pytest or a plugin runs in a way of its own."""
    if type(item) is not pytest.Function:
        return None
    code = getattr(item.obj, "__code__", None)
    return code if isinstance(code, CodeType) else None


@contextmanager
def watched(code: CodeType | None) -> Iterator[list[bool]]:
    """A list that is no longer empty once `code` was entered. What it costs ends there: a test itself is not slowed down.

    Where there is nothing to watch, or somebody else is profiling, the list is not empty to begin with.
    """
    if code is None or sys.getprofile() is not None:
        yield [True]
        return
    entered: list[bool] = []

    def notice(frame: FrameType, event: str, argument: Any) -> None:
        if entered or (event == "call" and frame.f_code is code):
            entered.append(True)
            sys.setprofile(None)

    threading.setprofile(notice)  # a plugin may call the test in a thread of its own
    sys.setprofile(notice)
    try:
        yield entered
    finally:
        threading.setprofile(None)
        if sys.getprofile() is notice:
            sys.setprofile(None)
