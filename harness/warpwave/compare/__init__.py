"""Compare the targets of one run with each other, and one run with another. All functions here are pure.

From the harness, this package imports only `records`, `stats` and `errors`.
"""

from __future__ import annotations

from warpwave.compare.runs import compare, exit_code, outcome

__all__ = ["compare", "exit_code", "outcome"]
