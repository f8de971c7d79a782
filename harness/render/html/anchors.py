"""Names from outside → anchors of the page that can be shared: `#softmax`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

# The ids that the page itself uses.
OWN = frozenset(
    {
        *("verdict", "overview", "gaps", "targets", "failures", "kernels", "environment", "tests", "code", "refused"),
        *("data", "theme", "readout", "overview-tools", "roofline", "filters", "left", "steps"),
    }
)
_LONGEST = 60


def anchors(names: Iterable[str], prefix: str = "") -> dict[str, str]:
    """Return an id for each name: letters, digits, `_`, `.` and `-` as they are, everything else as `-`; a number makes it the only one."""
    found: dict[str, str] = {}
    taken = set(OWN)
    for name in names:
        plain = prefix + (re.sub(r"[^A-Za-z0-9_.]+", "-", name).strip("-.")[:_LONGEST] or "kernel")
        ident, number = plain, 1
        while ident in taken or re.fullmatch(r"[cf]\d+|(gap|row)-.*", ident):
            number += 1
            ident = f"{plain}-{number}"
        taken.add(ident)
        found[name] = ident
    return found
