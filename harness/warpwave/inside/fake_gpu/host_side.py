"""Which tensors are on the host, while others pretend to be on a card, what the host knows of those without data, and who asks.

Marks are attributes of tensors: they live as long as the tensor, and a copy has them, too.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import torch
import triton

_PLACE, _PINNED, _KNOWN = "_warpwave_place", "_warpwave_pinned", "_warpwave_known"
_HOST, _CARD, _SHAPE = "host", "card", "shape"  # places
_OF_CARD = "_warpwave_card"  # of a storage
_MOST_KNOWN = 1 << 16  # elements
_BEHIND_NUMBERS = re.compile(r",\s+(size|dtype|layout|grad_fn|requires_grad|tangent)=")  # in the text of a tensor
# Where torch itself computes shapes in Python, for operators that autograd calls: it must see tensors as they are.
_OF_TORCH = ("torch._refs", "torch._prims", "torch._decomp", "torch._meta_registrations")
_WRAPPERS = 3  # functions of a package that it has put before torch's own may stand between
Value = TypeVar("Value")
_NAMES_PLACE = tuple(map(int, triton.__version__.split(".")[:2])) < (3, 7)  # in the message of its launchers


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Functions of torch and methods of tensors, by name.
ARITHMETIC = _names("""
add sub rsub subtract mul multiply div divide true_divide truediv floor_divide floordiv mod remainder fmod pow matmul and or xor lt le gt
ge eq ne neg invert abs lshift rshift negative bitwise_and bitwise_or bitwise_xor bitwise_not logical_and logical_or logical_not
logical_xor less less_equal greater greater_equal not_equal isclose isnan isinf isfinite maximum minimum fmax fmin clamp clip clamp_min
clamp_max exp exp2 expm1 log log2 log10 log1p sqrt rsqrt square reciprocal sin cos tan asin acos atan atan2 sinh cosh tanh sigmoid relu
gelu silu leaky_relu elu softplus hardtanh erf erfc floor ceil round trunc frac sign absolute nan_to_num lerp addcmul addcdiv logaddexp
hypot
""")
COMPUTING = (  # operators, too
    ARITHMETIC
    | {f"__{kind}{name}__" for name in ARITHMETIC for kind in ("", "r")}
    | _names("""
sum nansum mean nanmean prod max min amax amin aminmax argmax argmin all any std var std_mean var_mean norm vector_norm matrix_norm
linalg_norm linalg_vector_norm dist logsumexp count_nonzero nonzero median nanmedian quantile mode cumsum cumprod cummax cummin
logcumsumexp diff sort argsort topk kthvalue unique unique_consecutive bincount histc trace mm bmm mv dot vdot inner outer einsum tensordot
linear addmm addmv baddbmm addbmm softmax log_softmax layer_norm rms_norm group_norm normalize cosine_similarity cross_entropy nll_loss
mse_loss l1_loss smooth_l1_loss huber_loss kl_div scaled_dot_product_attention embedding cdist searchsorted bucketize
""")
)
# They refuse tensors of two devices, as an H200 does with torch 2.11; so does each of `COMPUTING` that takes several tensors.
_REFUSING = (
    COMPUTING
    | {f"{name}_" for name in ARITHMETIC}
    | {f"__i{name}__" for name in ARITHMETIC}
    | _names("""
