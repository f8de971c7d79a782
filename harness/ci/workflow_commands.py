"""Format what a job sends to its runner: annotations and outputs, escaped so that foreign text cannot add commands. Pure.

Source: GitHub's documentation, "Workflow commands for GitHub Actions".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from harness.compare.model import FAILING, Comparison
from harness.records import Verdict
from harness.render.text import Annotation, first_line, visible

MOST_ANNOTATIONS = 10  # of each kind in a step; GitHub does not show more
COMMENT_BYTES = 65_535
SUMMARY_BYTES = 1 << 20
MARKER = "<!-- warpwave: one comment, edited in place -->"


def annotate(comparison: Comparison, since: Sequence[str] = ()) -> Iterator[str]:
    """Yield one line per annotation: the verdict, then failures, then regressions (`since`), then a count of those left out."""
    if comparison.exit_code:
        yield command("error", comparison.sentence, title="warpwave")
    found = [*_targets(comparison), *_tests(comparison), *since, *_problems(comparison)]
    room = MOST_ANNOTATIONS - 1
    shown = found if len(found) <= room else found[: room - 1]
    yield from shown
    if len(shown) < len(found):
        yield command("error", f"and {len(found) - len(shown)} more, in the summary", title="warpwave")


def command(name: str, message: str, **properties: str) -> Annotation:
    """Return a workflow command. Text from outside can neither end it nor start another one."""
    listed = ",".join(f"{key}={_property(value)}" for key, value in properties.items() if value)
    return Annotation(f"::{name} {listed}::{_data(visible(message))}" if listed else f"::{name}::{_data(visible(message))}")


def outputs(values: Mapping[str, str], delimiter: str) -> str:
    """Return the lines for the GITHUB_OUTPUT file. Pass a random `delimiter`, so that no value can end early and set another one."""
    return "".join(f"{name}<<{delimiter}\n{value}\n{delimiter}\n" for name, value in values.items())


def cut(text: str, limit: int, rest: str) -> str:
    """Return `text` in at most `limit` bytes of UTF-8. If it must be cut, keep whole lines and append `rest`."""
    encoded = text.encode()
    if len(encoded) <= limit:
        return text
    note = f"\n\n_Cut here. {rest}_\n"
    kept = encoded[: limit - len(note.encode())]
    return kept[: kept.rfind(b"\n") + 1].decode(errors="ignore") + note


def _targets(comparison: Comparison) -> Iterator[str]:
    for target in comparison.targets:
        if not target.complete:
            message = f"{target.reason} {target.hint}".strip() or target.verdict.value
            yield command("error", message, title=f"{target.target}: {target.verdict.value}")


def _tests(comparison: Comparison) -> Iterator[str]:
    for row in comparison.tests:
        for cell in row.cells:
            if cell.result.verdict in FAILING:
                yield command("error", first_line(cell.result.message) or cell.result.verdict.value, title=f"{row.id} on {cell.target}")


def _problems(comparison: Comparison) -> Iterator[str]:
    for problem in comparison.problems:
        yield command("warning", problem, title=Verdict.INVALID.value)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(visible(text)).replace(":", "%3A").replace(",", "%2C")
