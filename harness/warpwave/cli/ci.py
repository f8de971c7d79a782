"""`warpwave ci plan | leg | compiled | options | tidy | report | comment`: what a workflow needs logic for."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from warpwave import console
from warpwave.cli.doctor import outcome as outcome_of_findings
from warpwave.cli.doctor import print_findings
from warpwave.cli.options import COMMAND, FILE, FOLDER, OUT_FILE, OUT_FOLDER, known_options, split, strict_option
from warpwave.cli.run import parse_run
from warpwave.errors import NOTHING, WORSE, ExitCode, InfrastructureError, Outcome, UsageError
from warpwave.records.words import MOST_SHARDS

if TYPE_CHECKING:
    from warpwave.ci.base import Since
    from warpwave.compare.known import Known

_FOLDERS = click.argument("folders", nargs=-1, required=True, type=FOLDER, metavar="FOLDER...")
_SHARDS = click.IntRange(1, MOST_SHARDS)
_KERNELS = click.option(
    "--kernels", type=FOLDER, default=Path("kernels"), envvar="KERNELS", show_default=True, help="Folder of the kernel package."
)
_BASE = click.option("--base", type=FOLDER, help="Results of the base branch's last run; may be missing or empty.")
_EXPECT = click.option("--expect", default="", metavar="TARGET,TARGET", help="Targets that must be listed; `absent` without results.")


_MOST_FILES = 20_000  # of the repository, in which annotations find their lines


@click.group()
def ci() -> None:
    """Steps of a GitHub Actions workflow. Each also works on a laptop."""


@ci.command()
@click.option(
    "--runners",
    default="",
    metavar="JSON",
    envvar="RUNNERS",
    help="A JSON object: target to the labels of its runner.  [default: `runner` of each leg of the hosts file]",
)
@click.option("--hosts", type=FILE, help="A hosts file.  [default: hosts.yml beside the kernels]")
@_KERNELS
@click.option("--targets", "overlay", type=FILE, help="A targets file; its entries override the shipped ones.")
@click.option("--shards", type=_SHARDS, default=1, show_default=True, envvar="SHARDS", help="Parallel jobs for each target.")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="Add the plan to this file of outputs.")
@click.option(
    "--fork-environment",
    default="",
    envvar="FORK_ENVIRONMENT",
    metavar="NAME",
    help="The environment for jobs of pull requests from forks. The plan fails if it requires no reviewers.",
)
def plan(
    runners: str, hosts: Path | None, kernels: Path, overlay: Path | None, shards: int, output: Path | None, fork_environment: str
) -> Outcome:
    """Show which job runs which target on which runner.

    In a job for a fork's pull request, this fails if self-hosted runners are named and the environment for forks is missing or requires no
    reviewers. The check needs GITHUB_TOKEN with `actions: read`.
    """
    from warpwave.ci.forks import check_forks
    from warpwave.ci.job import outputs
    from warpwave.ci.plan import COMPILER, as_outputs, cards, plan_hosts, plan_legs
    from warpwave.cli.legs import all_hosts
    from warpwave.config.targets import load_targets

    targets = load_targets(overlay)
    if runners:
        legs = plan_legs(runners, targets, shards)
    else:
        legs = plan_hosts(all_hosts({"here": False, "hosts": hosts, "kernels": kernels}, targets), shards)
    for leg in legs:
        console.say(f"{leg.name}: {leg.target} on {', '.join(leg.runner)}")
    if found := check_forks(legs, fork_environment, os.environ):
        console.say(found)
    made = as_outputs(legs, cards(), COMPILER)
    if made["compile"]:
        console.say(f"before them: {COMPILER} compiles for {made['compile']}, without a card")
    _append(output, outputs(made, secrets.token_hex(16)))
    return Outcome()


@ci.command()
@click.argument("name", metavar="TARGET")
@click.option("--out", type=OUT_FOLDER, required=True, help="Folder for the results.")
@_KERNELS
@click.option("--engine", default="", envvar="ENGINE", help="docker or local.  [default: the target's own]")
@click.option("--known", default="", envvar="KNOWN", metavar="FILE|RUN", help="As in `warpwave run`.")
@click.option("--fail-on", default="", envvar="FAIL_ON", metavar="WHAT", help="As in `warpwave run`.")
@click.option("--shard", default="", envvar="SHARD", metavar="I/N", help="As in `warpwave run`.")
@click.option("--options", default="", envvar="OPTIONS", help="More options of `warpwave run`, quoted as in a shell; not --out.")
@click.option("--compile-for", default="", envvar="COMPILE_FOR", metavar="A,A", help="Only compile, and keep it for jobs on these cards.")
@click.option("--compiled", type=FOLDER, envvar="COMPILED", help="What such a job left; without a hash it is not used.")
@click.option("--compiled-hash", default="", envvar="COMPILED_HASH", metavar="SHA256", help="The hash that `ci compiled` gave there.")
def leg(name: str, out: Path, kernels: Path, **given: Any) -> Outcome:
    """Check this machine, and run TARGET on it if it is fit. If it is not, record the faults for the report.

    TARGET may be a leg of the package's hosts file: this is then the machine that the leg's `runner` names.

    With kernels of another job, its stages are test and bench, unless --options say so. Without, this one does everything itself.
    """
    from warpwave.ci.job import check_options, put_on_record
    from warpwave.ci.plan import keeping, taking
    from warpwave.cli.legs import chosen_targets
    from warpwave.config.targets import load_targets
    from warpwave.doctor import examine
    from warpwave.doctor.machine import bad
    from warpwave.run.shards import parse_shard

    # If an option is given twice, the last one counts, so --options overrides the step's own options.
    flags = {"--engine": given["engine"], "--shard": given["shard"], "--known": given["known"], "--fail-on": given["fail_on"]}
    words = [word for flag, value in flags.items() if value for word in (flag, value)]
    words += split(given["options"], "--options", """-k "a or b\"""") + keeping(given["compile_for"])
    # This is the machine with the card: a hosts file says where machines are that others reach.
    first = [name, "--kernels", str(kernels), "--out", str(out), "--no-report", "--here"]
    context = parse_run([*first, *words])
    if any(target.visible_devices for target, _ in chosen_targets(context.params, load_targets(context.params["overlay"]))):
        context = parse_run([*first, *taking(given["compiled"], given["compiled_hash"]), *words])
    asked = context.params
    check_options(name, out, asked)
    part = str(parse_shard(asked["shard"])) if asked["shard"] else ""
    # One leg for each toolchain; all of them are on this machine, so it is examined once.
    legs = [target for target, _ in chosen_targets(asked, load_targets(asked["overlay"]))]
    findings = examine({legs[0].name: legs[0]}, [legs[0].name], engine=asked["engine"])
    print_findings(findings)
    if faults := bad(findings, strict=False):
        for target in legs:
            put_on_record(target, faults, asked["kernels"], out, part, context.meta[COMMAND])
        return outcome_of_findings(faults)
    with context:
        ended: Outcome = context.command.invoke(context)
    return ended


