"""Where a kernel is in the source → an address at the commit of the run, if its remote is known. Pure.

The address comes from a raw folder, which may be a stranger's: only a plain https address becomes a link.
"""

from __future__ import annotations

import re
from urllib.parse import quote

from harness.compare.model import TargetSummary

_ADDRESS = re.compile(r"(https://[A-Za-z0-9.-]+(?:/[A-Za-z0-9._~%+-]+)+)#([^#?\x00-\x1f]*)")
_SOURCE = re.compile(r"([^:\x00-\x1f]+):(\d+)")
_COMMIT = re.compile(r"[0-9a-f]{7,64}")


def source_link(target: TargetSummary, source: str) -> str:
    """Return the address of a line, `…/blob/COMMIT/kernels/softmax/rows.py#L30`; empty if it is not known exactly.

    A work tree with changes has no address: the lines would be others.
    """
    remote, place = _ADDRESS.fullmatch(target.repository), _SOURCE.fullmatch(source)
    if not remote or not place or not _COMMIT.fullmatch(target.commit) or ".." in place[1].split("/"):
        return ""
    path = "/".join(filter(None, (remote[2].strip("/"), place[1].strip("/"))))
    return f"{remote[1]}/blob/{target.commit}/{quote(path)}#L{place[2]}"
