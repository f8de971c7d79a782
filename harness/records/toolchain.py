"""A toolchain: what compiles the kernels, as data. `docker/targets.yml` names some under `toolchains`, a command line adds others."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Annotated

from harness.records.bounds import Few, Name, Page, Word
from harness.records.enums import STRICT

_FIELDS = ("triton", "torch", "base_image")  # parts that are fields of their own

MARK = "@"
"""Between a target and its toolchain in the name of a leg: `cpu@triton-3.8`."""
EMULATOR = {"tinygrad": "tinygrad==0.14.*", "elftools": "pyelftools>=0.31", "msgpack": "msgpack>=1.1"}
"""The modules that an emulated target needs beside Triton, and what to install for each: warpwave's extra `emulator`."""


@dataclass(frozen=True)
class Toolchain:
    """One toolchain. What is empty stays as the target has it.

    `triton` and `torch` are versions. `index` is the package index, or the folder of wheels, that has this Triton; `torch_index` is the one
    that has this torch. `packages` are more requirements, installed as they are, without what they need. `environment` are variables for
    the kernels. `base_image` is the image that a container engine builds on.
    """

    __pydantic_config__ = STRICT
    triton: Word = ""
    torch: Word = ""
    base_image: Page = ""
    index: Page = ""
    torch_index: Page = ""
    packages: Annotated[tuple[Page, ...], Few] = ()
    environment: Annotated[dict[Name, Page], Few] = field(default_factory=dict)
    name: Name = ""

    @property
    def installs(self) -> bool:
        """Whether it needs an environment of its own; variables alone need none."""
        return bool(self.triton or self.torch or self.packages)

    @property
    def parts(self) -> dict[str, str]:
        """What it sets, by part: `triton`, `torch`, `base_image`, each package by its name, and each variable as `$NAME`."""
        found = {name: str(getattr(self, name)) for name in _FIELDS if getattr(self, name)}
        packages: dict[str, str] = {}
        for line in self.packages:
            packages[_package(line)] = " ".join(filter(None, (packages.get(_package(line)), line)))
        return found | packages | {f"${name}": value for name, value in sorted(self.environment.items())}

    def with_part(self, part: str, other: Toolchain) -> Toolchain:
        """Return this toolchain with one part as `other` has it, also if `other` leaves it open. An index goes with what comes from it."""
        if part.startswith("$"):
            kept = {name: value for name, value in self.environment.items() if name != part[1:]}
            taken = {part[1:]: other.environment[part[1:]]} if part[1:] in other.environment else {}
            return replace(self, environment={**kept, **taken})
        if part in _FIELDS:
            index = {"triton": "index", "torch": "torch_index"}.get(part)
            return replace(self, **{key: getattr(other, key) for key in (part, index) if key})
        mine = tuple(line for line in self.packages if _package(line) != part)
        theirs = tuple(line for line in other.packages if _package(line) == part)
        return replace(self, packages=mine + theirs, index=self.index or other.index)


def _package(requirement: str) -> str:
    """Return the part that a requirement belongs to: the name before its version, as package indexes write it."""
    name = re.split(r"[^\w.-]", requirement.strip(), maxsplit=1)[0]
    plain = re.sub(r"[-_.]+", "-", name).lower() or requirement
    return f"package-{plain}" if plain in _FIELDS else plain


@dataclass(frozen=True)
class Linker:
    """Releases of Triton before `triton` compile for these `backends` only with a program that PyPI does not have; `needs` names it."""

    __pydantic_config__ = STRICT
    triton: str = "0"
    backends: tuple[str, ...] = ()
    needs: str = ""


@dataclass(frozen=True)
class Toolchains:
    """The toolchains of a targets file by name, and which releases of Triton need a linker."""

    named: dict[str, Toolchain]
    linker: Linker


def plain_target(target: str, toolchain: str) -> str:
    """Return the target of a leg: `cpu` for `cpu@triton-3.8`. Two runs of one target on two toolchains are compared under this name."""
    return target.removesuffix(f"{MARK}{toolchain}") if toolchain else target
