"""Turn the options of `warpwave run` into `RunOptions`."""

from __future__ import annotations

import difflib
import glob
import os
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click

from warpwave.cli.options import COMMAND, STAGES, overridden
from warpwave.config.package import declared_extras, find_project, find_root, import_folders, load_pytest_settings, package_names
from warpwave.config.pyproject import PackageEnvironment, chosen_scripts, load_environment, load_gates, load_launches, load_peers
from warpwave.config.targets import load_architectures, named_architectures
from warpwave.engines.docker.container import check_weakenings
from warpwave.errors import NothingRanError, UsageError
from warpwave.options import GIB, Build, Cap, Install, RunOptions
from warpwave.records import Chosen, Job, PytestSettings, Stage
from warpwave.records.selection import is_bench, is_test
from warpwave.run import inputs
from warpwave.run.choice import (
    ImportGraph,
    Touched,
    changed_files,
    checked,
    failed_tests,
    listed,
    named,
    placed,
    python_files,
    seconds_by_file,
    still_there,
    touched,
)
from warpwave.run.folders import RUNS, new_run_id
from warpwave.run.resume import recorded_run_id
from warpwave.run.shards import NOTHING, parse_shard
from warpwave.starter import repository_of

# Turn the options for a package's environment into values: what to install, and which variables to set.

# What the harness sets itself, for every stage. PYTHONPATH is not among them: a user's folders come behind the harness's.
_OWN = re.compile(
    r"WARPWAVE_.*|HOME|USER|LOGNAME|PATH|PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE|PYTHONHOME|TRITON_(CACHE_DIR|DEFAULT_FP_FUSION|INTERPRET)"
)
_NAME = re.compile(r"[A-Za-z_]\w*")
_REQUIREMENT = re.compile(r"[A-Za-z0-9][^\n\r]*")  # neither an option of pip nor a folder


def chosen_packages(options: dict[str, Any], kernels: Path) -> Install:
    """Return what to install: what the command line asks for, and with `--install` the requirements that the package's own file names.

    A file alone installs nothing. A build runs code, in Docker with a network, and the file may be a stranger's.

    Raises:
        UsageError: a file is missing, or two options contradict each other.
    """
    own = load_environment(kernels) if options["install"] else PackageEnvironment()
    if options["install"] and options["install_no_deps"]:
        raise UsageError(
            "--install and --install-no-deps were both given.",
            "The first installs what the package needs, the second installs the package alone.",
            "Give one of them.",
        )
    files = tuple(Path(path) for path in options["requirements"]) or own.requirements
    for file in files:
        if not file.is_file():
            raise UsageError(f"There are no requirements at {file}.", "The path is misspelt.", "Give a file with one requirement a line.")
    for name in options["with_packages"]:
        if not _REQUIREMENT.fullmatch(name):
            raise UsageError(
                f"--with {name!r} is not a package's name.",
                "It takes one requirement, as in a requirements file: a name, and a version if it matters.",
                "Write --with einops, or --with 'einops>=0.7'; for options of pip, use --requirements FILE.",
            )
    _check_extras(options["extras"], kernels, installs=options["install"])
    mode = "all" if options["install"] else "alone" if options["install_no_deps"] else ""
    return Install(tuple(file.resolve() for file in files), mode, tuple(options["with_packages"]), own.skipped, options["extras"])


def _check_extras(names: Sequence[str], kernels: Path, *, installs: bool) -> None:
    """Refuse an extra that the package's own file cannot have. A build script may declare others, which only the installation knows."""
    if names and not installs:
        raise UsageError("--extra was given without --install.", "It installs more of what the package declares.", "Add --install.")
    root = find_root(kernels)
    folder = root / find_project(root)
    known = declared_extras(folder) if names else None
    for name in names:
        if known is not None and re.sub(r"[-_.]+", "-", name).lower() not in known:
            like = difflib.get_close_matches(name, known, n=1)
            has = f"It has {', '.join(known)}." if known else "It has none."
            raise UsageError(
                f"--extra: {folder / 'pyproject.toml'} has no extra and no dependency group {name!r}.",
                f"{has} The nearest is {like[0]}." if like else has,
                "Give one of them, or name what to install with --with or --requirements.",
            )


