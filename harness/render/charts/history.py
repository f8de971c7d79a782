"""A line of a history → SVG: relative speed over the runs, with its steps. Pure."""

from __future__ import annotations

from harness.compare.speeds.steps import Line
from harness.render.charts.axes import Scale, size_ticks
from harness.render.charts.svg import mark, tag

WIDTH, HEIGHT = 560, 150


def draw_line(line: Line, colour: int) -> str:
    """Return the content of an `<svg>`: a mark for each run, and a rule at each step."""
    left, right, top, bottom = 44, WIDTH - 14, 12, HEIGHT - 22
    known = [speed for speed in line.speeds if speed is not None]
    y, ticks = _near_one(known, bottom, top)
    space = (right - left) / max(1, len(line.runs) - 1)
    at = [left + space * position if len(line.runs) > 1 else (left + right) / 2 for position in range(len(line.runs))]
    parts = []
    for tick in ticks:
        parts.append(tag("line", x1=left, x2=right, y1=y(tick), y2=y(tick), _class="grid"))
        parts.append(tag("text", f"{tick:g}", x=left - 8, y=y(tick) + 4, _class="tick", text_anchor="end"))
    for position in sorted({0, len(line.runs) - 1}):
        anchor = "start" if position == 0 and len(line.runs) > 1 else "end"
        parts.append(tag("text", line.runs[position].started[:10], x=at[position], y=HEIGHT - 5, _class="tick", text_anchor=anchor))
    for step in line.steps:
        css = "step slower" if step.speedup < 1 else "step faster"
        parts.append(tag("line", x1=at[step.position], x2=at[step.position], y1=top, y2=bottom, _class=css))
    drawn = [(x, speed, run) for x, speed, run in zip(at, line.speeds, line.runs, strict=True) if speed is not None]
    parts.append(tag("path", d="M" + "L".join(f"{x:.1f} {y(speed):.1f}" for x, speed, _ in drawn), _class=f"line s{colour} t0"))
    for x, speed, run in drawn:
        parts.append(mark(x, y(speed), colour, 0, 2.8, sound=True, title=f"{speed:.3f}, {run.started[:16]} {run.commit} {run.run_id}"))
    return "".join(parts)


def _near_one(speeds: list[float], start: float, end: float) -> tuple[Scale, list[float]]:
    """Return a scale around the speeds that shows a tenth at least: noise looks like noise, and a step of a few percent can be seen."""
    low, high = min([0.95, *(speed * 0.99 for speed in speeds)]), max([1.05, *(speed * 1.01 for speed in speeds)])
    scale = Scale(low, high, start, end)
    return scale, size_ticks(scale)
