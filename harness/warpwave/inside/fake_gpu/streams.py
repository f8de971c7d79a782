"""Stand-ins for streams, events and graphs of a pretended card. There is one queue, and it is always empty."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from warpwave.inside.fake_gpu.host_side import is_host, is_packages_op, storage_of, tensors_in
from warpwave.inside.fake_gpu.torch_device import always, nothing
from warpwave.inside.fake_gpu.unknown import MadeUpTime
from warpwave.inside.process.outcomes import Pretended, as_on_a_card

_BROKEN = "operation failed due to a previous error during capture"  # as a card says
_MAKES_EMPTY = ("aten::empty", "aten::new_empty")  # memory that a graph keeps: what it holds is written by others
# The result, or its shape, depends on numbers that only the card has.
_WAIT = (
    *("aten::_local_scalar_dense", "aten::equal", "aten::is_nonzero", "aten::item", "aten::masked_select", "aten::nonzero"),
    *("aten::_unique", "aten::_unique2", "aten::unique_consecutive", "aten::unique_dim"),
    *("aten::allclose", "aten::bincount", "aten::_linalg_check_errors"),
)


class Stream:
    """A stream. A class, as torch's is: libraries annotate with `torch.cuda.Stream | None`."""

    cuda_stream = sycl_queue = stream_id = native_handle = device_index = device_type = 0
    _current: list[Stream] = []  # noqa: RUF012 - the same for all, as on a card

    def __init__(self, device: object = None, priority: int = 0, **rest: object) -> None:
        self.priority = priority

    @property
    def device(self) -> torch.device:
        """The device, which is the only one."""
        accelerator = torch.accelerator.current_accelerator()
        return torch.device(accelerator.type if accelerator else "cpu", 0)

    @classmethod
    def current(cls, device: object = None) -> Stream:
        """Return the stream of the innermost `with`, or else the default one."""
        return cls._current[-1] if cls._current else DEFAULT

    @classmethod
    def make_current(cls, stream: Stream) -> None:
        """Use a stream from here on."""
        cls._current[:] = [stream]

    def record_event(self, event: Event | None = None) -> Event:
        """Return the event, or a new one, which the stream has come to."""
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Everything has run. While a graph is captured, a stream becomes a part of it so, or joins another one."""
        for graph in Graph.capturing:
            graph._depend(self, event)

    def wait_stream(self, stream: Stream) -> None:
        """Wait for what a stream has come to."""
        self.wait_event(stream.record_event())

    def query(self) -> bool:
        """Return True: everything has run. A card refuses to say while a graph is captured."""
        self.synchronize()
        return True

    def synchronize(self) -> None:
        """Everything has run. While a graph is captured, a card refuses to wait for a stream; for others than its own, only by default."""
        if self is self.current() or any(graph.error_mode == "global" for graph in Graph.capturing):
            wait()

    def is_capturing(self) -> bool:
        """Return whether a graph is being captured. torch's optimizers ask before each step."""
        return bool(Graph.capturing)

    def __enter__(self) -> Stream:
        self._current.append(self)
        return self

    def __exit__(self, *raised: object) -> None:
        self._current.pop()


class Event:
    """An event. The time between two is made up: without a card, nothing is timed."""

    cuda_event = event_id = 0

    def __init__(self, *args: object, **options: object) -> None:
        self._is_captured, self._work = False, 0
        self._stream: Stream | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Note whether a graph keeps the event: the host cannot wait for such a one."""
        self._stream = stream = stream or Stream.current()
        graph = next((graph for graph in Graph.capturing if stream in graph._work), None)
        self._is_captured, self._work = graph is not None, graph._work[stream] if graph else 0

    def wait(self, stream: Stream | None = None) -> None:
        """Have a stream wait for the event."""
        (stream or Stream.current()).wait_event(self)

    query = always(True)  # everything has run

    def synchronize(self) -> None:
        """Everything has run."""
        if self._is_captured:
            wait()

    def elapsed_time(self, other: Event) -> float:
        """Return a millisecond, as callers divide by it, and note that a test has asked: nothing is timed without a card."""
        if self._is_captured or other._is_captured:
            wait()
        Pretended.asked.add("elapsed_time")
        return MadeUpTime(1)


class StreamContext(contextlib.ExitStack):
    """Stand in for `torch.cuda.stream` and its class: torch's compiler asks whether an object is one."""

    def __init__(self, stream: Stream | None) -> None:
        super().__init__()
        self.stream = stream

    def __enter__(self) -> StreamContext:
        if self.stream is not None:
            self.enter_context(self.stream)
        return self


