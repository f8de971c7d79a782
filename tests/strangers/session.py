"""Run packages that nobody here wrote, as a user types it, and write a table of docs/guides/strangers.md: nox -s strangers -- --quick.

For each entry of packages.yml: fetch the sources, type the command, read comparison.json, and keep what was measured in
results/NAME.json. The sources themselves stay outside of the repository.
"""

import argparse
import json
import os
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import rows
from sources import NotReachedError, Package, fetch, packages

REPOSITORY = Path(__file__).parents[2]
TARGETS = REPOSITORY / ".ci" / "targets.yml"
_WORK = Path(tempfile.gettempdir()) / "warpwave-strangers"
# Not by PYTHONPATH, which a package's tests would see: `from tests.conftest import …` would find this repository's.
_RUN = (
    "import runpy, sys; "
    f"sys.path.insert(0, {str(REPOSITORY / 'harness')!r}); runpy.run_module('warpwave', run_name='__main__', alter_sys=True)"
)


def main() -> int:
    asked = _parse()
    known = [rows.adopted_package(row) for row in rows.adopted_rows()] if asked.adopt else packages()
    if unknown := set(asked.only) - {package.name for package in known}:
        sys.exit(f"{', '.join(sorted(unknown))}: not in the list, which has {', '.join(package.name for package in known)}")
    for package in known:
        if asked.adopt and (not asked.only or package.name in asked.only):
            row = adopt(package, asked)
            print(f"{package.name}: {row}", flush=True)
            rows.keep_adopted(package.name, row)
        elif not asked.only or package.name in asked.only:
            result = measure_again(package, asked) if asked.again else measure(package, asked)
            rows.RESULTS.mkdir(exist_ok=True)
            text = json.dumps(result, indent=1, ensure_ascii=False)
            (rows.RESULTS / f"{package.name}.json").write_text(f"{text}\n", encoding="utf-8")
            print(f"{package.name}: {result.get('sentence') or result.get('not_reached') or result['test']['counts']}", flush=True)
    rows.write_adopted() if asked.adopt else rows.write(known)
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run packages that nobody here wrote.", allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="a few tests of each function, three sizes of each sweep")
    parser.add_argument("--again", action="store_true", help="run the failed tests of the last run, and put their verdicts into its row")
    parser.add_argument("--adopt", action="store_true", help="of results/adopted.json: run, list what fails, run again; write its table")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="this package; repeatable")
    parser.add_argument("--offline", type=Path, metavar="CACHE", help="folder with clones and source archives; ask no server for sources")
    parser.add_argument("--seconds", type=int, help="limit of one package's run [default: packages.yml's]")
    parser.add_argument("--work", type=Path, default=_WORK, help="sources and runs [default: %(default)s]")
    return parser.parse_args()


def measure_again(package: Package, asked: argparse.Namespace) -> dict[str, Any]:
    """Run the tests again that failed in the package's row, and return the row with their new verdicts."""
    row = _earlier(package)
    try:
        tests = rows.to_repeat(row)
        return rows.merged(row, measure(package, asked, tests)) if tests else row
    except rows.CannotMergeError as error:
        sys.exit(f"{package.name}: {error}. Measure the package anew: leave out --again.")


def measure(package: Package, asked: argparse.Namespace, tests: Sequence[str] = ()) -> dict[str, Any]:
    """Fetch and run one package, or only these of its tests."""
    base = {"name": package.name, "version": package.version, "date": time.strftime("%Y-%m-%d", time.gmtime())}
    try:
        sources = fetch(package, asked.work / "sources", asked.offline)
    except NotReachedError as error:
        return {**base, "not_reached": str(error)}
    kernels = sources / package.kernels
    out = asked.work / "runs" / f"{package.name}-{time.strftime('%H%M%S')}"
    options = [word.replace("{sources}", str(sources)) for word in package.options]
    quick = ["--quick", "--budget", "30m"] if asked.quick else []
    chosen = [*rows.OPTIONS, *(word for test in tests for word in ("--test", test))] if tests else quick
    limit = asked.seconds or package.seconds
    command = ["run", "cpu", "--kernels", str(kernels), *options, *chosen, "--targets", str(TARGETS), "--timeout", str(limit)]
    started, used = time.monotonic(), _cpu_seconds()
    done = _type([*command, "--out", str(out)], sources.parent)
    base |= {"typed": _typed(package, quick), "exit_code": done.returncode, "seconds": round(time.monotonic() - started), "limit_s": limit}
    base |= {"cpu_seconds": round(_cpu_seconds() - used), "cores": os.cpu_count()}
    base |= {"said": (done.stdout + done.stderr).strip().splitlines()[-1:]}
    comparison = out / "comparison.json"
    if not comparison.exists():
        return {**base, "sentence": "no report", **rows.NOTHING}
    return {**base, **rows.read(comparison, _earlier(package))}


def adopt(package: Package, asked: argparse.Namespace) -> dict[str, Any]:
    """Run a package, list what fails as known, and run it again. Return what changes in its row of results/adopted.json."""
    try:
        sources = fetch(package, asked.work / "sources", asked.offline)
    except NotReachedError as error:
        sys.exit(f"{package.name}: {error}")
    work = Path(tempfile.mkdtemp(prefix=f"{package.name}-", dir=asked.work))
    known = work / "known.txt"
    command = ["run", "cpu", "--kernels", package.kernels, *package.options, "--targets", str(TARGETS)]
    first = _type([*command, "--out", str(work / "first")], sources)
    _type(["known", "update", str(work / "first"), "--known", str(known)], sources)
    known.touch()  # of a run in which nothing fails
    second = _type([*command, "--known", str(known), "--out", str(work / "second")], sources)
    listed = [line for line in known.read_text(encoding="utf-8").splitlines() if line and not line.startswith(("#", "seen"))]
    codes = [first.returncode, second.returncode]
    return {**rows.checked(work / "first" / "comparison.json"), "known": len(listed), "exit_codes": codes}


def _type(words: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Type a command of warpwave in a folder."""
    variables = {**{name: value for name, value in os.environ.items() if name != "PYTHONPATH"}, "COLUMNS": "200"}
    return subprocess.run([sys.executable, "-c", _RUN, *words], cwd=folder, env=variables, capture_output=True, text=True)


def _cpu_seconds() -> float:
    """Return what ended children, and theirs, have used of the processor."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _typed(package: Package, quick: list[str]) -> str:
    words = ["warpwave", "run", "cpu", "--kernels", package.kernels, *package.options, *quick]
    return shlex.join([word.replace("{sources}/", "") for word in words])


def _earlier(package: Package) -> dict[str, Any]:
    """Return what an earlier session found out about the same version, or nothing."""
    path = rows.RESULTS / f"{package.name}.json"
    told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return told if told.get("version") == package.version else {}


if __name__ == "__main__":
    sys.exit(main())
