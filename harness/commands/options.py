"""Define the command line's options in groups, and turn them into `RunOptions`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from harness.commands.package_options import chosen_packages, chosen_variables
from harness.config.package_root import find_root, import_folders
from harness.config.pyproject import load_gates, load_launches, load_peers
from harness.config.pytest_settings import load_pytest_settings
from harness.errors import UsageError
from harness.options import GIB, Build, Cap, RunOptions
from harness.records import CHOSEN, Job, Stage
from harness.records.engines import ENGINES
from harness.run import new_run_id
from harness.run.resume import recorded_run_id
from harness.run.sharding import parse_shard

Options = Callable[[Callable[..., Any]], Callable[..., Any]]

COMMAND = "warpwave.command"  # the context key for a parsed command line that is not this process's own
_STAGES = [stage.value for stage in CHOSEN]
FOLDER = click.Path(path_type=Path, file_okay=False)
FILE = click.Path(path_type=Path, dir_okay=False)


def complete_target(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
    """Return the names of shipped targets, for the shell's completion."""
    from harness.config.targets import load_targets

    return [name for name in load_targets() if name.startswith(typed)]


def _note_json(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Note the option for `main`, which then writes errors as JSON too."""
    if isinstance(context.obj, dict):
        context.obj["json"] = value
    return value


def json_option(text: str) -> Options:
    """Return the flag `--json`: one document on standard output, also after an error. `text` is its help."""
    return click.option("--json", "as_json", is_flag=True, is_eager=True, callback=_note_json, help=text)


def json_file_option(text: str) -> Options:
    """Return the option `--json FILE`: one document in that file, also after an error. `text` is its help."""
    return click.option("--json", "json_file", type=FILE, is_eager=True, callback=_note_json, help=text)


def several(*decorators: Options) -> Options:
    """Combine several options into one decorator."""

    def apply(function: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return apply


what_options = several(
    click.option("--kernels", type=FOLDER, default=Path("kernels"), show_default=True, help="Folder of the kernel package."),
    click.option("--stage", "stages", metavar="S,S", help=f"Run only these stages: {', '.join(_STAGES)}.  [default: the target's own]"),
    click.option("--bench", "benches", multiple=True, help="Pattern of bench files; repeatable.  [default: bench_*.py]"),
    click.option("--launches", metavar="W,W", help="Compile the launches of bench, test or both.  [default: pyproject.toml's, or both]"),
    click.option("-k", "keyword", metavar="EXPR", help="Run only tests that match, as in pytest."),
    click.option("--commit", metavar="SHA", help="Commit of the kernels, if their folder is not in git.", envvar="WARPWAVE_COMMIT"),
    click.option("--gpu", metavar="N", help="Index of the GPU to use.  [default: the first visible one]"),
    click.option("--gpus", metavar="LIST", help="Share tests and sweeps between these GPUs: a list such as 0,1, or `all` visible ones."),
    click.option("--shard", metavar="I/N", help="Run only part I of N of the kernels; `report` joins the parts."),
    click.option(
        "--quick",
        is_flag=True,
        help="Run three tests of each test function, and three sizes of each sweep with a fifth of the timing. For a quick look.",
    ),
    click.option(
        "--sanitize/--no-sanitize",
        default=None,
        help="Check what interpreted kernels do to memory: bounds, unwritten data, races.  [default: where tests are interpreted]",
    ),
    click.option(
        "--precision",
        type=click.FloatRange(0, 1, min_open=True),
        default=Job.precision,
        show_default=True,
        metavar="SHARE",
        help="Measure a point until its median is this precise, with 95 % confidence, or the benchmark's own time limit is reached.",
    ),
    click.option("--aa", "again", is_flag=True, help="Measure everything twice (A/A), to see how much speeds vary without a change."),
    click.option("--test-timeout", type=float, default=300.0, show_default=True, metavar="S", help="Limit for one test or point."),
    click.option(
        "--results-limit",
        type=click.FloatRange(0, min_open=True),
        default=Cap().bytes / GIB,
        show_default=True,
        metavar="GIB",
        help="Stop a target that writes more than this to its results.",
    ),
    click.option(
        "--results-files",
        type=click.IntRange(1),
        default=Cap().files,
        show_default=True,
        metavar="N",
        help="Stop a target that writes more files and folders than this.",
    ),
    click.option("--timeout", type=float, default=10800.0, show_default=True, metavar="S", help="Limit for one target."),
)
package_options = several(
    click.option(
        "--requirements", type=FILE, multiple=True, metavar="FILE", help="Install these packages beside torch and Triton; repeatable."
    ),
    click.option("--install", is_flag=True, help="Install the package at the kernels' root, with what it declares to need."),
    click.option("--install-no-deps", is_flag=True, help="Install the package at the kernels' root alone."),
    click.option("--env", multiple=True, metavar="NAME[=VALUE]", help="Set a variable for the kernels, or pass yours on; repeatable."),
)
where_options = several(
    click.option("--engine", type=click.Choice(list(ENGINES)), help="Use this engine, with no fallback.  [default: the target's own]"),
    click.option("--python", metavar="PATH", help="Python of the local engine.  [default: this one]"),
    click.option("--out", type=FOLDER, help="Folder for the results.  [default: reports/runs/RUN_ID]"),
    click.option("--resume", type=FOLDER, metavar="RUN", help="Finish the run in that folder; finished parts are not run again."),
    click.option("--gpu-wait", type=float, default=600.0, show_default=True, metavar="S", help="How long to wait for a GPU in use."),
    click.option("--targets", "overlay", type=FILE, help="A targets file; its entries override the shipped ones."),
)
build_options = several(
    click.option("--base-image", metavar="NAME", help="Base image instead of the target's, e.g. from your own registry."),
    click.option("--wheelhouse", type=FOLDER, help="Folder of wheels; the image is then built without a package index."),
    click.option("--ca-bundle", type=FILE, help="Certificates that pip trusts during the build."),
    click.option("--pip-config", type=FILE, help="pip.conf for the build."),
    click.option("--build-network", metavar="MODE", help="Network of the build, e.g. host."),
    click.option("--build-arg", "build_args", multiple=True, metavar="K=V", help="Passed to the Dockerfile; repeatable."),
    click.option("--rebuild", is_flag=True, help="Build even if an image with the same contents exists."),
    click.option("--weaken", multiple=True, metavar="NAME", help="Give up one protection of the container, by name; shown in the report."),
    click.option("--keep", is_flag=True, help="Keep the container after the run."),
)
output_options = several(
    json_option("Print one JSON document and nothing else on standard output."),
    click.option("--quiet", is_flag=True, help="Show no progress."),
    click.option("--full", is_flag=True, help="Show every case in the table, not only one summary for each kernel."),
)


def parse_options(options: dict[str, Any]) -> RunOptions:
    """Turn the options of `run` into one object.

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
    root = find_root(kernels)
    gpu, share = chosen_gpus(options["gpu"], options["gpus"])
    run_id = recorded_run_id(options["resume"]) if options["resume"] else new_run_id()
    # Options that have the same name and value on the command line and in `RunOptions`.
    same = {field.name: options[field.name] for field in fields(RunOptions) if field.name in options}
    return RunOptions(
        **{
            **same,
            "run_id": run_id,
            "out": Path(os.path.realpath(options["resume"] or options["out"] or Path("reports") / "runs" / run_id)),
            "kernels": kernels.resolve(),
            "root": root,
            "import_folders": import_folders(root),
            "pytest": load_pytest_settings(kernels, root),
            "stages": _parse_stages(options["stages"]),
            "gpu": gpu,
            "share": share,
            "commit": options["commit"] or "",
            "benches": options["benches"] or RunOptions.benches,
            "launches": _parse_launches(options["launches"]) if options["launches"] else load_launches(kernels),
            "peers": load_peers(kernels),
            "gates": load_gates(kernels),
            # As one word, because an expression may look like an option of pytest.
            "pytest_args": (f"-k={options['keyword']}",) if options["keyword"] else (),
            "test_limit_s": options["test_timeout"],
            # The stage's limit comes first: it keeps the stage's results whole, and leaves time to save them before the target's limit.
            "stage_limit_s": options["timeout"] - min(120.0, options["timeout"] / 10),
            "limit_s": options["timeout"],
            "build": _build(options),
            "cap": Cap(max(1, round(options["results_limit"] * GIB)), options["results_files"]),
            "command": _command(),
            "resume": options["resume"] is not None,
            "gpu_wait_s": options["gpu_wait"],
            "install": chosen_packages(options, kernels),
            "variables": chosen_variables(options["env"], kernels),
            "shard": parse_shard(options["shard"]) if options["shard"] else None,
        }
    )


def _build(options: dict[str, Any]) -> Build:
    same = {field.name: options[field.name] for field in fields(Build) if field.name in options}
    return Build(**same, network=options["build_network"], args=dict(_key_value(pair) for pair in options["build_args"]))


def _command() -> tuple[str, ...]:
    """Return the command to record: the command line of `run`, also if another command has built it."""
    context = click.get_current_context(silent=True)
    built: tuple[str, ...] | None = context.meta.get(COMMAND) if context else None
    return built or ("warpwave", *sys.argv[1:])


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
        if name not in _STAGES:
            raise UsageError(f"There is no stage {name!r}.", "Stages are separated by commas.", f"Choose from {', '.join(_STAGES)}.")
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
