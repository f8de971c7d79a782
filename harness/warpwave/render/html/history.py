"""Turn the lines of a history into one static page: the steps, the largest first, and a drawing of each line. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from markupsafe import Markup

from warpwave.compare.trends import Line, SeriesStep
from warpwave.render.charts.svg import HEIGHT, STYLES, WIDTH, draw_line
from warpwave.render.html.kernels import anchors
from warpwave.render.html.shell import draw, packaged_script
from warpwave.render.text import plural

_MOST_LINES, _MOST_STEPS = 600, 200


@dataclass(frozen=True)
class Drawn:
    """A line with its drawing and a sentence about it."""

    line: Line
    body: Markup
    words: str


@dataclass(frozen=True)
class Kernel:
    """The lines of one kernel, under one anchor."""

    ident: str
    name: str
    lines: tuple[Drawn, ...]


@dataclass(frozen=True)
class Found:
    """A step with its line, the anchor of its kernel, and the address of the commits in between, if a repository is known."""

    line: Line
    step: SeriesStep
    ident: str
    address: str


def render_history(lines: Sequence[Line], repository: str = "") -> str:
    """Return the page. `repository` is an https address whose `/compare/A...B` shows the commits between two."""
    ordered = sorted(lines, key=lambda line: (line.kernel, line.provider, line.dtype, line.target))
    idents = anchors(list(dict.fromkeys(line.kernel for line in ordered)))
    shown = ordered[:_MOST_LINES]
    providers = list(dict.fromkeys(line.provider for line in shown))
    groups: dict[str, list[Drawn]] = {}
    for line in shown:
        body = Markup(draw_line(line, providers.index(line.provider) % STYLES))  # noqa: S704 - the chart escapes all texts
        groups.setdefault(line.kernel, []).append(Drawn(line, body, _words(line)))
    steps = [Found(line, step, idents[line.kernel], _address(step, repository)) for line in ordered for step in line.steps]
    steps.sort(key=lambda found: (found.step.speedup >= 1, min(found.step.speedup, 1 / found.step.speedup)))
    runs = {run.run_id: run for line in ordered for run in line.runs}
    slower = sum(found.step.speedup < 1 for found in steps)
    last = max(runs.values(), key=lambda run: run.started, default=None)
    now = [found for found in steps if last and found.step.after.run_id == last.run_id and found.step.speedup < 1]
    lead = f"{plural(slower, 'step')} down and {plural(len(steps) - slower, 'step')} up in {plural(len(runs), 'run')}."
    if now:
        lead = f"The last run is slower in {plural(len(now), 'line')}; {lead}"
    return draw(
        "history/history.html.jinja",
        sentence=lead,
        rest="",
        exit_code=int(bool(now)),
        kind="history",
        script=packaged_script("history/history.js"),
        width=WIDTH,
        height=HEIGHT,
        kernels=[Kernel(idents[name], name, tuple(found)) for name, found in groups.items()],
        steps=steps[:_MOST_STEPS],
        more_steps=max(0, len(steps) - _MOST_STEPS),
        more_lines=max(0, len(ordered) - _MOST_LINES),
        choices={
            "target": sorted({line.target for line in shown}),
            "provider": sorted(set(providers)),
            "dtype": sorted({line.dtype for line in shown if line.dtype}),
        },
    )


def _words(line: Line) -> str:
    known = [speed for speed in line.speeds if speed is not None]
    return (
        f"{line.provider} on {line.target}: {plural(len(line.runs), 'run')}, last at {known[-1]:.3f} of the first."
        if known
        else line.provider
    )


def _address(step: SeriesStep, repository: str) -> str:
    first, _, last = step.commits.partition("..")
    return f"{repository.rstrip('/')}/compare/{quote(first)}...{quote(last)}" if repository and last else ""
