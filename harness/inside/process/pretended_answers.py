"""Whether a test has asked what only a card knows, or only torch's compiler on one: without a card, the answers are pretended."""

from __future__ import annotations

import sys
import traceback
from types import TracebackType

# Comparisons of tensors. They fail for the tensors' sake, whatever the test has asked before.
_OF_TENSORS = ("/torch/testing/", "/numpy/testing/")
_COUNTERS = "torch._dynamo.utils"


class Pretended:
    """Set where the answer is given."""

    memory = False  # statistics of the card's memory; reset before each test
    ran_compiled = False  # a function ran that `torch.compile` left as it is; reset before each test
    compiled = False  # `torch.compile` left a function as it is, maybe one of a module that several tests share


def compares_pretended(error: BaseException) -> bool:
    """Return whether an assertion failed of a test that compares memory statistics, or how often torch compiled something."""
    if not isinstance(error, AssertionError):
        return False
    last = traceback.extract_tb(error.__traceback__)[-1:]
    if any(part in frame.filename for frame in last for part in _OF_TENSORS):
        return False
    return Pretended.memory or (Pretended.compiled and _counts_graphs(error.__traceback__))


def _counts_graphs(trace: TracebackType | None) -> bool:
    """Return whether a module that the error passed has torch's counters of compiled graphs."""
    counters = getattr(sys.modules.get(_COUNTERS), "counters", None)
    if counters is None:
        return False
    return any(
        value is counters for frame, _ in traceback.walk_tb(trace) for value in (*frame.f_globals.values(), *frame.f_locals.values())
    )