cat concat concatenate stack hstack vstack dstack column_stack where masked_fill masked_fill_ masked_select index_select gather take
take_along_dim scatter scatter_ scatter_add scatter_add_ scatter_reduce scatter_reduce_ index_add index_add_ index_copy index_copy_
repeat_interleave allclose equal isin kron ger addr addmv addmm_ baddbmm_ cross bilinear conv1d conv2d conv3d conv_transpose2d batch_norm
instance_norm embedding_bag prelu binary_cross_entropy binary_cross_entropy_with_logits pairwise_distance copysign nextafter xlogy gcd
heaviside float_power masked_scatter masked_scatter_ row_stack block_diag meshgrid polar complex trapezoid linalg_solve
""")
)


def asked_by_torch() -> bool:
    """Whether torch itself, which computes shapes, has called the torch function that the caller of this one sees as a mode."""
    frame: FrameType | None = sys._getframe(2)
    for _ in range(1 + _WRAPPERS):
        if frame is None:
            return False
        module = frame.f_globals.get("__name__", "")
        # A fake tensor of a compiler asks whether what it holds has no data. Elsewhere in that module, torch asks where a tensor is.
        if module.startswith(_OF_TORCH) or (module == "torch._subclasses.fake_tensor" and frame.f_code.co_name == "__new__"):
            return True
        frame = frame.f_back
    return False


def is_packages_op(function: Any) -> bool:
    """Whether a function is an op that a package has registered, and not one of torch's own."""
    name = getattr(function, "_name", None) or getattr(function, "_qualified_op_name", "")
    return "::" in str(name) and str(name).partition("::")[0] not in ("aten", "prims")


def switched_on(mode: torch.overrides.TorchFunctionMode | None) -> contextlib.AbstractContextManager[object]:
    """Turn a mode on, if it is not on already: of two, the second would take what the first sends to the CPU for a tensor of the host."""
    overrides: Any = torch.overrides  # the function is not typed, and not public
    stack = overrides._get_current_function_mode_stack()
    return contextlib.nullcontext() if mode is None or any(entry is mode for entry in stack) else mode


def place(tensor: torch.Tensor) -> str | None:
    """Return where a tensor was made, or brought to; None if no call showed that. Then it counts as the card's, if there is one."""
    known: str | None = tensor.__dict__.get(_PLACE)
    return known


def is_host(tensor: torch.Tensor) -> bool:
    """Whether a tensor was made on the host, or brought there."""
    return place(tensor) in (_HOST, _SHAPE)


def is_card(tensor: torch.Tensor) -> bool:
    """Whether a tensor is sure to be on the card: a call has made it there, or brought it there."""
    return place(tensor) == _CARD


def is_shape(tensor: torch.Tensor) -> bool:
    """Whether the package itself wanted a tensor on torch's meta device: it is neither on the host nor on the card."""
    return place(tensor) == _SHAPE


def is_meta(tensor: torch.Tensor) -> bool:
    """Whether a tensor has no data, whatever it says to the package."""
    return bool(torch._C._dispatch_keys(tensor).has(torch._C.DispatchKey.Meta))


def put(value: Value, where: str | None) -> Value:
    """Mark the tensors in a value. With None, it is not known where they are."""
    for tensor in tensors_in(value):
        if type(tensor).__name__ != "FakeTensor":
            tensor.__dict__[_PLACE] = where
    return value


def put_on_host(value: Value) -> Value:
    """Mark the tensors in what an operation returned."""
    return put(value, _HOST)


def put_on_card(value: Value) -> Value:
    """Mark the tensors in what an operation returned."""
    return put(value, _CARD)


def make_shape(tensor: torch.Tensor) -> torch.Tensor:
    """Mark a tensor that the package itself wants on torch's meta device."""
    return put(tensor, _SHAPE)


def marked_as(sources: Iterable[torch.Tensor], made: Value) -> Value:
    """Mark what a call made of tensors: on torch's meta device if one of them is, else where they all are. Of none, it is on the host."""
    places = set(map(place, sources)) or {_HOST}
    if _SHAPE in places:
        return put(made, _SHAPE)
    return put(made, places.pop()) if len(places) == 1 and None not in places else made


@contextlib.contextmanager
def unmarked(tensor: torch.Tensor) -> Iterator[None]:
    """Take the marks off a tensor while torch writes it, with all of its attributes."""
    marks = {mark: tensor.__dict__.pop(mark) for mark in (_PLACE, _KNOWN) if mark in tensor.__dict__}
    try:
        yield
    finally:
        tensor.__dict__.update(marks)


def mark_storage(storage: Value) -> Value:
    """Mark the storage of a tensor on the card, before torch writes it or after torch has read it."""
    setattr(storage, _OF_CARD, True)
    return storage


def is_of_card(storage: Any) -> bool:
    """Whether `mark_storage` has marked it."""
    return getattr(storage, _OF_CARD, False) is True