def chosen_variables(pairs: Sequence[str]) -> dict[str, str]:
    """Return the user's variables for the kernels. NAME alone takes the caller's value.

    Raises:
        UsageError: a name is not allowed, or the caller has no such variable.
    """
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            if name not in os.environ:
                meaning = "A name alone passes your own value on."
                raise UsageError(f"--env {name}: you have no variable of this name.", meaning, f"Write --env {name}=VALUE.")
            value = os.environ[name]
        found[name] = value
    for name in found:
        check_variable(name)
    return found


def check_variable(name: str) -> None:
    """Refuse a name that is none, or that belongs to the harness.

    Raises:
        UsageError: it is one of those.
    """
    if not _NAME.fullmatch(name):
        meaning = "Names have letters, digits and underscores."
        raise UsageError(f"--env {name!r} is not a variable's name.", meaning, "Write --env NAME=VALUE.")
    if _OWN.fullmatch(name):
        raise UsageError(
            f"--env {name}: warpwave sets {name} itself.",
            "Its value decides where results go, or whether two targets can be compared.",
            f"Leave {name} out.",
        )


# Turn the options that choose tests into one choice: by id, by an earlier run, by a change.

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


_QUICK_TEST_S = 120.0


def parse_options(options: dict[str, Any], *, divided: bool = False) -> RunOptions:
    """Turn the options of `run` into one object. `divided`: a hosts file divides the package into shards.

    Raises:
        UsageError: an option asks for something that does not exist.
        ConfigError: the kernel package's `pyproject.toml` is not valid.
    """
    kernels: Path = options["kernels"]
    if not kernels.is_dir():
        raise UsageError(
            f"There is no kernel package at {kernels}.",
            "warpwave looks for a folder of test_*.py and bench_*.py files; the default is `kernels` in the current folder.",
            "Give its path with --kernels.",
        )
    if options["resume"] and options["out"] and options["resume"].resolve() != options["out"].resolve():
        raise UsageError(
            f"--resume names {options['resume']} and --out names {options['out']}.",
            "A run is resumed in its own folder.",
            "Leave --out out.",
        )
    for text in (*sys.argv, str(kernels.resolve())):
        if not text.isascii() and text.encode("utf-8", "replace") != text.encode("utf-8", "surrogatepass"):
            raise UsageError(
                f"{text!r} is not valid UTF-8.",
                "It is recorded in run.json, and JSON can hold only text.",
                "Rename that file or folder, or give the option in UTF-8.",
            )
    check_weakenings(options["weaken"])  # for every engine: a report must not claim that a protection was given up which does not exist
    root = find_root(kernels)
    settings, folders = overridden(load_pytest_settings(kernels, root), options["pytest_args"]), import_folders(root)
    patterns = options["benches"] or RunOptions.benches
    chosen, benches = chosen_tests(options, Package(kernels.resolve(), root, folders, settings, patterns))
    gpu, share = chosen_gpus(options["gpu"], options["gpus"])
    run_id = recorded_run_id(options["resume"]) if options["resume"] else new_run_id()
    # Options that have the same name and value on the command line and in `RunOptions`.
    saved = named_architectures(options["save_compiled"] or "", load_architectures(options["overlay"]), "--save-compiled")
    folder = inputs.find(options["compiled"]) if options["compiled"] else None
    same = {field.name: options[field.name] for field in fields(RunOptions) if field.name in options}
    return RunOptions(
        **{
            **same,
            "run_id": run_id,
            "out": Path(os.path.realpath(options["resume"] or options["out"] or RUNS / run_id)),
            "kernels": kernels.resolve(),
            "root": root,
            "project": find_project(root),
            "repository": repository_of(root),
            "import_folders": folders,
            "package_names": package_names(root),
            "pytest": settings,
            "chosen": chosen,
            "stages": _parse_stages(options["stages"]),
            "gpu": gpu,
            "save_compiled": tuple(card.name for card in saved),
            "compiled_folder": folder,
            "compiled": inputs.digest_of(folder, options["compiled_hash"] or "") if folder else "",
            "share": share,
            "commit": options["commit"] or "",
            "benches": benches,
            "bench_scripts": chosen_scripts(options["bench_scripts"], kernels, root),
            "launches": _parse_launches(options["launches"]) if options["launches"] else load_launches(kernels),
            "peers": load_peers(kernels),
            "gates": load_gates(kernels),
            "pytest_args": chosen_pytest_args(options["keyword"], options["pytest_args"]),
            "test_limit_s": options["test_timeout"] or (_QUICK_TEST_S if options["quick"] else Job.test_limit_s),
            # The stage's limit comes first: it keeps the stage's results whole, and leaves time to save them before the target's limit.
            "stage_limit_s": options["timeout"] - min(120.0, options["timeout"] / 10),
            "limit_s": options["timeout"],
            "build": _build(options),
            "cap": Cap(max(1, round(options["results_limit"] * GIB)), options["results_files"]),
            "command": _command(),
            "resume": options["resume"] is not None,
            "gpu_wait_s": options["gpu_wait"],
            "install": chosen_packages(options, kernels),
            "variables": chosen_variables(options["env"]),
            "package_variables": load_environment(kernels).env,
            "shard": parse_shard(options["shard"]) if options["shard"] else None,
            "shard_times": chosen_shard_times(options["shard_times"], divided=bool(options["shard"]) or divided),
        }
    )


