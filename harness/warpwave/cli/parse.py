"""Turn the options of `warpwave run` into `RunOptions`."""

import difflib
import glob
import os
import re
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from warpwave.cli.known import read_known
from warpwave.cli.options import COMMAND, POSITIONAL, STAGES, overridden
from warpwave.compare.known import reached
from warpwave.config.names import check_kernels
from warpwave.config.package import declared_extras, find_project, find_root, import_folders, load_pytest_settings, package_names
from warpwave.config.pyproject import PackageEnvironment, load_environment, load_what
from warpwave.config.targets import load_architectures, load_builds, named_architectures
from warpwave.engines.docker.container import check_weakenings
from warpwave.errors import NothingRanError, UsageError, WarpwaveError
from warpwave.git import ask_git
from warpwave.options import GIB, Build, Install, Package, RunOptions, Where
from warpwave.records import Budget, Cap, Chosen, Declared, Limits, Stage, What, plural
from warpwave.records.selection import is_bench, is_test, parse_configuration
from warpwave.run import inputs
from warpwave.run.choice import (
    Change,
    ImportGraph,
    changed_files,
    checked,
    failed_in_time,
    failed_tests,
    listed,
    named,
    place_of,
    placed,
    python_files,
    seconds_by_file,
    still_there,
    touched,
)
from warpwave.run.folders import LATEST, RUNS, new_run_id
from warpwave.run.resume import recorded_run_id
from warpwave.run.shards import NOTHING, parse_shard
from warpwave.starter import repository_of

# What the harness sets itself, for every stage. PYTHONPATH is not among them: a user's folders come behind the harness's.
_OWN = re.compile(
    r"WARPWAVE_.*|HOME|USER|LOGNAME|PATH|PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE|PYTHONHOME|TRITON_(CACHE_DIR|DEFAULT_FP_FUSION|INTERPRET)"
)
_NAME = re.compile(r"[A-Za-z_]\w*")
_REQUIREMENT = re.compile(r"[A-Za-z0-9][^\n\r]*")  # neither an option of pip nor a folder


def chosen_packages(options: dict[str, Any], kernels: Path) -> Install:
    """Return what to install: what the command line asks for, and with `--install` the requirements that the package's own file names. A
    file alone installs nothing. A build runs code, in Docker with a network, and the file may be a stranger's. Raises UsageError if a file
    is missing, or two options contradict each other."""
    own = load_environment(kernels) if options["install"] == "all" else PackageEnvironment()
    files = tuple(Path(path) for path in options["requirements"]) or own.requirements
    for file in files:
        if not file.is_file():
            raise UsageError(f"There are no requirements at {file}.", "The path is misspelt.", "Give a file with one requirement a line.")
    for name in options["with_packages"]:
        if not _REQUIREMENT.fullmatch(name):
            meaning = "It takes one requirement, as in a requirements file: a name, and a version if it matters."
            remedy = "Write --with einops, or --with 'einops>=0.7'; for options of pip, use --requirements FILE."
            raise UsageError(f"--with {name!r} is not a package's name.", meaning, remedy)
    _check_extras(options["extras"], kernels, installs=options["install"] is not None)
    return Install(
        tuple(file.resolve() for file in files), options["install"] or "", tuple(options["with_packages"]), own.skipped, options["extras"]
    )


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
            happened = f"--extra: {folder / 'pyproject.toml'} has no extra and no dependency group {name!r}."
            meaning = f"{has} The nearest is {like[0]}." if like else has
            raise UsageError(happened, meaning, "Give one of them, or name what to install with --with or --requirements.")


def chosen_variables(pairs: Sequence[str]) -> dict[str, str]:
    """Return the user's variables for the kernels. NAME alone takes the caller's value. Raises UsageError if a name is none, or belongs to
    warpwave, or the caller has no such variable."""
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            if name not in os.environ:
                meaning = "A name alone passes your own value on."
                raise UsageError(f"--env {name}: you have no variable of this name.", meaning, f"Write --env {name}=VALUE.")
            value = os.environ[name]
        if not _NAME.fullmatch(name):
            meaning = "Names have letters, digits and underscores."
            raise UsageError(f"--env {name!r} is not a variable's name.", meaning, "Write --env NAME=VALUE.")
        if _OWN.fullmatch(name):
            happened = f"--env {name}: warpwave sets {name} itself."
            raise UsageError(happened, "Its value decides where results go, or whether two targets can be compared.", f"Leave {name} out.")
        found[name] = value
    return found


