"""`warpwave run`: run each leg, side by side where they are on different machines, then write the report."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from warpwave import console
from warpwave.cli.options import (
    COMMAND,
    GroupedCommand,
    complete_target,
    known_options,
    output_options,
    run_options,
    several,
    strict_option,
    take_node_ids,
)
from warpwave.cli.show import print_answer, print_error, read_runs, show_records, show_report
from warpwave.engines import waiting
from warpwave.errors import ExitCode, Outcome, UsageError, WarpwaveError
from warpwave.records.run import MARK

if TYPE_CHECKING:
    from warpwave.compare.known import Known
    from warpwave.records import RunRecord
    from warpwave.run.legs import Leg


_MOST_FILES = 40  # in each list of a dry run
_MOST_LOGS = 6  # named at the end
_STARTED_S = 1.0  # until a run has started its process


class _Command(GroupedCommand):
    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Parse the words before `--` as usual."""
        if "--" in args:
            place = args.index("--")
            args = [*args[:place], *(["--pytest-args", shlex.join(args[place + 1 :])] if args[place + 1 :] else [])]
        return super().parse_args(context, args)


@click.command(cls=_Command)
@click.argument("names", nargs=-1, metavar="TARGET... [ID...]", shell_complete=complete_target, callback=take_node_ids, is_eager=True)
@run_options
@known_options()
@several(
    "What is printed",
    click.option("-v", "--verbose", is_flag=True, help="Print every test and point as it ends."),
    click.option(
        "--dry-run", is_flag=True, help="Run nothing: show what would be run where, which files it would see, and which stay here."
    ),
    click.option("--watch", is_flag=True, help="After the run, wait for edits and run again the tests that they touch. Ctrl-C ends it."),
    click.option("--no-report", is_flag=True, help="Write no report; a later `warpwave report` can."),
    strict_option,
    output_options,
)
def run(**options: Any) -> Outcome:
    """Run TARGETs (see `warpwave list`), then write the comparison. What a hosts file puts on different machines runs side by side.

    An ID, such as tests/test_add.py::test_add, is a test to run, as with --test. Words behind -- are options of pytest.

    \b
    Examples:
      warpwave run cpu                         no card needed: test, and compile for NVIDIA and AMD
      warpwave run cpu --kernels ops --install the same for another package, with what it needs
      warpwave run cuda rocm                   on this machine's cards, or where hosts.yml says
      warpwave run cuda --last-failed RUN      only the tests that failed in that run
    """
    if options.pop("watch", False):
        from warpwave.cli.watch import watch

        return watch(options, _run)
    return _run(**options)


def _run(**options: Any) -> Outcome:
    from warpwave.config.names import check_kernels, check_names, hosts_file

    # Before the imports that only a run needs: they take longer than these errors.
    if hosts_file(options)[0] is None:
        check_names([name for name in options["names"] if MARK not in name], options["overlay"])
    if options["names"] and not options["overlay"]:  # what is wrong in a targets file comes first
        check_kernels(options["kernels"])
    from warpwave.cli.legs import chosen_targets, legs_of
    from warpwave.config.targets import compiling_for, load_architectures, load_targets, named_architectures

    targets, known_cards = load_targets(options["overlay"]), load_architectures(options["overlay"])
    if not options["names"]:
        from warpwave.cli.cards import no_target

        raise no_target(targets)
    only = named_architectures(options["architectures"], known_cards, "--architectures")
    chosen = [(compiling_for(target, only), host) for target, host in chosen_targets(options, targets)]
    from warpwave.cli.known import keep_copy, read_known
    from warpwave.cli.parse import parse_options
    from warpwave.run import check_target
    from warpwave.run.folders import check_no_links, check_writable, ignored_by_git, point_to_latest
    from warpwave.run.legs import lanes

    asked = parse_options(options, divided=any(host and (host.shards > 1 or host.also) for _, host in chosen))
    legs = legs_of(chosen, asked)
    for leg in legs:
        for path in (leg.raw, leg.log):
            check_no_links(path, asked.where.out)
        check_target(leg.target, leg.options)  # check all targets before the first one runs, which may take an hour
    known = read_known(options, kernels=options["kernels"])
    if options["dry_run"]:
        return _show_plan(legs, options)
    from warpwave.cli.cards import check_cards

    check_cards(legs, targets)
    check_writable(ignored_by_git(asked.where.out))
    point_to_latest(asked.where.out)
    several = lanes(legs)
    if len(several) > 1:
        records, refused = _run_lanes(several, legs, known, quiet=options["quiet"], verbose=options["verbose"])
    else:
        if not options["no_report"]:
            _load_report()
        records, refused = _run_in_turn(legs, known, quiet=options["quiet"], verbose=options["verbose"])
    if refused and not records:
        raise refused[0]
    ended = _cut_short(records, refused)
    keep_copy(known, asked.where.out)
    if options["no_report"]:
        judged = None
        if known is not None:
            from warpwave.compare import compare, outcome

            judged = outcome(compare(read_runs([asked.where.out]), known=known))
        return show_records(records, asked.where.out, options, ended, judged)
    from warpwave.report import make_report

    made = make_report([asked.where.out], asked.where.out, [target.name for target, _ in chosen], records, known=known)
    return show_report(made, asked.where.out, [asked.where.out], options, ended, next_too=True)


