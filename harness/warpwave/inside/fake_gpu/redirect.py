"""Sends what asks for a GPU to another device, in torch's own calls, and lets tensors there say that they are on the GPU."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.utils._device as default_device

from warpwave.inside.fake_gpu import compiled
from warpwave.inside.fake_gpu import host_side as marks
from warpwave.inside.fake_gpu.allocated import ALLOCATED
from warpwave.inside.fake_gpu.streams import wait
from warpwave.inside.fake_gpu.torch_device import CardGenerator, in_fp32, only_card
from warpwave.inside.process.outcomes import as_on_a_card


def within(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a package's function see the pretended card, where torch or a thread calls it.

    torch turns a mode off while a function that it saw runs, and a mode belongs to one thread.
    """

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with marks.switched_on(Redirect.current):
            return function(*args, **kwargs)

    return run


class Redirect(torch.overrides.TorchFunctionMode):
    """Sends what asks for a type of device in `kinds`, such as `cuda`, to the device `to`, where tensors say that they are on `claim`.

    What was made on the host, or was brought there, says that it is on the CPU. Of a tensor that torch's own C++ code made from others
    (a saved tensor, a gradient) that is not known: such a tensor is on the GPU, if the package has ever asked for one.
    """

    current: Redirect | None = None
    watch: Callable[[Any, Any, Any, Any], None] | None = None
    """Called after each call of torch with the function, its arguments and its result."""

    def __init__(self, to: torch.device, kinds: Iterable[str], claim: torch.device) -> None:
        super().__init__()
        self.to, self.kinds, self.claim, self.used = to, tuple(kinds), claim, False
        self._calls = threading.local()
        Redirect.current = self
        # `torch.Tensor.is_cuda` and the like; torch does not have one for every type of device.
        self._is_claimed = getattr(torch.Tensor, f"is_{claim.type}", None)
        self._same_anywhere = _SAME_ANYWHERE - {self._is_claimed}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_getter = getattr(func, "__name__", "") == "__get__"
        if (func.__self__ if is_getter else func) in self._same_anywhere or marks.asked_by_torch():
            return func(*args, **(kwargs or {}))
        if is_getter:
            return self._attribute(func, args)
        outer = getattr(self._calls, "innermost", None)
        self._calls.innermost = func, args, kwargs or {}
        try:
            result = self._answer(func, args, dict(kwargs or {}))
        finally:
            self._calls.innermost = outer
        if self.used:
            for tensor in marks.tensors_in(result):
                if self.is_on_card(tensor):
                    ALLOCATED.note(tensor)
        if self.watch is not None:
            with self.of_host():
                self.watch(func, args, kwargs, result)
        return result

    @contextlib.contextmanager
    def of_host(self) -> Iterator[None]:
        """Leave to torch what it makes for the host meanwhile: nothing that a package registers for a GPU serves it."""
        outer = getattr(self._calls, "innermost", None)
        self._calls.innermost = None, (), {"device": "cpu"}
        try:
            yield
        finally:
            self._calls.innermost = outer

    def _answer(self, func: Any, args: Any, kwargs: Any) -> Any:
        name = getattr(func, "__name__", "")
        generator = kwargs.get("generator")
        if getattr(generator, "is_default", False):
            kwargs["generator"] = None  # the numbers of the card's default generator are those of torch's own
        if name == "__set__":
            if getattr(func, "__self__", None) is torch.Tensor.data:  # a parameter is moved so
                marks.put(args[0], marks.place(args[1]))
            return func(*args)
        if name in _WAIT and self.is_on_card(args[0]):
            wait()
        if name in self.kinds:
            return self.move(args[0], self.claim, **{key: value for key, value in kwargs.items() if key == "non_blocking"})
        if func in _OF_PLACES:  # a device here is no place to make a tensor
            kwargs = {key: self._named(value) if key == "device" else value for key, value in kwargs.items()}
            return func(*map(self._named, args[:1]), *args[1:], **kwargs)
        if action := _ACTIONS.get(name):
            return action(self, func, args, kwargs)
        named = "device" in kwargs
        wanted = kwargs.get("device")
        is_made_of_card = func in _OF_DATA and any(isinstance(value, torch.Tensor) and self.is_on_card(value) for value in args[:2])
        is_there = is_made_of_card or kwargs.get("out") is not None
        if wanted is None and func in default_device._device_constructors() and not is_there:
            named, wanted = True, _default_device()
        out = kwargs.get("out")
        if wanted is not None and isinstance(out, torch.Tensor) and not marks.is_shape(out):
            place, other = (str(self.claim.type), "cpu")[:: 1 if self.is_gpu(wanted) else -1]
            if (marks.is_host if self.is_gpu(wanted) else marks.is_card)(out):
                raise as_on_a_card(RuntimeError(f"device type {place} does not match device type of out parameter ({other})"))
        if func in _DRAWING and generator is not None and self.is_gpu(wanted) != isinstance(generator, CardGenerator):
            place, other = (str(self.claim.type), "cpu")[:: 1 if self.is_gpu(wanted) else -1]
            raise RuntimeError(f"Expected a '{place}' device type for generator but found '{other}'")
        if kwargs.get("pin_memory") and not self.is_gpu(wanted):
            kwargs.pop("pin_memory")
            return marks.pin(func(*args, **kwargs))
        if not named or wanted is None:
            return self.call(func, *in_fp32(name, args, kwargs, self.claim.type, self.is_on_card))
        if self.is_gpu(wanted):
            if _is_traced():
                return func(*args, **kwargs)
            if func in _OF_DATA and not any(map(self.is_on_card, marks.tensors_in(args[:1]))):
                wait()
            return self.make(func, args, {**kwargs, "device": self.to})
        made = marks.put_on_host(func(*args, **{**kwargs, "device": wanted}))
        return marks.make_shape(made) if str(wanted) == "meta" and isinstance(made, torch.Tensor) else made

    def is_gpu(self, device: Any) -> bool:
        """Whether something names a GPU: a device, a text, or an index. Then the package is one that uses it."""
        if isinstance(device, int) and not isinstance(device, bool):
            named = True
        else:
            named = isinstance(device, (str, torch.device)) and str(device).split(":")[0] in self.kinds
        if named:
            only_card(device)
        self.used = self.used or named
        return named

    def _named(self, place: Any) -> Any:
        """Return the card's name for its index: where torch finds no card, it refuses a number."""
        return f"{self.claim.type}:{place}" if isinstance(place, int) and self.is_gpu(place) else place

    def is_on_card(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor pretends to be on the GPU. A subclass that wraps others was made with the device that they claim."""
        return self.used and not marks.is_host(tensor) and torch.Tensor.device.__get__(tensor) in (self.to, self.claim)

    def is_asked_of_card(self) -> bool:
        """Whether the call of torch that this thread is in would run on the card. What torch's own C++ code makes meanwhile has no mark."""
        if (call := getattr(self._calls, "innermost", None)) is None:
            return self.used
        func, args, kwargs = call
        wanted = kwargs.get("device")
        if wanted is None and func in default_device._device_constructors():
            wanted = _default_device()
        return self.is_gpu(wanted) if wanted is not None else not all(map(marks.is_host, marks.tensors_in(args, kwargs)))

    def make(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Call a function that makes a tensor on the pretended device."""
        made = func(*args, **kwargs)
        if func in (torch.as_tensor, torch.asarray) and args:  # they copy nothing that is on the device below
            given = args[0]
            if isinstance(given, torch.Tensor) and not marks.is_host(given):
                return made
            made = made.clone()
        return made if marks.is_packages_op(func) else marks.put_on_card(made)

    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Call any other function. What it makes is where its tensors are."""
        sources = list(marks.tensors_in(args, kwargs))
        is_of_card = self.takes_both(func, args, sources)
        made = compiled.call(func, args, kwargs) if compiled.is_followed(func) else func(*args, **kwargs)
        if is_of_card:
            return marks.put_on_card(made)
        return made if not sources and marks.is_packages_op(func) else marks.marked_as(sources, made)

    def takes_both(self, func: Any, args: Any, sources: list[torch.Tensor]) -> bool:
        """Whether a call gets tensors of the host and of the card, and makes one of the card. Raise torch's error if it refuses them."""
        return len(sources) > 1 and marks.is_mixed(sources) and marks.of_the_card(func, args, sources, self.claim)

    def move(self, tensor: torch.Tensor, device: Any, *rest: Any, **options: Any) -> torch.Tensor:
        """Return a tensor on another device; itself, if it is there."""
        is_to_card, non_blocking = self.is_gpu(device), options.get("non_blocking", rest[1] if len(rest) > 1 else False)
        rest, options = conversion(rest, options)
        if is_to_card == marks.is_host(tensor) and str(device) != "meta":
            self._wait_for_copy(tensor, non_blocking)
        if is_to_card:
            moved = self.bring(tensor, rest, options) if marks.is_host(tensor) else self.convert(tensor, rest, options)
            return moved if moved is tensor else marks.put_on_card(moved)
        if str(device) == "meta":
            return marks.make_shape(self.convert(tensor, rest, options).to("meta", copy=True))
        if marks.is_host(tensor) or not self.is_on_card(tensor):
            return marks.put_on_host(self.convert(tensor, rest, options))
        return marks.put_on_host(self.fetch(tensor, rest, options))

    def _wait_for_copy(self, tensor: torch.Tensor, non_blocking: bool) -> None:
        """Let the host wait for a copy between it and the card, unless the card does it alone, from or to pinned memory."""
        if not non_blocking or (marks.is_host(tensor) and not marks.is_pinned(tensor)):
            wait()

    def _copy(self, func: Any, args: Any, kwargs: Any) -> Any:
        into, source = args[0], args[1] if len(args) > 1 else kwargs.get("src")
        if isinstance(source, torch.Tensor) and self.is_on_card(into) != self.is_on_card(source):
            self._wait_for_copy(into if marks.is_host(into) else source, args[2] if len(args) > 2 else kwargs.get("non_blocking", False))
        return self.call(func, *in_fp32("copy_", args, kwargs, self.claim.type, self.is_on_card))

    def bring(self, tensor: torch.Tensor, rest: Any, options: Any) -> torch.Tensor:
        """Copy a tensor to the card. What is done to it there does not change the one on the host."""
        arrived = self.convert(tensor, rest, options)
        return arrived.clone() if arrived is tensor else arrived

    fetch = bring  # from the card to the host

    def convert(self, tensor: torch.Tensor, rest: Any, options: Any) -> torch.Tensor:
        """Do what `to` is asked for beside the move."""
        moved: torch.Tensor = tensor.to(*rest, **options) if rest or options else tensor
        return moved

    def _attribute(self, func: Any, args: Any) -> Any:
        owner = getattr(func, "__self__", None)
        if owner in (torch.Tensor.device, torch.Tensor.is_meta, torch.Tensor.is_cpu) and marks.is_shape(args[0]):
            return torch.device("meta") if owner is torch.Tensor.device else owner is torch.Tensor.is_meta
        if owner is torch.Tensor.device:
            return self.claim if self.is_on_card(args[0]) else torch.device("cpu") if marks.is_host(args[0]) else func(*args)
        if owner is not None and owner is self._is_claimed:
            return self.is_on_card(args[0])
        if owner is torch.Tensor.is_cpu:
            return not self.is_on_card(args[0]) and (marks.is_host(args[0]) or func(*args))
        if owner is torch.Tensor.is_meta:
            return self.to.type != "meta" and func(*args)
        result = func(*args)
        if isinstance(result, torch.Tensor) and self.is_on_card(marks.marked_as(args[:1], result)):
            ALLOCATED.note(result)
        return result

    def write(self, tensor: torch.Tensor, reduced: Any, place: str) -> Any:
        """Return what pickle writes of a tensor: `reduced`, with its place, which is the card's name or `cpu`."""
        if place != "cpu":
            marks.mark_storage(tensor.untyped_storage())
        return reduced

    def read(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor of the card that was made of what `torch.load` has read."""
        return marks.put(tensor, None)

    def _to(self, func: Any, args: Any, kwargs: Any) -> Any:
        tensor, rest = args[0], list(args[1:])
        if isinstance(kwargs.get("other", rest[0] if rest else None), torch.Tensor):
            other = kwargs.pop("other", None)
            other = rest.pop(0) if other is None else other
            return self.move(tensor, self.claim if self.is_on_card(other) else "cpu", other.dtype, *rest, **kwargs)
        if kwargs.get("device", "") is None:
            kwargs.pop("device")
        if "device" in kwargs:
            return self.move(tensor, kwargs.pop("device"), *rest, **kwargs)
        if rest and isinstance(rest[0], (str, int, torch.device)) and not isinstance(rest[0], bool):
            return self.move(tensor, rest.pop(0), *rest, **kwargs)
        return self.call(func, args, kwargs)

    def _type(self, func: Any, args: Any, kwargs: Any) -> Any:
        if len(args) > 1 or kwargs:
            wanted = kwargs.get("dtype", args[1] if len(args) > 1 else None)
            wanted = getattr(wanted, "card_type", wanted)
            if isinstance(wanted, str) and wanted.split(".")[1] in self.kinds:
                return self.move(args[0].type(wanted.replace(f".{wanted.split('.')[1]}.", ".")), self.claim)
            return self.call(func, args, kwargs)
        said = str(args[0].cpu().type() if args[0].is_meta else func(*args))
        return said.replace("torch.", f"torch.{self.claim.type}.") if self.is_on_card(args[0]) else said

    def _array(self, func: Any, args: Any, kwargs: Any) -> Any:
        if marks.is_card(args[0]) and not kwargs.get("force") and not marks.may_have_chosen_the_host():
            words = f"can't convert {self.claim} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."
            raise as_on_a_card(TypeError(words))
        return self.call(func, args, kwargs)

    def _pin(self, func: Any, args: Any, kwargs: Any) -> Any:
        if marks.is_card(args[0]) and not marks.may_have_chosen_the_host():
            words = f"cannot pin '{args[0].type()}' only dense CPU tensors can be pinned"
            raise RuntimeError(words.replace("torch.", f"torch.{self.claim.type}.", 1))
        return marks.pin(args[0].clone())

    def _multiply(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Multiply matrices. The card's libraries do so with floats only."""
        tensors = list(marks.tensors_in(args, kwargs))
        is_of_card = all(marks.is_card(each) and each.dtype in _WHOLE and each.numel() for each in tensors)
        if tensors and is_of_card and self.claim.type == "cuda" and marks.is_as_on_a_card(func, tensors):
            raise as_on_a_card(NotImplementedError(f"\"addmm_cuda\" not implemented for '{_WHOLE[tensors[0].dtype]}'"))
        return self.call(func, args, kwargs)

    def _pack(self, func: Any, args: Any, kwargs: Any) -> Any:
        packed, sizes = self.call(func, args, kwargs)
        return packed, marks.put_on_host(sizes)

    def _repr(self, func: Any, args: Any, kwargs: Any) -> str:
        text = str(self.call(func, args, kwargs))
        return text if marks.is_shape(args[0]) else marks.texted(str(self.claim) if self.is_on_card(args[0]) else "", text)

    def _attend(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Compute attention, whichever of a card's implementations the package allows: the device below has not all of them."""
        flags: Any = torch._C
        allowed = flags._get_math_sdp_enabled()
        flags._set_sdp_use_math(True)
        try:
            return self.call(func, args, kwargs)
        finally:
            flags._set_sdp_use_math(allowed)

    def _count(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Count whole numbers, too: the CPU counts only floats."""
        tensor = args[0] if args else kwargs.pop("input")
        if tensor.is_floating_point():
            return self.call(func, (tensor, *args[1:]), kwargs)
        return self.call(func, (tensor.double(), *args[1:]), kwargs).to(tensor.dtype)


_places: Any = torch._C._nn
# What a tensor says of itself wherever it is: `assert_close` alone asks for two dozen of these.
_SAME_ANYWHERE = frozenset(
    getattr(torch.Tensor, name)
    for name in (
        *("dtype", "is_leaf", "is_mps", "is_nested", "is_quantized", "is_sparse", "itemsize", "layout", "ndim", "requires_grad", "shape"),
        *("dim", "element_size", "is_complex", "is_contiguous", "is_floating_point", "numel", "size", "storage_offset", "stride"),
    )
)
_OF_PLACES = (torch.device, _places._parse_to)
# They need the numbers on the host. In an op of the package, and for `tolist`, torch's dispatcher does not say so.
_WAIT = (
    *("item", "tolist", "__bool__", "__int__", "__float__", "__index__", "nonzero", "masked_select", "unique", "equal"),
    *("__repr__", "__format__"),
)
# Whole numbers that a card can multiply one by one, but not as matrices, by torch's names.
_WHOLE = {torch.int8: "Char", torch.uint8: "Byte", torch.int16: "Short", torch.int32: "Int", torch.int64: "Long"}
_DRAWING = (torch.rand, torch.randn, torch.randint, torch.randperm)
_OF_DATA = (torch.tensor, torch.as_tensor, torch.asarray, torch.sparse_coo_tensor, torch.sparse_csr_tensor)


default_device._device_constructors()  # torch keeps the list of its own functions from the first call on: before any is replaced


def _is_traced() -> bool:
    """Whether tensors are made without data, as torch's compiler does: they say themselves that they are on a card."""
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None


def _default_device() -> Any:
    return default_device.CURRENT_DEVICE or "cpu"


def conversion(rest: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return what `to` is asked for beside a device, without what it is not: torch's modules pass (None, False) on."""
    named = dict(zip(("dtype", "non_blocking", "copy"), rest, strict=False))
    wanted = {name: value for name, value in {**named, **options}.items() if name != "non_blocking" and value not in (None, False)}
    dtype = wanted.pop("dtype", None)
    return (() if dtype is None else (dtype,)), wanted


_ACTIONS = {
    "to": Redirect._to,
    "type_as": Redirect._to,
    "cpu": lambda self, func, args, kwargs: self.move(args[0], "cpu"),
    "copy_": Redirect._copy,
    "pin_memory": Redirect._pin,
    **dict.fromkeys(("matmul", "__rmatmul__", "mm", "bmm", "mv", "dot", "vdot", "linear", "addmm", "addmv", "baddbmm"), Redirect._multiply),
    "is_pinned": lambda self, func, args, kwargs: marks.is_pinned(args[0]),
    "get_device": lambda self, func, args, kwargs: 0 if self.is_on_card(args[0]) else -1,
    "type": Redirect._type,
    "numpy": Redirect._array,
    "__array__": Redirect._array,
    "_pack_padded_sequence": Redirect._pack,
    "__repr__": Redirect._repr,
    "__format__": Redirect._repr,
    # torch knows the number of the vendor's kind of device.
    "__dlpack_device__": lambda self, func, args, kwargs: func(
        SimpleNamespace(device=self.claim, is_pinned=lambda: False) if self.is_on_card(args[0]) else args[0]
    ),
    "__dlpack__": lambda self, func, args, kwargs: func(*args, **{key: kwargs[key] for key in kwargs.keys() - {"stream", "dl_device"}}),
    "scaled_dot_product_attention": Redirect._attend,
    "histc": Redirect._count,
}