_MOST_LINES = 20


def chosen_tests(options: dict[str, Any], package: Package, benches: tuple[str, ...]) -> tuple[Chosen, tuple[str, ...]]:
    """Return the tests that were asked for, and the patterns of benches: a change chooses those, too. Raises UsageError if an option names
    something that does not exist, or two options choose tests, and NothingRanError if no test is left to run."""
    ids = [*options["tests"], *options.get(POSITIONAL, ())]
    ways = {"--test": ids, "--last-failed": options["last_failed"], "--changed-since": options["changed_since"]}
    given = [option for option, value in ways.items() if value]
    if len(given) > 1:
        raise UsageError(f"{given[0]} and {given[1]} were both given.", "Each of them chooses the tests of a run.", "Give one of them.")
    chosen = Chosen()
    if ids:
        found = named(placed(ids, "--test", package.kernels, package.folder), "--test", package.kernels)
        chosen = Chosen(found, how=("--test",), must_exist=True)
    elif run := options["last_failed"]:
        failed = failed_tests(run)
        chosen = Chosen(still_there(failed, "--last-failed", package.kernels, run), how=(f"--last-failed {run}",))
        gone = len(failed) - len(chosen.tests or ())
        lost = f"; the files of {gone} of them are gone" if gone > 0 else ""
        chosen = replace(chosen, why=(f"{plural(len(failed), 'test')} failed in {run}{lost}",))
    elif ref := options["changed_since"]:
        chosen, benches = _touched_by(changed_files(package.folder, ref), f"--changed-since {ref}", package, benches)
    elif edited := options.get("edited"):
        chosen, benches = _touched_by(Change("", edited), "--watch", package, benches)
    if file := options["deselect_from"]:
        # A list is kept for years: ids of files that are gone are named in the report, and refuse no run.
        left_out = [place_of(nodeid, package.kernels, package.folder) or nodeid for nodeid in listed(file, "--deselect-from")]
        how = (*chosen.how, f"--deselect-from {file}")
        chosen = replace(chosen, without=checked(left_out, "--deselect-from"), how=how)
    return chosen, benches


def _touched_by(change: Change, option: str, package: Package, patterns: tuple[str, ...]) -> tuple[Chosen, tuple[str, ...]]:
    root, settings = package.folder, package.declared.pytest
    above = package.kernels.relative_to(root)
    files = set(python_files(root)) | {path for path in change.files if path.endswith(".py")}
    here = {path: Path(path).relative_to(above).as_posix() for path in sorted(files) if Path(path).is_relative_to(above)}
    found = {path: own for path, own in here.items() if (root / path).is_file()}
    wanted = [path for path, own in found.items() if is_test(own, settings.python_files) or is_bench(own, patterns)]
    graph = ImportGraph(root, files, (*package.declared.import_folders, *settings.pythonpath))
    hit = touched(graph, wanted, change.files)
    if not hit.reasons:
        happened = f"{option}: none of the {len(wanted)} test files and benches is touched by a change."
        meaning = f"{plural(len(change.files), 'file', 'differs', 'differ')} from {change.commit or 'before'}{_named(hit.without_effect)}."
        raise NothingRanError(happened, meaning, f"There is nothing to run. Leave {option.partition(' ')[0]} out to run everything.")
    own = tuple(found[path] for path in hit.reasons)
    what = f"what has changed since {option.partition(' ')[2]} ({change.commit})" if change.commit else "the edit"
    benches = tuple(glob.escape(path) for path in own if is_bench(path, patterns))
    lines = [f"{len(own)} of {len(wanted)} test files and benches are touched by {what}"]
    lines += [f"{found[path]}: {reason}" for path, reason in list(hit.reasons.items())[:_MOST_LINES]]
    lines += [f"and {len(hit.reasons) - _MOST_LINES} more"] if len(hit.reasons) > _MOST_LINES else []
    if lost := hit.without_effect:
        lines.append(f"no test needs {len(lost)} of the changed files{_named(lost)}")
    return Chosen(own, how=(option,), why=tuple(lines)), benches or (NOTHING,)