class Graph:
    """A graph that repeats on the host what was captured, into the same tensors. Without data there is nothing to repeat."""

    capturing: list[Graph] = []  # noqa: RUF012 - the same for all, as on a card
    _running = 0  # calls that are remembered with all that they call

    def __init__(self, keep_graph: bool = False) -> None:
        self._calls: list[tuple[Callable[..., Any], Any, Any, Any]] = []
        self._mode: _Capture | None = None
        self._before: dict[int, tuple[Any, Any]] = {}
        self._made: set[int] = set()
        self._keeps, self._is_captured, self.is_broken = keep_graph, False, False
        # Of each stream of the capture, the first one first: how much it did that the first one does not wait for.
        self._work: dict[Stream, int] = {}
        self.error_mode = "global"

    @classmethod
    def run(cls, call: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """Run an operation of torch's or a launch, and let each graph that is being captured remember it."""
        graphs = [] if cls._running else [graph for graph in cls.capturing if graph._takes(Stream.current())]
        for graph in graphs:
            graph._keep(args, kwargs)
        Graph._running += 1
        try:
            result = call(*args, **kwargs)
        finally:
            Graph._running -= 1
        for graph in graphs:
            graph._note_made(result)
            graph._calls.append((call, args, kwargs, result))
        return result

    def _takes(self, stream: Stream) -> bool:
        """Note work on a stream. Return whether it is a part of the capture: what the default one does, a card does at once.

        Raise for another one that waits for none of the capture.
        """
        if stream not in self._work and stream is not DEFAULT:
            self.is_broken = True
            raise as_on_a_card(RuntimeError(f"{_BROKEN}: it uses a stream that waits for none of the capture (wait_stream)"))
        if stream in self._work:
            self._work[stream] += 1
        return stream in self._work

    def _depend(self, stream: Stream, event: Event) -> None:
        """Have a stream wait for an event during the capture. It becomes a part of it if the event is one."""
        if event._stream is None:  # nothing has recorded it
            return
        is_apart = stream not in self._work
        if is_apart and not event._is_captured:
            return
        if not event._is_captured or (is_apart and stream is DEFAULT):
            self.is_broken = True
            words = "the default stream waits for one of the capture" if event._is_captured else "it waits for what is not captured"
            raise as_on_a_card(RuntimeError(f"{_BROKEN}: {words}"))
        self._work.setdefault(stream, 0)
        first = next(iter(self._work))
        if stream is not event._stream and event._stream is not first:
            if self._work[event._stream] == event._work:
                self._work[event._stream] = 0
            self._work[stream] += stream is not first

    @classmethod
    def made(cls, result: Any) -> Any:
        """Note memory that was allocated during a capture, and return it."""
        for graph in cls.capturing:
            graph._note_made(result)
        return result

    def capture_begin(self, pool: object = None, capture_error_mode: str = "global") -> None:
        """Remember every operation and every launch from here on. They also run, for the shapes of what they return.

        Raise what torch and a card's driver raise for a second capture, within another one or of a graph that has one, and for one on the
        default stream.
        """
        wait()
        if Stream.current() is DEFAULT:
            raise as_on_a_card(RuntimeError("CUDA graphs must be captured on a non-default stream."))
        if self._is_captured and not self._keeps:
            words = "This CUDAGraph instance already owns a captured graph. To capture a new graph, create a new instance."
            raise as_on_a_card(RuntimeError(words))
        self._calls.clear()
        self._is_captured = self.is_broken = False
        self._work, self.error_mode = {Stream.current(): 0}, capture_error_mode
        self.capturing.append(self)
        self._mode = _Capture()
        self._mode.__enter__()

    def capture_end(self) -> None:
        """Stop remembering, and take back what the calls did to tensors from before: on a card, nothing runs yet.

        Raise what a card raises on another stream, and if a stream of the capture did what its first one does not wait for.
        """
        if self._mode is None or self not in self.capturing or Stream.current() not in [*self._work][:1]:
            raise as_on_a_card(RuntimeError("Capture must end on the same stream it began on."))
        self._mode.__exit__(None, None, None)
        self.capturing.remove(self)
        is_joined = not any([*self._work.values()][1:])
        self._is_captured = is_joined and not self.is_broken
        for storage, content in self._before.values():
            storage.copy_(content)
        self._before.clear()
        self._made.clear()
        if not is_joined and not self.is_broken:
            raise as_on_a_card(RuntimeError("capturing stream has unjoined work"))

    def replay(self) -> None:
        """Run everything again, with what its inputs hold now."""
        if not self._is_captured:
            raise as_on_a_card(RuntimeError("Called CUDAGraph::replay without a preceding successful capture."))
        with torch.no_grad():
            for call, args, kwargs, result in self._calls:
                again = call(*args, **kwargs)
                for old, new in zip(tensors_in(result), tensors_in(again), strict=False):
                    if old is not new and old.data_ptr() != new.data_ptr():
                        old.detach().copy_(new.detach())

    def _keep(self, *given: Any) -> None:
        with torch._C.DisableTorchFunction():
            for storage in map(_memory, tensors_in(given)):
                if storage is not None and (address := storage.data_ptr()) not in self._before and address not in self._made:
                    self._before[address] = storage, storage.clone()

    def _note_made(self, result: Any) -> None:
        with torch._C.DisableTorchFunction():
            found = [storage.data_ptr() for storage in map(_memory, tensors_in(result)) if storage is not None]
        self._made.update(address for address in found if address not in self._before)

    def reset(self) -> None:
        """Forget everything."""
        self._calls.clear()
        self._is_captured = False

    pool = always((0, 0))  # a name of the memory that it uses
    instantiate = enable_debug_mode = debug_dump = nothing  # it can run already, and there is nothing to see


@contextlib.contextmanager
def capture(graph: Graph, pool: object = None, stream: Stream | None = None, capture_error_mode: str = "global") -> Iterator[None]:
    """Stand in for `torch.cuda.graph`."""
    wait()  # as torch does
    with StreamContext(stream or Stream()):
        graph.capture_begin(pool, capture_error_mode)
        try:
            yield
        except BaseException:
            graph.is_broken = True  # which is all that its end would say
            raise
        finally:
            graph.capture_end()


def graphed(callables: Any, sample_args: Any, *rest: object, **options: object) -> Any:
    """Stand in for `torch.cuda.make_graphed_callables`: make each call and its backward once, and capture it.

    Called, they do the same, and return it in the same memory each time.
    """
    if not isinstance(callables, tuple):
        return _graphed(callables, sample_args)
    return tuple(itertools.starmap(_graphed, zip(callables, sample_args, strict=True)))


def _graphed(function: Any, args: Any) -> Any:
    for within in (contextlib.nullcontext(), capture(Graph())):
        with within:
            returned = function(*args)
            made = [each for each in tensors_in(returned) if each.requires_grad]
            given = [each for each in tensors_in(args) if each.requires_grad]
            if made and given:
                torch.autograd.grad(made, given, [torch.ones_like(each) for each in made], allow_unused=True)
    kept = [each.detach() for each in tree_leaves(returned) if isinstance(each, torch.Tensor)]
    is_module = isinstance(function, torch.nn.Module)
    plain, trains = function.forward if is_module else function, getattr(function, "training", None)

    def call(*args: Any, **kwargs: Any) -> Any:
        returned = plain(*args, **kwargs)
        if getattr(function, "training", None) != trains:
            return returned
        memory = iter(kept)
        keep: Any = _Kept.apply
        return tree_map_only(torch.Tensor, lambda new: keep(new, next(memory)), returned)

    if is_module:
        function.forward = call
    return function if is_module else call


class _Kept(torch.autograd.Function):
    """Puts a tensor into memory of a graph."""

    @staticmethod
    def forward(ctx: Any, new: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
        kept.copy_(new)
        return kept.detach()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient, None


def seeding(seed: Callable[..., Any], generator: Any, *new: Any) -> Any:
    """Give a generator of the card another seed. A card refuses that while a graph is captured."""
    if Graph.capturing and (not new or int(new[0]) != generator.initial_seed()):
        raise as_on_a_card(RuntimeError("a generator can get another seed only when no stream is capturing"))
    return seed(generator, *new)


def wait(*args: object, **kwargs: object) -> None:
    """Stand in for what lets the host wait for the card. A card refuses it while a graph is captured, and the capture fails."""
    for graph in Graph.capturing:
        graph.is_broken = True
    if Graph.capturing:
        raise as_on_a_card(RuntimeError("operation not permitted when stream is capturing"))


class _Capture(TorchDispatchMode):
    """Sees operations below autograd, as a card does: those of a backward too, and none that only ties tensors together."""

    supports_higher_order_operators = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not Graph._running and _waits(str(getattr(func, "_name", "")), args, kwargs or {}):
            wait()
        if is_packages_op(func):  # it runs the package's code, which sees a card
            return Graph.run(func, args, kwargs or {})
        if str(getattr(func, "_name", "")).startswith(_MAKES_EMPTY):
            with torch._C.DisableTorchFunction():
                return Graph.made(func(*args, **(kwargs or {})))

        def run(*args: Any, **kwargs: Any) -> Any:
            with torch._C.DisableTorchFunction():  # which device is meant has been decided
                return func(*args, **kwargs)

        return Graph.run(run, args, kwargs or {})


def _waits(name: str, args: Any, kwargs: dict[str, Any]) -> bool:
    """Whether an operation on the card's tensors needs their numbers on the host."""
    if name == "aten::repeat_interleave.Tensor" and kwargs.get("output_size") is None:
        return not is_host(args[0])
    if name.startswith(("aten::index.", "aten::index_put", "aten::_index_put")):
        return any(index.dtype in (torch.bool, torch.uint8) and not is_host(index) for index in tensors_in(args[1]))
    return name.split(".")[0] in _WAIT and any(not is_host(tensor) for tensor in tensors_in(args))


def _memory(tensor: torch.Tensor) -> Any:
    """Return a tensor's storage; nothing if it has no data."""
    storage = storage_of(tensor)
    return storage if storage is not None and storage.device.type == "cpu" and storage.nbytes() else None


DEFAULT = Stream()
