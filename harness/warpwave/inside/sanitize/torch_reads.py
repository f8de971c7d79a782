"""What torch reads of memory that was never written: sums, products, comparisons and numbers for Python.

A copy of such memory is as unwritten as the memory itself. Whatever else a function does, a part of its result depends on such memory if
it changes with what is put there: the function is called again with several fillings. So a mask, a choice and a factor `beta=0` need no
rules of their own.

A result that depends on such memory is reported when the test ends, unless only a part of the result is used: packages compute with a
whole buffer, and then take what was written. Where it is not known what a function does, nothing is reported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from warpwave.inside.fake_gpu.emulated_findings import Given, at, finding
from warpwave.inside.fake_gpu.host_side import ARITHMETIC, COMPUTING, is_packages_op, tensors_in
from warpwave.inside.fake_gpu.redirect import Redirect
from warpwave.inside.fake_gpu.streams import Graph
from warpwave.inside.process.outcomes import statement
from warpwave.inside.sanitize.memory import Shadows, names, same_memory
from warpwave.inside.sanitize.races import Findings
from warpwave.records import Defect, Finding

_NOT_THE_PACKAGE = (f"{Path(torch.__file__).parent}/", f"{Path(__file__).parents[1]}/")
# Copies with a place for each element of the source.
_CONVERSIONS = names("""
clone contiguous to cpu type type_as float half bfloat16 double int long short char byte _to_copy
""")
# Copies that put elements elsewhere, or choose some.
_COPIES = names("""
cat concat concatenate stack hstack vstack dstack __getitem__ index_select gather take take_along_dim masked_select masked_fill where pad
flip fliplr flipud roll rot90 tile repeat repeat_interleave reshape reshape_as flatten ravel tril triu diag diagonal_scatter block_diag
select_scatter slice_scatter as_strided_scatter index_copy index_fill index_put index_add index_reduce scatter scatter_add scatter_reduce
masked_scatter put
""")
# They write some elements of a tensor, and leave the others as they are.
_IN_PART = names("""
index_copy_ index_fill_ index_put_ index_add_ index_reduce_ scatter_ scatter_add_ scatter_reduce_ masked_fill_ masked_scatter_ put_
fill_diagonal_ tril_ triu_
""")
_MOST_BYTES = 64 << 20  # of a tensor that such a call is repeated with; a larger one counts as written
# Of these a part is taken: what else is in the tensor may never be used.
_PARTS = names("""
__getitem__ narrow select split split_with_sizes chunk unbind tensor_split as_strided index_select gather take take_along_dim masked_select
diagonal unfold where masked_fill tril triu
""")
# No filling is sure to change them.
_COMPARISONS = names("eq ne lt le gt ge less less_equal greater greater_equal not_equal isclose isinf")
_NUMBERS = frozenset(
    ("item", "tolist", "equal", "allclose", "__bool__", "__int__", "__float__", "__index__", "__complex__", "__contains__")
)
_IN_PLACE = {f"{name}_": name for name in ARITHMETIC} | {f"__i{name}__": f"__{name}__" for name in ARITHMETIC}


@dataclass(frozen=True)
class _Part:
    tensor: torch.Tensor
    written: torch.Tensor


class TorchReads:
    """Watches the calls of torch: it marks copies of unwritten memory, reports what reads it, and marks in `Shadows` what is written."""

    def __init__(self, shadows: Shadows, findings: Findings) -> None:
        self._shadows, self._findings = shadows, findings
        self._is_below = False  # autograd: an operation of a backward is learned from
        self._is_learning = False  # which calls torch, too

    def differentiating(self, run_backward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a backward. What torch itself computes there is seen only below autograd: it adds gradients, copies them, passes them on."""
        with _Below(self):
            return run_backward(*args, **kwargs)

    def below(self, operation: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Learn from an operation below autograd. A gradient is reported when the package reads it, which it may do in part."""
        packet = operation.overloadpacket
        if self._shadows and not self._is_learning and (self._is_known(packet.__name__) or operation._schema.is_mutable):
            self._is_below = True
            try:
                self.called(packet, args, kwargs, result)
            finally:
                self._is_below = False

    def called(self, function: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Learn from one call of torch. Of one that a graph captures, only what it writes: a card runs it later, at each replay."""
        if Graph.capturing:
            self._shadows.called(function, args, kwargs, result)
            return
        self._is_learning = True
        try:
            self._learn(function, args, kwargs, result)
        finally:
            self._is_learning = False

    def _learn(self, function: Any, args: Any, kwargs: Any, result: Any) -> None:
        if not self._shadows:
            self._shadows.called(function, args, kwargs, result)
            return
        name, kwargs = getattr(function, "__name__", ""), kwargs or {}
        if name.startswith("_foreach_") and (each := getattr(torch.Tensor, name.removeprefix("_foreach_"), None)):
            results = args[0] if name.endswith("_") else result
            for place, one in enumerate(results if isinstance(results, (list, tuple)) else ()):
                of_one = [value[place] if isinstance(value, (list, tuple)) else value for value in (*args, *kwargs.values())]
                self._learn(each, of_one[: len(args)], dict(zip(kwargs, of_one[len(args) :], strict=True)), one)
            return
        is_known, is_copy = self._is_known(name), self._is_copy(name)
        if name in _IN_PART:
            is_known = bool(args) and args[0].nbytes <= _MOST_BYTES and any(map(self._has_marks, tensors_in(args)))
        if not is_known or is_packages_op(function):
            self._shadows.called(function, args, kwargs, result)
            return
        out = kwargs.get("out")
        given = {key: value for key, value in kwargs.items() if key != "out"}
        with torch.no_grad():
            parts = list(self._parts(args, given))
            if parts and torch.distributed.is_available() and torch.distributed.is_initialized():
                self._shadows.forget_all()  # other processes write, and no call of torch shows where
            elif parts:
                if name in _NUMBERS:
                    self._report(parts[0], name)
                elif is_copy:
                    tensor, written = parts[0].tensor, parts[0].written
                    if isinstance(result, torch.Tensor) and result.shape == tensor.shape and not same_memory(tensor, result):
                        self._shadows.mark(result, written, self._shadows.later(tensor), like=tensor)
                else:
                    self._compute(function, name, parts, args, given, result)
                if name in _PARTS:
                    self._a_part_is_used(parts)
            elif out is not None:
                self._shadows.called(function, (), kwargs, result)

    def _is_copy(self, name: str) -> bool:
        return name in _CONVERSIONS or name in (Redirect.current.kinds if Redirect.current else ())

    def _is_known(self, name: str) -> bool:
        known = name in _NUMBERS or name in _COPIES or name in COMPUTING or name in _IN_PLACE or name.endswith("_backward")
        return known or self._is_copy(name)

    def _has_marks(self, tensor: torch.Tensor) -> bool:
        return self._shadows.written(tensor) is not None

    def _parts(self, *values: Any) -> Iterator[_Part]:
        for tensor in tensors_in(*values):
            written = self._shadows.written(tensor)
            if written is None:
                continue
            if not written.all():
                yield _Part(tensor, written)
            elif tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes():
                self._shadows.forget(tensor)

    def _compute(self, function: Any, name: str, parts: list[_Part], args: Any, kwargs: Any, result: Any) -> None:
        """Find out which elements of a result depend on unwritten memory, mark them, and have a read reported later."""
        function = getattr(torch.Tensor, _IN_PLACE[name], None) if name in _IN_PLACE else function
        found = list(tensors_in([result]))
        if name in _PARTS and any(same_memory(part.tensor, each) for part in parts for each in found):
            return  # a view
        tries: list[list[torch.Tensor]] = []
        for turn in range(4):
            try:
                given, named = _filled((args, kwargs), parts, turn)
                if name in _IN_PLACE or name in _IN_PART:
                    # It holds the result already, with NaN by what was unwritten, which would hide what else makes it so.
                    whole = args[0].nan_to_num(nan=1.0) if args[0].is_floating_point() else args[0].clone()
                    own = next((part.written for part in parts if part.tensor is args[0]), None)
                    given = (whole if own is None else torch.where(own, whole, _filling(whole.dtype, turn)), *given[1:])
                tries.append(list(tensors_in([function(*given, **named)])))
            except Exception:  # of indices that were never written, say; a whole number may not be divided by 0
                if turn < 3:
                    self._a_part_is_used(parts)
                    if name in _IN_PART:
                        self._shadows.forget(args[0])
                    return
        depends = False
        for place, each in enumerate(found):
            variants = [one[place] for one in tries]
            if each.shape != variants[0].shape or any(one.shape != each.shape for one in variants):
                sure = torch.zeros(each.shape, dtype=torch.bool, device="cpu")
            elif name.strip("_") in _COMPARISONS:
                sure = torch.ones(each.shape, dtype=torch.bool, device="cpu")
                for part in parts:
                    sure &= part.written
            else:
                first = variants[0]
                sure = torch.stack([(first == one) | (first.isnan() & one.isnan()) for one in variants[1:]]).all(0)
            if sure.all():
                if name in _IN_PART:
                    self._shadows.mark(each, sure)
                continue
            depends = True
            later = next(filter(None, (self._shadows.later(part.tensor) for part in parts)), None)
            if later is None and name not in _COPIES | _IN_PART and not self._is_below:
                later = self._findings.later(_finding(parts[0], name, self._shadows.writer(parts[0].tensor)))
            self._shadows.mark(each, sure, later)
        if not depends:
            self._a_part_is_used(parts)

    def _report(self, part: _Part, name: str) -> None:
        later = self._shadows.later(part.tensor)
        if later is None:
            later = self._findings.later(_finding(part, name, self._shadows.writer(part.tensor)))
        later.wanted = True
        self._shadows.forget(part.tensor)  # it is reported once

    def _a_part_is_used(self, parts: list[_Part]) -> None:
        for part in parts:
            if later := self._shadows.later(part.tensor):
                later.wanted = False


class _Below(TorchDispatchMode):
    """Shows the operations of a backward to `reads`."""

    supports_higher_order_operators = True

    def __init__(self, reads: TorchReads) -> None:
        super().__init__()
        self._reads = reads

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        # A package's op runs its code, which sees a card. What we call ourselves, in a launch say, is no read of the package.
        is_ours = not torch._C._is_torch_function_enabled()
        if is_packages_op(operation) or is_ours or not hasattr(operation, "overloadpacket"):
            return operation(*args, **kwargs)
        with torch._C.DisableTorchFunction(), Redirect.current.of_host() if Redirect.current else nullcontext():
            result = operation(*args, **kwargs)
            self._reads.below(operation, args, kwargs, result)
        return result


def _filled(value: Any, parts: list[_Part], turn: int) -> Any:
    """Return arguments with something else in place of what was never written: in the last turn, what counts as false."""

    def fill(tensor: torch.Tensor) -> torch.Tensor:
        part = next((part for part in parts if part.tensor is tensor), None)
        return tensor if part is None else torch.where(part.written, tensor.detach(), _filling(tensor.dtype, turn))

    return tree_map_only(torch.Tensor, fill, value)


def _filling(dtype: torch.dtype, turn: int) -> torch.Tensor:
    if dtype.is_floating_point or dtype.is_complex:
        return torch.tensor((float("nan"), 0.75, -0.75, 0.0)[turn], device="cpu").to(dtype)
    if dtype is torch.bool:
        return torch.tensor(turn % 2 == 0, device="cpu")
    limits = torch.iinfo(dtype)
    return torch.tensor((limits.min, limits.max, 1, 0)[turn], dtype=dtype, device="cpu")


def _finding(part: _Part, name: str, other: str) -> Finding:
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_NOT_THE_PACKAGE):
        frame = frame.f_back
    label, whole = _named(frame, part.tensor)
    first = tuple(int(each) for each in (~part.written).nonzero()[0])
    offset = sum(place * stride for place, stride in zip(first, part.tensor.stride(), strict=True))
    address = part.tensor.data_ptr() + offset * part.tensor.element_size()
    plain = name.strip("_") if name.startswith("__") else name
    return finding(
        function=f"torch.{plain}" if hasattr(torch, plain) else f"Tensor.{plain}",
        defect=Defect.UNINITIALISED,
        access="read",
        **at(Given(label, whole), address),
        lanes=int((~part.written).sum()),
        file=frame.f_code.co_filename,
        line=frame.f_lineno,
        text=statement(frame.f_code.co_filename, frame.f_lineno),
        other=other,
    )


def _named(frame: FrameType, tensor: torch.Tensor) -> tuple[str, torch.Tensor]:
    """Return what the package calls a tensor, or the one that it is a part of. Names that begin with `@` are pytest's."""
    there = ((name, value) for name, value in frame.f_locals.items() if isinstance(value, torch.Tensor) and not name.startswith("@"))
    known = [(name, value) for name, value in there if same_memory(value, tensor)]
    return next((each for each in known if each[1] is tensor), next(iter(known), ("a tensor", tensor)))
