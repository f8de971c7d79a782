"""Names from outside → anchors of the page that can be shared: `#softmax`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from harness.render.text import distinct

# The ids that the page itself uses.
OWN = frozenset(
    {
        *("verdict", "overview", "gaps", "targets", "failures", "kernels", "environment", "tests", "code", "refused"),
        *("data", "theme", "readout", "overview-tools", "roofline", "filters", "left", "steps"),
    }
)
_NUMBERED = re.compile(r"[cf]\d+|(gap|row)(-.*)?")  # and those that it makes, or a number would make
_LONGEST = 60


def anchors(names: Iterable[str]) -> dict[str, str]:
    """Return an id for each name: letters, digits, `_`, `.` and `-` as they are, everything else as `-`; a number makes it the only one."""
    known = list(dict.fromkeys(names))
    return dict(zip(known, distinct(map(_plain, known), OWN), strict=True))


def _plain(name: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9_.]+", "-", name).strip("-.")[:_LONGEST] or "kernel"
    return f"kernel-{plain}" if _NUMBERED.fullmatch(plain) else plain
