"""Turn `--toolchain` and `--triton` into legs: each target on each toolchain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from harness.config.target import Target
from harness.config.targets import load_targets, load_toolchains, select
from harness.config.toolchains import chosen, legs, split_legs
from harness.errors import InfrastructureError


def with_named(targets: dict[str, Target], options: Mapping[str, Any]) -> dict[str, Target]:
    """Return the targets, and the legs that the options' names mean, such as `cpu@triton-3.8`."""
    return split_legs(targets, options["names"], load_toolchains(options.get("overlay")), partial(newest, options))


def on_toolchains(target: Target, options: Mapping[str, Any]) -> list[Target]:
    """Return a leg of the target for each toolchain that the options name; the target as it is if they name none."""
    names, versions = options.get("toolchains", ()), options.get("tritons", ())
    if not names and not versions:
        return [target]
    known = load_toolchains(options.get("overlay"))
    return legs([target], chosen(known, names, versions, partial(newest, options)), known)


def legs_of(names: Sequence[str], options: dict[str, Any]) -> list[Target]:
    """Return the legs of a run: the named targets as they are, unless the options or the names (`cpu@triton-3.8`) put them on toolchains.

    Raises:
        UsageError: a target or a toolchain is unknown, or a toolchain cannot compile for a target.
    """
    known = load_toolchains(options["overlay"])
    targets = split_legs(load_targets(options["overlay"]), names, known, partial(newest, options))
    return legs(select(targets, list(names)), chosen(known, options["toolchains"], options["tritons"], partial(newest, options)), known)


def newest(options: Mapping[str, Any], index: str = "") -> str:
    """Return the newest release of Triton that can be had; from an index of its own, the newest build, finished or not.

    Raises:
        InfrastructureError: the package index cannot be asked.
    """
    from harness.engines.packages.toolchain import releases

    wheels = Path(index) if index and Path(index).is_dir() else options["wheelhouse"]
    found = releases(options["python"], wheels, "" if wheels else index)
    if not found:
        raise InfrastructureError(
            f"{wheels} has no wheel of Triton.", "The newest one there was asked for.", "Give another folder, or name a release."
        )
    return found[-1]
