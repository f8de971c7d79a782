"""Runs → what is to be said of them: the targets of one run side by side, and one run against another. Pure, all of it.

No file here reads a file, a clock or the environment, and of the harness they import `records`, `stats` and `errors` only.
"""

from harness.compare.runs import compare as compare
from harness.compare.runs import exit_code as exit_code
