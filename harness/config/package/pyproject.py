"""The `[tool.warpwave]` tables in a kernel package's `pyproject.toml` → `Gates`, and what to compile.

Strict: a wrong key or value is refused, because a misspelt gate would silently stay open.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


from harness.config.package.pyproject_table import VALUES, File, Warpwave, WhichTable
from harness.config.package_variables import ALLOWED, not_allowed
from harness.config.strict import refusal, validate
from harness.errors import ConfigError
from harness.records import CANDIDATES, OPEN, Gates, Limits, Rule, Waiver, Which
from harness.records.selection.package import kernel_of

_PATTERNS = tuple(field.name for field in dataclasses.fields(Which))
_EXAMPLE = "docs/gates.md shows every key with its meaning"


def load_gates(kernels: Path) -> Gates:
    """Return the gates in the nearest `pyproject.toml` at or above the folder `kernels`; the defaults if there are none.

    Raises:
        ConfigError: the file cannot be read, or a setting is not allowed.
    """
    path, table = _warpwave(kernels)
    if path is None:
        return Gates()
    limits = _limits(table.gates, Limits()) if table.gates else Limits()
    rules = tuple(Rule(_which(rule), _limits(rule, OPEN)) for rule in table.rules)
    waivers = tuple(Waiver(waiver.gate, waiver.reason.strip(), _which(waiver)) for waiver in table.waivers)
    if path.parent.resolve() != kernels.resolve():
        # The file is about a larger package. What it waives elsewhere is not this run's, and not unused. What it waives nowhere is unused.
        own = _groups(kernels)
        waivers = tuple(waiver for waiver in waivers if _is_about(waiver, own) or not _is_about(waiver, _groups(path.parent)))
    candidates = table.gates.candidates if table.gates else CANDIDATES[0]
    return Gates(limits=limits, rules=rules, waivers=waivers, source=path.name, candidates=candidates)


def _is_about(waiver: Waiver, groups: set[str]) -> bool:
    return any(fnmatchcase(name, each) for each in waiver.which.kernel for name in groups)


@functools.lru_cache(maxsize=4)
def _groups(kernels: Path) -> set[str]:
    """Return every name that a report of this folder may group its kernels by."""
    paths = [path.relative_to(kernels).as_posix() for path in kernels.rglob("*.py")]
    return {kernel_of(path) for path in paths} | {part for path in paths for part in path.split("/")[:-1]}


def load_launches(kernels: Path) -> tuple[str, ...]:
    """Return whose launches to compile, `launches = ["bench"]` in the same file; by default those of benches and tests.

    Raises:
        ConfigError: as above.
    """
    return tuple(dict.fromkeys(_warpwave(kernels)[1].launches))


def load_peers(kernels: Path) -> tuple[str, ...]:
    """Return the benchmark providers that launch no kernel of the package, `peers = ["torch"]`. The compile stage leaves them out.

    Raises:
        ConfigError: as above.
    """
    return tuple(dict.fromkeys(_warpwave(kernels)[1].peers))


def load_bench_scripts(kernels: Path) -> tuple[str, ...]:
    """Return the benchmarks that are scripts, `bench-scripts = ["benchmarks/*.py -- --dtype bf16"]`, as `--bench-script` takes them.

    Raises:
        ConfigError: as above.
    """
    return tuple(dict.fromkeys(_warpwave(kernels)[1].bench_scripts))


@dataclasses.dataclass(frozen=True)
class PackageEnvironment:
    """What a package names for its environment: what `--install` installs beside it, and variables."""

    requirements: tuple[Path, ...] = ()
    env: dict[str, str] = dataclasses.field(default_factory=dict)


def load_environment(kernels: Path) -> PackageEnvironment:
    """Return `requirements = ["FILE"]` and `env = {NAME = "VALUE"}` of the same file.

    Raises:
        ConfigError: as above.
    """
    path, table = _warpwave(kernels)
    if path is None:
        return PackageEnvironment()
    for name in not_allowed(table.env, path.parent):
        raise refusal(path, "tool.warpwave.env", name, ALLOWED, _EXAMPLE)
    files = tuple(path.parent / file for file in table.requirements)
    return PackageEnvironment(files, dict(table.env))


def load_tuned(kernels: Path) -> tuple[Path | None, list[dict[str, str]]]:
    """Return the folder of the same file, and its `tuned`: where the package keeps its tuned configurations. Raises as above."""
    path, table = _warpwave(kernels)
    return (path.parent if path else None), list(table.tuned)


def _warpwave(kernels: Path) -> tuple[Path | None, Warpwave]:
    """Return the nearest `pyproject.toml` and its table; None and the defaults if there is no file or no table."""
    folder = kernels.resolve()
    path = next((found for above in (folder, *folder.parents) if (found := above / "pyproject.toml").is_file()), None)
    table = validate(File, _read(path), path, _EXAMPLE).tool.warpwave if path else None
    return (path, table) if table else (None, Warpwave())


def _limits(table: Any, base: Limits) -> Limits:
    """Return `base` with the gates that a table sets; false opens a gate."""
    values = {gate: getattr(table, gate) for gate in table.model_fields_set & set(VALUES)}
    return dataclasses.replace(base, **{gate: getattr(OPEN, gate) if value is False else value for gate, value in values.items()})


def _which(table: WhichTable) -> Which:
    return Which(**{name: getattr(table, name) for name in _PATTERNS})


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}.", "It is not text, or not readable for this user.", "Fix or move it.") from None
    except (ValueError, RecursionError) as error:  # TOMLDecodeError is a ValueError; so is an invalid number or date
        raise ConfigError(f"{path} is not valid TOML: {error}.", "Usually a quote or a bracket is missing.", "Fix that line.") from None