def _build(options: dict[str, Any]) -> Build:
    same = {field.name: options[field.name] for field in fields(Build) if field.name in options}
    return Build(**same, network=options["build_network"], args=dict(_key_value(pair) for pair in options["build_args"]))


def _command() -> tuple[str, ...]:
    """Return the command to record: the command line of `run`, also if another command has built it."""
    context = click.get_current_context(silent=True)
    built: tuple[str, ...] | None = context.meta.get(COMMAND) if context else None
    words = built or ("warpwave", *sys.argv[1:])
    if "--" not in words:
        return words
    # A command that is continued or repeated gets more options, which must not come behind the dashes.
    place = words.index("--")
    return (*words[:place], "--pytest-args", shlex.join(words[place + 1 :]))


def chosen_gpus(gpu: str | None, gpus: str | None) -> tuple[str | None, bool]:
    """Return the run's GPUs (None for all visible ones), and whether they share its work.

    Raises:
        UsageError: the list is empty or names a GPU twice, or both options were given.
    """
    if gpus is None:
        return gpu, False
    if gpu is not None:
        raise UsageError("--gpu and --gpus were both given.", "--gpu uses one card; --gpus shares the work.", "Give one of them.")
    if gpus == "all":
        return None, True
    names = [name.strip() for name in gpus.split(",")]
    if "all" in names or not all(names) or len(set(names)) < len(names):
        raise UsageError(
            f"--gpus {gpus!r} is not a list of GPUs.",
            "Name each GPU once: two processes on one card would spoil each other's times.",
            "For example --gpus 0,1 or --gpus all.",
        )
    return ",".join(names), True


def _parse_stages(text: str | None) -> tuple[Stage, ...] | None:
    if text is None:
        return None
    for name in text.split(","):
        if name not in STAGES:
            raise UsageError(f"There is no stage {name!r}.", "Stages are separated by commas.", f"Choose from {', '.join(STAGES)}.")
    return tuple(Stage(name) for name in text.split(","))


def _parse_launches(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(text.split(",")))
    if not set(names) <= {"bench", "test"}:
        raise UsageError(f"--launches {text!r} is not valid.", "Benches and tests launch kernels.", "Choose bench, test or bench,test.")
    return names


def _key_value(pair: str) -> tuple[str, str]:
    key, equals, value = pair.partition("=")
    if not equals:
        raise UsageError(f"--build-arg {pair!r} has no value.", "Build arguments are written K=V.", "For example --build-arg TORCH=base.")
    return key, value
