"""The function at the bottom of a compiled kernel's launch, and what it is given: found by one launch that is only noted.

Between a compiled kernel and the driver, Triton calls hooks (mostly none), asks for scratch memory (mostly none), looks up each pointer,
and makes each tensor descriptor anew. Together that takes longer than the launch. What arrives at the bottom differs between versions of
Triton, so it is looked at instead of written down here: where the stream goes, where each pointer goes, and all else as it is.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

# The addresses of one argument whose descriptors are kept: more than a model has weights of one shape.
_MOST_MAPS = 1024


class _At:
    """A place in memory: all that the driver asks of a tensor is its address."""

    __slots__ = ("_address",)

    def __init__(self, address: int) -> None:
        self._address = address

    def data_ptr(self) -> int:
        return self._address


class Direct:
    """One launch in which only the stream and the addresses of tensors change. `direct(addresses, stream)` launches it.

    `slots` says which of `addresses` an argument's memory is: by the argument's position, for each tensor and tensor descriptor.
    """

    __slots__ = ("_boxes", "_expanded", "_fixed", "_function", "_grid", "_middle", "_pick")

    def __init__(self, compiled: Any, grid: tuple[int, ...], arguments: Sequence[Any], slots: Mapping[int, int], count: int) -> None:
        """Look at a launch of `compiled`; there will be `count` addresses.

        Raises:
            Exception: Triton does not launch as expected; of any kind, because nothing of this is promised.
        """
        launcher = compiled.run
        if launcher.global_scratch_size or launcher.profile_scratch_size or getattr(launcher, "gsan_enabled", False):
            raise NotImplementedError("a launch that needs more than its arguments")
        # No tensor is kept.
        boxes = {i: _moved(arguments[i], arguments[i].base.data_ptr()) for i in slots if hasattr(arguments[i], "base")}
        marks = {i: _At(0) for i in slots if i not in boxes}
        given = [boxes.get(i) or marks.get(i, argument) for i, argument in enumerate(arguments)]
        self._grid, stream = (*grid, 1, 1)[:3], _At(0)
        self._function, wrap = _bottom(compiled, launcher.launch, len(boxes))

        def expanded(addresses: Mapping[int, int]) -> list[Any]:
            """Return what the driver's function gets, with descriptors of memory at these addresses."""
            noted: list[list[Any]] = []
            noting, now = copy.copy(launcher), given.copy()
            noting.launch = wrap(lambda *args: noted.append(list(args)))
            for i, box in boxes.items():
                now[i] = _moved(box, addresses[slots[i]])
            noting(*self._grid, stream, compiled.function, compiled.packed_metadata, None, None, None, *now)
            (args,) = noted
            return args

        args = expanded({slots[i]: box.base.data_ptr() for i, box in boxes.items()})
        if args[:3] != list(self._grid) or args[3] is not stream:
            raise NotImplementedError("a launch that begins in another way")
        # Up to Triton 3.6, the kernel's arguments follow one by one; later, they come last, together.
        together = isinstance(args[-1], (tuple, list))
        self._middle = args[4:-1] if together else None
        self._expanded = lambda addresses: (lambda args: list(args[-1]) if together else args[4:])(expanded(addresses))
        args = list(args[-1]) if together else args[4:]
        # An argument is picked from the addresses, the descriptors, and what is fixed, in this order.
        maps = [place for place, arg in enumerate(args) if type(arg).__name__ == "PyCUtensorMap"]
        self._boxes: list[tuple[int, int, dict[int, Any]]] = [(p, slots[i], {}) for p, i in zip(maps, boxes, strict=True)]
        first, of_marks = count + len(maps), {id(mark): slots[i] for i, mark in marks.items()}
        order = [of_marks.get(id(arg), first + place) for place, arg in enumerate(args)]
        for number, place in enumerate(maps):
            order[place] = count + number
        if len(order) < 2 or len({*order} & {*of_marks.values()}) != len({*of_marks.values()}):
            raise NotImplementedError("a launch without some pointer")
        self._pick = itemgetter(*order)
        self._fixed = [None if id(arg) in of_marks else arg for arg in args]

    def __call__(self, addresses: Sequence[int], stream: int) -> None:
        boxes = [maps.get(addresses[slot]) or self._map(place, addresses) for place, slot, maps in self._boxes] if self._boxes else ()
        args = self._pick([*addresses, *boxes, *self._fixed])
        if self._middle is None:
            self._function(*self._grid, stream, *args)
        else:
            self._function(*self._grid, stream, *self._middle, args)

    def _map(self, at: int, addresses: Sequence[int]) -> Any:
        """Return the descriptor for the argument at a place, and keep all of this launch: each depends on its address alone."""
        args = self._expanded(addresses)
        for place, slot, maps in self._boxes:
            if len(maps) >= _MOST_MAPS:
                maps.clear()
            maps[addresses[slot]] = args[place]
        return args[at]


def _moved(descriptor: Any, address: int) -> Any:
    """Return a copy for other memory."""
    moved = copy.copy(descriptor)
    moved.base = _At(address)
    return moved


def _bottom(compiled: Any, launch: Any, boxes: int) -> tuple[Callable[..., Any], Callable[[Any], Any]]:
    """Return the driver's function, and how Triton wraps it."""
    if not boxes:
        return launch, lambda function: function
    from triton.backends.nvidia.driver import wrap_handle_tensordesc

    made_maps = compiled.metadata.tensordesc_meta
    if len(made_maps) != boxes:
        raise NotImplementedError("a descriptor that is no map")
    function = launch.__closure__[launch.__code__.co_freevars.index("launcher")].cell_contents
    signature = dict(compiled.src.signature)
    return function, lambda function: wrap_handle_tensordesc(function, signature, made_maps)
