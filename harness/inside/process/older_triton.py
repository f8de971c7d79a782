"""What Triton refuses now and took before → the option that runs a package with the release that it was written for."""

from __future__ import annotations

import re
from collections.abc import Iterable

# What Triton 3.8 and 3.9 say of what 3.6 took.
_REFUSED = re.compile(r"Block pointers have been removed|key contains names that are not kernel arguments")
TOOK_IT = "3.6.0"


def hint_of(messages: Iterable[str]) -> str:
    """Return what to do if one of the failures is about such a thing; empty if none is."""
    if not any(_REFUSED.search(message) for message in messages):
        return ""
    return f"Some of it is written for an older Triton, which took what this one refuses: add --triton {TOOK_IT}, or port it."
