"""Turn the options of `warpwave run` into `RunOptions`."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from harness.commands.options.common import COMMAND
from harness.commands.options.groups import STAGES
from harness.commands.options.packages import chosen_packages, chosen_variables
from harness.commands.options.pytest_args import overridden
from harness.commands.options.tests import Package, chosen_pytest_args, chosen_shard_times, chosen_tests
from harness.config.package.bench_scripts import chosen_scripts
from harness.config.package.pyproject import load_environment, load_gates, load_launches, load_peers
from harness.config.package.pytest_settings import load_pytest_settings
from harness.config.package.root import find_project, find_root, import_folders, package_names
from harness.engines.docker.relaxations import check_weakenings
from harness.errors import UsageError
from harness.install_source import repository_of
from harness.options import GIB, Build, Cap, RunOptions
from harness.out_folder import RUNS, new_run_id
from harness.records import Job, Stage
from harness.run import handover
from harness.run.resume import recorded_run_id
from harness.run.sharding import parse_shard

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
    folder = handover.find(options["compiled"]) if options["compiled"] else None
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
            "save_compiled": tuple(options["save_compiled"].split(",")) if options["save_compiled"] else (),
            "compiled_folder": folder,
            "compiled": handover.digest_of(folder, options["compiled_hash"] or "") if folder else "",
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
