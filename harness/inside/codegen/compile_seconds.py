"""How long Triton compiles in this process: a card waits meanwhile."""

from __future__ import annotations

import sys
import time
from typing import Any


class Compiling:
    """Counts the `seconds` that Triton's compiler takes."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._wrapped: Any = None

    def watch(self) -> None:
        """Begin to count, once Triton is imported. Costs nothing before and after."""
        module: Any = sys.modules.get("triton.compiler")
        if module is None or self._wrapped is not None or not hasattr(module, "compile"):
            return
        compile_kernel = module.compile

        def compile_and_count(*args: Any, **options: Any) -> Any:
            started = time.monotonic()
            try:
                return compile_kernel(*args, **options)
            finally:
                self.seconds += time.monotonic() - started

        self._wrapped = module.compile = compile_and_count
