"""The `[tool.warpwave]` tables in a kernel package's `pyproject.toml` → `Gates`, and what to compile. Strict: a wrong key or value is
refused, because a misspelt gate would silently stay open."""

import dataclasses
import functools
import json
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, create_model, model_validator

from warpwave.config.files import read_toml, refusal, refuse, validate
from warpwave.config.package import ALLOWED, not_allowed
from warpwave.errors import ConfigError, UsageError
from warpwave.git import repository_of
from warpwave.records import ADVICE, CANDIDATES, COUNTERS, OPEN, BenchScript, CounterLimit, GateLimits, Gates, Rule, Waiver, Which
from warpwave.records.selection import find_scripts, kernel_of

if TYPE_CHECKING:
    from warpwave.compare.upgrade import Tuned

# What each key of `[tool.warpwave]` may be: pydantic models that refuse anything else, with a sentence that names what is allowed.

_NAME = re.compile(r"[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?")
_LAUNCHERS = ("bench", "test")
_WIDTHS = (8, 16, 32, 64, 128)
_MOST_LIMIT = 1e12


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


_WIDTH = (lambda value: type(value) is int and value in _WIDTHS, f"one of {', '.join(map(str, _WIDTHS))}")
_TRUE = (lambda value: value is True, "true")
_FACTOR = (
    lambda value: type(value) in (int, float) and 1 < value <= _MOST_LIMIT,
    "a number above 1: so many times what it was in the run that this one is compared with",
)
# What each gate may be set to. In Python, a bool is an int, but not here.
VALUES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "spills": (_is_count, "a whole number of registers, 0 or more"),
    "private_bytes": (_is_count, "a whole number of bytes, 0 or more"),
    "occupancy": (lambda value: type(value) in (int, float) and 0 < value <= 1, "a share above 0 and up to 1"),
    **dict.fromkeys(("load_bits", "store_bits"), _WIDTH),
    **dict.fromkeys(("matrix", "explicit_precision", "lds_waits", "release_waits", "undefined_lanes"), _TRUE),
    **dict.fromkeys(("compile_time", "compile_memory"), _FACTOR),
}


def _allowed(allowed: str, fits: Callable[[Any], Any], missing: str = "") -> AfterValidator:
    """Return a check of a value. `allowed` says in words what fits, and `missing` the same where there is no value at all."""

    def check(value: Any) -> Any:
        if not fits(value):
            refuse(*((missing or allowed, "nothing") if value is None else (allowed,)))
        return value

    return AfterValidator(check)


def _one_of(names: Sequence[str]) -> AfterValidator:
    return _allowed(f"one of {', '.join(names)}", lambda value: isinstance(value, str) and value in names)


def _texts(allowed: str, fits: Callable[[str], Any] = str.strip, least: int = 0) -> AfterValidator:
    """Return a check of a list of texts, which all fit."""
    return _allowed(allowed, lambda value: isinstance(value, list) and len(value) >= least and _are_texts(value, fits))


def _are_texts(values: Iterable[Any], fits: Callable[[str], Any] = str.strip) -> bool:
    return all(isinstance(value, str) and fits(value) for value in values)


def _is_tuned(value: Any) -> bool:
    known = {"files", "function", "key"}
    return isinstance(value, list) and all(isinstance(one, dict) and {"files"} <= one.keys() <= known for one in value)


_SCRIPTS = _texts('a list of globs, each with its arguments behind --, such as ["benchmarks/*.py -- --dtype bf16"]')
_NAMES = _texts('a list of packages\' names, without versions, such as ["flash-attn"]', _NAME.fullmatch)
_TUNED = 'a list of tables such as {files = "configs/*.json", function = "fused_kernel"}, with `key` if the entries are below one'
_ENV = 'a table of texts, such as {NAME = "VALUE"}; a file never takes a value of yours'
_CANDIDATES = _allowed('"best", where one clean candidate of an autotuned launch is enough, or "all"', CANDIDATES.__contains__)
_REASON = _allowed("a text that is not empty", lambda value: _are_texts([value]), "a sentence that says why: it is shown in the report")
_MOST_OF_COUNTER = _allowed("a number from 0 on", lambda value: type(value) in (int, float) and 0 <= value <= _MOST_LIMIT)


