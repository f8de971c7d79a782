"""What each key of `[tool.warpwave]` may be: pydantic models that refuse anything else, with a sentence that names what is allowed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model, model_validator

from harness.config.strict import refuse
from harness.records import CANDIDATES

_LAUNCHERS = ("bench", "test")
_WIDTHS = (8, 16, 32, 64, 128)


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_width(value: Any) -> bool:
    return type(value) is int and value in _WIDTHS


# What each gate may be set to. In Python, a bool is an int, but not here.
VALUES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "spills": (_is_count, "a whole number of registers, 0 or more"),
    "private_bytes": (_is_count, "a whole number of bytes, 0 or more"),
    "occupancy": (lambda value: type(value) in (int, float) and 0 < value <= 1, "a share above 0 and up to 1"),
    "load_bits": (_is_width, f"one of {', '.join(map(str, _WIDTHS))}"),
    "store_bits": (_is_width, f"one of {', '.join(map(str, _WIDTHS))}"),
    "matrix": (lambda value: value is True, "true"),
    "explicit_precision": (lambda value: value is True, "true"),
    "lds_waits": (lambda value: value is True, "true"),
    "release_waits": (lambda value: value is True, "true"),
}


def _check_gate(is_allowed: Callable[[Any], bool], allowed: str, may_open: bool, value: Any) -> Any:
    if not is_allowed(value) and not (may_open and value is False):
        hint = "; false switches the gate off" if may_open else ": a rule can only tighten a gate; to allow more, add a waiver"
        refuse(allowed + hint)
    return value


def _check_patterns(value: Any) -> tuple[str, ...]:
    """Return a shell pattern, or a list of them, as a tuple."""
    found = value if isinstance(value, list) and value else [value]
    if value is None:
        refuse('a pattern of kernel names, "*" for all of them', "nothing")
    if not all(isinstance(pattern, str) and pattern.strip() for pattern in found):
        refuse("a pattern or a list of patterns, none of them empty")
    return tuple(found)


def _check_launcher(value: Any) -> tuple[str, ...]:
    if value not in _LAUNCHERS:
        refuse(f"one of {', '.join(_LAUNCHERS)}; without it, both")
    return (value,)


def _check_waived(value: Any) -> Any:
    if not isinstance(value, str) or value not in VALUES:
        refuse(f"one of {', '.join(VALUES)}", "nothing" if value is None else "")
    return value


def _check_reason(value: Any) -> Any:
    if value is None:
        refuse("a sentence that says why: it is shown in the report", "nothing")
    if not isinstance(value, str) or not value.strip():
        refuse("a text that is not empty")
    return value


def _check_launches(value: Any) -> Any:
    if not isinstance(value, list) or not value or not all(name in _LAUNCHERS for name in value):
        refuse(f"a list of {' and '.join(_LAUNCHERS)}")
    return value


def _check_peers(value: Any) -> Any:
    if not (isinstance(value, list) and all(isinstance(name, str) and name.strip() for name in value)):
        refuse("a list of providers' names")
    return value


def _check_scripts(value: Any) -> Any:
    if not (isinstance(value, list) and all(isinstance(text, str) and text.strip() for text in value)):
        refuse('a list of globs, each with its arguments behind --, such as ["benchmarks/*.py -- --dtype bf16"]')
    return value


def _check_candidates(value: Any) -> Any:
    if value not in CANDIDATES:
        refuse('"best", where one clean candidate of an autotuned launch is enough, or "all"')
    return value


def _check_texts(value: Any) -> Any:
    if not (isinstance(value, list) and all(isinstance(text, str) and text.strip() for text in value)):
        refuse("a list of files, relative to this one")
    return value


def _check_tuned(value: Any) -> Any:
    known = {"files", "function", "key"}
    if not isinstance(value, list) or not all(isinstance(one, dict) and {"files"} <= one.keys() <= known for one in value):
        refuse('a list of tables such as {files = "configs/*.json", function = "fused_kernel"}, with `key` if the entries are below one')
    return [{name: str(text) for name, text in one.items()} for one in value]


def _check_env(value: Any) -> Any:
    if not (isinstance(value, dict) and all(isinstance(text, str) for text in value.values())):
        refuse('a table of texts, such as {NAME = "VALUE"}; a file never takes a value of yours')
    return value


def _gates(may_open: bool) -> dict[str, Any]:
    """Return a field per gate; None if the table does not set it."""
    checks = {gate: AfterValidator(partial(_check_gate, *allowed, may_open)) for gate, allowed in VALUES.items()}
    return {gate: (Annotated[Any, check], None) for gate, check in checks.items()}


_CANDIDATES: Any = (Annotated[Any, AfterValidator(_check_candidates)], CANDIDATES[0])
_Pattern = Annotated[Any, AfterValidator(_check_patterns)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class WhichTable(_Strict):
    """Which kernels a rule or a waiver is about."""

    kernel: _Pattern = Field(default=None, validate_default=True)
    function: _Pattern = ("*",)
    architecture: _Pattern = ("*",)
    types: _Pattern = ("*",)
    launched_by: Annotated[Any, AfterValidator(_check_launcher)] = ("*",)


class _SomeGate(WhichTable):
    @model_validator(mode="after")
    def _sets_one(self) -> Any:
        if not self.model_fields_set & set(VALUES):
            refuse(f"one that sets at least one of {', '.join(VALUES)}", "a rule that sets no gate")
        return self


class _Waiver(WhichTable):
    gate: Annotated[Any, AfterValidator(_check_waived)] = Field(default=None, validate_default=True)
    reason: Annotated[Any, AfterValidator(_check_reason)] = Field(default=None, validate_default=True)


_Everywhere: Any = create_model("_Everywhere", __base__=_Strict, **_gates(may_open=True), candidates=_CANDIDATES)
_Rule: Any = create_model("_Rule", __base__=_SomeGate, **_gates(may_open=False))


class Warpwave(_Strict):
    """The whole table."""

    gates: _Everywhere | None = None
    rules: list[_Rule] = []
    waivers: list[_Waiver] = []
    launches: Annotated[Any, AfterValidator(_check_launches)] = _LAUNCHERS
    peers: Annotated[Any, AfterValidator(_check_peers)] = ()
    bench_scripts: Annotated[Any, AfterValidator(_check_scripts)] = Field(default=(), alias="bench-scripts")
    requirements: Annotated[Any, AfterValidator(_check_texts)] = ()
    tuned: Annotated[Any, AfterValidator(_check_tuned)] = ()
    env: Annotated[Any, AfterValidator(_check_env)] = Field(default_factory=dict)


class _Tool(BaseModel):
    warpwave: Warpwave | None = None


class File(BaseModel):
    """The file, as far as it is read."""

    tool: _Tool = _Tool()
