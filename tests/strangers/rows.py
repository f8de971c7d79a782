"""A run's comparison.json as a row of the table: its counts, the tests that failed, and the classes of its failures."""

import json
import re
import shlex
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sources import Package

NOTHING: dict[str, Any] = {stage: {"counts": {}, "not_run": {}} for stage in ("test", "compile")} | {"classes": []}
TOOLCHAIN = ("triton", "torch")
UNDECIDED = {"fault": "undecided", "control": "not run"}


def read(comparison: Path, earlier: dict[str, Any]) -> dict[str, Any]:
    """Return a run's figures from its comparison.json, and the classes of its failures.

    What somebody wrote to a class of an `earlier` session with the same toolchain stays: whose fault it is, and what a control showed.
    """
    told = json.loads(comparison.read_text(encoding="utf-8"))
    target = told["targets"][0]
    stages = {stage["stage"]: stage for stage in target["stages"]}
    facts = {name: target["facts"][name] for name in ("torch", "triton", "python")} if target["facts"] else {}
    result: dict[str, Any] = {"sentence": told["sentence"], "facts": facts}
    for name in ("test", "compile"):
        stage = stages.get(name, {})
        result[name] = {key: stage.get(key, {}) for key in ("counts", "not_run")} | {"reason": stage.get("reason", "")[:300]}
    raw = comparison.parent / "raw" / target["target"]
    tests = [cell["result"] for test in told["tests"] for cell in test["cells"]]
    result["failed_tests"] = {test["id"]: test["verdict"] for test in tests if test["verdict"] not in ("passed", "not-run")}
    same = all(earlier.get("facts", {}).get(name) == facts.get(name) for name in TOOLCHAIN)
    decided = {(one["stage"], one["message"]): {key: one[key] for key in UNDECIDED} for one in (earlier.get("classes", []) if same else [])}
    result["classes"] = [
        {
            "stage": one.example.stage,
            "count": one.count,
            "message": one.message,
            "example": one.example.id,
            **decided.get((one.example.stage, one.message), UNDECIDED),
        }
        for failed in (failed_tests(raw), failed_kernels(raw))
        for one in classes(failed)
    ]
    return result


# The classes that the failures of a run fall into: one a message, with its numbers taken out.

# Where a gate found something: "at file.py:12, file.py:14".
_PLACES = re.compile(r" at \S+\.py:\d+(, \S+\.py:\d+)*")


@dataclass(frozen=True)
class Failure:
    stage: str
    id: str
    message: str


@dataclass(frozen=True)
class Class:
    """Failures with the same message but for numbers; the first one is an example."""

    message: str
    count: int
    example: Failure


def shape(message: str) -> str:
    """Return a message without what differs from case to case."""
    first = next((line for line in message.splitlines() if line.strip()), "")
    return re.sub(r"0x[0-9a-f]+|\d+(\.\d+)?(e[-+]?\d+)?", "N", _PLACES.sub("", re.sub(r"/\S*/sources/[^/\s]+/", "", first)))[:140]


def failed_tests(raw: Path) -> list[Failure]:
    try:
        root = ElementTree.parse(raw / "test" / "junit.xml").getroot()
    except (OSError, ElementTree.ParseError):
        return []
    found = []
    for case in root.iter("testcase"):
        bad = next((child for child in case if child.tag in ("failure", "error")), None)
        if bad is not None:
            name = next((entry.get("value") for entry in case.iter("property") if entry.get("name") == "id"), case.get("name"))
            found.append(Failure("test", str(name), bad.get("message") or ""))
    return found


def failed_kernels(raw: Path) -> list[Failure]:
    try:
        lines = (raw / "compile" / "kernels.jsonl").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    rows = [json.loads(line) for line in lines if line.strip()]
    bad = [row for row in rows if row["verdict"] not in ("passed", "not-run")]
    return [Failure("compile", f"{row['function']} for {row['architecture']}", row["reason"]) for row in bad]


def classes(failures: list[Failure]) -> list[Class]:
    groups: dict[str, list[Failure]] = {}
    for failure in failures:
        groups.setdefault(shape(failure.message), []).append(failure)
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    return [Class(message, len(members), members[0]) for message, members in ordered]


# Run the tests that failed in a row's run once more, and put their verdicts into the row: nox -s strangers -- --again.


OPTIONS = ("--stage", "test", "--test-timeout", "120")  # the limit of --quick, which would choose among the tests
_TOO_SLOW = "it ran longer than"


class CannotMergeError(Exception):
    """What ran again is not what the row's run had."""


def to_repeat(row: dict[str, Any]) -> list[str]:
    """Return the ids of the row's tests that failed.

    Raises:
        CannotMergeError: there is no row, or it does not name the tests that failed in it.
    """
    if "failed_tests" not in row:
        raise CannotMergeError("it has no row yet" if "test" not in row else "its row does not name the tests that failed")
    return [test for test, verdict in row["failed_tests"].items() if verdict != "timeout"]


