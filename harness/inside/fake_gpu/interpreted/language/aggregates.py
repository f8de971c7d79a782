"""Structs of kernels (`_aggregate`), which Triton's interpreter cannot make: constants are numbers there, and methods are not bound."""

from __future__ import annotations

from typing import Any, cast

import triton.language as tl

from harness.inside.fake_gpu.torch_device import Patch


def aggregates() -> list[Patch]:
    """Return what replaces the decorator; nothing for a Triton without it."""
    make = getattr(tl.core, "_aggregate", None)
    return [(tl.core, "_aggregate", lambda plain: _interpreted(plain, make(plain)))] if make else []


def _interpreted(plain: type, made: Any) -> Any:
    """Return the type that Triton made of a class, with constants as the class names them, and with its methods."""
    from triton.runtime.interpreter import InterpretedFunction

    constexpr = cast(type, tl.constexpr)
    fields = getattr(made, "__annotations__", None) or plain.__annotations__
    assign = made.__setattr__

    def set_field(instance: Any, name: str, value: Any) -> None:
        is_constant = fields.get(name) is constexpr and not isinstance(value, constexpr)
        assign(instance, name, constexpr(value) if is_constant else value)

    made.__setattr__ = set_field
    for name in dir(plain):
        member = getattr(plain, name, None)
        if isinstance(member, InterpretedFunction):
            setattr(made, name, _bound(member))
    return made


def _bound(function: Any) -> Any:
    def method(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return method