def pin(tensor: torch.Tensor) -> torch.Tensor:
    """Mark a tensor on the host as pinned, and with its storage all views of it."""
    setattr(put_on_host(tensor).untyped_storage(), _PINNED, True)
    return tensor


def is_pinned(tensor: torch.Tensor) -> bool:
    """Whether `pin` has marked it."""
    return getattr(tensor.untyped_storage(), _PINNED, False) is True


# A package may choose the host where kernels are interpreted: `"cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"`. It has to
# ask for that, and who asks is noted: a file of tests speaks for itself, and any other module for the whole package.

_ASKS = "TRITON_INTERPRET"
_READS_FOR_OTHERS = ("os", "collections.abc", "_collections_abc", "triton.knobs")
_OTHERS = {*sys.stdlib_module_names, "warpwave", "torch", "triton", "pytest", "_pytest", "pluggy", "numpy"}
_asked: set[str] = set()  # files
_copied: list[Iterator[tuple[int, str]]] = [iter(())]  # the names that who copies the environment reads next, numbered


def noting_who_copies(names: Callable[[Any], Iterator[str]], environ: Any) -> Iterator[str]:
    """Iterate over `os.environ`. Who then reads all of it, in that order, asks for nothing."""
    listed = [*names(environ)]
    _copied[0] = enumerate(listed)
    return iter(listed)


def noting_who_asks(read: Callable[[Any, str], str], environ: Any, name: str) -> str:
    """Read a variable of `os.environ`."""
    number, expected = next(_copied[0], (0, ""))
    if name != expected:
        _copied[0] = iter(())
    is_copied = name == expected and number > 0  # the first may be the only one
    frame: FrameType | None = sys._getframe(2) if name == _ASKS and not is_copied else None
    while frame is not None and frame.f_globals.get("__name__") in _READS_FOR_OTHERS:
        frame = frame.f_back
    if frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] not in _OTHERS:
        _asked.add(frame.f_code.co_filename)
    return read(environ, name)


def may_have_chosen_the_host(*files: str) -> bool:
    """Whether a file has asked that speaks for this call: one of `files` or of the callers, or one that is no file of tests."""
    if not _asked:
        return False
    callers, frame = {*files}, sys._getframe(1)
    while frame is not None:
        callers.add(frame.f_code.co_filename)
        frame = frame.f_back  # type: ignore[assignment]
    return any(file in callers or not Path(file).stem.startswith("test_") for file in _asked)


def refused(arguments: Iterable[tuple[str, Any]]) -> ValueError | None:
    """Return what Triton's launchers raise if a kernel gets a tensor that a card cannot reach; None if there is none.

    A card reaches pinned memory. A tensor without elements is a null pointer, which a launcher lets pass; so is one of torch's meta device.
    `arguments` are name and value of each, in the kernel's order and with its constants.
    """
    for place, (name, value) in enumerate(_taken_apart(arguments)):
        # A descriptor, or a pointer of another type, has a tensor as its base.
        tensor = value if isinstance(value, torch.Tensor) else getattr(value, "base", value)
        if isinstance(tensor, torch.Tensor) and is_host(tensor) and tensor.numel() and not is_shape(tensor) and not is_pinned(tensor):
            at = f" (at {place})" if _NAMES_PLACE else ""
            return ValueError(f"Pointer argument{at} cannot be accessed from Triton (cpu tensor?): {name} is on the host")
    return None


def is_mixed(tensors: Iterable[torch.Tensor]) -> bool:
    """Whether one is sure to be on the host, and one on the card."""
    return {_HOST, _CARD} <= set(map(place, tensors))


def is_as_on_a_card(function: Any, tensors: list[torch.Tensor]) -> bool:
    """Whether a call is sure to be torch's own code for plain tensors, and the package one that has not chosen the host for kernels."""
    is_plain = all(type(tensor) in (torch.Tensor, torch.nn.Parameter) for tensor in tensors)
    is_torchs = str(getattr(function, "__module__", None) or "torch").startswith("torch") and not is_packages_op(function)
    modes: Any = torch._C
    return is_plain and is_torchs and not modes._len_torch_dispatch_stack() and not may_have_chosen_the_host()


