"""Which architectures Triton can compile for. Read in a process that has imported Triton; the stage's own never does."""

from __future__ import annotations

from collections.abc import Sequence

from harness.records import Architecture


def without_backend(cards: Sequence[Architecture]) -> list[str]:
    """Return the architectures that no installed backend of Triton compiles for: each launch would fail for the same reason."""
    try:
        from triton.backends import backends
        from triton.backends.compiler import GPUTarget
    except ImportError:  # each case says so
        return []

    def is_known(card: Architecture) -> bool:
        target = GPUTarget(card.backend, card.arch, card.warp_size)
        return any(backend.compiler.supports_target(target) for backend in backends.values())

    return [f"{card.name} ({card.backend})" for card in cards if not is_known(card)]