def _load_report() -> None:
    """Import what writes the report while the run waits for its processes: that takes half a second."""

    def load() -> None:
        with suppress(Exception):  # the same import fails again, and is reported, where the report is written
            import_module("warpwave.report")
            import_module("warpwave.render.html").load()

    soon = threading.Timer(_STARTED_S, load)
    soon.daemon = True
    soon.start()


def _show_plan(legs: Sequence[Leg], options: dict[str, Any]) -> Outcome:
    """Show what the legs would run, and on which files. No engine is asked, nothing is started or written."""
    from warpwave.engines.snapshot import contents, secrets_in
    from warpwave.safe_text import json_text

    root, results = legs[0].options.package.folder, legs[0].options.where.folder
    files: list[dict[str, Any]] = []
    left_out: list[dict[str, str]] = []
    for path, why in contents(root, results):
        name = path.relative_to(root).as_posix()
        if why:
            left_out.append({"path": name, "why": why})
        elif path.is_symlink() or not path.is_dir():
            files.append({"path": name, "bytes": path.lstat().st_size})
    hidden = [path.relative_to(root).as_posix() for path in secrets_in(root)]
    targets = [_planned(leg) for leg in legs]
    plan = {"targets": targets, "package": str(root), "files": files, "left_out": left_out, "hidden": hidden}
    if print_answer(options["json"], [json_text({**Outcome().fields(), "dry_run": plan}, indent=1) + "\n"]):
        return Outcome()
    console.say("Nothing was run. This would be:")
    for facts in targets:
        console.say([facts["target"], *(f"  {name:8} {text}" for name, text in facts.items() if text and name != "target")])
    console.say(f"The package {root}: {len(files)} files, {sum(each['bytes'] for each in files):,} bytes")
    for title, lines in (
        ("", [f"{each['bytes']:>13,}  {each['path']}" for each in files]),
        ("Not sent to another machine:", [f"{each['path']} {each['why']}" for each in left_out]),
        ("Hidden from containers on this machine:", hidden),
    ):
        shown = lines if options["full"] else lines[:_MOST_FILES]
        more = [f"  and {len(lines) - len(shown)} more; --full shows all"] if len(shown) < len(lines) else []
        console.say([*([title] if title and lines else []), *(f"  {line}" for line in shown), *more])
    return Outcome()


def _planned(leg: Leg) -> dict[str, str]:
    """Return in words where a leg would run, with what, and what it would see of the package."""
    from warpwave.engines.choose import planned
    from warpwave.engines.packages.plan import is_wanted, make_plan
    from warpwave.engines.protocol import Request
    from warpwave.records.registry import ENGINES, FALLBACK

    request = Request(leg.target, leg.options, leg.raw)
    engine, image, words = planned(request)
    seen = "with all rights of your user: nothing of it is hidden"
    if ENGINES[engine].needs_host:
        seen = "a copy of the files listed below"
    elif ENGINES[engine].container:
        seen = "read-only in its place, without what is hidden"
    falls_back = not (leg.options.where.engine or leg.options.where.host or leg.target.needs_card or engine == FALLBACK)
    return {
        "target": leg.name,
        "where": leg.where,
        "engine": f"{engine}, or {FALLBACK} if it does not answer" if falls_back else engine,
        "image": image,
        "command": shlex.join(words),
        "compiles": f"for {', '.join(card.shown for card in leg.target.architectures)}" if leg.target.architectures else "",
        "package": seen,
        "build": f"gets {len(make_plan(request).files)} files, with the package's requirements" if is_wanted(leg.options) else "",
    }


