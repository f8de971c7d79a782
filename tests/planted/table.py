"""Print the table of planted faults from what was run. docs/guides/sanitize.md has its sums.

    python tests/planted/table.py [--compared RUN] [--emulated RUN] [--triton-viz FILE]

RUN is the folder of a run of this package: on `cpu` with `--no-sanitize`, or on an emulated target with `--sanitize`. FILE is what
`by_triton_viz.py` wrote. The first column is what the interpreter's sanitizer must give: a test holds it.
"""

# ruff: noqa: T201 - a program of its own
import argparse
import importlib
import json
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).parent
NOT_RUN = "not run"


def faults():
    if str(HERE) not in sys.path:
        sys.path.insert(0, str(HERE))
    import planted

    for path in sorted(HERE.glob("test_*.py")):
        importlib.import_module(path.stem)
    return planted.TABLE


def outcomes(folder):
    """Return of each test of a run by its id how it failed: nothing, `failure` or `error`; and what was found in it."""
    (stage,) = Path(folder).glob("raw/*/test")
    ended, found = {}, defaultdict(set)
    for case in ElementTree.parse(stage / "junit.xml").iter("testcase"):
        name = next(entry.get("value") for entry in case.iter("property") if entry.get("name") == "id")
        ended[name] = {child.tag for child in case} & {"failure", "error"}
    if (stage / "findings.jsonl").exists():
        for row in map(json.loads, (stage / "findings.jsonl").read_text().splitlines()):
            found[row["case"]].add(row["defect"])
    return ended, found


def compared(test, ended):
    tag = ended.get(f"{test}[fault]")
    return NOT_RUN if tag is None else "crashed" if "error" in tag else "found" if tag else "no"


def emulated(test, ended, found):
    """Return what the emulator's sanitizer finds, and that it blames the twin, if it does."""
    if f"{test}[fault]" not in ended:
        return NOT_RUN
    blamed = "; the twin, too" if found[f"{test}[twin]"] else ""
    return (", ".join(sorted(found[f"{test}[fault]"])) or "no") + blamed


def by_viz(test, told):
    """Return whether triton-viz reports an access out of bounds; it looks for nothing else."""
    if test not in told:
        return NOT_RUN
    (reported, why), (twin, _) = told[test]["fault"], told[test]["twin"]
    refused = any(error in why for error in ("AttributeError", "ValueError", "TypeError", "NotImplementedError"))
    return "out-of-bounds" + ("; the twin, too" if twin else "") if reported else "does not run" if refused else "no"


def main():
    parser = argparse.ArgumentParser()
    for option in ("--compared", "--emulated", "--triton-viz"):
        parser.add_argument(option)
    given = parser.parse_args()
    results = outcomes(given.compared)[0] if given.compared else {}
    machine = outcomes(given.emulated) if given.emulated else ({}, defaultdict(set))
    viz = json.loads(Path(given.triton_viz).read_text()) if given.triton_viz else {}
    print("| fault | interpreter | emulated | triton-viz | comparing results |\n|---|---|---|---|---|")
    for test, fault in faults().items():
        print(f"| {fault.words} | {fault.defect or 'no'} | {emulated(test, *machine)} | {by_viz(test, viz)} | {compared(test, results)} |")


if __name__ == "__main__":
    main()
