"""Turn the options that choose tests into one choice: by id, by an earlier run, by a change."""

from __future__ import annotations

import glob
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from harness.errors import NothingRanError, UsageError
from harness.records import Chosen, PytestSettings
from harness.records.selection.package import is_bench, is_test
from harness.run.choice.changed_files import changed_files
from harness.run.choice.earlier_run import failed_tests, seconds_by_file
from harness.run.choice.import_graph import ImportGraph
from harness.run.choice.node_ids import checked, listed, named, placed, still_there
from harness.run.choice.touched import Touched, python_files, touched
from harness.run.sharding import NOTHING

POSITIONAL = "node_ids"  # the parameter of ids that stand behind the target
_MOST_LINES = 20


@dataclass(frozen=True)
class Package:
    """Where a package is, and which of its files have tests and benches. Folders are relative to the root."""

    kernels: Path
    root: Path
    import_folders: tuple[str, ...]
    pytest: PytestSettings
    benches: tuple[str, ...]


def take_node_ids(context: click.Context, parameter: click.Parameter, words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the targets, and keep the node ids that stand behind them. No target's name has `::` or ends with `.py`."""
    ids = tuple(word for word in words if "::" in word or word.endswith(".py"))
    context.params[POSITIONAL] = ids
    targets = tuple(word for word in words if word not in ids)
    if words and not targets:
        raise click.UsageError(f"There is a test, {ids[0]!r}, and no target before it. For example: warpwave run cpu {shlex.quote(ids[0])}")
    return targets


def chosen_tests(options: dict[str, Any], package: Package) -> tuple[Chosen, tuple[str, ...]]:
    """Return the tests that were asked for, and the patterns of benches: a change chooses those, too.

    Raises:
        UsageError: an option names something that does not exist, or two options choose tests.
        NothingRanError: no test is left to run.
    """
    ids = [*options["tests"], *options.get(POSITIONAL, ())]
    ways = {"--test": ids, "--last-failed": options["last_failed"], "--changed-since": options["changed_since"]}
    given = [option for option, value in ways.items() if value]
    if len(given) > 1:
        raise UsageError(f"{given[0]} and {given[1]} were both given.", "Each of them chooses the tests of a run.", "Give one of them.")
    chosen, benches = Chosen(), package.benches
    if ids:
        found = named(placed(ids, "--test", package.kernels, package.root), "--test", package.kernels)
        chosen = Chosen(found, how=("--test",), must_exist=True)
    elif run := options["last_failed"]:
        failed = failed_tests(run)
        chosen = Chosen(still_there(failed, "--last-failed", package.kernels, run), how=(f"--last-failed {run}",))
        gone = len(failed) - len(chosen.tests or ())
        lost = f"; the files of {gone} of them are gone" if gone > 0 else ""
        chosen = _explained(chosen, [f"{len(failed)} test{'' if len(failed) == 1 else 's'} failed in {run}{lost}"])
    elif ref := options["changed_since"]:
        chosen, benches = _touched_by(ref, package)
    return _without(chosen, options["deselect_from"], package), benches


def chosen_shard_times(run: Path | None, *, divided: bool) -> dict[str, float]:
    """Return the seconds that an earlier run took for each file; nothing without --shard-times.

    Raises:
        UsageError: there is no shard that they could balance, or the run timed nothing.
    """
    if run is not None and not divided:
        raise UsageError("--shard-times was given without --shard.", "It balances shards by an earlier run's times.", "Add --shard I/N.")
    return seconds_by_file(run) if run is not None else {}


def chosen_pytest_args(keyword: str | None, words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the options for pytest: `-k`, and those of --pytest-args.

    Raises:
        UsageError: `-k` is given twice.
    """
    if keyword and any(word.startswith("-k") for word in words):
        raise UsageError("-k was given twice.", "pytest takes the last one only.", "Give one: -k 'add and not bf16'.")
    # As one word, because an expression may look like an option of pytest.
    return ((f"-k={keyword}",) if keyword else ()) + words


def _without(chosen: Chosen, file: Path | None, package: Package) -> Chosen:
    if file is None:
        return chosen
    known = listed(file, "--deselect-from")
    # A list is kept for years: ids of files that are gone are named in the report, and refuse no run.
    ids = [_at_kernels(nodeid, package) for nodeid in known]
    return Chosen(
        chosen.tests, checked(ids, "--deselect-from"), (*chosen.how, f"--deselect-from {file}"), chosen.why, must_exist=chosen.must_exist
    )


def _at_kernels(nodeid: str, package: Package) -> str:
    try:
        return placed([nodeid], "--deselect-from", package.kernels, package.root)[0]
    except UsageError:
        return nodeid


def _touched_by(ref: str, package: Package) -> tuple[Chosen, tuple[str, ...]]:
    """Return the test files and benches that a change touches."""
    change = changed_files(package.root, ref)
    above = package.kernels.relative_to(package.root)
    files = set(python_files(package.root)) | {path for path in change.files if path.endswith(".py")}
    here = {path: Path(path).relative_to(above).as_posix() for path in sorted(files) if Path(path).is_relative_to(above)}
    found = {path: own for path, own in here.items() if (package.root / path).is_file()}
    wanted = [path for path, own in found.items() if is_test(own, package.pytest.python_files) or is_bench(own, package.benches)]
    graph = ImportGraph(package.root, files, (*package.import_folders, *package.pytest.pythonpath))
    hit = touched(graph, wanted, change.files)
    if not hit.reasons:
        raise NothingRanError(
            f"--changed-since {ref}: none of the {len(wanted)} test files and benches is touched by a change.",
            f"{len(change.files)} files differ from {change.commit}{_named(hit.without_effect)}.",
            "There is nothing to run. Leave --changed-since out to run everything.",
        )
    own = tuple(found[path] for path in hit.reasons)
    benches = tuple(glob.escape(path) for path in own if is_bench(path, package.benches))
    lines = [
        f"{len(own)} of {len(wanted)} test files and benches are touched by what has changed since {ref} ({change.commit})",
        *_reasons(hit, found),
    ]
    return _explained(Chosen(own, how=(f"--changed-since {ref}",)), lines), benches or (NOTHING,)


def _reasons(hit: Touched, names: dict[str, str]) -> list[str]:
    lines = [f"{names[path]}: {reason}" for path, reason in list(hit.reasons.items())[:_MOST_LINES]]
    lines += [f"and {len(hit.reasons) - _MOST_LINES} more"] if len(hit.reasons) > _MOST_LINES else []
    count = len(hit.without_effect)
    return lines + ([f"no test needs {count} of the changed files{_named(hit.without_effect)}"] if count else [])


def _named(files: Sequence[str]) -> str:
    return f": {', '.join(files[:5])}{' …' if len(files) > 5 else ''}" if files else ""


def _explained(chosen: Chosen, why: Sequence[str]) -> Chosen:
    return Chosen(chosen.tests, chosen.without, chosen.how, tuple(why), chosen.must_exist)
