"""Runs → what is to be said of them: the targets of one run side by side, and one run against another. Pure, all of it.

Of the harness `records`, `stats` and `errors` are imported, and nothing else.
"""

from harness.compare.runs import compare, exit_code, outcome

__all__ = ["compare", "exit_code", "outcome"]
