"""What one launch is when it is compiled for one architecture: the compile stage writes it, and the bench stage for what ran."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Union

from harness.records.bounds import (
    Bound,
    Count,
    Few,
    LongName,
    Many,
    Name,
    Parameter,
    Prose,
    Seconds,
    Share,
    Word,
)
from harness.records.enums import STRICT, NotRun, Verdict


@dataclass(frozen=True)
class CompiledKernel:
    """One launch, compiled for one architecture without a GPU, and the figures of its binary.

    A figure is None if the binary does not have it.

    `registers` are per thread (on a wave machine, VGPRs). `spills` are 4-byte registers kept in memory. `shared_bytes` is shared memory or
    LDS. `load_bits` is the widest global load. `matrix` names the matrix instructions.

    `attributes` are what the JIT inferred about arguments, such as `tt.divisibility=16`. `options` are what the launch asks of the compiler
    beside warps and stages, such as `waves_per_eu`, unless it is the compiler's default. `vgprs` and `agprs` are per thread and add up to
    `registers` (with `agprs`, `vgprs` are rounded up to a multiple of four); `sgprs` are per wave. `spill_store_bytes` and
    `spill_load_bytes` are what the instructions move for one thread, each instruction counted once. `load_widths` and `store_widths` are
    the widths of global accesses in bits, narrowest first. `instructions` counts matrix instructions and asynchronous copies by name.
    `programs` of this kernel fit into one multiprocessor (SM, CU or WGP) at a time. They have `resident_warps` warps in total, which is the
    share `occupancy` (0 to 1) of the warp slots. `limited_by` names each resource without room for another program. `compiler_waves` is the
    compiler's own estimate per SIMD. It ignores shared memory, which is requested at launch, and that only whole programs start.

    `source` is `file.py:line` of the function's `def`, relative to the package's root if it is in there.

    `unnamed_precision` holds `file.py:line` of each product of fp32 operands that leaves its precision to the compiler. `in_flight` has a
    sentence for each barrier at which accesses to shared memory (LDS) are in flight that another wave can overtake, `published_early` one
    for each place that publishes data before a cache has written it back. `broken` holds, for each gate that the kernel breaks, what was
    found and what is allowed. `waived` holds the reasons of the waivers that apply. `unjudged` says why a gate that was asked for could not
    be judged. `not_run` says why a case is a row that compiled nothing; a module that does not import is an `error`, and has it too. A
    configuration that an autotuner would discard has all of its figures, and is `not-run` because of that.
    """

    __pydantic_config__ = STRICT
    kernel: Name
    function: Name
    architecture: Name
    verdict: Verdict
    origin: LongName = ""
    signature: Annotated[dict[Name, Prose], Many] = field(default_factory=dict)
    constants: Annotated[dict[Name, Parameter], Many] = field(default_factory=dict)
    attributes: Annotated[dict[Name, Prose], Many] = field(default_factory=dict)
    num_warps: Union[Count, None] = None
    num_stages: Union[Count, None] = None
    options: Annotated[dict[Name, Parameter], Many] = field(default_factory=dict)
    seconds: Seconds = 0.0
    binary_hash: Word = ""
    binary_bytes: Union[Count, None] = None
    registers: Union[Count, None] = None
    spills: Union[Count, None] = None
    stack_bytes: Union[Count, None] = None
    shared_bytes: Union[Count, None] = None
    load_bits: Union[Count, None] = None
    matrix: Annotated[tuple[Name, ...], Many] = ()
    vgprs: Union[Count, None] = None
    agprs: Union[Count, None] = None
    sgprs: Union[Count, None] = None
    spill_store_bytes: Union[Count, None] = None
    spill_load_bytes: Union[Count, None] = None
    load_widths: Union[Annotated[tuple[int, ...], Few], None] = None
    store_widths: Union[Annotated[tuple[int, ...], Few], None] = None
    instructions: Union[Annotated[dict[Name, int], Many], None] = None
    compiler_waves: Union[Count, None] = None
    programs: Union[Count, None] = None
    resident_warps: Union[Count, None] = None
    occupancy: Union[Share, None] = None
    limited_by: Union[Annotated[tuple[Name, ...], Few], None] = None
    unnamed_precision: Annotated[tuple[Prose, ...], Many] = ()
    in_flight: Annotated[tuple[Prose, ...], Many] = ()
    published_early: Annotated[tuple[Prose, ...], Many] = ()
    broken: Annotated[dict[Name, Prose], Bound(longest=20)] = field(default_factory=dict)
    waived: Annotated[dict[Name, Prose], Bound(longest=20)] = field(default_factory=dict)
    unjudged: Annotated[dict[Name, Prose], Bound(longest=20)] = field(default_factory=dict)
    reason: Prose = ""
    not_run: Union[NotRun, None] = None
    source: Prose = ""

    @property
    def types(self) -> str:
        """The distinct types of its arguments: `*bf16 *fp32 i32`."""
        return " ".join(dict.fromkeys(text for text in self.signature.values() if text != "constexpr"))

    @property
    def launched_by(self) -> str:
        """`test` if the origin is a pytest node id, else `bench`. If both launch a kernel, the bench launched it first."""
        return "test" if "::" in self.origin else "bench"

    @property
    def private_bytes(self) -> Union[int, None]:
        """Private memory per thread beyond spilled registers, in bytes. Spills need a slot each and one more, in frames of 16 bytes."""
        if self.stack_bytes is None:
            return None
        slots = self.spills + 1 if self.spills else 0
        return max(0, self.stack_bytes - -(-4 * slots // 16) * 16)

    @property
    def was_compiled(self) -> bool:
        """Whether a compiler saw it: it is no test or point that did not run."""
        return self.verdict is not Verdict.NOT_RUN or self.is_discarded

    @property
    def is_discarded(self) -> bool:
        """Whether it is a configuration that an autotuner would not choose: it is unclean, and another one is clean."""
        return self.not_run is NotRun.DISCARDED

    @property
    def only_gates(self) -> bool:
        """Whether it compiled and could be launched, and failed only because of its gates."""
        return self.verdict is Verdict.FAILED and bool(self.broken)
