"""Whose fault a failure is: repeat one of each class without the harness, by plain pytest or by plain Triton."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from failures import HOST_CODE, NO_CARD, Class, Failure, same, without_folder

from warpwave.inside.process.workers import waited_s

Control = Callable[[Failure, Path, str, dict[str, str]], str]
_LIMIT_S = 300
_NOTHING = "(nothing to repeat)"
_ASKS = "needs a card"
OURS, PACKAGE, TRITON, UNDECIDED = "ours", "the package", "Triton", "undecided"
_MISSING = re.compile(r"No module named '([\w.]+)'")
# What warpwave looks for and plain pytest does not. It needs a reader, who may write down what the code says.
_FOUND = re.compile(r"^Failed: (out-of-bounds|uninitialised-read|race|used-before-wait|depends-on-order) in ")
_TOO_LONG = re.compile(r"it ran longer than (\d+) s")
# pytest's last line where every test was skipped: most such tests ask for a card.
_SKIPPED = re.compile(r"^SKIPPED \[|^\d+ skipped\b(?!.*\b(passed|failed|errors?)\b)")
# Triton's interpreter has computed these numbers, and a card may compute others.
_NUMBERS = re.compile(r"Tensor-likes are not (close|equal)")
_PLAIN = Path(__file__).with_name("plain_compile.py")


class TooSlowError(Exception):
    """A control was not done within its limit."""


def blame(found: Class, kernels: Path, python: str, variables: dict[str, str]) -> dict[str, str]:
    """Return whose fault a class is, and what its control said. What one control leaves open, another one may decide."""
    failure, answer = found.example, {"fault": UNDECIDED, "control": "not run"}
    for control in _controls_for(failure):
        try:
            said = control(failure, kernels, python, {**os.environ, **variables})
        except TooSlowError as error:
            slow = _TOO_LONG.search(failure.message)
            answer = {"fault": f"{PACKAGE}, or {TRITON}" if slow else UNDECIDED, "control": str(error)}
            if slow:
                break
            continue
        if said == _NOTHING or (said.startswith(_ASKS) and answer["control"] != "not run"):
            continue
        answer = {"fault": _fault(failure, said), "control": without_folder(said) or "passes"}
        if answer["fault"] != UNDECIDED or not said:
            break
    return answer


def _limit_s(failure: Failure) -> float:
    """Return how long a control may take: for a test that took too long, its own limit."""
    limit = _TOO_LONG.search(failure.message)
    return float(limit[1]) if limit else _LIMIT_S


def _run(command: list[str], limit_s: float, asked: str = "", **where: Any) -> subprocess.CompletedProcess[str]:
    """Run a control. As in a run, its limit does not count the time in which it waits for a core.

    Raises:
        TooSlowError: the limit has passed.
    """
    begun = time.monotonic()
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as complained, tempfile.TemporaryFile("w+") as given:
        given.write(asked)
        given.seek(0)
        process = subprocess.Popen(command, stdin=given, stdout=said, stderr=complained, text=True, **where)
        while process.poll() is None:
            if time.monotonic() - begun - waited_s(process.pid) > limit_s:
                process.kill()
                process.wait()
                raise TooSlowError(f"no answer in {limit_s:g} s")
            time.sleep(0.1)
        said.seek(0)
        complained.seek(0)
        return subprocess.CompletedProcess(command, process.returncode, said.read(), complained.read())


def _controls_for(failure: Failure) -> tuple[Control, ...]:
    """Return what repeats a failure, the cheapest first. What failed before a kernel was there is repeated by the file that it is in."""
    if failure.stage == "compile" and not _is_host_code(failure):
        return (_plain_triton,)
    if _MISSING.search(failure.message):
        return (_plain_import, _plain_pytest)
    if failure.own and "::" not in failure.id:
        return (_plain_import_of_file, _plain_pytest, _plain_pytest_with_card)
    if _TOO_LONG.search(failure.message):
        return (_plain_pytest, _plain_pytest_with_card)
    return (_plain_pytest, _plain_pytest_with_card, _plain_pytest_of_all)


def _is_host_code(failure: Failure) -> bool:
    return failure.row is not None and failure.row["function"] == HOST_CODE


def _fault(failure: Failure, said: str) -> str:
    """Return whose fault it is: ours if the control passes, or if the failure is about a card that is not there, which is ours to pretend.

    A control that says the same acquits us; the traceback tells whose it is then.
    """
    if not said and _FOUND.search(failure.message):
        return UNDECIDED
    asks_for_a_card = failure.stage == "test" and NO_CARD.search(failure.message)
    if not said or "/warpwave/" in failure.where or asks_for_a_card:
        return OURS
    if not same(said, failure.message):
        return UNDECIDED
    if failure.stage == "compile" or "-packages/triton/" in failure.where or _NUMBERS.search(failure.message):
        return f"{PACKAGE}, or {TRITON}"
    return PACKAGE


def _plain_import(failure: Failure, kernels: Path, python: str, variables: dict[str, str]) -> str:
    """Return what Python says to the import of the module that is missing, or nothing if it is there."""
    match = _MISSING.search(failure.message)
    return _import(match[1] if match else "", kernels, python, variables)


def _plain_import_of_file(failure: Failure, kernels: Path, python: str, variables: dict[str, str]) -> str:
    """Return what Python says to the import of the package's file that raised."""
    root = _root(kernels)
    path = root / failure.own.partition("/sources/")[2].partition("/")[2]
    base = root / "src" if path.is_relative_to(root / "src") else root
    if not path.is_file():
        return _NOTHING
    name = ".".join(path.relative_to(base).with_suffix("").parts).removesuffix(".__init__")
    paths = os.pathsep.join([str(base), str(kernels), variables.get("PYTHONPATH", "")])
    return _import(name, kernels, python, {**variables, "PYTHONPATH": paths})


