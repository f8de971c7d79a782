"""`nox -s mutate -- --sample 300 --seed 1`: how many of a random sample of mutants the tests kill, with mutmut.

A mutant is one small change to one function. mutmut notes which test enters which function, forks a process for each mutant, and runs only
the tests that enter its function, until one fails. What is mutated and which files are run stands in `[tool.mutmut]` of pyproject.toml.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from mutmut.configuration import config
from mutmut.mutation.file_mutation import mutate_file_contents
from mutmut.stats import status_by_exit_code
from mutmut.utils.format_utils import get_mutant_name

ROOT = Path(__file__).parents[2]
MUTANTS = ROOT / "mutants"  # mutmut's own name for the folder of its copy
KILLED = ("killed", "timeout", "segfault")


def every_mutant(only: str) -> dict[str, str]:
    """The name of each mutant of the modules that fit, and the path of its module."""
    found = {}
    for path in sorted(Path("harness").rglob("*.py")):
        if config().should_mutate(path) and fnmatch.fnmatch(path.as_posix(), only):
            for name in mutate_file_contents(str(path), path.read_text(encoding="utf-8")).mutant_names:
                found[get_mutant_name(path, name)] = path.as_posix()
    return found


def run_mutants(names: Iterable[str]) -> None:
    """Have mutmut run these mutants, one at a time. It stops here if the tests fail without a mutant."""
    command = [sys.executable, "-c", "from mutmut.__main__ import cli; cli()", "run", "--max-children", "1", *names]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        tail = "\n".join(done.stdout.replace("\r", "\n").splitlines()[-40:])
        sys.exit(f"{tail}\n{done.stderr[-2000:]}\nmutmut ended with {done.returncode}")


def status(name: str, path: str) -> str:
    """What became of a mutant, in mutmut's words: killed, survived, timeout, no tests…"""
    found = json.loads((MUTANTS / f"{path}.meta").read_text(encoding="utf-8"))["exit_code_by_key"]
    return str(status_by_exit_code[found[name]])


def diff(name: str) -> str:
    """The mutant, as a diff of its function."""
    command = [sys.executable, "-c", "from mutmut.__main__ import cli; cli()", "show", name]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def main() -> None:
    """Draw, run, print."""
    parser = argparse.ArgumentParser(prog="nox -s mutate --", allow_abbrev=False)
    parser.add_argument("--sample", type=int, default=300, help="how many mutants; 0 is all of them (default: 300)")
    parser.add_argument("--seed", type=int, default=1, help="which sample (default: 1)")
    parser.add_argument("--only", default="*", help="of these modules, a pattern such as 'harness/compare/*' (default: all)")
    asked = parser.parse_args()

    modules = every_mutant(asked.only)
    size = min(asked.sample or len(modules), len(modules))
    drawn = sorted(random.Random(asked.seed).sample(sorted(modules), size))
    print(f"{size} of {len(modules)} mutants, seed {asked.seed}", flush=True)
    run_mutants(drawn)

    became = {name: status(name, modules[name]) for name in drawn}
    sampled = Counter(modules[name] for name in drawn)
    killed = Counter(modules[name] for name in drawn if became[name] in KILLED)
    for name in drawn:
        if became[name] not in KILLED:
            print(f"\n{became[name]}: {diff(name)}")
    print(f"\n{'killed':>7} {'sampled':>7}  module")
    for path in sorted(sampled):
        print(f"{killed[path]:7} {sampled[path]:7}  {path}")
    print(f"{killed.total():7} {size:7}  all: {killed.total() / size:.1%} (seed {asked.seed})")


if __name__ == "__main__":
    main()
