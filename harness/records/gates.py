"""What may be asked of generated code, and what is let through."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Annotated, Any, Union

from harness.records.bounds import Few, LongName, Many, Name, Prose
from harness.records.enums import STRICT
from harness.records.results import CompiledKernel

Patterns = Annotated[tuple[LongName, ...], Few]


@dataclass(frozen=True)
class Which:
    """Some of the compiled kernels: those whose every name fits one of the shell patterns for it.

    `kernel` is the folder; `types` are those of the arguments as a report spells them, `*bf16 *fp32 i32`; `launched_by` is `bench` or
    `test`, for tests try odd sizes on purpose, of which nobody asks that they be fast.
    """

    __pydantic_config__ = STRICT
    kernel: Patterns = ("*",)
    function: Patterns = ("*",)
    architecture: Patterns = ("*",)
    types: Patterns = ("*",)
    launched_by: Patterns = ("*",)

    def covers(self, row: CompiledKernel) -> bool:
        """Whether `row` is one of them."""
        patterns = {entry.name: getattr(self, entry.name) for entry in dataclasses.fields(self)}
        return all(any(fnmatchcase(getattr(row, name), pattern) for pattern in some) for name, some in patterns.items())

    @classmethod
    def restore(cls, raw: dict[str, Any]) -> Which:
        """Undo `dataclasses.asdict`."""
        return cls(**{name: tuple(patterns) for name, patterns in raw.items()})


@dataclass(frozen=True)
class Limits:
    """A value a gate, named as in `pyproject.toml`; None or False where the gate is open. docs/gates.md says what each means.

    At most: `spills` in registers a thread, `private_bytes` a thread. At least: `occupancy` as a share of a multiprocessor's warps (0 to
    1), `load_bits` and `store_bits` of the widest global access.
    """

    __pydantic_config__ = STRICT
    spills: Union[int, None] = 0
    private_bytes: Union[int, None] = 0
    occupancy: Union[float, None] = None
    load_bits: Union[int, None] = None
    store_bits: Union[int, None] = None
    matrix: bool = False
    explicit_precision: bool = True


OPEN = Limits(spills=None, private_bytes=None, explicit_precision=False)


@dataclass(frozen=True)
class Rule:
    """Limits for some kernels. It can only tighten: of all limits that cover a kernel the strictest holds."""

    __pydantic_config__ = STRICT
    which: Which
    limits: Limits


@dataclass(frozen=True)
class Waiver:
    """One gate that some kernels may break, and why. It shows in the report, also where nothing needs it."""

    __pydantic_config__ = STRICT
    gate: Name
    reason: Prose
    which: Which


@dataclass(frozen=True)
class Gates:
    """What the author of a kernel package asks of its generated code. `source` is the file that says so; empty for the defaults."""

    __pydantic_config__ = STRICT
    limits: Limits = field(default_factory=Limits)
    rules: Annotated[tuple[Rule, ...], Many] = ()
    waivers: tuple[Waiver, ...] = ()
    source: Prose = ""

    @classmethod
    def restore(cls, raw: dict[str, Any]) -> Gates:
        """Undo `dataclasses.asdict`; trusted, as in `Job.load`."""
        rules = tuple(Rule(Which.restore(entry["which"]), Limits(**entry["limits"])) for entry in raw["rules"])
        waivers = tuple(Waiver(**{**entry, "which": Which.restore(entry["which"])}) for entry in raw["waivers"])
        return cls(Limits(**raw["limits"]), rules, waivers, raw["source"])