@ci.command()
@click.argument("folder", type=FOLDER)
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="Add `hash` to this file of outputs.")
def compiled(folder: Path, output: Path | None) -> Outcome:
    """Print the hash of the kernels that a job left in FOLDER, for `ci leg --compiled-hash`. Without kernels, it is empty."""
    from warpwave.ci.job import outputs
    from warpwave.ci.plan import digest_in

    _append(output, outputs({"hash": digest_in(folder)}, secrets.token_hex(16)))
    return Outcome()


@ci.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="TARGET [OPTIONS]...")
def options(arguments: tuple[str, ...]) -> Outcome:
    """Print the parsed options of `warpwave run TARGET [OPTIONS]...` as one line of JSON. Runs nothing.

    `legs` is what would run, in lanes: the legs of one run in turn, the lanes side by side.
    A script that wraps `warpwave run`, such as noxfile.py, can use this instead of parsing the options itself.
    """
    params = parse_run(arguments).params
    console.print_json({**params, "legs": _legs(params)})
    return Outcome()


@ci.command()
@click.argument("folder", type=FOLDER)
def tidy(folder: Path) -> Outcome:
    """Prepare FOLDER for an upload, even after a cancelled job.

    An upload follows links, and refuses a folder if one file name is not allowed. So this command removes containers of finished runs, then
    links, pipes, devices and hard links. It renames files whose names are not allowed, and makes unreadable files readable.
    """
    from warpwave.ci.job import end_leftovers
    from warpwave.engines.results import make_portable
    from warpwave.engines.results import tidy as tidy_folder

    console.say(end_leftovers())
    if folder.is_symlink():
        folder.unlink()
    if left := tidy_folder(folder):
        happened = f"{len(left)} links or devices in {folder} could not be removed, {left[0]!r} among them."
        meaning = "They belong to another user, or the disk is read-only or broken."
        raise InfrastructureError(happened, meaning, "Do not upload that folder. Remove it as that user or as root.")
    make_portable(folder)
    return Outcome()


