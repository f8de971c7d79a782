"""Whether a test has been told something about memory that only a card knows: where none is, the answers are made up."""

from __future__ import annotations

import traceback

# Comparisons of tensors. They fail for the tensors' sake, whatever the test has asked before.
_OF_TENSORS = ("/torch/testing/", "/numpy/testing/")


class MadeUp:
    """Set by the answer; reset before each test."""

    memory = False


def compares_memory(error: BaseException) -> bool:
    """Return whether an assertion failed of a test that had asked for memory statistics of a pretended card."""
    if not (MadeUp.memory and isinstance(error, AssertionError)):
        return False
    last = traceback.extract_tb(error.__traceback__)[-1:]
    return not any(part in frame.filename for frame in last for part in _OF_TENSORS)
