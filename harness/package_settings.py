"""The `[tool.warpwave]` tables in a kernel package's `pyproject.toml` → `Gates`, and what to compile.

Strict: a wrong key or value is refused with the file, the key path, what was found and what is allowed. Otherwise a misspelt gate would
silently stay open.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from harness.errors import ConfigError
from harness.records import OPEN, Gates, Limits, Rule, Waiver, Which

_PATTERNS = tuple(field.name for field in dataclasses.fields(Which))
_LAUNCHERS = ("bench", "test")
_WIDTHS = (8, 16, 32, 64, 128)


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_width(value: Any) -> bool:
    return type(value) is int and value in _WIDTHS


# What each gate may be set to. In Python, a bool is an int, but not here.
_VALUES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "spills": (_is_count, "a whole number of registers, 0 or more"),
    "private_bytes": (_is_count, "a whole number of bytes, 0 or more"),
    "occupancy": (lambda value: type(value) in (int, float) and 0 < value <= 1, "a share above 0 and up to 1"),
    "load_bits": (_is_width, f"one of {', '.join(map(str, _WIDTHS))}"),
    "store_bits": (_is_width, f"one of {', '.join(map(str, _WIDTHS))}"),
    "matrix": (lambda value: value is True, "true"),
    "explicit_precision": (lambda value: value is True, "true"),
}


def load_gates(kernels: Path) -> Gates:
    """Return the gates in the nearest `pyproject.toml` at or above the folder `kernels`; the defaults if there are none.

    Raises:
        ConfigError: the file cannot be read, or a setting is not allowed.
    """
    table = _warpwave(kernels)
    if table is None:
        return Gates()
    return Gates(
        limits=_everywhere(table.table("gates")),
        rules=tuple(map(_rule, table.tables("rules"))),
        waivers=tuple(map(_waiver, table.tables("waivers"))),
        source=table.path.name,
    )


def load_launches(kernels: Path) -> tuple[str, ...]:
    """Return whose launches to compile, `launches = ["bench"]` in the same file; by default those of benches and tests.

    Raises:
        ConfigError: as above.
    """
    table = _warpwave(kernels)
    value = table.values.get("launches") if table else None
    if table is None or value is None:
        return _LAUNCHERS
    if not isinstance(value, list) or not value or not all(name in _LAUNCHERS for name in value):
        table.refuse("launches", repr(value), f"a list of {' and '.join(_LAUNCHERS)}")
    return tuple(dict.fromkeys(value))


def load_peers(kernels: Path) -> tuple[str, ...]:
    """Return the benchmark providers that launch no kernel of the package, `peers = ["torch"]`. The compile stage leaves them out.

    Raises:
        ConfigError: as above.
    """
    table = _warpwave(kernels)
    value = table.values.get("peers", []) if table else []
    if table and not (isinstance(value, list) and all(isinstance(name, str) and name.strip() for name in value)):
        table.refuse("peers", repr(value), "a list of providers' names")
    return tuple(dict.fromkeys(value))


def _warpwave(kernels: Path) -> _Table | None:
    folder = kernels.resolve()
    path = next((found for above in (folder, *folder.parents) if (found := above / "pyproject.toml").is_file()), None)
    table = _Table(path, "tool", _read(path).get("tool", {})).table("warpwave") if path else None
    if table is not None:
        table.only("gates", "rules", "waivers", "launches", "peers")
    return table


class _Table:
    """A table of the file, with its key path for error messages."""

    def __init__(self, path: Path, where: str, values: Any) -> None:
        self.path, self.where, self.values = path, where, values
        if not isinstance(values, dict):
            self.refuse("", repr(values), "a table")

    def refuse(self, key: str, found: str, allowed: str) -> NoReturn:
        where = f"{self.where}.{key}" if key else self.where
        raise ConfigError(
            f"{self.path}: {where}: found {found}, allowed is {allowed}.",
            "The key is misspelt, at the wrong level, or its value has another type.",
            "Fix that key; docs/gates.md shows every key with its meaning.",
        )

    def only(self, *keys: str) -> None:
        for key in self.values:
            if key not in keys:
                self.refuse(key, "a key that does not exist", f"one of {', '.join(keys)}")

    def table(self, key: str) -> _Table | None:
        return _Table(self.path, f"{self.where}.{key}", self.values[key]) if key in self.values else None

    def tables(self, key: str) -> list[_Table]:
        found = self.values.get(key, [])
        if not isinstance(found, list):
            shown = "one table" if isinstance(found, dict) else repr(found)
            self.refuse(key, shown, f"a list of tables, each headed [[{self.where}.{key}]]")
        return [_Table(self.path, f"{self.where}.{key}[{position}]", entry) for position, entry in enumerate(found)]

    def text(self, key: str) -> str:
        """Return a string that is not blank."""
        value = self.values[key]
        if not isinstance(value, str) or not value.strip():
            self.refuse(key, repr(value), "a text that is not empty")
        return value.strip()

    def patterns(self, key: str) -> tuple[str, ...]:
        """Return a shell pattern, or a list of them, as a tuple."""
        value = self.values[key]
        found = value if isinstance(value, list) and value else [value]
        if not all(isinstance(pattern, str) and pattern.strip() for pattern in found):
            self.refuse(key, repr(value), "a pattern or a list of patterns, none of them empty")
        return tuple(found)


def _everywhere(table: _Table | None) -> Limits:
    if table is None:
        return Limits()
    table.only(*_VALUES)
    return _limits(table, Limits(), may_open=True)


def _limits(table: _Table, base: Limits, may_open: bool) -> Limits:
    """Return `base` with the gates that a table sets."""
    found: dict[str, Any] = {}
    for gate, (is_allowed, allowed) in _VALUES.items():
        value = table.values.get(gate)
        if value is False and may_open:
            found[gate] = getattr(OPEN, gate)
        elif is_allowed(value):
            found[gate] = value
        elif gate in table.values:
            hint = "; false switches the gate off" if may_open else ": a rule can only tighten a gate; to allow more, add a waiver"
            table.refuse(gate, repr(value), allowed + hint)
    return dataclasses.replace(base, **found)


def _which(table: _Table) -> Which:
    if "kernel" not in table.values:
        table.refuse("kernel", "nothing", 'a pattern of kernel names, "*" for all of them')
    launcher = table.values.get("launched_by", "bench")
    if launcher not in _LAUNCHERS:
        table.refuse("launched_by", repr(launcher), f"one of {', '.join(_LAUNCHERS)}; without it, both")
    return Which(**{key: table.patterns(key) for key in _PATTERNS if key in table.values})


def _rule(table: _Table) -> Rule:
    table.only(*_PATTERNS, *_VALUES)
    limits = _limits(table, OPEN, may_open=False)
    if limits == OPEN:
        table.refuse("", "a rule that sets no gate", f"one that sets at least one of {', '.join(_VALUES)}")
    return Rule(_which(table), limits)


def _waiver(table: _Table) -> Waiver:
    table.only("gate", "reason", *_PATTERNS)
    gate = table.values.get("gate")
    if not isinstance(gate, str) or gate not in _VALUES:
        table.refuse("gate", "nothing" if gate is None else repr(gate), f"one of {', '.join(_VALUES)}")
    if "reason" not in table.values:
        table.refuse("reason", "nothing", "a sentence that says why: it is shown in the report")
    return Waiver(gate, table.text("reason"), _which(table))


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}.", "It is not text, or not readable for this user.", "Fix or move it.") from None
    except (ValueError, RecursionError) as error:  # TOMLDecodeError is a ValueError; so is an invalid number or date
        raise ConfigError(f"{path} is not valid TOML: {error}.", "Usually a quote or a bracket is missing.", "Fix that line.") from None
