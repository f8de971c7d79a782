"""Compare the targets of one run with each other, and one run with another. All functions here are pure.

From the harness, this package imports only `records`, `stats` and `errors`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warpwave.compare.runs import compare, outcome

__all__ = ["compare", "outcome"]


def __getattr__(name: str) -> object:
    """Import what compares when it is asked for: the list of known failures is read at the start of each run, without it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("warpwave.compare.runs"), name)