def _gates(may_open: bool) -> dict[str, Any]:
    hint = "; false switches the gate off" if may_open else ": a rule can only tighten a gate; to allow more, add a waiver"

    def check(fits: Callable[[Any], bool], allowed: str) -> AfterValidator:
        return _allowed(allowed + hint, lambda value: fits(value) or (may_open and value is False))

    return {gate: (Annotated[Any, check(*allowed)], None) for gate, allowed in VALUES.items()}


# A shell pattern, or a list of them, as a tuple.
_Pattern = Annotated[
    Any,
    AfterValidator(lambda value: value if isinstance(value, list) and value else [value]),
    _allowed("a pattern or a list of patterns, none of them empty", _are_texts),
    AfterValidator(tuple),
]
_Required = partial(Field, default=None, validate_default=True)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Which(_Strict):
    kernel: Annotated[
        _Pattern,
        BeforeValidator(lambda value: refuse('a pattern of kernel names, "*" for all of them', "nothing") if value is None else value),
    ] = _Required()
    function: _Pattern = ("*",)
    architecture: _Pattern = ("*",)
    types: _Pattern = ("*",)
    launched_by: Annotated[
        Any, _allowed(f"one of {', '.join(_LAUNCHERS)}; without it, both", _LAUNCHERS.__contains__), AfterValidator(lambda value: (value,))
    ] = ("*",)


class _SomeGate(_Which):
    @model_validator(mode="after")
    def _sets_one(self) -> Any:
        if not self.model_fields_set & set(VALUES):
            refuse(f"one that sets at least one of {', '.join(VALUES)}", "a rule that sets no gate")
        return self


class _Waiver(_Which):
    gate: Annotated[Any, _one_of(tuple(VALUES))] = _Required()
    reason: Annotated[Any, _REASON] = _Required()


class _Counter(_Strict):
    kernel: _Pattern = ("*",)
    function: _Pattern = ("*",)
    architecture: _Pattern = ("*",)
    counter: Annotated[Any, _one_of(COUNTERS)] = _Required()
    at_most: Annotated[Any, _MOST_OF_COUNTER] = _Required()
    of: Annotated[Any, _one_of(COUNTERS)] = ""


_Everywhere: Any = create_model(
    "_Everywhere", __base__=_Strict, **_gates(may_open=True), candidates=(Annotated[Any, _CANDIDATES], CANDIDATES[0])
)
_Rule: Any = create_model("_Rule", __base__=_SomeGate, **_gates(may_open=False))


class _Warpwave(_Strict):
    gates: _Everywhere | None = None
    rules: list[_Rule] = []
    waivers: list[_Waiver] = []
    counters: list[_Counter] = []
    launches: Annotated[Any, _texts("a list of bench and test", _LAUNCHERS.__contains__, 1)] = _LAUNCHERS
    peers: Annotated[Any, _texts("a list of providers' names")] = ()
    autotune: Literal["one", "all"] = "one"
    bench_scripts: Annotated[Any, _SCRIPTS] = Field(default=(), alias="bench-scripts")
    requirements: Annotated[Any, _texts("a list of files, relative to this one")] = ()
    skip_requirements: Annotated[Any, _NAMES] = Field(default=(), alias="skip-requirements")
    tuned: Annotated[Any, _allowed(_TUNED, _is_tuned)] = ()
    env: Annotated[Any, _allowed(_ENV, lambda value: isinstance(value, dict) and _are_texts(value.values(), lambda _: True))] = {}


class _Tool(BaseModel):
    warpwave: _Warpwave | None = None


class _File(BaseModel):
    tool: _Tool = _Tool()


_PATTERNS = tuple(field.name for field in dataclasses.fields(Which))
_EXAMPLE = "docs/reference/pyproject.md shows every key, docs/gates.md every gate"