def merged(row: dict[str, Any], again: dict[str, Any]) -> dict[str, Any]:
    """Return the row with what became of its failed tests.

    Raises:
        CannotMergeError: another toolchain ran them, or there are other tests.
    """
    if "not_reached" in again:
        raise CannotMergeError(again["not_reached"])
    repeated, counts = to_repeat(row), Counter(row["test"]["counts"])
    if other := [name for name in TOOLCHAIN if row["facts"].get(name) != again.get("facts", {}).get(name)]:
        raise CannotMergeError(", ".join(f"its row is from {name} {row['facts'].get(name)}" for name in other))
    if sum(again["test"]["counts"].values()) != len(repeated) or not again["failed_tests"].keys() <= set(repeated):
        raise CannotMergeError(f"{len(repeated)} tests were to run again, not {again['test']['counts']}")
    counts.subtract(row["failed_tests"][test] for test in repeated)
    counts.update(again["test"]["counts"])
    reasons = Counter(row["test"]["not_run"]) + Counter(again["test"]["not_run"])
    left = [one for one in row["classes"] if one["stage"] != "test" or one["message"].startswith(_TOO_SLOW)]
    slow = {test: verdict for test, verdict in row["failed_tests"].items() if verdict == "timeout"}
    return {
        **{key: value for key, value in row.items() if key not in ("said", "sentence")},
        "test": {"counts": dict(+counts), "not_run": dict(reasons), "reason": again["test"]["reason"]},
        "classes": _joined([*left, *again["classes"]]),
        "failed_tests": {**slow, **again["failed_tests"]},
        "again": {"date": again["date"], "seconds": again["seconds"], "tests": len(repeated)},
    }


def _joined(classes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return each class once, those of tests first, the largest first."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for one in classes:
        earlier = found.get((one["stage"], one["message"]))
        found[one["stage"], one["message"]] = {**earlier, "count": earlier["count"] + one["count"]} if earlier else one
    return sorted(found.values(), key=lambda one: (one["stage"] != "test", -int(one["count"])))


# results/*.json → the table of docs/guides/strangers.md, between its two marks.


RESULTS = Path(__file__).with_name("results")
PAGE = Path(__file__).parents[2] / "docs" / "guides" / "strangers.md"
BEGIN, END = "<!-- begin: tests/strangers/session.py -->", "<!-- end: tests/strangers/session.py -->"
# What only a card can decide, or what warpwave does not pretend without one.
_CARD = ("not-pretended", "decided-by-data")
_MISSING = re.compile(r"No module named '([\w.]+)'")


def write(packages: list[Package]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    if BEGIN not in page or END not in page:
        raise SystemExit(f"{PAGE.name} has no place for the table. It stands between two lines: {BEGIN} and {END}.")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{table(packages)}{END}{after}", encoding="utf-8")
    if BEGIN_ADOPTED in page:
        write_adopted()


# The table of packages whose failures are listed, so that the same run is green: nox -s strangers -- --adopt.

ADOPTED = RESULTS / "adopted.json"
BEGIN_ADOPTED, END_ADOPTED = (f"<!-- {word}: tests/strangers/results/adopted.json -->" for word in ("begin", "end"))


_NEEDS = {
    "missing-requirement": "a requirement",
    "needs-build": "a build",
    "needs-card": "a card",
    "not-pretended": "what is not pretended",
}


def adopted_rows() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(ADOPTED.read_text(encoding="utf-8"))
    return rows


def adopted_package(row: dict[str, Any]) -> Package:
    """Return the package of a row, with what is typed for it."""
    _, kernels, *options = shlex.split(row["options"])
    repository, mark, commit = row["version"].partition("@")
    place = {"repository": f"https://github.com/{repository}", "commit": commit} if mark else {"pypi": repository}
    return Package(row["name"], "", kernels, options, **place)


def checked(comparison: Path) -> dict[str, Any]:
    """Return how many tests a run found and checked, how many of them failed, and what the others need."""
    target = json.loads(comparison.read_text(encoding="utf-8"))["targets"][0]
    stage = next(stage for stage in target["stages"] if stage["stage"] == "test")
    counts, not_run = stage["counts"], stage["not_run"]
    failed = sum(counts.get(verdict, 0) for verdict in ("failed", "error", "crashed", "timeout", "oom", "invalid"))
    found = sum(counts.values()) + stage["left_out"] - not_run.get("skipped", 0) - not_run.get("empty", 0)
    needs = {words: not_run[why] for why, words in _NEEDS.items() if not_run.get(why)}
    return {"checked": counts.get("passed", 0) + counts.get("xfailed", 0) + failed, "found": found, "failed": failed, "needs": needs}


def keep_adopted(name: str, changes: dict[str, Any]) -> None:
    """Put what was measured of a package into its row."""
    lines = [json.dumps({**row, **(changes if row["name"] == name else {})}, ensure_ascii=False) for row in adopted_rows()]
    ADOPTED.write_text("[\n " + ",\n ".join(lines) + "\n]\n", encoding="utf-8")


def write_adopted() -> None:
    head = ["package, version", "options", "first run: tests", "needs", "known", "exit codes"]
    lines = ["", f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in adopted_rows():
        needs = ", ".join(f"{number:,} {what}" for what, number in row["needs"].items())
        reached = f"{row['checked']:,} of {row['found']:,} checked, {row['failed']:,} fail"
        reached += "; {:,} of {:,} functions tried".format(*row["functions"]) if "functions" in row else ""
        without = "none is found, scripts compile" if "--bench-script" in row["options"] else "the budget was up before"
        tests = reached if row["found"] else without
        version = adopted_package(row).version
        cells = [version, f"`{row['options']}`", tests, needs, f"{row['known']:,}", " → ".join(map(str, row["exit_codes"]))]
        lines.append(f"| {' | '.join(cells)} |")
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN_ADOPTED)
    PAGE.write_text("\n".join([f"{before}{BEGIN_ADOPTED}", *lines, "", END_ADOPTED]) + rest.partition(END_ADOPTED)[2], encoding="utf-8")


def table(packages: list[Package]) -> str:
    head = ["package, version", "tests", "binaries", "needs a card", "not installed", "Triton", "options"]
    lines = ["", f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *(_row(package, _result(package)) for package in packages), "", ""])


def _result(package: Package) -> dict[str, Any]:
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
    return " ".join(text.replace("|", "\\|").replace("`", "'").replace("<", "&lt;").split())[:160]