def _import(name: str, kernels: Path, python: str, variables: dict[str, str]) -> str:
    """Return how an import ends. If it asks for a card, there is the same stand-in for Triton's driver as for a kernel's control."""
    stand_in = (
        f"import sys; sys.path.append({str(_PLAIN.parent)!r}); import plain_compile as plain; plain.pretend(plain.target_of('sm_90')); "
    )
    said = ""
    for before in ("", stand_in):
        command = [python, "-c", f"{before}import importlib; importlib.import_module({name!r})"]
        done = _run(command, _LIMIT_S, cwd=kernels, env=variables)
        said = (done.stderr.strip().splitlines() or [""])[-1][:200] if done.returncode else ""
        if not NO_CARD.search(said):
            break
    return said


def _plain_pytest(failure: Failure, kernels: Path, python: str, variables: dict[str, str]) -> str:
    """Return what ends the test in Triton's interpreter without us, or nothing if it passes."""
    return _pytest([_test_of(failure)], failure, kernels, python, variables)


def _plain_pytest_with_card(failure: Failure, kernels: Path, python: str, variables: dict[str, str]) -> str:
    """Return the same with a stand-in for a card, which knows nothing of ours: plain_card.py."""
    paths = os.pathsep.join([str(_PLAIN.parent), variables.get("PYTHONPATH", "")])
    return _pytest(["-p", "plain_card", _test_of(failure)], failure, kernels, python, {**variables, "PYTHONPATH": paths})


def _plain_pytest_of_all(failure: Failure, kernels: Path, python: str, variables: dict[str, str]) -> str:
    """Return the same where the package's other files are imported before, as in a whole run: what they leave behind may decide."""
    name = _test_of(failure).rpartition("::")[2].partition("[")[0]
    return (
        _pytest(["--continue-on-collection-errors", "-k", name], failure, kernels, python, variables) if name.isidentifier() else "no test"
    )


def _pytest(words: list[str], failure: Failure, kernels: Path, python: str, variables: dict[str, str]) -> str:
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short", "--no-header", *words]
    paths = os.pathsep.join(filter(None, [variables.get("PYTHONPATH", ""), str(_root(kernels))]))  # as from the root of the sources
    done = _run(command, _limit_s(failure), cwd=kernels, env={**variables, "TRITON_INTERPRET": "1", "PYTHONPATH": paths})
    if done.returncode == 0 and " passed" in done.stdout:
        return ""
    raised = [line[1:].strip() for line in done.stdout.splitlines() if line.startswith("E  ")]
    raised = [line for line in raised if same(line, failure.message)] or raised
    said = next((line for line in raised if line), ((done.stdout + done.stderr).strip().splitlines() or ["nothing"])[-1])
    if NO_CARD.search(said) and not same(said, failure.message):
        return f"{_ASKS}: {said[:160]}"
    return f"{_ASKS}: {said}" if _SKIPPED.search(said) else said[:200]


def _test_of(failure: Failure) -> str:
    return str(failure.row["origin"]) if failure.row is not None else failure.id


def _plain_triton(failure: Failure, kernels: Path, python: str, variables: dict[str, str]) -> str:
    """Return what Triton says to the same function, types and constants, or nothing if it compiles them within the card's limits."""
    root = _root(kernels)
    request = json.dumps(
        {"row": failure.row, "root": str(root), "paths": [str(folder) for folder in (root / "src", root) if folder.is_dir()]}
    )
    command = [python, str(_PLAIN)]
    done = _run(command, _LIMIT_S, request, cwd=kernels, env=variables)
    lines = done.stdout.strip().splitlines()
    return lines[-1].removeprefix("ok").strip()[:200] if lines else f"the control broke: {done.stderr.strip()[-160:]}"


def _root(kernels: Path) -> Path:
    """Return the nearest folder that is a project's."""
    marks = ("pyproject.toml", "setup.py")
    return next((folder for folder in (kernels, *kernels.parents) if any((folder / mark).exists() for mark in marks)), kernels)
