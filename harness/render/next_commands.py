"""A run that ended → the two commands that most users type next. Pure."""

from __future__ import annotations

import shlex
from pathlib import PurePath

from harness.compare.model import FAILING, Comparison
from harness.errors import ExitCode
from harness.render.repro import rerun
from harness.render.text import visible


def next_commands(comparison: Comparison, out: PurePath) -> tuple[str, str]:
    """Return shell commands: to run what failed again, or to see everything; and to open the page. `out` is the folder of the report."""
    page = visible(f"xdg-open {shlex.quote(str(out / 'comparison.html'))}")
    failing = {verdict.value for verdict in FAILING}
    failed = next((target for target in comparison.targets if failing & target.tests.keys()), None)
    again = rerun(failed, ["--stage", "test", "--last-failed", str(out)]) if failed and comparison.exit_code != ExitCode.USAGE else ""
    return again or visible(f"warpwave report {shlex.quote(str(out))} --full"), page