def of_the_card(function: Any, args: Any, mixed: list[torch.Tensor], card: torch.device) -> bool:
    """Whether what torch makes of tensors of the host and of the card is on the card; False if that is not sure.

    Torch takes single numbers of the host (tensors without dimensions) beside the card's tensors, and the host's indices.

    Raises:
        RuntimeError: torch's own, where it does not take these tensors.
    """
    name = getattr(function, "__name__", "")
    if not is_as_on_a_card(function, mixed):
        return False
    if name == "__getitem__":
        if is_host(args[0]) and any(is_card(index) and index.dim() for index in tensors_in(args[1])):
            raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor (cpu)")
        return not is_host(args[0])
    if name == "__setitem__":  # without indices of several numbers it copies
        is_wrong = isinstance(args[2], torch.Tensor) and args[2].numel() > 1 and any(each.dim() for each in tensors_in(args[1]))
        is_wrong &= is_mixed(tensors_in(args[0], args[2]))
    else:
        writes = name.endswith("_") and not name.endswith("__")
        is_wrong = name in _REFUSING and any(is_host(each) and (each.dim() or (writes and each is args[0])) for each in mixed)
    if is_wrong:
        raise RuntimeError(f"Expected all tensors to be on the same device, but found at least two devices, {card} and cpu!")
    return name in _REFUSING


def _taken_apart(arguments: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    for name, value in arguments:
        if isinstance(value, tuple):
            yield from _taken_apart((f"{name}[{index}]", entry) for index, entry in enumerate(value))
        else:
            yield name, value


def is_knowable(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has whole numbers, and not too many: lengths, offsets and indices."""
    return tensor.numel() <= _MOST_KNOWN and not tensor.dtype.is_floating_point and not tensor.dtype.is_complex


def know(tensor: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    """Keep what a tensor without data would hold, if that is knowable."""
    return keep(tensor, data) if is_knowable(data) else tensor


def keep(tensor: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    """Keep what a tensor without data would hold."""
    tensor.__dict__[_KNOWN] = data
    return tensor


def known(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the data that a tensor without data would hold, if that is known."""
    return tensor.__dict__.get(_KNOWN)


def forget(tensor: torch.Tensor) -> None:
    """Forget it: something has written to it."""
    tensor.__dict__.pop(_KNOWN, None)


def tensors_in(*values: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors among arguments or results, also those in lists and tuples."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(*value)
        elif isinstance(value, dict):
            yield from tensors_in(*value.values())


def named_in(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the tensors that an argument of a launch holds, with their names; an object with an address that holds none as it is."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif hasattr(value, "data_ptr") and hasattr(value, "__dict__"):  # a package's own view of a tensor, which it holds
        yield from [(name, each) for each in vars(value).values() if isinstance(each, torch.Tensor)] or [(name, value)]
    elif isinstance(value, (tuple, list)):
        for position, each in enumerate(value):
            yield from named_in(f"{name}[{position}]", each)
    elif (base := getattr(value, "base", None)) is not None:  # a tensor descriptor, a tensor under another type, or the one of the other
        yield from named_in(name, base)


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """Return the storage of a tensor; None if it has none: it is sparse, or torch's compiler traces with it."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None


def is_traced(*values: Any) -> bool:
    """Whether there is a tensor among these with which torch follows code for its shapes: it has no pointer."""
    return any(type(each).__module__.startswith("torch._subclasses.") or torch._is_functional_tensor(each) for each in tensors_in(*values))


def texted(device: str, text: str) -> str:
    """Return the text of a tensor with its device where torch writes it: behind the numbers. What has no data is on the meta device."""
    if not text.startswith(("tensor(", "Parameter containing")):
        return text
    text = text.replace(", device='meta'", "", 1)
    numbers = _BEHIND_NUMBERS.search(text)
    at = numbers.start() if numbers else text.rindex(")")
    return f"{text[:at]}, device='{device}'{text[at:]}" if device else text
