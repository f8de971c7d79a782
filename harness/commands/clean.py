"""`warpwave clean`: list or remove what earlier runs left on this machine."""

from __future__ import annotations

import click

from harness import console
from harness.errors import InfrastructureError, Outcome

_MIB = 1 << 20
_DAYS = 30


@click.command()
@click.option("--yes", is_flag=True, help="Remove what is listed.")
@click.option(
    "--unused-days",
    type=click.IntRange(min=0),
    default=_DAYS,
    metavar="N",
    help=f"How long a Python environment must be unused; 0 takes all that no run uses now.  [default: {_DAYS}]",
)
def clean(yes: bool, unused_days: int) -> Outcome:
    """List what earlier runs left on this machine, or remove it.

    That is containers of killed runs, and Python environments that the local engine made for packages and that no run has used for 30 days.
    """
    from harness.engines.packages.environments import unused

    found = _containers(dry_run=not yes)
    for old in unused(unused_days, remove=yes):
        found.append(f"environment {old.folder} (unused for {old.days:.0f} days, {old.bytes // _MIB} MiB)")
    for name in found:
        console.say(f"{'removed' if yes else 'found'}: {name}")
    if not found:
        console.say("nothing to remove")
    elif not yes:
        console.say("`warpwave clean --yes` removes them")
    return Outcome()


def _containers(dry_run: bool) -> list[str]:
    """Return what an engine has. Without an engine there is nothing of ours in one, and the rest can still be removed."""
    from harness.engines.choose import clean as clean_containers

    try:
        return clean_containers(dry_run)
    except InfrastructureError as error:
        console.say(f"containers: not looked for. {error.happened}")
        return []
