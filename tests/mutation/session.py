"""`nox -s mutate -- --sample 300 --seed 1`: how many of a random sample of mutants the tests kill, with mutmut.

A mutant is one small change to one function. mutmut notes which test enters which function, forks a process for each mutant, and runs only
the tests that enter its function, until one fails. `[tool.mutmut]` of pyproject.toml names the modules and their tests.
"""

import argparse
import contextlib
import fnmatch
import io
import json
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

MUTANTS = Path("mutants")  # mutmut's own name for its copy of the repository
KILLED = ("killed", "timeout", "segfault")
# mutmut names a mutant by its file, and takes `src` alone for a folder that packages are imported from.
NAMES = """
from mutmut.utils import format_utils
strip = format_utils.strip_prefix
format_utils.strip_prefix = lambda name, *, prefix, strict=False: strip(strip(name, prefix="harness."), prefix=prefix, strict=strict)
"""
MUTMUT = (sys.executable, "-c", NAMES + "from mutmut.__main__ import cli; cli()")


def make_mutants() -> None:
    """Copy the repository, with every mutant beside its function; mutmut itself would go on and run all of them."""
    exec(NAMES, {})
    from mutmut.__main__ import create_mutants
    from mutmut.utils.file_utils import copy_also_copy_files, copy_src_dir

    shutil.rmtree(MUTANTS, ignore_errors=True)
    MUTANTS.mkdir()
    with contextlib.redirect_stdout(io.StringIO()):
        copy_src_dir()
        copy_also_copy_files()
        create_mutants(max_children=1)


def results() -> dict[str, tuple[str, int | None]]:
    """The module of each mutant, and the exit code of its tests; None if it was not run."""
    found = {}
    for path in sorted(MUTANTS.joinpath("harness").rglob("*.meta")):
        module = path.relative_to(MUTANTS).with_suffix("").as_posix()
        for name, code in json.loads(path.read_text(encoding="utf-8"))["exit_code_by_key"].items():
            found[name] = (module, code)
    return found


def run_mutants(names: Iterable[str]) -> None:
    """Have mutmut run these mutants, one at a time. It ends here if the tests fail without a mutant."""
    done = subprocess.run([*MUTMUT, "run", "--max-children", "1", *names], capture_output=True, text=True)
    if done.returncode:
        tail = "\n".join(done.stdout.replace("\r", "\n").splitlines()[-40:])
        sys.exit(f"{tail}\n{done.stderr[-2000:]}\nmutmut ended with exit code {done.returncode}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="nox -s mutate --", allow_abbrev=False)
    parser.add_argument("--sample", type=int, default=300, help="how many mutants; 0 is all of them (default: 300)")
    parser.add_argument("--seed", type=int, default=1, help="which sample (default: 1)")
    parser.add_argument("--only", default="*", help="of these modules, a pattern such as 'harness/warpwave/compare/*' (default: all)")
    asked = parser.parse_args()

    make_mutants()
    known = sorted(name for name, (module, _) in results().items() if fnmatch.fnmatch(module, asked.only))
    size = min(asked.sample or len(known), len(known))
    print(f"{size} of {len(known)} mutants, seed {asked.seed}", flush=True)
    drawn = sorted(random.Random(asked.seed).sample(known, size))
    run_mutants(drawn)

    from mutmut.stats import status_by_exit_code

    found = results()
    became = {name: status_by_exit_code[found[name][1]] for name in drawn}
    for name in drawn:
        if became[name] not in KILLED:
            print(f"\n{subprocess.run([*MUTMUT, 'show', name], capture_output=True, text=True).stdout.strip()}")
    sampled = Counter(found[name][0] for name in drawn)
    killed = Counter(found[name][0] for name in drawn if became[name] in KILLED)
    print(f"\n{'killed':>7} {'sampled':>7}  module")
    for module in sorted(sampled):
        print(f"{killed[module]:7} {sampled[module]:7}  {module}")
    print(f"{sum(killed.values()):7} {size:7}  all: {sum(killed.values()) / max(1, size):.1%}")


if __name__ == "__main__":
    main()
