"""results/*.json → the table of docs/guides/strangers.md, between its two marks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sources import Package

RESULTS = Path(__file__).with_name("results")
PAGE = Path(__file__).parents[2] / "docs" / "guides" / "strangers.md"
BEGIN, END = "<!-- begin: tests/strangers/session.py -->", "<!-- end: tests/strangers/session.py -->"
_SHOWN = 8  # classes of one package


def write(packages: list[Package]) -> None:
    """Replace the part between the marks by what the last session measured of each package."""
    page = PAGE.read_text(encoding="utf-8")
    if BEGIN not in page or END not in page:
        raise SystemExit(f"{PAGE.name} has no place for the table. It stands between two lines: {BEGIN} and {END}.")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{table(packages)}{END}{after}", encoding="utf-8")


def table(packages: list[Package]) -> str:
    """Return the table, and below it the classes of failures."""
    results = {package.name: _result(package) for package in packages}
    lines = ["", "| package | typed | tests | compiled | exit code | time |", "|---|---|---|---|---|---|"]
    for package in packages:
        lines.append(_row(package, results[package.name]))
    for package in packages:
        lines += _failing(package, results[package.name])
    return "\n".join([*lines, "", ""])


def _result(package: Package) -> dict[str, Any]:
    """Return the last measurement of this version, or nothing."""
    path = RESULTS / f"{package.name}.json"
    told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return told if told.get("version") == package.version else {}


def _row(package: Package, result: dict[str, Any]) -> str:
    head = f"| {package.name} ({package.author}), {package.version} |"
    if not result:
        return f"{head} not run yet | | | | |"
    if "not_reached" in result:
        return f"{head} not run: {_cell(result['not_reached'])} | | | | |"
    counts = (_counts(result[stage]["counts"], result[stage]["not_run"]) for stage in ("test", "compile"))
    typed = result["typed"]
    return f"{head} `{typed}` | {' | '.join(counts)} | {result['exit_code']} | {_time(result)} |"


def _time(result: dict[str, Any]) -> str:
    """Return the time of a run, with its limit: a run that reached it was cut off."""
    used = f", {result['cpu_seconds']} s of the processor" if "cpu_seconds" in result else ""
    again = f"; the {result['again']['tests']} failed tests again {result['again']['date']}" if "again" in result else ""
    return f"{result['date']}: {result['seconds']} s, limit {result['limit_s']} s{used}{again}"


def _counts(counts: dict[str, int], why: dict[str, int]) -> str:
    told = [f"{number:,} {verdict}" for verdict, number in sorted(counts.items(), key=lambda item: (item[0] != "passed", item[0]))]
    reasons = ", ".join(f"{number:,} {reason}" for reason, number in why.items())
    return ", ".join(told) + (f" ({reasons})" if reasons else "") or "none"


def _failing(package: Package, result: dict[str, Any]) -> list[str]:
    found = result.get("classes", [])
    if not found:
        return []
    lines = ["", f"### {package.name}", "", "| failures | stage | message | fault | control |", "|---|---|---|---|---|"]
    for one in found[:_SHOWN]:
        cells = (str(one["count"]), one["stage"], f"`{_cell(one['message'])}`", one["fault"], _cell(one["control"]))
        lines.append(f"| {' | '.join(cells)} |")
    if len(found) > _SHOWN:
        left = sum(one["count"] for one in found[_SHOWN:])
        lines += ["", f"{len(found) - _SHOWN} more classes with {left} failures are in `tests/strangers/results/{package.name}.json`."]
    return lines


def _cell(text: str) -> str:
    """Return a text as one cell of a Markdown table."""
    return " ".join(text.replace("|", "\\|").replace("`", "'").replace("<", "&lt;").split())[:160]
