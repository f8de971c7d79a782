"""On a card, compare each kernel with itself on twice as many warps and in one stage.

Both are compiled with Triton's FpSan. It replaces floats by whole numbers of the same width, whose sums and products do not depend on an
order, so the two launches must agree in every bit. If they do not, a barrier is missing between warps, an address or a mask is wrong in one
schedule, or Triton has compiled one of them wrongly. Rounding, which makes the comparison of real floats vague, has no part in it.

Source: Triton's documentation of FpSan lists what its arithmetic keeps.
"""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from warpwave.inside.fake_gpu.emulated_findings import Collected, Given, at, finding, given
from warpwave.records import Defect

# FpSan's numbers are not those of the kernel. What takes an address, an end or an order from them would not be the same kernel.
_NOT_COMPARED = re.compile(
    r"tt\.atomic_|tt\.int_to_ptr|tt\.elementwise_inline_asm|tt\.print|tt\.assert|scf\.while|arith\.fpto[su]i"
    r"|bitcast .*[ x]b?f\d\w*>? -> .*[ x]i\d+|bitcast .*[ x]i\d+>? -> .*[ x]b?f\d"
)
# Where lanes meet: in an operation, or in memory, by a load after a store or a store in a loop. Elsewhere each lane is by itself.
_MEETS = re.compile(
    r"tt\.(?:dot|trans|reshape|join|split|cat|gather|histogram)|\"tt\.(?:reduce|scan)\"|tt\.(?:descriptor_)?store.*?tt\.(?:descriptor_)?load"
    r"|^ {6,}tt\.(?:descriptor_)?store",
    re.DOTALL | re.MULTILINE,
)
_COMBINED = re.compile(r'"tt\.(?:reduce|scan)"(?P<body>.*?)tt\.(?:reduce|scan)\.return', re.DOTALL)
_DOT = re.compile(r"tt\.dot.* -> tensor<((?:\d+x)+)")
_LARGEST_DOT = 128 * 128  # elements of the result: FpSan's code of a larger one takes up to a minute to compile
SLOW = "FpSan left out kernels: compiling for it had taken half as long as all else; a second run finds those compiled, and does more"
_UNABLE = "FpSan left out kernels that it could not compile or launch"
_SHARE = 0.5  # of the time that all else in a process takes
_FREE_S = 5.0  # of a process, however short its tests are
_MOST_WARPS = 16  # of a program on any card: 1024 threads
_MOST_BYTES = 64 << 20  # of all tensors of a launch: they are copied, and FpSan's dot products are slow


