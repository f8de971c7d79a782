"""Choose the tests of a `--quick` run: at most three of each test function, spread over its parameters; fewer if there are many functions.

Sizes much above the smallest ones are left out: one test of 8192 by 8192 takes an interpreter longer than all others. If even the smallest
are large, only they are left. The choice follows from the parameters alone, so it is the same on every machine and in every stage.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

MOST = 3  # like the sizes of a sweep: the first, the last and one between
ENOUGH = 150  # tests in all: with more, each function gets two, and with still more one
LARGEST = 16  # times the work of a function's smallest test
ALWAYS_SMALL = 1 << 20  # elements that an interpreter works through in seconds; sizes such as 0, 1 and 1023 belong together
ALWAYS_LARGE = 1 << 28  # an interpreter takes minutes for 16 times as much: only a function's smallest tests may be larger


def few_of_each(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the items to run, in the order given."""
    functions: dict[tuple[str, str], list[pytest.Item]] = {}
    for item in items:
        functions.setdefault(_function(item), []).append(item)
    most = next((few for few in range(MOST, 1, -1) if sum(min(few, len(several)) for several in functions.values()) <= ENOUGH), 1)
    kept = {id(item) for several in functions.values() for item in _spread(_small(several), most)}
    return [item for item in items if id(item) in kept]


def _function(item: pytest.Item) -> tuple[str, str]:
    """Return what the copies of one test have in common: pytest's parameters are in brackets, other libraries only append a number."""
    name = getattr(item, "originalname", None) or item.name.partition("[")[0]
    if not hasattr(item, "callspec"):
        name = name.rstrip("0123456789")
    return (item.parent.nodeid if item.parent else "", name)


def _small(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the items whose parameters ask for little work."""
    work = [_work(dict(getattr(getattr(item, "callspec", None), "params", {}))) for item in items]
    most = max(ALWAYS_SMALL, min(LARGEST * min(work), max(ALWAYS_LARGE, min(work))))
    return [item for item, each in zip(items, work, strict=True) if each <= most]


def _work(value: object) -> float:
    """Return the product of the whole numbers in a parameter, which grows with the sizes of tensors: 1 if there is none."""
    if isinstance(value, bool):
        return 1.0
    if isinstance(value, int):
        return float(min(max(abs(value), 1), 2**63))  # a seed may be of any size
    if isinstance(value, dict):
        value = tuple(value.values())
    return math.prod(map(_work, value)) if isinstance(value, tuple | list) else 1.0


def _spread(items: list[pytest.Item], most: int) -> list[pytest.Item]:
    """Return the first, the last, and those that add most values of parameters to what is covered. If only one may be, the middle one.

    If several add as many, the one that is nearest to the middle of every parameter is taken, then the earlier one.
    """
    if len(items) <= most:
        return items
    # Plugins may shuffle tests, and pytest groups them by fixtures. The places of values in their lists depend on neither.
    ordered = sorted(items, key=lambda item: tuple(_places(item).values()))
    middle = {name: place / 2 for name, place in _places(ordered[-1]).items()}
    if most == 1:
        return [max(ordered, key=lambda item: _worth(_places(item), set(), middle))]
    chosen = [ordered.pop(0), ordered.pop()]
    covered = {value for item in chosen for value in _places(item).items()}
    while len(chosen) < most:
        best = max(ordered, key=lambda item: _worth(_places(item), covered, middle))
        ordered.remove(best)
        chosen.append(best)
        covered.update(_places(best).items())
    return chosen


def _worth(places: dict[str, int], covered: set[tuple[str, int]], middle: dict[str, float]) -> tuple[int, float]:
    return len(places.items() - covered), -sum(abs(place - middle.get(name, 0.0)) for name, place in places.items())


def _places(item: pytest.Item) -> dict[str, int]:
    """Return the place of each parameter's value in its list; empty for a test without parameters."""
    return dict(getattr(getattr(item, "callspec", None), "indices", {}))