def _named(files: Sequence[str]) -> str:
    return f": {', '.join(files[:5])}{' …' if len(files) > 5 else ''}" if files else ""


_QUICK_TEST_S = 120.0
_QUICK_S = 60.0  # for each target


def parse_options(options: dict[str, Any], *, divided: bool = False) -> RunOptions:
    """Turn the options of `run` into one object. `divided`: a hosts file divides the package into shards. Raises UsageError if an option
    asks for something that does not exist, and ConfigError if the kernel package's `pyproject.toml` is not valid."""
    package = _package(options)
    compiled, planned = options["compiled"] or (None, "")
    compiled = inputs.find(compiled) if compiled else None
    what = _what(options, package, inputs.digest_of(compiled, planned) if compiled else "")
    builds, bounds = load_builds(options["overlay"])
    check_weakenings(options["weaken"])  # for every engine: a report must not claim that a protection was given up which does not exist
    build = Build(**vars(builds), **{name: options[name] for name in ("base_image", "rebuild", "weaken", "keep")})
    target_s: float = options["timeout"]
    limits = Limits(
        test_s=options["test_timeout"] or (_QUICK_TEST_S if options["quick"] else Limits.test_s),
        # The stage's limit comes first: it keeps the stage's results whole, and leaves time to save them before the target's limit.
        stage_s=target_s - min(120.0, target_s / 10),
        target_s=target_s,
        gpu_wait_s=bounds.gpu_wait_s,
        cap=Cap(max(1, round(bounds.results_gib * GIB)), bounds.results_files),
        test_workers=options["test_workers"],
        budget=_budget(options, package),
    )
    return RunOptions(_where(options, compiled, divided), package, what, build, limits)


def _package(options: dict[str, Any]) -> Package:
    kernels: Path = options["kernels"]
    check_kernels(kernels)
    for text in (*sys.argv, str(kernels.resolve())):
        if not text.isascii() and text.encode("utf-8", "replace") != text.encode("utf-8", "surrogatepass"):
            meaning = "It is recorded in run.json, and JSON can hold only text."
            raise UsageError(f"{text!r} is not valid UTF-8.", meaning, "Rename that file or folder, or give the option in UTF-8.")
    root = find_root(kernels)
    return Package(
        kernels=kernels.resolve(),
        root=root,
        project=find_project(root),
        commit=os.environ.get("WARPWAVE_COMMIT", ""),
        repository=repository_of(root),
        declared=Declared(
            import_folders=import_folders(root),
            names=package_names(root),
            variables=load_environment(kernels).env,
            pytest=overridden(load_pytest_settings(kernels, root), options["pytest_args"]),
        ),
        install=chosen_packages(options, kernels),
        variables=chosen_variables(options["env"]),
    )


def _what(options: dict[str, Any], package: Package, compiled: str) -> What:
    declared = load_what(options["kernels"], package.folder, options["bench_scripts"], strict=options["gates"] == "strict")
    chosen, benches = chosen_tests(options, package, options["benches"] or What.benches)
    saved = named_architectures(options["save_compiled"] or "", load_architectures(options["overlay"]), "--save-compiled")
    kept = tuple(card.name for card in saved)
    keyword, words = options["keyword"], options["pytest_args"]
    if keyword and any(word.startswith("-k") for word in words):
        raise UsageError("-k was given twice.", "pytest takes the last one only.", "Give one: -k 'add and not bf16'.")
    if options.get("candidates"):
        declared["autotune"] = "all"
    if kept:  # for runs with a card, which launch everything
        declared["launches"] = What.launches
    for text in options["configs"]:
        try:
            parse_configuration(text)
        except ValueError as error:
            meaning = "It is a kernel's name, a colon, and what one of its configurations has."
            raise UsageError(f"--config {error}.", meaning, "The report names those of a test that failed.") from None
    return What(
        chosen=chosen,
        configs=options["configs"],
        stages=_parse_stages(options["stages"]),
        benches=benches,
        pytest_args=((f"-k={keyword}",) if keyword else ()) + words,  # as one word: an expression may look like an option of pytest
        save_compiled=kept,
        compiled=compiled,
        **declared,
        **{name: options[name] for name in ("quick", "sanitize", "profile", "again", "precision")},
    )


