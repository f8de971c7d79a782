"""A launch: what a card's driver refuses, what a test has launched, and what the emulator executed of it."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import inspect
import math
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, ClassVar

from triton.runtime import _allocation

from warpwave.emulator import Deadlock, EmulatorError, Execution, OutOfMemoryBounds, TimeLimit, Trap
from warpwave.inside.codegen.binary import occupancy
from warpwave.records import EMULATED, REFUSED_ON, Architecture

# Triton's JIT compiles what a card cannot launch: more programs or larger clusters than it takes, scratch memory without an allocator. The
# driver raises at the launch. The limits are data of each architecture in the targets file.


class LaunchRefusedError(RuntimeError):
    """The driver of the card refuses this launch. `binary` is the hash of the compiled kernel, if it is compiled."""

    def __init__(self, card: Architecture, function: str, why: str, binary: str = "") -> None:
        super().__init__(f"`{function}`{REFUSED_ON}{card.name}: {why}")
        self.binary = binary


class UnreachableError(LaunchRefusedError, ValueError):
    """Triton's launcher raises ValueError for memory that the card cannot reach."""


def check_grid(card: Architecture, function: str, grid: Sequence[Any], metadata: Any, registers: int = 1, static: int = 0) -> None:
    """Raise `LaunchRefusedError` for a grid, clusters, shared or scratch memory that the card's driver does not launch.

    A grid without programs is launched nowhere, and is no fault. `metadata` is that of the compiled kernel, or what is known of it. The
    size of an axis may be unknown, if it depends on data. With the kernel's `registers` a thread, fewer programs may fit at once; `static`
    bytes of shared memory are its own, beside what Triton adds.
    """
    known = {axis: int(size) for axis, size in zip("xyz", grid, strict=False) if isinstance(size, Integral)}
    if any(size <= 0 for size in known.values()):
        return
    threads, cluster = metadata.num_warps * card.warp_size, getattr(metadata, "num_ctas", 1)
    binary, shown = getattr(metadata, "hash", ""), f"({', '.join(map(str, (*grid, 1, 1)[:3]))})"
    if card.cluster and cluster > card.cluster:
        raise LaunchRefusedError(card, function, f"its clusters have {cluster} blocks, the limit is {card.cluster}", binary)
    limits: dict[Any, int] = {**card.grid}
    if card.axis_threads:
        limits["x"] = min(limits.get("x", card.axis_threads), card.axis_threads // threads)
    if "x" in limits:
        limits["x"] //= cluster  # Triton puts the blocks of a cluster side by side in x
    for axis, size in known.items():
        if size > limits.get(axis, size):
            of = f" with {threads} threads a program" if axis == "x" and card.axis_threads else ""
            raise LaunchRefusedError(card, function, f"its grid is {shown}, the limit of {axis} is {limits[axis]}{of}", binary)
    shared, most = getattr(metadata, "shared", 0) + static, card.properties["max_shared_mem"]
    if static and shared > most:
        why = f"its {shared} bytes of shared memory, {static} of fixed size, are more than {most}"
        raise LaunchRefusedError(card, function, why, binary)
    scratch = math.prod(known.values()) * cluster * getattr(metadata, "global_scratch_size", 0)
    if scratch > (memory := int(card.torch_properties.get("total_memory", scratch))):
        raise LaunchRefusedError(card, function, f"its {scratch} bytes of scratch memory are more than the card's {memory}", binary)
    if getattr(metadata, "launch_cooperative_grid", False) and card.multiprocessor:
        # Without registers, as many as fit whatever these are: the driver may refuse fewer, and never takes more.
        fit = occupancy(card.multiprocessor, metadata.num_warps, registers, shared).programs
        most = fit * card.properties["multiprocessor_count"]
        if cluster * math.prod(known.values()) > most:
            raise LaunchRefusedError(card, function, f"its grid is {shown} and cooperative, at most {most} blocks run at a time", binary)


def check_descriptors(card: Architecture, function: str, arguments: Iterable[Any]) -> None:
    """Raise `LaunchRefusedError` for a tensor descriptor with an axis too long, or a stride too large, for the driver's tensor maps.

    Triton has checked its base, its alignment and its last stride.
    """
    limits: dict[Any, int] = {**card.descriptor}
    for each in arguments if limits else ():
        if isinstance(each, tuple):
            check_descriptors(card, function, each)
        elif hasattr(each, "block_shape") and hasattr(each, "strides"):
            sizes = [int(size) for size in each.shape if isinstance(size, Integral)]
            steps = [int(step) * each.base.element_size() for step in each.strides[:-1] if isinstance(step, Integral)]
            for limit, largest, what in (("axis", max(sizes, default=0), "elements"), ("stride", max(steps, default=0), "bytes")):
                if largest > limits.get(limit, largest):
                    why = f"the {limit} of a descriptor has {largest} {what}, the limit is {limits[limit]}"
                    raise LaunchRefusedError(card, function, why)


def check_scratch(card: Architecture, function: str, metadata: Any, driver: Any) -> None:
    """Raise `LaunchRefusedError` for a launch that needs scratch memory, and has no allocator, or one that cannot be called."""
    for purpose, advice in (("global", "call triton.set_allocator"), ("profile", "start a profiler, which sets one")):
        if not (size := getattr(metadata, f"{purpose}_scratch_size", 0)):
            continue
        called, why = allocator(purpose, driver), ""
        if isinstance(called, _allocation.NullAllocator):
            why = f"no allocator was set; {advice}"
        else:
            with contextlib.suppress(ValueError):  # a builtin does not say what it takes
                try:
                    inspect.signature(called).bind(size, 1, None)
                except TypeError:
                    why = "the allocator does not take a size, an alignment and a stream"
        if why:
            raise LaunchRefusedError(card, function, f"it needs {size} bytes of scratch memory, and {why}", getattr(metadata, "hash", ""))


def allocator(purpose: str, driver: Any) -> Any:
    """Return what a launch calls for its `global` or `profile` scratch memory. Since Triton 3.9 the driver has one for profiles."""
    kept: Any = _allocation._allocator if purpose == "global" else _allocation._profile_allocator
    kept = kept.get() if hasattr(kept, "get") else kept
    has_default = purpose == "profile" and hasattr(_allocation, "has_profile_allocator")
    return driver.allocate_default_profile_scratch if has_default and isinstance(kept, _allocation.NullAllocator) else kept


# The configurations that autotuners choose.

Asked = Mapping[str, Mapping[str, str]]  # by kernel, what its configuration must have: `{"matmul": {"BLOCK": "128"}}`


def configuration_text(config: Any) -> str:
    """Return a configuration in words: `BLOCK=128, num_warps=4, num_stages=2`. What the user left open is not said."""
    return ", ".join(f"{name}={value}" for name, value in _parts(config).items())


def _parts(config: Any) -> dict[str, str]:
    return {name: str(value) for name, value in config.all_kwargs().items() if value is not None and (name, value) != ("num_ctas", 1)}


def as_asked(asked: Asked, tuner: Any, configs: Sequence[Any]) -> list[Any]:
    """Return the configurations of a tuner's kernel that have all that was asked for.

    Raises:
        ValueError: there is none.
    """
    if not (wanted := asked.get(name := tuner.base_fn.__name__, {}).items()):
        return [*configs]
    found = [config for config in configs if wanted <= _parts(config).items()]
    if not found:
        has = "; ".join(map(configuration_text, configs))
        raise ValueError(f"no configuration of `{name}` has {', '.join(map('='.join, wanted))}, which --config asks for. It has: {has}")
    return found


# What a test has launched so far. A card runs programs in another order each time, so a kernel's later launches do, too.


@dataclass
class Launched:
    """The launches of one kernel in a test."""

    name: str
    times: int = 0
    rounds: set[str] = field(default_factory=set)  # what adds floats in the order of programs: the kernel, with the line if it is known
    is_unordered: bool = False  # the kernel's own atomics decide what goes where, by the order in which programs come
    turns: str = ""  # how programs took turns where that decided a result, and no order of whole programs did
    is_moved: bool = True  # if so, another order puts the same values elsewhere
    reversed: dict[tuple[str, str], int] = field(default_factory=dict)  # executions with the accesses of two lines in the other order
    waits: bool = False  # programs may wait for those that start before them, so they keep their order

    kernels: ClassVar[dict[str, Launched]] = {}
    tuned: ClassVar[dict[str, str]] = {}  # the configurations that autotuners chose, by kernel
    in_place: ClassVar[list[str]] = []  # what autotuning did to the arguments of kernels: it usually is why a test fails
    cut_to_tf32: ClassVar[bool] = False  # a product of fp32 left out bits that were not zero
    functions: ClassVar[dict[str, None]] = {}  # the names of all that the test launched, also where programs have a fixed order

    @classmethod
    def again(cls, name: str) -> Launched:
        """Count one more launch of a kernel."""
        one = cls.kernels.setdefault(name, cls(name))
        one.times += 1
        return one

    @classmethod
    def with_configurations(cls, message: str) -> str:
        """Return the message of a failed test. Its first line ends with the configurations that were chosen for autotuned kernels."""
        chosen = [f"{name} with {text}" for name, text in cls.tuned.items() if text.endswith(")")]
        first, *rest = message.split("\n", 1)
        return "\n".join([f"{first} [{'; '.join(chosen)}]", *rest]) if chosen else message

    @classmethod
    def advice(cls, compared: bool, moved: bool | None = None) -> str:
        """Return what may be why a test failed: a result whose order differs from launch to launch; empty without one.

        If it has `compared` numbers, also a product in less precision than fp32. `moved` says whether what it compared has the same values
        in other places, if that is known: otherwise no order of places is the reason.
        """
        sums = sorted(place for one in cls.kernels.values() if one.times > 1 for place in one.rounds)
        unordered = [one for one in cls.kernels.values() if one.is_unordered and not one.turns]
        places = sorted(one.name for one in unordered if one.is_moved and moved is not False)
        others = sorted(one.name for one in unordered if not one.is_moved)
        turns = sorted(f"{one.name} {one.turns}" for one in cls.kernels.values() if one.turns)
        advice = {
            f"The bits of what {' and '.join(sums)} adds up depend on the order of programs, which is another one at each launch. If this "
            "test compares bits, it fails there now and then. Compare with torch.testing.assert_close, or add up in a fixed order.": sums,
            f"What {' and '.join(places)} stores depends on the order in which its programs come, which is another one at each launch. If "
            "this test expects one order, it fails there now and then. Compare sorted values, or give each program its own place.": places,
            f"Programs took turns: {'; '.join(turns)}. Usually a program reads a value with one atomic and acts on it with another, "
            "and another program changed the value in between; or it reads a place that is not filled yet. Do both in one atomic "
            "(tl.atomic_cas, or two values in one 64-bit word), or wait for a flag that the other program releases. The same test repeats "
            "this order.": turns,
            f"Which values {' and '.join(others)} stores depends on the order in which its programs come, which is another one at each "
            "launch. If this test expects those of one order, it fails there now and then. Make them independent of that order.": others,
            "On this card, tl.dot of fp32 cuts its operands to TF32, which has 10 of their 23 bits. "
            'input_precision="ieee" computes in full; otherwise the test needs a tolerance of about 1e-3 of the terms.': compared
            and cls.cut_to_tf32,
        }
        return " ".join(sentence for sentence, where in advice.items() if where)


# What the launches of one test executed in the emulator, and how one of them ended if not well. A package may catch an exception and
# compute the same with torch. Then pytest reports a pass of code that the emulator never executed, so the test's verdict comes from here.

# A limit in instructions ends a test at the same place on every machine that executes so much in a second: two million instructions of
# waves of 64 lanes, or four of 32, which do half as much each. One busy core has executed four times as much (docs/emulator.md).
LANES_PER_SECOND = 128_000_000
# The share of a test's time after which its launch is ended: the supervisor, which kills the process at the end of it, has no figure.
_SHARE = 0.9
# A test's tensors may wait in cycles of references for Python's collector, which counts objects, not bytes. By so much a process may grow.
_MOST_GROWTH = 64 << 20
# What turns tensors into numbers of Python's or of NumPy's.
_READS = (
    *("item", "tolist", "numpy", "equal", "allclose", "is_nonzero", "nonzero"),
    *("__bool__", "__int__", "__float__", "__complex__", "__index__", "__array__", "__contains__"),
)
_OUTCOMES: dict[type[EmulatorError], str] = {TimeLimit: "timeout", OutOfMemoryBounds: "failed", Trap: "failed", Deadlock: "failed"}


@dataclass(frozen=True)
class Fault:
    """How a launch ended: pytest's word for the outcome of its test, and what happened."""

    outcome: str
    message: str


class Account:
    """Counts the launches and wave-instructions of a test, and keeps its first fault.

    `read`: since its first launch, host code has read numbers.

    `card` is the name of the architecture, whose waves have so many `lanes`. A test has `seconds` of time, and may execute a number of
    instructions for each.
    """

    def __init__(self, card: str, lanes: int, seconds: float) -> None:
        self.card, self.seconds, self.limit = card, seconds, int(seconds * LANES_PER_SECOND / lanes)
        self.profiles: Any = None  # what counts the instructions of launches, if they are counted
        self.passes: Any = None  # executes the code after each compiler pass; None without `upgrade`'s request
        self._resident = 0
        self.begin()

    def begin(self) -> None:
        """Start a new test, without what earlier ones left in memory."""
        most = self._resident + _MOST_GROWTH
        if _resident() > most and _resident(trim=True) > most:
            gc.collect()  # looks through all modules, and takes a third of a second
            self._resident = _resident(trim=True)
        self.launches = self.instructions = 0
        if self.passes:
            self.passes.found.clear()
        self._until = time.monotonic() + _SHARE * self.seconds
        self.fault: Fault | None = None
        self.read = False

    def watch(self, function: Any, *_: object) -> None:
        """Note whether host code reads numbers that a launch may have made. torch's functions are given here after they are called."""
        self.read = self.read or (self.launches > 0 and getattr(function, "__name__", "") in _READS)

    @property
    def left(self) -> int:
        """The number of instructions that the test may still execute; at least one, so that a launch is refused where it runs."""
        return max(1, self.limit - self.instructions)

    @property
    def seconds_left(self) -> float:
        """The time in seconds that the test's launches still have."""
        return max(0.0, self._until - time.monotonic())

    def add(self, execution: Execution) -> None:
        """Count a launch that ended well."""
        self.launches += 1
        self.instructions += execution.instructions

    def fail(self, error: EmulatorError, complaint: str = "") -> None:
        """Keep how a launch ended. `complaint` is what the kernel wrote to standard error, as a failed assertion does."""
        self.launches += 1
        place = f" at {error.place}" if error.place and str(error.place) not in str(error) else ""
        first = next(iter(complaint.splitlines()), "")
        message = f"{first + ': ' if first else ''}{error}{place}"
        if isinstance(error, TimeLimit):
            self.instructions += error.executed
            did = f"the test executed {self.instructions:,} wave-instructions; {self.limit:,} are allowed, and {self.seconds:g} s"
            message = f"{message.rstrip('.')}; {did}"
        outcome = next((word for kind, word in _OUTCOMES.items() if isinstance(error, kind)), "error")
        self.fault = self.fault or Fault(outcome, message)

    def refuse(self, kernel: str, why: object) -> None:
        """Keep why a launch could not be made."""
        self.launches += 1
        self.fault = self.fault or Fault("error", f"The kernel {kernel} was not executed: {why}.")

    def properties(self) -> dict[str, str]:
        """Return what the test's report says of it: `{"emulated": "gfx942: 6092 wave-instructions in 3 launches"}`."""
        plural = "" if self.launches == 1 else "es"
        found = {EMULATED: f"{self.card}: {self.instructions} wave-instructions in {self.launches} launch{plural}"} if self.launches else {}
        return {**found, **(self.passes.found if self.passes else {})}


def _resident(trim: bool = False) -> int:
    """Return the memory of this process in bytes; 0 where the system does not say. With `trim`, freed memory goes back to the system."""
    if trim:
        with contextlib.suppress(AttributeError, OSError):  # another C library than glibc
            ctypes.CDLL(None).malloc_trim(0)
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def executed(properties: Mapping[str, str]) -> int | None:
    """Return how many wave-instructions a test executed, by its properties; None if it launched nothing."""
    found = re.search(r": (\d+) wave-instructions", properties.get(EMULATED, ""))
    return int(found[1]) if found else None
