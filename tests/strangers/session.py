"""Run packages that nobody here wrote, as a user types it, and write docs/guides/strangers.md's table: nox -s strangers -- --quick.

For each entry of packages.yml: fetch the sources, type the command, read comparison.json, repeat one failure of each class without the
harness, and keep what was measured in results/NAME.json. The sources themselves stay outside of the repository.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import controls
import failures
import table
from sources import NotReachedError, Package, fetch, packages

from harness.config.package.root import find_root
from harness.config.package.switches import switches

REPOSITORY = Path(__file__).parents[2]
TARGETS = REPOSITORY / ".ci" / "targets.yml"
_WORK = Path(tempfile.gettempdir()) / "warpwave-strangers"
# Not by PYTHONPATH, which a package's tests would see: `from tests.conftest import …` would find this repository's.
_RUN = f"import runpy, sys; sys.path.insert(0, {str(REPOSITORY)!r}); runpy.run_module('harness', run_name='__main__', alter_sys=True)"
_CONTROLS = 10  # classes of one stage that get a control; the rest is counted
_SAME = ("triton", "torch")


def main() -> int:
    """Run what was asked for; every package has a row, whatever becomes of it."""
    asked = _parse()
    known = packages()
    if unknown := set(asked.only) - {package.name for package in known}:
        sys.exit(f"{', '.join(sorted(unknown))}: not in packages.yml, which has {', '.join(package.name for package in known)}")
    for package in known:
        if not asked.only or package.name in asked.only:
            result = measure(package, asked)
            table.RESULTS.mkdir(exist_ok=True)
            text = json.dumps(result, indent=1, ensure_ascii=False)
            (table.RESULTS / f"{package.name}.json").write_text(f"{text}\n", encoding="utf-8")
            print(f"{package.name}: {result.get('sentence') or result.get('not_reached')}", flush=True)
    table.write(known)
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run packages that nobody here wrote.", allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="a few tests of each function, three sizes of each sweep")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="this package; repeatable")
    parser.add_argument("--offline", type=Path, metavar="CACHE", help="folder with clones and source archives; ask no server for sources")
    parser.add_argument("--seconds", type=int, help="limit of one package's run [default: packages.yml's]")
    parser.add_argument("--work", type=Path, default=_WORK, help="sources and runs [default: %(default)s]")
    parser.add_argument("--controls", type=int, default=_CONTROLS, metavar="N", help="classes of a stage to repeat [default: %(default)s]")
    parser.add_argument("--no-controls", action="store_true", help="do not repeat failures without the harness")
    return parser.parse_args()


def measure(package: Package, asked: argparse.Namespace) -> dict[str, Any]:
    """Fetch, run and judge one package."""
    base = {"name": package.name, "version": package.version, "date": time.strftime("%Y-%m-%d", time.gmtime())}
    try:
        sources = fetch(package, asked.work / "sources", asked.offline)
    except NotReachedError as error:
        return {**base, "not_reached": str(error)}
    kernels = sources / package.kernels
    out = asked.work / "runs" / f"{package.name}-{time.strftime('%H%M%S')}"
    options = [word.replace("{sources}", str(sources)) for word in package.options]
    quick = ["--quick"] if asked.quick else []
    limit = asked.seconds or package.seconds
    command = ["run", "cpu", "--kernels", str(kernels), *options, *quick, "--targets", str(TARGETS), "--timeout", str(limit)]
    started, used = time.monotonic(), _cpu_seconds()
    done = subprocess.run(
        [sys.executable, "-c", _RUN, *command, "--out", str(out)],
        cwd=sources.parent,
        env={**{name: value for name, value in os.environ.items() if name != "PYTHONPATH"}, "COLUMNS": "200"},
        capture_output=True,
        text=True,
    )
    base |= {"typed": _typed(package, quick), "exit_code": done.returncode, "seconds": round(time.monotonic() - started), "limit_s": limit}
    base |= {"cpu_seconds": round(_cpu_seconds() - used), "cores": os.cpu_count()}
    base |= {"said": (done.stdout + done.stderr).strip().splitlines()[-1:]}
    comparison = out / "comparison.json"
    if not comparison.exists():
        return {**base, "sentence": "no report", **_nothing()}
    controls = 0 if asked.no_controls else asked.controls
    return {**base, **read(comparison, kernels, controls, _variables(options, kernels), _earlier(package))}


def _card(raw: Path) -> str:
    """Return the card that host code saw in the interpreter: a control's stand-in is of the same."""
    told: dict[str, Any] = json.loads((raw / "job.json").read_text(encoding="utf-8"))
    return str((told.get("interpret_as") or {}).get("name") or "sm_90")


def _cpu_seconds() -> float:
    """Return what ended children, and theirs, have used of the processor."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _typed(package: Package, quick: list[str]) -> str:
    """Return the command as a user would type it in the root of the sources."""
    words = ["warpwave", "run", "cpu", "--kernels", package.kernels, *package.options, *quick]
    return shlex.join([word.replace("{sources}/", "") for word in words])


def _variables(options: list[str], kernels: Path) -> dict[str, str]:
    """Return what the run sets for the package, and `--env NAME=VALUE`: a control needs it, too."""
    pairs = [after for word, after in itertools.pairwise(options) if word == "--env" and "=" in after]
    return {**switches(find_root(kernels)), **dict(pair.split("=", 1) for pair in pairs)}


def _nothing() -> dict[str, Any]:
    return {stage: {"counts": {}, "not_run": {}} for stage in ("test", "compile")} | {"classes": []}


def _earlier(package: Package) -> dict[str, Any]:
    """Return what an earlier session found out about the same version, or nothing."""
    path = table.RESULTS / f"{package.name}.json"
    told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return told if told.get("version") == package.version else {}


def read(comparison: Path, kernels: Path, most: int, variables: dict[str, str], earlier: dict[str, Any]) -> dict[str, Any]:
    """Return a run's figures from its comparison.json, and the classes of its failures with their controls, at most so many a stage.

    A class that an `earlier` session with the same toolchain has decided is not repeated.
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
    python = (target["environment"] or {}).get("python") or sys.executable
    variables = {**variables, "PLAIN_CARD": _card(raw)}
    result["classes"] = []
    same = all(earlier.get("facts", {}).get(name) == facts.get(name) for name in _SAME)
    decided = {
        (one["stage"], one["message"]): {key: one[key] for key in ("fault", "control")}
        for one in (earlier.get("classes", []) if same else [])
        if one["fault"] not in (controls.UNDECIDED, controls.OURS)
    }
    for failed in (failures.failed_tests(raw), failures.failed_kernels(raw)):
        left = most
        for one in failures.classes(failed):
            judged = decided.get((one.example.stage, one.message)) or decided.get(("test", one.message))
            if judged is None and left > 0:
                judged, left = controls.blame(one, kernels, python, variables), left - 1
                if judged["fault"] != controls.UNDECIDED:
                    decided[one.example.stage, one.message] = judged
            judged = judged or {"fault": controls.UNDECIDED, "control": "not run"}
            result["classes"].append(
                {"stage": one.example.stage, "count": one.count, "message": one.message, "example": one.example.id, **judged}
            )
    return result


if __name__ == "__main__":
    sys.exit(main())
