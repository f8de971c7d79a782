"""Print the table of planted faults, as docs/guides/sanitize.md has it: `python tests/planted/table.py [RUN]`.

RUN is the folder of a run of this package with `--no-sanitize`; the last column then says what comparing results finds.
"""

# ruff: noqa: T201 - a program of its own
import importlib
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

HERE = Path(__file__).parent


def faults():
    """Return every planted fault by its test."""
    if str(HERE) not in sys.path:
        sys.path.insert(0, str(HERE))
    import planted

    for path in sorted(HERE.glob("test_*.py")):
        importlib.import_module(path.stem)
    return planted.TABLE


def outcomes(folder):
    """Return the ids of the tests that passed and failed in a run."""
    found = {}
    for case in ElementTree.parse(Path(folder) / "raw" / "cpu" / "test" / "junit.xml").iter("testcase"):
        name = next(entry.get("value") for entry in case.iter("property") if entry.get("name") == "id")
        found[name] = {child.tag for child in case} & {"failure", "error"}
    return found


def main():
    """Print it."""
    ended = outcomes(sys.argv[1]) if len(sys.argv) > 1 else {}
    print("| fault | `--sanitize` | comparing results |\n|---|---|---|")
    for test, fault in faults().items():
        tag = ended.get(f"{test}[fault]")
        compared = "not run" if tag is None else "crashed" if "error" in tag else "found" if tag else "no"
        print(f"| {fault.words} | {fault.defect or 'no'} | {compared} |")


if __name__ == "__main__":
    main()
