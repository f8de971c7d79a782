"""A module that does not import → what to install for it."""

from __future__ import annotations

import re
from collections.abc import Iterable

_MISSING = re.compile(r"No module named '([\w.]+)'")
_MOST = 4


def hint_of_missing(messages: Iterable[str]) -> str:
    """Return what to do if one of the failures is an import of a module that the environment lacks; empty if none is."""
    found = dict.fromkeys(each.split(".")[0] for message in messages for each in _MISSING.findall(message))
    if not found:
        return ""
    names = list(found)[:_MOST]
    options = " ".join(f"--with {name}" for name in names)
    own = "If it is a package of its own" if len(names) == 1 else "If they are packages of their own"
    return f"The environment lacks {', '.join(names)}. {own}, add {options}, by pip's name; or --install if this package declares it."