def load_gates(kernels: Path, *, strict: bool = False) -> Gates:
    """Return the gates in the nearest `pyproject.toml` at or above the folder `kernels`; the defaults if there are none. If `strict`, the
    gates that only advise fail a run as well. Raises ConfigError if the file cannot be read, or a setting is not allowed."""
    path, table = _warpwave(kernels)
    base = dataclasses.replace(ADVICE, lds_waits=True, release_waits=True, undefined_lanes=True) if strict else GateLimits()
    own = table.gates.model_fields_set & set(VALUES) if table.gates else ()
    advice = OPEN if strict else dataclasses.replace(ADVICE, **{gate: getattr(OPEN, gate) for gate in own})
    if path is None:
        return Gates(base, advice=advice)
    limits = _limits(table.gates, base) if table.gates else base
    rules = tuple(Rule(_which(rule), _limits(rule, OPEN)) for rule in table.rules)
    waivers = tuple(Waiver(waiver.gate, waiver.reason.strip(), _which(waiver)) for waiver in table.waivers)
    if path.parent.resolve() != kernels.resolve():
        # The file is about a larger package. What it waives elsewhere is not this run's, and not unused. What it waives nowhere is unused.
        own = _groups(kernels)
        waivers = tuple(waiver for waiver in waivers if _is_about(waiver, own) or not _is_about(waiver, _groups(path.parent)))
    candidates = table.gates.candidates if table.gates else CANDIDATES[0]
    meant = [Which(one.kernel, one.function, one.architecture) for one in table.counters]
    counters = tuple(CounterLimit(which, one.counter, one.at_most, one.of) for which, one in zip(meant, table.counters, strict=True))
    return Gates(limits=limits, rules=rules, waivers=waivers, source=path.name, candidates=candidates, advice=advice, counters=counters)


def _is_about(waiver: Waiver, groups: set[str]) -> bool:
    return any(fnmatchcase(name, each) for each in waiver.which.kernel for name in groups)


@functools.lru_cache(maxsize=4)
def _groups(kernels: Path) -> set[str]:
    paths = [path.relative_to(kernels).as_posix() for path in kernels.rglob("*.py")]
    return {kernel_of(path) for path in paths} | {part for path in paths for part in path.split("/")[:-1]}


def load_what(kernels: Path, root: Path, scripts: Sequence[str] = (), *, strict: bool = False) -> dict[str, Any]:
    """Return what the same file says of a run, by fields of `What`: scripts that measure, whose launches to compile, and more. `root` is
    the package's folder, in which each glob of `bench-scripts` has to match a file. `scripts` are globs of the command line, which replace
    those of the file. `strict` is as for `load_gates`. Raises ConfigError as above, and UsageError if one of `scripts` is no glob, or
    matches no file."""
    path, table = _warpwave(kernels)
    named = dict.fromkeys(scripts or table.bench_scripts)
    return {
        "bench_scripts": tuple(_script(text, kernels, root, None if scripts else path) for text in named),
        "launches": tuple(dict.fromkeys(table.launches)),
        "peers": tuple(dict.fromkeys(table.peers)),
        "autotune": table.autotune,
        "gates": load_gates(kernels, strict=strict),
    }


def _script(text: str, kernels: Path, root: Path, path: Path | None) -> BenchScript:
    try:
        words = shlex.split(text)
    except ValueError:  # an open quote
        words = []
    pattern, *rest = words or [""]
    if not pattern or pattern == "--" or (rest and rest[0] != "--"):
        allowed = "a glob, and behind -- the arguments for each file, as in 'benchmarks/*.py -- --dtype bf16'"
    elif Path(pattern).is_absolute() or ".." in Path(pattern).parts:
        allowed = f"a glob of files in {root}: nothing else is there where the script runs"
    elif not find_scripts(pattern, root, kernels):
        allowed = f"a glob that matches a file in {root}"
    else:
        return BenchScript(pattern, tuple(rest[1:]))
    if path is None:
        raise UsageError(f"--bench-script {text!r} is not allowed.", f"Allowed is {allowed}.", "docs/guides/own-package.md has one.")
    raise refusal(path, "tool.warpwave.bench-scripts", repr(text), allowed, _EXAMPLE)


@dataclasses.dataclass(frozen=True)
class PackageEnvironment:
    """What a package names for its environment: what `--install` installs beside it and what it leaves out, and variables."""

    requirements: tuple[Path, ...] = ()
    env: dict[str, str] = dataclasses.field(default_factory=dict)
    skipped: tuple[str, ...] = ()


