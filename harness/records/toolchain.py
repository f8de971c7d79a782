"""A toolchain: what compiles the kernels, as data. `docker/targets.yml` names some under `toolchains`, a command line adds others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from harness.records.bounds import Few, Name, Page, Word
from harness.records.enums import STRICT

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
