"""`warpwave profile gfx942`: run tests on an emulated card, and show what their kernels ask of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from warpwave import console
from warpwave.cli.options import FOLDER, JsonCommand, complete_target, known_options, output_options, run_options, strict_option
from warpwave.cli.run import run
from warpwave.cli.show import read_runs
from warpwave.errors import ExitCode, Outcome, UsageError
from warpwave.records import COUNTERS
from warpwave.run.folders import RUNS, new_run_id

if TYPE_CHECKING:
    from warpwave.records import Profile


@click.command(cls=JsonCommand)
@click.argument("names", nargs=-1, required=True, metavar="CARD...", shell_complete=complete_target)
@click.option("--against", type=FOLDER, metavar="RUN", help="Also show which counters differ from an earlier run with --profile.")
@click.option(
    "--must-not-grow", "limits", metavar="COUNTER,COUNTER", default="", help="With --against: fail if one grew, e.g. lines64,lds_cycles."
)
@click.option("--candidates", is_flag=True, help="Run each configuration of autotuned kernels, and order them by their bounds.")
@run_options
@known_options()
@strict_option
@output_options
def profile(**options: Any) -> Outcome:
    """Count what kernels ask of CARD (gfx942, MI300X, or an emulated target), by line of the source. No card is needed.

    The tests run as with `warpwave run CARD-emulated --profile`. With --bench, benchmarks are called once instead, with their smallest
    size. The report has the lines that cost most, and the least time that follows
    from the counts; it is no speed.

    \b
    Examples:
      warpwave profile gfx942 --kernels ops --test tests/test_add.py
      warpwave profile gfx942 --kernels ops --against reports/runs/BEFORE
    """
    from warpwave.render.sections.profile import moved_sections
    from warpwave.render.terminal import draw_page

    against, limits = options.pop("against"), tuple(filter(None, options.pop("limits").split(",")))
    if wrong := next((name for name in limits if name not in COUNTERS), None):
        raise UsageError(f"There is no counter {wrong!r}.", "A misspelt one never grows.", f"Choose from {', '.join(COUNTERS)}.")
    if limits and against is None:
        raise UsageError("--must-not-grow needs a run to compare with.", "A counter fails if it grew since that run.", "Add --against RUN.")
    before = _profiles(against) if against is not None else None
    names = tuple(target_of(text, options["overlay"]) for text in options["names"])
    out = options["resume"] or options["out"] or RUNS / new_run_id()
    if options["benches"] and not options["tests"]:
        options["tests"] = options["benches"]
    chosen = {**options, "names": names, "profile": True, "out": out, "stages": options["stages"] or "test"}
    ended: Outcome = run.callback(**{**chosen, "verbose": False, "dry_run": False, "no_report": False})  # type: ignore[misc]
    if ended.code is ExitCode.NOTHING_RAN and options["benches"]:  # no test, but benchmarks
        ended = Outcome()
    if before is not None:
        from warpwave.compare.profile import moved

        now = _profiles(out)
        rows = moved(before, now)
        if options["json"] is not True:
            console.show(draw_page(f"Against {against}", moved_sections(rows, None if options["full"] else 20), good=ended.ok))
        grown = [f"{row.counter} of {row.function} in {row.case}" for row in rows if row.counter in limits and row.after > row.before]
        if limits and ended.ok and not {(one.case, one.function) for one in before} & {(one.case, one.function) for one in now}:
            ended = Outcome(ExitCode.NOTHING_RAN, f"--must-not-grow: no kernel of a test is in {against} as well, so nothing was compared")
        if grown and ended.ok:
            more = f" and {len(grown) - 1} more" if len(grown) > 1 else ""
            ended = Outcome(ExitCode.FAILED, f"--must-not-grow: {grown[0]} grew{more}")
    return ended


def target_of(text: str, overlay: Path | None) -> str:
    """Return the emulated target that a name means: the target's own, or that of a card. Raises UsageError if there is none."""
    from warpwave.config.targets import load_architectures, load_targets, named

    targets = {name: target for name, target in load_targets(overlay).items() if target.emulate}
    card = named(text, load_architectures(overlay))
    if text in targets:
        return text
    if found := next((name for name, target in targets.items() if card and target.emulate and target.emulate.name == card.name), None):
        return found
    happened = f"There is no emulated target for {text!r}."
    meaning = "Kernels are profiled where their machine code is executed on the CPU, which needs an emulator of the card."
    raise UsageError(happened, meaning, f"Choose from {', '.join(target.emulate.shown for target in targets.values() if target.emulate)}.")


def _profiles(folder: Path) -> list[Profile]:
    found = [one for run_ in read_runs([folder]) for one in run_.profiles]
    if not found:
        meaning = "Counters are in runs that were made with `warpwave profile` or `warpwave run --profile`."
        raise UsageError(f"{folder} has no profile.", meaning, "Run the tests there again with --profile.")
    return found