def load_environment(kernels: Path) -> PackageEnvironment:
    """Return `requirements = ["FILE"]`, `skip-requirements = ["NAME"]` and `env = {NAME = "VALUE"}` of the same file. Raises ConfigError as
    above."""
    path, table = _warpwave(kernels)
    if path is None:
        return PackageEnvironment()
    for name in not_allowed(table.env, path.parent):
        raise refusal(path, "tool.warpwave.env", name, ALLOWED, _EXAMPLE)
    files = tuple(path.parent / file for file in table.requirements)
    _check_inside(path, "requirements", files)
    return PackageEnvironment(files, dict(table.env), tuple(table.skip_requirements))


def _check_inside(path: Path, setting: str, files: Iterable[Path]) -> None:
    """Refuse files that a setting of `path` names outside of its repository, be it through a link. The author must not choose your files.
    Raises ConfigError if one lies outside."""
    repository = repository_of(path.parent)
    for file in files:
        if not file.resolve().is_relative_to(repository):
            found = f"{file}, which leads to {file.resolve()}" if file.is_symlink() else str(file)
            raise refusal(path, f"tool.warpwave.{setting}", found, f"files in {repository}, which no link leads out of", _EXAMPLE)


def _warpwave(kernels: Path) -> tuple[Path | None, _Warpwave]:
    """Return the nearest `pyproject.toml` and its table; None and the defaults if there is no file or no table."""
    folder = kernels.resolve()
    path = next((found for above in (folder, *folder.parents) if (found := above / "pyproject.toml").is_file()), None)
    table = validate(_File, read_toml(path, strict=True), path, _EXAMPLE).tool.warpwave if path else None
    return (path, table) if table else (None, _Warpwave())


def _limits(table: Any, base: GateLimits) -> GateLimits:
    values = {gate: getattr(table, gate) for gate in table.model_fields_set & set(VALUES)}
    return dataclasses.replace(base, **{gate: getattr(OPEN, gate) if value is False else value for gate, value in values.items()})


def _which(table: Any) -> Which:
    return Which(**{name: getattr(table, name) for name in _PATTERNS})


_MOST = 100_000  # entries
_LARGEST = 32 << 20  # bytes of a file


def tuned_configurations(kernels: Path) -> "list[Tuned]":
    """Return the entries of the files that `tuned` in the package's `pyproject.toml` names; none if it names none. Raises ConfigError if
    the setting is not valid, or a file cannot be read."""
    from warpwave.compare.upgrade import Tuned

    file, settings = _warpwave(kernels)
    if file is None:
        return []
    found: list[Tuned] = []
    for table in settings.tuned:
        pattern, function, key = (str(table.get(name, "")) for name in ("files", "function", "key"))
        paths = [Path(pattern)] if Path(pattern).is_absolute() else sorted(file.parent.glob(pattern))
        _check_inside(file, "tuned", paths)
        for path in paths:
            name = Path(os.path.relpath(path, file.parent)).as_posix()
            found += [Tuned(name, entry, values, function) for entry, values in _entries(_read_tuned(path, key))]
    return found[:_MOST]


def _read_tuned(path: Path, key: str) -> Any:
    try:
        if path.stat().st_size > _LARGEST:
            raise ValueError(f"it is larger than {_LARGEST >> 20} MiB")
        content = json.loads(path.read_text(encoding="utf-8"))
        return content[key] if key else content
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        happened = f"{path} holds no tuned configurations: {type(error).__name__}: {error}."
        meaning = "`tuned` in [tool.warpwave] names this file; it is not JSON, or has no such key."
        raise ConfigError(happened, meaning, "Fix the pattern `files` or the `key`.") from None


def _entries(content: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Return each innermost mapping of plain values, with its keys on the way: `{"16": {"BLOCK": 64}}` has the entry `16`."""
    pairs = list(content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ())
    values = {str(key): value for key, value in pairs if isinstance(value, (int, float, str, bool))}
    if values and isinstance(content, dict):
        yield path or "(all)", values
    for key, value in pairs:
        yield from _entries(value, f"{path}/{key}".lstrip("/"))