@ci.command()
@_FOLDERS
@_EXPECT
@click.option("--out", type=OUT_FOLDER, required=True, help="Where to write the report.")
@_BASE
@_KERNELS
@known_options(usual=WORSE, words=True, for_workflow=True)
@click.option("--threshold", metavar="SHARE", default="", envvar="THRESHOLD", help="As in `warpwave compare`.  [default: the A/A run's]")
@click.option("--summary", "page", type=click.Path(path_type=Path, dir_okay=False), help="Add the job's summary to this file.")
@strict_option
def report(folders: tuple[Path, ...], out: Path, base: Path | None, kernels: Path, page: Path | None, **options: Any) -> Outcome:
    """Merge the results in FOLDERs, compare them with the base branch, annotate, and decide the status.

    If a job left no results, the report lists its target as absent, and the exit code is 4. Failures are printed as annotations. Numbers
    for other tools are written to `exports` below --out. If a job ran several times, its last attempt counts.

    What the list of known failures has is no failure, and on a pull request nothing that failed in the base's run either.
    """
    from warpwave.ci.base import Since, against_base, parse_asked
    from warpwave.ci.job import SUMMARY_BYTES, annotate, export, merge, summary
    from warpwave.compare import outcome
    from warpwave.run.choice import python_files

    asked = parse_asked(options["fail_on"], _share(options["threshold"]))
    # Do this first: it frees the runs of both sides before the comparison is made, and each side may be very large.
    since = against_base(base, folders, asked) if base else Since()
    comparison = merge(folders, out, _names(options["expect"]), _known({**options, "fail_on": asked.fail_on}, kernels, since))
    export(comparison, out / "exports")
    ended = outcome(comparison, strict=options["strict"])
    if ended.ok and since.worse and asked.fail_on != NOTHING:
        ended = Outcome(ExitCode.FAILED, f"since the base branch: {since.worse}")
    # The output of this step must match its status. The report's own files do not include the base branch.
    comparison = dataclasses.replace(comparison, sentence=ended.lead(comparison.sentence), exit_code=int(ended.code))
    for line in annotate(comparison, since.annotations, list(itertools.islice(python_files(Path.cwd()), _MOST_FILES))):
        console.order(line)
    _append(page, summary(comparison, since.page, SUMMARY_BYTES))
    console.say(comparison.sentence)
    return ended


@ci.command()
@_FOLDERS
@_EXPECT
@_BASE
@_KERNELS
@known_options(usual=WORSE, words=True, for_workflow=True)
@click.option("--out", type=OUT_FILE, required=True, help="Where to write the comment.")
def comment(folders: tuple[Path, ...], expect: str, base: Path | None, kernels: Path, out: Path, **options: Any) -> Outcome:
    """Write a pull request's comment about the results in FOLDERs. Treats the results as untrusted. Does not post the comment."""
    from warpwave.ci.base import Since, against_base, parse_asked
    from warpwave.ci.job import comment as render
    from warpwave.ci.job import merge
    from warpwave.records import write_text

    asked = parse_asked(options["fail_on"], None)
    since = against_base(base, folders, asked) if base else Since()
    known = _known({**options, "fail_on": asked.fail_on}, kernels, since)
    write_text(out, render(merge(folders, out.parent / "report", _names(expect), known), since.page))
    return Outcome()


# On the branch itself, a failure would be red once, and known to every run after.
_ON_THE_BRANCH = ("push", "schedule", "workflow_dispatch")


def _known(options: dict[str, Any], kernels: Path, since: Since) -> Known | None:
    """Return the known failures: those of the list, and on a pull request those of the base's run."""
    from warpwave.cli.known import read_known

    known = read_known(options, kernels=kernels)
    if known is None or not since.failures or os.environ.get("GITHUB_EVENT_NAME") in _ON_THE_BRANCH:
        return known
    return dataclasses.replace(
        known, source=" and ".join(filter(None, (known.source, "the base's run"))), base=(*known.base, *since.failures)
    )


def _legs(params: dict[str, Any]) -> list[list[dict[str, str]]]:
    from warpwave.cli.legs import chosen_targets
    from warpwave.config.targets import load_targets
    from warpwave.options import Package, RunOptions, Where
    from warpwave.run.legs import Leg, lanes

    nothing = Path()
    chosen = chosen_targets(params, load_targets(params["overlay"]))
    legs = [Leg(target, RunOptions(Where("", nothing, host=host), Package(nothing))) for target, host in chosen]
    return [[{"name": leg.target.name, "target": leg.target.kind, "engine": leg.engine} for leg in lane] for lane in lanes(legs)]


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def _share(text: str) -> float | None:
    """Parse a threshold, which may come from a variable. Empty means None. Raises UsageError if the text is not a number from 0 to 10."""
    if not text:
        return None
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0 <= share <= 10:
        raise UsageError(f"--threshold is not a share: {text!r}.", "With 0.02, changes below 2% are noise.", "Give a number from 0 to 10.")
    return share


def _append(path: Path | None, text: str) -> None:
    if path is not None:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
