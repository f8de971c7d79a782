"""The function at the bottom of a compiled kernel's launch, and what it is given: found by one launch that is only noted.

Between a compiled kernel and the driver, Triton calls hooks (mostly none), asks for scratch memory (mostly none), looks up each pointer,
and makes each tensor descriptor anew. Together that takes longer than the launch. What arrives at the bottom differs between versions of
Triton, so it is looked at instead of written down here: where the stream goes, where each pointer goes, and all else as it is.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
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
    """One launch in which only the stream and the addresses of tensors change, as a line of Python.

    `slots` says which address an argument's memory has: by the argument's position, for each tensor and tensor descriptor.
    """

    def __init__(self, compiled: Any, grid: tuple[int, ...], arguments: Sequence[Any], slots: Mapping[int, int]) -> None:
        """Look at a launch of `compiled`.

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
        grid, stream = (*grid, 1, 1)[:3], _At(0)
        self._compiled = compiled
        self._function, wrap = _bottom(compiled, launcher.launch, len(boxes))

        def noted(addresses: Mapping[int, int]) -> list[Any]:
            """Return what the driver's function gets, with descriptors of memory at these addresses."""
            found: list[list[Any]] = []
            noting, now = copy.copy(launcher), given.copy()
            noting.launch = wrap(lambda *args: found.append(list(args)))
            for i, box in boxes.items():
                now[i] = _moved(box, addresses[slots[i]])
            noting(*grid, stream, compiled.function, compiled.packed_metadata, None, None, None, *now)
            (args,) = found
            return args

        args = noted({slots[i]: box.base.data_ptr() for i, box in boxes.items()})
        # Up to Triton 3.6, the kernel's arguments follow one by one; later, they come last, together.
        together = isinstance(args[-1], (tuple, list))
        self._before = args[:-1] if together else args[:4]
        self._noted = (lambda addresses: list(noted(addresses)[-1])) if together else (lambda addresses: noted(addresses)[4:])
        self._args, self._together = list(args[-1]) if together else args[4:], together
        maps = [place for place, arg in enumerate(self._args) if type(arg).__name__ == "PyCUtensorMap"]
        self._boxes: dict[int, tuple[int, dict[int, Any]]] = {p: (slots[i], {}) for p, i in zip(maps, boxes, strict=True)}
        of_marks = {id(mark): slots[i] for i, mark in marks.items()}
        self._pointers = {place: of_marks[id(arg)] for place, arg in enumerate(self._args) if id(arg) in of_marks}
        if self._before[:3] != list(grid) or self._before[3] is not stream or len(self._pointers) != len(marks):
            raise NotImplementedError("a launch with other arguments")

    def line(self, names: dict[str, Any]) -> str:
        """Return a call of the driver's function. It uses `stream`, `a0` and on for the addresses, and what it adds to `names`."""

        def name(value: Any) -> str:
            if value is None or type(value) in (int, bool, str):
                return repr(value)
            names[new := f"n{len(names)}"] = value
            return new

        def written(place: int, arg: Any) -> str:
            if place in self._pointers:
                return f"a{self._pointers[place]}"
            if place in self._boxes:
                slot, maps = self._boxes[place]
                return f"{name(maps.get)}(a{slot}) or {name(self._map)}({place}, addresses)"
            return name(arg)

        name(self._compiled)  # Triton unloads what nobody keeps
        before = [name(arg) for arg in self._before]
        before[3] = "stream"
        args = [written(place, arg) for place, arg in enumerate(self._args)]
        rest = f"({', '.join(args)},)" if self._together else ", ".join(args)
        return f"{name(self._function)}({', '.join(before)}, {rest})"

    def _map(self, at: int, addresses: Sequence[int]) -> Any:
        """Return the descriptor for the argument at a place, and keep all of this launch: each depends on its address alone."""
        args = self._noted(addresses)
        for place, (slot, maps) in self._boxes.items():
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
