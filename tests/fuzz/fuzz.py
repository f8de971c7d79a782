#!/usr/bin/env python3
"""Coverage-guided fuzzing of one reader: `READER=junit SECONDS=10 tests/fuzz/fuzz.py [options] CORPUS…`; `nox -s fuzz` calls it.

By the environment and executable, since libFuzzer starts it again with options of its own when it merges.
Bytes alone hardly ever get past a JSON parser; so half of the time a value somewhere in the JSON is exchanged for one that hurts.
"""

import json
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import atheris

sys.path[:0] = [str(Path(__file__).parents[2] / "harness"), str(Path(__file__).parents[1] / "unit"), str(Path(__file__).parent)]

with atheris.instrument_imports(include=["warpwave"]):
    from readers import READERS, SEPARATOR

from hostile import NAMES

HURTFUL = (
    *NAMES,
    *(None, True, 0, -1, 1, 64, 1 << 62, -(1 << 62), 1 << 63, 10**30, 0.0, -0.5, 5e-324, 1e308, -1e308),
    *("passed", "failed", "crashed", "stale", "not-run", "test", "bench", "alpha", "softmax", "GB/s", "ms", "fp32", "(host code)"),
    *([], {}, [[]], {"": None}, "x" * 5000, "1/2", "2/2", "1/999999999", "²/³", 5e-324, 1e12, 1e30, 1 << 16, 2.5e-30),
)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every container in a value with every key or position of it."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, inner in list(entries) for place in ((value, key), *_places(inner))]


def _mutate_json(text: bytes, chance: random.Random) -> bytes:
    value = json.loads(text)
    places = _places(value)
    for _ in range(chance.randint(1, 3) if places else 0):
        within, key = chance.choice(places)
        other, from_key = chance.choice(places)
        what = chance.random()
        try:
            if what < 0.15:
                del within[key]
            elif what < 0.3:
                within[key] = other[from_key]  # a value of the same file: names that meet, and nesting
            elif what < 0.4 and isinstance(within, list):
                within.append(other[from_key])
            elif what < 0.5 and isinstance(within, dict):
                within[chance.choice(NAMES)] = chance.choice(HURTFUL)
            else:
                within[key] = chance.choice(HURTFUL)
        except (KeyError, IndexError):
            continue
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def mutate(data: bytes, most: int, seed: int) -> bytes:
    """One line or file of JSON in `data` with other values; or, half of the time, whatever libFuzzer does to bytes."""
    chance = random.Random(seed)
    if chance.random() < 0.5:
        return atheris.Mutate(data, most)
    files = [file.split(b"\n") for file in data.split(SEPARATOR)]
    lines = chance.choice(files)
    position = chance.randrange(len(lines))
    try:
        if chance.random() < 0.2:
            lines.insert(position, lines[position])
        lines[position] = _mutate_json(lines[position], chance)
    except (ValueError, RecursionError):
        return atheris.Mutate(data, most)
    return SEPARATOR.join(b"\n".join(lines) for lines in files)[:most]


def bounded(read: Callable[[bytes], None], seconds: float) -> Callable[[bytes], None]:
    """`read`, stopped when it has had so much CPU time. libFuzzer counts by the clock, which says nothing on a machine that is busy."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"more than {seconds} s of CPU time for one input")

    def once(data: bytes) -> None:
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
        read(data)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    signal.signal(signal.SIGVTALRM, stop)
    return once


if __name__ == "__main__":
    name = os.environ["READER"]
    by_bytes = name in ("junit", "archive", "code_object")
    atheris.Setup(sys.argv, bounded(READERS[name], float(os.environ["SECONDS"])), custom_mutator=None if by_bytes else mutate)
    atheris.Fuzz()
