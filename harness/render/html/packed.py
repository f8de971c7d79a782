"""The parts of a page that only its script reads: as JSON in a small page, compressed in a large one. Pure."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

# Above these, a browser would take longer than a second to open the page, or a reader to load it.
MOST_MARKUP = 500_000  # characters of the sections of all kernels
MOST_JSON = 300_000


@dataclass(frozen=True)
class Data:
    """The content of the script element `#data`, and its type: JSON as it is, or in base64 after raw deflate."""

    type: str
    text: Markup


def split(bodies: Mapping[str, Markup], gravest: Iterable[str]) -> tuple[dict[str, Markup | None], dict[str, str]]:
    """Return the sections that are markup of the page, with None for the others, and the others by their anchor.

    `gravest` orders the anchors: the sections that a reader opens first are in the page, also for a browser without scripts.
    """
    room = MOST_MARKUP
    shown: dict[str, Markup | None] = dict.fromkeys(bodies)
    for ident in gravest:
        room -= len(bodies[ident])
        if room < 0:
            break
        shown[ident] = bodies[ident]
    return shown, {ident: str(body) for ident, body in bodies.items() if shown[ident] is None}


def pack(value: Mapping[str, Any]) -> Data:
    """Return strict JSON, without NaN, that cannot close or open an HTML element; if it is long, its compressed form."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    if len(text) > MOST_JSON:
        deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
        packed = base64.b64encode(deflate.compress(text.encode()) + deflate.flush()).decode()
        return Data("application/octet-stream", Markup(packed))  # noqa: S704 - base64
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Data("application/json", Markup(text))  # noqa: S704 - every character special to HTML is escaped
