"""`warpwave list`, which shows the targets, and `warpwave init`, which writes a package to start from."""

import shlex
from dataclasses import asdict
from pathlib import Path

import click

from warpwave import console
from warpwave.cli.options import FILE, OUT_FOLDER, Json, JsonCommand, json_option
from warpwave.cli.show import print_answer
from warpwave.errors import Outcome


@click.command(name="list", cls=JsonCommand)
@click.option("--targets", "overlay", type=FILE, help="A targets file; its entries override the shipped ones.")
@json_option()
def list_targets(overlay: Path | None, json: Json) -> Outcome:
    """Show every target with its engine, stages, image and architectures."""
    from warpwave.config.targets import load_targets
    from warpwave.safe_text import json_text

    targets = load_targets(overlay)
    if print_answer(json, [json_text([asdict(target) for target in targets.values()], default=str) + "\n"]):
        return Outcome()
    for target in targets.values():
        console.say(f"{target.name:<7} {target.label}")
        console.say(f"{'':8}engine {target.engine}; stages {', '.join(stage.value for stage in target.stages)}; image {target.image.base}")
        console.say(f"{'':8}compiles for {', '.join(card.shown for card in target.architectures)}")
        if target.emulated:
            console.say(f"{'':8}executes tests on an emulated {target.emulated.shown}, and measures nothing")
    return Outcome()


@click.command()
@click.argument("folder", type=OUT_FOLDER, default=Path())
@click.option("--from", "source", metavar="REQUIREMENT", help="What the workflow installs.  [default: the commit of this warpwave]")
def init(folder: Path, source: str | None) -> Outcome:
    """Write a kernel with its test and bench, gates and a workflow into FOLDER (default: the current folder)."""
    from warpwave.starter import requirement, write_starter

    own = requirement() if source is None else source
    for path in write_starter(folder, own):
        console.say(f"wrote {folder / path}")
    if own is None:
        console.say("No workflow was written: it would have to install warpwave, and nobody else can install this copy.")
        console.say(f"To add it: `warpwave init {shlex.quote(str(folder))} --from git+https://HOST/OWNER/warpwave@COMMIT`")
    else:
        console.say(f"The workflow installs {own}. To install something else, use --from.")
    console.say(f"Next: `warpwave run cpu --kernels {folder / 'kernels'}`")
    return Outcome()
