"""Which line of a kernel runs, for what is said of it."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from types import CodeType

import triton

_NOT_KERNELS = (f"{Path(triton.__file__).parent}/", f"{Path(__file__).parents[2]}/")  # what stands between a kernel and the interpreter
Place = tuple[CodeType, int]  # of a kernel, and the line


def place_in_kernel() -> Place:
    """Return the code and line of the kernel that has called what called this."""
    frame = sys._getframe(2)
    while frame.f_back is not None and _stands_between(frame.f_code):
        frame = frame.f_back
    return frame.f_code, frame.f_lineno


@functools.cache
def _stands_between(code: CodeType) -> bool:
    return code.co_filename.startswith(_NOT_KERNELS)
