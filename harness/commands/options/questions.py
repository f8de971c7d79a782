"""The options that say what a search asks of each step."""

from __future__ import annotations

from typing import Any

import click

from harness.commands.options.common import FILE, several
from harness.compare.codegen.deltas import Concern
from harness.compare.toolchains.question import Kind, Question
from harness.errors import UsageError

question_options = several(
    click.option("--gate", metavar="GATE", help="Ask whether a kernel breaks this gate, such as spills or lds_waits."),
    click.option(
        "--worse",
        type=click.Choice([concern.value for concern in Concern]),
        help="Ask whether this figure of the generated code is worse than in the first step.",
    ),
    click.option("--slower", metavar="KERNEL", help="Ask whether this row of the report is slower than in the first step; `*` for any."),
    click.option("--kernel", metavar="NAME", default="", help="With --gate or --worse: look at this kernel alone."),
    click.option("--architecture", metavar="NAME", default="", help="With --gate or --worse: look at this architecture alone."),
    click.option("--fixed", is_flag=True, help="Look for the step that repaired it: the first ones have it, the last ones do not."),
)
page_options = several(
    click.option("--markdown", type=FILE, help="Also write the page as Markdown, for a pull request or a job's summary."),
    click.option("--html", "html_file", type=FILE, help="Also write it as one HTML page."),
)


def asked_question(options: dict[str, Any]) -> Question:
    """Return the question. Without --gate, --worse and --slower it is whether one of the chosen tests fails.

    Raises:
        UsageError: the options ask nothing, or two things.
    """
    ways = {Kind.GATE: options["gate"], Kind.WORSE: options["worse"], Kind.SLOWER: options["slower"]}
    given = [(kind, str(what)) for kind, what in ways.items() if what]
    tests = " ".join([*options["tests"], *([f"-k {options['keyword']}"] if options["keyword"] else [])])
    if len(given) > 1 or not (given or tests):
        raise UsageError(
            "Two questions were asked." if given else "A search needs a question.",
            "Each step must be good or bad by one rule.",
            "Give --test ID, or one of --gate, --worse and --slower.",
        )
    kind, what = given[0] if given else (Kind.TEST, tests)
    return Question(kind, what, options["kernel"], options["architecture"], options["fixed"])