def _where(options: dict[str, Any], compiled: Path | None, divided: bool) -> Where:
    resume: Path | None = options["resume"]
    if resume and options["out"] and resume.resolve() != options["out"].resolve():
        meaning = "A run is resumed in its own folder."
        raise UsageError(f"--resume names {resume} and --out names {options['out']}.", meaning, "Leave --out out.")
    times: Path | None = options["shard_times"]
    if times is not None and not (options["shard"] or divided):
        raise UsageError("--shard-times was given without --shard.", "It balances shards by an earlier run's times.", "Add --shard I/N.")
    gpu, share = chosen_gpus(options["gpu"])
    run_id = recorded_run_id(resume) if resume else new_run_id()
    return Where(
        run_id=run_id,
        out=Path(os.path.realpath(resume or options["out"] or RUNS / run_id)),
        resume=resume is not None,
        engine=options["engine"],
        python=options["python"],
        gpu=gpu,
        share=share,
        shard=parse_shard(options["shard"]) if options["shard"] else None,
        shard_times=seconds_by_file(times) if times is not None else {},
        compiled=compiled,
        command=_command(),
    )


def _budget(options: dict[str, Any], package: Package) -> Budget | None:
    """Return the time for each target, and what it begins with: what failed in the last run here, and what differs from the base. Raises
    UsageError if --timeout is shorter."""
    seconds: float | None = options["budget"] or (_QUICK_S if options["quick"] else None)
    if seconds is None:
        return None
    if seconds > options["timeout"]:
        if options["budget"] is None:
            return None  # a quick look that must end even earlier
        happened = f"--budget of {seconds:g} s is longer than --timeout of {options['timeout']:g} s."
        meaning = "A target that reaches its --timeout is stopped as if it hung, while a budget ends it in good order."
        raise UsageError(happened, meaning, "Give a longer --timeout, or a shorter --budget.")
    failed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()
    with suppress(WarpwaveError):
        if (RUNS / LATEST).exists():
            failed = failed_in_time(RUNS / LATEST)
    base = options.get("known_base")
    refs = [*([f"refs/remotes/origin/{base}", base] if base else ["refs/remotes/origin/HEAD"]), "HEAD"]
    with suppress(WarpwaveError):
        for ref in refs:
            if not ref.startswith("-") and ask_git(package.folder, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}"):
                change, benches = changed_files(package.folder, ref), options["benches"] or What.benches
                changed = _touched_by(change, f"--changed-since {ref}", package, benches)[0].tests or ()
                above = package.kernels.relative_to(package.folder)
                edited = tuple(path for path in changed if (above / path).as_posix() in change.files)
                break
    known = read_known(options, kernels=options["kernels"])
    return Budget(seconds, failed, changed, edited, reached(known.seen, seconds) if known else {})


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


def chosen_gpus(text: str | None) -> tuple[str | None, bool]:
    """Return the run's GPUs (None: all visible ones, of which a run that does not share uses the first), and whether they share its work.
    Raises UsageError if the text is not a list of GPUs, or names one twice."""
    if text is None or text == "all":
        return None, text == "all"
    names = [name.strip() for name in text.split(",")]
    if "all" in names or not all(names) or len(set(names)) < len(names):
        meaning = "Name each GPU once: two processes on one card would spoil each other's times."
        raise UsageError(f"--gpu {text!r} is not a list of GPUs.", meaning, "For example --gpu 0, --gpu 0,1 or --gpu all.")
    return ",".join(names), len(names) > 1


def _parse_stages(text: str | None) -> tuple[Stage, ...]:
    if text is None:
        return ()
    for name in text.split(","):
        if name not in STAGES:
            like = difflib.get_close_matches(name, STAGES, n=1)
            meaning = f"The nearest is {like[0]}." if like else "Stages are separated by commas."
            raise UsageError(f"There is no stage {name!r}.", meaning, f"Choose from {', '.join(STAGES)}.")
    return tuple(Stage(name) for name in text.split(","))
