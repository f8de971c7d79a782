"""Note which kernels a call launches."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any


class Launched:
    """The names of kernels that were launched, each once, in order."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Note launches within. Not for timed calls: noting takes the host a moment for each launch."""
        from triton.runtime.jit import JITFunction

        run = JITFunction.run

        def launch(function: Any, *args: Any, **kwargs: Any) -> Any:
            self.names[getattr(function, "__name__", "kernel")] = None
            return run(function, *args, **kwargs)

        JITFunction.run = launch
        try:
            yield
        finally:
            JITFunction.run = run

    def first(self, function: Callable[[], Any]) -> Callable[[], Any]:
        """Return a function that notes the launches of its first call only, the one that compiles and warms up."""
        called = False

        def call() -> Any:
            nonlocal called
            if called:
                return function()
            called = True
            with self.noted():
                return function()

        return call