def _run_in_turn(legs: Sequence[Leg], known: Known | None, *, quiet: bool, verbose: bool) -> tuple[list[RunRecord], list[WarpwaveError]]:
    from warpwave.cli.progress import Progress
    from warpwave.run import run_target

    records: list[RunRecord] = []
    refused: list[WarpwaveError] = []
    for number, leg in enumerate(legs, start=1):
        place = f"{number} of {len(legs)}" if len(legs) > 1 else ""
        with Progress(console.terminal(err=True), leg.name, quiet=quiet, verbose=verbose, place=place, known=known) as progress:
            for line in _said_before([leg], first=leg is legs[0]):
                progress.say(line)
            try:
                records.append(run_target(leg.target, leg.options, progress.say, progress.on_event))
            except UsageError as error:
                refused.append(error)
        if waiting.asked():
            break
    return records, refused


def _run_lanes(
    several: Sequence[Sequence[Leg]], legs: Sequence[Leg], known: Known | None, *, quiet: bool, verbose: bool
) -> tuple[list[RunRecord], list[WarpwaveError]]:
    """Run the lanes side by side, and name the legs' logs at the end."""
    from warpwave.cli.progress import LegsView
    from warpwave.run.legs import run_side_by_side

    for line in [] if quiet else _said_before(legs):
        console.say(line, err=True)
    with LegsView(console.terminal(err=True), legs, quiet=quiet, verbose=verbose, known=known) as view:
        records, refused = run_side_by_side(several, view)
    names = [leg.log.name for leg in legs if leg.log.is_file()]
    if names and not quiet:
        some = names if len(names) <= _MOST_LOGS else [*names[: _MOST_LOGS - 1], f"and {len(names) - _MOST_LOGS + 1} more"]
        console.say(f"Logs: {legs[0].log.parent}/{', '.join(some)}", err=True)
    return records, refused


def _said_before(legs: Sequence[Leg], *, first: bool = True) -> list[str]:
    """Return the lines that precede legs: which tests were chosen and why, and which protections are given up."""
    weakened = [f"{leg.name}: protections given up: {', '.join(leg.options.build.weaken)}" for leg in legs if leg.options.build.weaken]
    return [*(legs[0].options.what.chosen.why if first else ()), *weakened]


def _cut_short(records: Sequence[RunRecord], refused: Sequence[WarpwaveError]) -> Outcome:
    """Return the outcome that overrides the results: the user stopped the run, or a target was refused."""
    for error in refused:
        print_error(error)
    if waiting.asked():
        stopped = [record.reason for record in records if record.exit and record.exit.interrupted]
        return Outcome(ExitCode.INTERRUPTED, stopped[0] if stopped else "stopped by the user or the CI system")
    return Outcome(ExitCode.USAGE, " ".join(error.happened for error in refused).rstrip(".")) if refused else Outcome()


def parse_run(arguments: Sequence[str]) -> click.Context:
    """Return a context of `run` that is ready to be invoked; its `params` are the parsed arguments. Raises UsageError, of warpwave or of
    click, if they are not valid, ask for help or name no target."""
    try:
        context = run.make_context("run", list(arguments), parent=click.get_current_context(silent=True))
    except click.exceptions.Exit:
        meaning = "--help or -h is among them."
        raise UsageError("The options ask for help, so nothing would run.", meaning, "Remove it; see `warpwave run --help`.") from None
    if not context.params["names"]:
        from warpwave.cli.cards import no_target
        from warpwave.config.targets import load_targets

        raise no_target(load_targets(context.params["overlay"]))
    context.meta[COMMAND] = ("warpwave", "run", *arguments)
    return context