class Schedules:
    """Compares the first launch of each kernel in a test: for its constants and types once, whatever is aligned or divisible.

    FpSan's code takes long to compile: it may take half as long as all else. `run` is `JITFunction.run`.
    """

    def __init__(self, run: Callable[..., Any], found: Collected) -> None:
        self._run, self._found = run, found
        self._compared: set[tuple[object, ...]] = set()
        self._first: dict[tuple[object, ...], str] = {}  # what is aligned and divisible
        self._began, self.spent_s = time.monotonic(), 0.0

    def next_test(self) -> None:
        """Forget what was compared."""
        self._compared.clear()

    def compare(self, function: Any, args: Sequence[Any], grid: Any, kwargs: Mapping[str, Any], compiled: Any, code: str) -> str:
        """Launch a kernel twice on its tensors as they are, keep where the results differ, and put the tensors back.

        Return why a kernel that should be compared was not.
        """
        named = dict(zip(function.arg_names, args, strict=False)) | {name: kwargs[name] for name in function.arg_names if name in kwargs}
        tensors = given([(name, None) for name in named], [*named.values()])
        memory = _Memory(tensors)
        source = compiled.src
        kind = (function, repr(source.signature), repr(source.constants), compiled.metadata.num_warps)
        if (
            kind in self._compared
            or self._first.setdefault(kind, repr(source.attrs)) != repr(source.attrs)
            or function.is_gluon()  # its layouts are of so many warps
            or {"num_warps", "num_stages"} & {*function.arg_names}
            or not comparable(code)
            or any(hasattr(value, "data_ptr") and not isinstance(value, torch.Tensor) for value in named.values())
            or not 0 < memory.bytes <= _MOST_BYTES
            or torch.cuda.is_current_stream_capturing()  # nothing runs yet
        ):
            return ""
        self._compared.add(kind)
        warps, stages = compiled.metadata.num_warps, compiled.metadata.num_stages
        # More warps take fewer registers each, and a quarter of the time to compile.
        other = {"num_warps": warps * 2 if warps < _MOST_WARPS else warps // 2, "num_stages": 1}
        if self.spent_s > max(_FREE_S, _SHARE * (time.monotonic() - self._began - self.spent_s)):
            return SLOW
        memory.keep()
        began = time.monotonic()
        try:
            with in_mode("fpsan"):
                results = []
                for schedule in ({}, other):
                    self._run(function, *args, grid=grid, warmup=False, **{**kwargs, **schedule})
                    results.append(memory.copied())
                    memory.restore()
        except Exception:  # FpSan does not have every operation, and its code needs more shared memory
            memory.restore()
            return _UNABLE
        finally:
            self.spent_s += time.monotonic() - began
        file, line, text = function.fn.__code__.co_filename, *_first_line(function)
        for tensor, address, count in memory.different(*results):
            rest = f", as are {count - 1} more" if count > 1 else ""
            self._found.keep(
                finding(
                    function=function.__name__,
                    defect=Defect.ORDER,
                    access="store",
                    file=file,
                    line=line,
                    text=text,
                    other=f"different with num_warps={other['num_warps']}, num_stages=1 from num_warps={warps}, num_stages={stages}{rest}; "
                    "FpSan counts in whole numbers, so it is not rounding",
                    **at(tensor, address),
                )
            )
        return ""


def comparable(code: str) -> bool:
    """Return whether a kernel, by its first code, could differ between schedules, and with FpSan must not.

    Not one that makes addresses or ends of loops of floats, or whose programs meet in an atomic; nor a reduction that combines floats by
    several operations: FpSan's numbers make single ones independent of order only. Nor, for the time it takes, one with a large product, or
    in which no lanes meet.
    """
    products = (math.prod(map(int, sizes.rstrip("x").split("x"))) for sizes in _DOT.findall(code))
    bodies = [combined["body"].splitlines()[2:-1] for combined in _COMBINED.finditer(code)]
    is_ordered = any(len(body) > 1 and re.search(r"\bb?f\d+\b", "".join(body)) for body in bodies)
    return bool(_MEETS.search(code)) and not (_NOT_COMPARED.search(code) or is_ordered or max(products, default=0) > _LARGEST_DOT)


def _first_line(function: Any) -> tuple[int, str]:
    """Return the number and the text of the line that begins a kernel: the `def`, not its decorators."""
    lines = [line.strip() for line in function.raw_src]
    skipped = next((number for number, line in enumerate(lines) if line.startswith("def ")), 0)
    return int(function.starting_line_number) + skipped, lines[skipped]


class _Memory:
    """The storages of a launch's tensors."""

    def __init__(self, tensors: Sequence[Given]) -> None:
        self._tensors = tensors
        storages = {one.storage[0]: one.tensor.untyped_storage() for one in tensors if one.storage[1]}
        self._bytes = [torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage) for storage in storages.values()]  # type: ignore[call-overload]
        self.bytes = sum(one.numel() for one in self._bytes)
        self._before: Sequence[torch.Tensor] = ()

    def keep(self) -> None:
        """Keep what is in memory now, to put it back."""
        self._before = self.copied()

    def copied(self) -> list[torch.Tensor]:
        """Return what is in memory now."""
        return [one.clone() for one in self._bytes]

    def restore(self) -> None:
        """Put back what was kept."""
        for now, before in zip(self._bytes, self._before, strict=True):
            now.copy_(before)

    def different(self, first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> Iterator[tuple[Given, int, int]]:
        """Yield each tensor that differs, with the address of the first element that does, and how many do."""
        for memory, one, other in zip(self._bytes, first, second, strict=True):
            if not torch.equal(one, other):
                tensor = next(each for each in self._tensors if each.storage[0] == memory.data_ptr())
                size = tensor.tensor.element_size()
                wrong = torch.unique(torch.nonzero(one != other).flatten() // size)
                yield tensor, memory.data_ptr() + int(wrong[0]) * size, len(wrong)


@contextlib.contextmanager
def in_mode(mode: str) -> Iterator[None]:
    """Let Triton compile with the sanitizers `mode` within."""
    from triton import knobs

    before, knobs.compilation.instrumentation_mode = knobs.compilation.instrumentation_mode, mode
    try:
        yield
    finally:
        knobs.compilation.instrumentation_mode = before
