"""results/*.json → the table of docs/guides/strangers.md, between its two marks."""

import json
import re
from pathlib import Path
from typing import Any

from sources import Package

RESULTS = Path(__file__).with_name("results")
PAGE = Path(__file__).parents[2] / "docs" / "guides" / "strangers.md"
BEGIN, END = "<!-- begin: tests/strangers/session.py -->", "<!-- end: tests/strangers/session.py -->"
# What only a card can decide, or what warpwave does not pretend without one.
_CARD = ("not-pretended", "decided-by-data")
_MISSING = re.compile(r"No module named '([\w.]+)'")


def write(packages: list[Package]) -> None:
    """Replace the part between the marks by what the last session measured of each package."""
    page = PAGE.read_text(encoding="utf-8")
    if BEGIN not in page or END not in page:
        raise SystemExit(f"{PAGE.name} has no place for the table. It stands between two lines: {BEGIN} and {END}.")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{table(packages)}{END}{after}", encoding="utf-8")
    if BEGIN_ADOPTED in page:
        write_adopted()


ADOPTED = RESULTS / "adopted.json"
BEGIN_ADOPTED, END_ADOPTED = (f"<!-- {word}: tests/strangers/results/adopted.json -->" for word in ("begin", "end"))


def write_adopted() -> None:
    """Replace the table of packages whose failures were listed, so that the same run is green."""
    head = ["package, version", "options", "first run: tests", "needs", "known", "exit codes"]
    lines = ["", f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in json.loads(ADOPTED.read_text(encoding="utf-8")):
        needs = ", ".join(f"{number:,} {what}" for what, number in row["needs"].items())
        reached = f"{row['checked']:,} of {row['found']:,} checked, {row['failed']:,} fail"
        without = "none is found, scripts compile" if "--bench-script" in row["options"] else "the budget was up before"
        tests = reached if row["found"] else without
        cells = [row["version"], f"`{row['options']}`", tests, needs, f"{row['known']:,}", " → ".join(map(str, row["exit_codes"]))]
        lines.append(f"| {' | '.join(cells)} |")
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN_ADOPTED)
    PAGE.write_text("\n".join([f"{before}{BEGIN_ADOPTED}", *lines, "", END_ADOPTED]) + rest.partition(END_ADOPTED)[2], encoding="utf-8")


def table(packages: list[Package]) -> str:
    """Return the table: a row for each package."""
    head = ["package, version", "tests", "binaries", "needs a card", "not installed", "Triton", "options"]
    lines = ["", f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *(_row(package, _result(package)) for package in packages), "", ""])


def _result(package: Package) -> dict[str, Any]:
    """Return the last measurement of this version, or nothing."""
    path = RESULTS / f"{package.name}.json"
    told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return told if told.get("version") == package.version else {}


def _row(package: Package, result: dict[str, Any]) -> str:
    name = f"| {package.version} ({package.author}) |"
    if not result or "not_reached" in result:
        return f"{name} not run{': ' + _cell(result['not_reached']) if result else ' yet'} | | | | | |"
    card = sum(result[stage]["not_run"].get(why, 0) for stage in ("test", "compile") for why in _CARD)
    modules = sorted({found for one in result.get("classes", []) for found in _MISSING.findall(one["message"])})
    cells = [
        _counts(result["test"]),
        _counts(result["compile"]),
        f"{card:,}" if card else "",
        _cell(", ".join(modules)),
        result["facts"]["triton"] if result["facts"] else "",
        f"`{result['typed'].removeprefix('warpwave run cpu ').removesuffix(' --budget 30m').removesuffix(' --quick')}`",
    ]
    return f"{name} {' | '.join(cells)} |"


def _counts(stage: dict[str, Any]) -> str:
    """Return `15 pass, 2 do not, 6 out of time` of a stage; what the author skips and what an autotuner discards does not count."""
    counts, late = stage["counts"], stage["not_run"].get("time-up", 0)
    verdicts = {
        "pass": counts.get("passed", 0),
        "do not": sum(counts.get(verdict, 0) for verdict in ("failed", "error", "crashed", "oom")),
        "out of time": counts.get("timeout", 0) + late,
    }
    return ", ".join(f"{number:,} {words}" for words, number in verdicts.items() if number) or "none"


def _cell(text: str) -> str:
    """Return a text as one cell of a Markdown table."""
    return " ".join(text.replace("|", "\\|").replace("`", "'").replace("<", "&lt;").split())[:160]
