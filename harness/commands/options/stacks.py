"""The stacks of a search: its target, the toolchains in their order, and the options of each step's run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from harness.commands.options.toolchains import legs_of, newest
from harness.config.target import Target
from harness.config.targets import load_toolchains
from harness.config.toolchains import one
from harness.errors import UsageError
from harness.options import RunOptions
from harness.records.toolchain import Toolchain, Toolchains


def one_target(options: dict[str, Any]) -> tuple[Target, Toolchains]:
    """Return the target of a search, and all toolchains.

    Raises:
        UsageError: several toolchains were given, so there are several legs.
    """
    legs = legs_of([options["name"]], options)
    if len(legs) > 1:
        raise UsageError("Several toolchains were given.", "A search runs on one target.", "Give one --toolchain, or none.")
    return legs[0], load_toolchains(options["overlay"])


def toolchain_of(text: str, known: Toolchains, options: dict[str, Any]) -> Toolchain:
    """Return a toolchain by its name, or by a release of Triton.

    Raises:
        UsageError: it is neither.
    """
    return one(known, text, partial(newest, options))


def listed(known: Toolchains, options: dict[str, Any]) -> list[Toolchain]:
    """Return the toolchains of --over, the good one first.

    Raises:
        UsageError: there are less than two, or an end is missing.
    """
    names = options["over"].split(",") if options["over"] != "triton" else _releases(known, options)
    found = [toolchain_of(name, known, options) for name in names]
    if len(found) < 2:
        raise UsageError("There is nothing to search.", "The good step comes first, the bad one later.", "Give two in that order.")
    return found


def _releases(known: Toolchains, options: dict[str, Any]) -> list[str]:
    from harness.engines.packages.toolchain import releases

    if not (options["good"] and options["bad"]):
        raise UsageError("A release is missing.", "The search runs between a good and a bad release.", "Give --good and --bad.")
    there = releases(options["python"], options["wheelhouse"])
    ends = [toolchain_of(options[side], known, options).triton for side in ("good", "bad")]
    for end in ends:
        if end not in there:
            meaning = "The package index, or the folder of wheels, does not have it."
            raise UsageError(f"There is no Triton {end} for this Python.", meaning, f"Choose from {', '.join(there)}.")
    return there[there.index(ends[0]) : there.index(ends[1]) + 1]


def options_maker(options: dict[str, Any]) -> Callable[[Path], RunOptions]:
    """Return a function that makes the options of a step's run from the folder of its results."""
    from harness.commands.options.parse import parse_options

    return lambda out: parse_options({**options, "out": out, "resume": None})
