"""The gates for generated code, and their waivers."""

import dataclasses
from dataclasses import field
from fnmatch import fnmatchcase
from typing import Annotated, Union

from warpwave.records.results import CompiledKernel, Profile
from warpwave.records.words import Few, Figure, LongName, Many, Name, Prose, record

Patterns = Annotated[tuple[LongName, ...], Few]
CANDIDATES = ("best", "all")  # of an autotuned launch


@record(frozen=True)
class Which:
    """A selection of compiled kernels: every name must match one of the shell patterns for it. `kernel` is the folder. `types` are the
    argument types as reports write them, `*bf16 *fp32 i32`. `launched_by` is `bench` or `test`: tests use odd sizes on purpose, and nobody
    expects those to be fast."""

    kernel: Patterns = ("*",)
    function: Patterns = ("*",)
    architecture: Patterns = ("*",)
    types: Patterns = ("*",)
    launched_by: Patterns = ("*",)

    def covers(self, row: Union[CompiledKernel, Profile]) -> bool:
        """Return whether the selection contains `row`. A profile has no types, and nothing that launched it."""
        patterns = {entry.name: getattr(self, entry.name) for entry in dataclasses.fields(self)}
        return all(any(fnmatchcase(getattr(row, name, ""), pattern) for pattern in alternatives) for name, alternatives in patterns.items())


@record(frozen=True)
class GateLimits:
    """A value per gate, named as in `pyproject.toml`; None or False opens the gate. docs/gates.md explains each. The defaults fail a run of
    every package: what breaks them gives wrong results on the card. Upper limits: `spills` in registers per thread, `private_bytes` per
    thread. Lower limits: `occupancy` as a share of a multiprocessor's warps (0 to 1), `load_bits` and `store_bits` of the widest global
    access. `compile_time` and `compile_memory` are upper limits in times of an earlier run's figure: `codegen diff` judges them."""

    spills: Union[int, None] = None
    private_bytes: Union[int, None] = None
    occupancy: Union[float, None] = None
    load_bits: Union[int, None] = None
    store_bits: Union[int, None] = None
    matrix: bool = False
    explicit_precision: bool = False
    lds_waits: bool = True
    release_waits: bool = True
    undefined_lanes: bool = True
    compile_time: Union[float, None] = None
    compile_memory: Union[float, None] = None

    def asks(self, gate: str) -> bool:
        """Return whether the gate is not open. A limit of 0 is one."""
        return getattr(self, gate) is not None and getattr(self, gate) is not False


OPEN = GateLimits(lds_waits=False, release_waits=False, undefined_lanes=False)
# What is reported, and fails no run: it costs time or portability, and the kernel may still be right.
ADVICE = dataclasses.replace(OPEN, spills=0, private_bytes=0, explicit_precision=True)


@record(frozen=True)
class Rule:
    """Limits for some kernels. A rule can only tighten: the strictest limit that covers a kernel applies."""

    which: Which
    limits: GateLimits


@record(frozen=True)
class Waiver:
    """A gate that some kernels may break, and why. The report shows it even if no kernel needs it."""

    gate: Name
    reason: Prose
    which: Which


@record(frozen=True)
class CounterLimit:
    """The most that an emulated kernel may have of a counter in a test: `at_most`, or so many times the counter `of`, if there is one."""

    which: Which
    counter: Name
    at_most: Figure
    of: Name = ""

    def broken_by(self, found: Profile) -> str:
        """Return what is too much; empty if the kernel keeps the limit, or is not meant."""
        has, base = found.counters.get(self.counter, 0), found.counters.get(self.of, 0) if self.of else 1
        if not self.which.covers(found) or has <= self.at_most * base:
            return ""
        allowed = f"{self.at_most:g} times {self.of}, which is {base:,}" if self.of else f"{self.at_most:,g}"
        return f"{self.counter} of {found.function}: {has:,}, at most {allowed}"


@record(frozen=True)
class Gates:
    """What the author of a kernel package demands of its generated code. `source` is the file that says so; empty for the defaults.
    `advice` has the gates that are only reported: those of `ADVICE` that the author's file does not set. `counters` are judged where a
    test's kernels are emulated. `candidates` says which configurations of an autotuned launch must be clean: with `best`, one of them,
    because the autotuner chooses; with `all`, every one."""

    limits: GateLimits = field(default_factory=GateLimits)
    rules: Annotated[tuple[Rule, ...], Many] = ()
    waivers: tuple[Waiver, ...] = ()
    source: Prose = ""
    candidates: Name = CANDIDATES[0]
    advice: GateLimits = ADVICE
    counters: Annotated[tuple[CounterLimit, ...], Many] = ()
