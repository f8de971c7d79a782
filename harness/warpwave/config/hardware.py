"""What people call an architecture: its key in the targets file, or one of the names that the file has for it. Pure."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Mapping

from warpwave.records import Architecture, with_card

_SETTINGS = re.compile(r"(:[a-z]+[+-])+$")  # behind the name of an ISA: `:sramecc+:xnack-`. Triton compiles for the name alone
_BUILT = re.compile(r"\d+gb|hbm\d?e?|sxm\d?|pcie|nvl|oam|vf")  # behind the name of a card: its memory, and how it is built
_ALIKE = 0.6  # a name that is less like the typed one says nothing

Architectures = Mapping[str, Architecture]


def named(text: str, known: Architectures) -> Architecture | None:
    """Return the architecture that a text names, in any case, with or without spaces and dashes; None if none has that name. `7900xtx` and
    `AMD Radeon RX 7900 XTX` are the card RX 7900 XTX, `H100-SXM5-80GB` is H100, `amdgcn--gfx942:sramecc+` is gfx942."""
    words = _words(_SETTINGS.sub("", text.strip().lower().rpartition("--")[2]))
    while len(words) > 1 and _BUILT.fullmatch(words[-1]):
        words.pop()
    brands = next((position for position, word in enumerate(words) if re.search(r"\d", word)), 0)  # words in front of the number
    spelt = _spelt(known)
    return next((spelt[word][1] for first in range(brands + 1) if (word := "".join(words[first:])) in spelt), None)


def nearest(text: str, known: Architectures) -> str:
    """Return the name that is most like a text, with the architecture's other name: `MI300X (gfx942)`, `gfx942 (MI300X)`; or nothing."""
    typed = "".join(_words(text.lower()))

    def likeness(spelling: str) -> tuple[float, int]:
        same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(typed, spelling, strict=False))
        return difflib.SequenceMatcher(None, typed, spelling).ratio(), len(list(same))

    spelt = _spelt(known)
    best = max(spelt, key=likeness, default="")
    if not best or likeness(best)[0] < _ALIKE:
        return ""
    name, card = spelt[best]
    return with_card(name, card.card if name == card.name else card.name)


def all_names(known: Architectures) -> str:
    """Return every name that may be given: `sm_80 (A100, A800, A30), sm_90 (…)`."""
    return ", ".join(with_card(card.name, ", ".join((*card.also, *card.cards))) for card in known.values())


def _spelt(known: Architectures) -> dict[str, tuple[str, Architecture]]:
    """Return each name with its architecture, by what is typed for it: `rx7900xtx` and `7900xtx`, `sm90`."""
    found: dict[str, tuple[str, Architecture]] = {}
    for card in known.values():
        for name in (card.name, *card.also, *card.cards):
            words = _words(name.lower())
            for first in range(len(words)):
                typed = "".join(words[first:])
                if first == 0 or re.search(r"\d", typed):  # not `xtx`
                    found.setdefault(typed, (name, card))
    return found


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text)
