"""What failures say that the environment lacks → the option that helps."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

# What Triton 3.8 and 3.9 say of what 3.6 took.
_REFUSED = re.compile(r"Block pointers have been removed|key contains names that are not kernel arguments")
TOOK_IT = "3.6.0"
_MISSING = re.compile(r"No module named '([\w.]+)'|No package metadata was found for ([\w.-]+)|The '([\w.-]+)' distribution was not found")
_FEW = 6
_NO_CONFTEST = (
    "Tests import conftest.py, which these sources do not have. Source archives often leave it out. "
    "Take the tests from the package's repository."
)


def hint_of(messages: Iterable[str]) -> str:
    """Return what to do if one of the failures is about the environment; empty if none is."""
    found = list(messages)
    hints = [missing_of(found)]
    if any(_REFUSED.search(message) for message in found):
        hints.append(f"Some of it is written for an older Triton, which took what this one refuses: add --triton {TOOK_IT}, or port it.")
    return " ".join(filter(None, hints))


def missing_of(messages: Iterable[str]) -> str:
    """Return which modules cannot be imported, the most wanted first, and what installs them; empty if none is missing."""
    wanted = Counter(next(filter(None, match.groups())) for match in map(_MISSING.search, messages) if match)
    without_conftest = _NO_CONFTEST if wanted.pop("conftest", 0) else ""
    if not wanted:
        return without_conftest
    names = ", ".join(name for name, _ in wanted.most_common(_FEW)) + (f" and {len(wanted) - _FEW} more" if len(wanted) > _FEW else "")
    told = (
        f"Missing here: {names}. --install installs the package and what it declares, --with NAME one more, by pip's name. "
        "A module of the package itself may need --env PYTHONPATH=FOLDER."
    )
    return " ".join(filter(None, (told, without_conftest)))
