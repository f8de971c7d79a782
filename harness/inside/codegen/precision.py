"""Find products of fp32 operands that leave their precision to the compiler, whose default differs between architectures.

The compiler's own IR says which products have fp32 operands, and where each is in the source; the source says whether that call names a
precision. If the source cannot be matched (the file is gone, the call unpacks its arguments), nothing is reported.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

# file, line and column, both from 1
Place = tuple[str, int, int]

_PRODUCT = re.compile(r"\btt\.dot .*: tensor<[\dx]*xf32> \* tensor<[\dx]*xf32> -> .* loc\((.*)\)$", re.MULTILINE)
_ALIAS = re.compile(r"^(#loc\d*) = loc\((.*)\)$", re.MULTILINE)
_PLACE = re.compile(r'"([^"]*)":(\d+):(\d+)')
_NAMES = ("input_precision", "allow_tf32")
_FIRST_POSITION = 3  # dot(input, other, acc, input_precision, allow_tf32)


def unnamed_products(ttir: str) -> tuple[str, ...]:
    """Return `file.py:line` of each `tl.dot` of fp32 operands without `input_precision` or `allow_tf32`; each place once, in order."""
    # Most kernels multiply nothing, and a plain search tells in a fiftieth of the time.
    products = _PRODUCT.findall(ttir) if "tt.dot " in ttir else ()
    if not products:
        return ()
    aliases = dict(_ALIAS.findall(ttir))
    places = {place for text in products for place in _places(text, aliases) if _leaves_open(place)}
    return tuple(dict.fromkeys(f"{Path(file).name}:{line}" for file, line, _ in sorted(places)))


def _places(text: str, aliases: dict[str, str]) -> Iterator[Place]:
    """Yield the places that a location points to: for an inlined function where it is written, not where it is called."""
    text = text.removeprefix("callsite(").partition(" at ")[0] if text.startswith("callsite(") else text
    if found := _PLACE.match(text):
        yield found[1], int(found[2]), int(found[3])
        return
    for alias in re.findall(r"#loc\d*", text):
        if alias in aliases:  # each is left out below, so that no text can lead in a circle
            yield from _places(aliases[alias], {name: value for name, value in aliases.items() if name != alias})


def _leaves_open(place: Place) -> bool:
    """Return whether the call of `dot` at this place, or the only one on its line, names no precision."""
    file, line, column = place
    calls = [call for call in _products_of(_loaded(file)) if call.lineno == line]
    here = [call for call in calls if call.col_offset == column - 1] or calls
    return len(here) == 1 and not _names_precision(here[0])


@functools.cache
def _loaded(file: str) -> str:
    """Return the loaded module's file whose end is most like `file`: a cached binary names the folder of an earlier run."""
    told = Path(file)
    files = {Path(found) for module in list(sys.modules.values()) if isinstance(found := vars(module).get("__file__"), str)}
    alike = sorted(path for path in files if path.name == told.name)
    return str(max(alike, key=lambda path: _common(path.parts[::-1], told.parts[::-1]), default=told))


def _common(some: tuple[str, ...], others: tuple[str, ...]) -> int:
    """Return how many parts are the same from the beginning."""
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(some, others, strict=False))))


def _names_precision(call: ast.Call) -> bool:
    if any(isinstance(argument, ast.Starred) for argument in call.args) or any(keyword.arg is None for keyword in call.keywords):
        return True  # the precision may be among them
    told = [keyword.value for keyword in call.keywords if keyword.arg in _NAMES] + call.args[
        _FIRST_POSITION : _FIRST_POSITION + len(_NAMES)
    ]
    return any(not (isinstance(value, ast.Constant) and value.value is None) for value in told)


@functools.cache
def _products_of(file: str) -> tuple[ast.Call, ...]:
    """Return the calls of something named `dot` in a source file; none if it cannot be read."""
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ()
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return tuple(call for call in calls if getattr(call.func, "attr", getattr(call.func, "id", "")) == "dot")
