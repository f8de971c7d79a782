"""What authors of Triton packages write in host code and tests, one idiom a test: tests/idioms, run as a user runs a package.

On a card the folder is its own control (plain `pytest tests/idioms`). Here each test must pass in the interpreter, and compiling must run
it to its end; tests/idioms/expected.py names the exceptions.
"""

from __future__ import annotations

import ast
import os
import runpy
from pathlib import Path
from types import SimpleNamespace

import command
import pytest

from warpwave.collect import collect
from warpwave.records import HOST_CODE, Verdict

pytestmark = pytest.mark.slow  # one run of both stages over all idioms
pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

REPOSITORY = Path(__file__).parents[4]
IDIOMS = REPOSITORY / "tests" / "idioms"
ARCHITECTURES = {"sm_90", "gfx942"}
EXPECTED = SimpleNamespace(**runpy.run_path(str(IDIOMS / "expected.py")))
FILES = sorted(path for path in IDIOMS.rglob("test_*.py"))


def is_test(node):
    return isinstance(node, ast.FunctionDef) and node.name.startswith("test_")


def functions():
    """Every test function of the folder: its file and its name, as node ids have them."""
    for path in FILES:
        name = path.relative_to(IDIOMS).as_posix()
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                yield from (f"{name}::{node.name}::{test.name}" for test in node.body if is_test(test))
            elif is_test(node):
                yield f"{name}::{node.name}"


def kernels():
    """Every jitted function of the folder, without those that only other kernels call."""
    for path in IDIOMS.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            jitted = isinstance(node, ast.FunctionDef) and any("triton.jit" in ast.unparse(word) for word in node.decorator_list)
            if jitted and node.name not in EXPECTED.NOT_LAUNCHED:
                yield node.name


def function_of(node_id):
    """A test's id without its parameters."""
    return node_id.partition("[")[0]


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """One run of both stages, as a user does it: the cases by function, the rows of the compile stage, and what the command said."""
    folder = tmp_path_factory.mktemp("idioms")
    variables = {"PYTHONPATH": str(REPOSITORY / "harness"), "COLUMNS": "200", "TRITON_CACHE_DIR": str(folder / "cache")}
    words = ["run", "cpu", "--targets", REPOSITORY / ".ci" / "targets.yml", "--kernels", IDIOMS, "--out", "out"]
    done = command.warpwave(*words, cwd=folder, env={**os.environ, **variables}, timeout=900)
    run = collect(folder / "out" / "raw" / "cpu")
    cases = {}
    for case in run.cases:
        cases.setdefault(function_of(case.id), []).append(case)
    ended = {}
    for row in run.compiled:
        if row.function == HOST_CODE:
            ended.setdefault(function_of(row.origin), {})[row.architecture] = row
    return SimpleNamespace(cases=cases, ended=ended, compiled=[row for row in run.compiled if row.function != HOST_CODE], said=done.stdout)


@pytest.mark.parametrize("idiom", sorted(functions()))
def test_an_idiom_passes_in_the_interpreter(ran, idiom):
    """It passes, or its author skipped it, and the report has the author's reason."""
    skips = {**EXPECTED.NOT_INTERPRETED, **EXPECTED.SKIPPED, **EXPECTED.EXPECTED_TO_FAIL}
    pretended = {reason for test, (_, reason) in EXPECTED.SKIPPED_ON.items() if test == idiom}
    wrong = []
    for case in ran.cases.get(idiom, []):
        reason = skips.get(case.id)
        if reason is None and pretended and case.verdict is Verdict.NOT_RUN:
            reason = next(iter(pretended))  # that the two vendors' skips agree is the next test's
        verdict = Verdict.XFAILED if case.id in EXPECTED.EXPECTED_TO_FAIL else Verdict.NOT_RUN if reason else Verdict.PASSED
        expected = (verdict, True)
        if (case.verdict, reason is None or reason in case.message) != expected:
            wrong.append(f"{case.id}: {case.verdict.value}: {case.message}")

    assert idiom in ran.cases, "no row"
    assert wrong == []


def test_the_interpreter_pretends_one_card(ran):
    """Each test that is skipped on one vendor's card is skipped in the interpreter if that card is pretended, and else runs."""
    skipped = {test for test in EXPECTED.SKIPPED_ON if ran.cases[test][0].verdict is Verdict.NOT_RUN}

    assert skipped in [{test for test, (on, _) in EXPECTED.SKIPPED_ON.items() if on == one} for one in sorted(ARCHITECTURES)]


@pytest.mark.parametrize("idiom", sorted(functions()))
def test_an_idiom_compiles_to_its_end(ran, idiom):
    """Nothing ends it early on either architecture, except a decision by data, or its author's skip."""
    on, skipped = EXPECTED.SKIPPED_ON.get(idiom, ("", ""))
    ended = {name: row for name, row in ran.ended.get(idiom, {}).items() if name != on or skipped not in row.reason}
    ended |= ran.ended.get(idiom.partition("::")[0], {})  # the file itself, which did not import
    reasons = [reason for name, reason in EXPECTED.SKIPPED.items() if function_of(name) == idiom]
    ended = {name: row for name, row in ended.items() if not any(reason in row.reason for reason in reasons)}

    if idiom in EXPECTED.EXPECTED_TO_FAIL:
        assert {row.verdict for row in ended.values()} <= {Verdict.NOT_RUN}
    elif idiom in EXPECTED.DECIDED_BY_DATA:
        assert set(ended) == ARCHITECTURES
        assert {row.verdict for row in ended.values()} == {Verdict.NOT_RUN}
        assert all("data of a tensor" in row.reason for row in ended.values())
    else:
        assert {name: row.reason for name, row in ended.items()} == {}


@pytest.mark.parametrize("function", sorted(set(kernels())))
def test_every_kernel_is_compiled_for_each_architecture(ran, function):
    """A launch that is not seen has no row."""
    compiled = [row for row in ran.compiled if row.function == function]
    refused = [row for row in compiled if row.reason.startswith("the test expects this: ")]
    compiled = [row for row in compiled if row not in refused and not row.is_discarded]

    assert {row.architecture for row in refused} == (ARCHITECTURES if function in EXPECTED.REFUSED else set())
    assert {row.architecture for row in compiled} == EXPECTED.COMPILED_FOR.get(function, ARCHITECTURES)
    assert {row.verdict for row in compiled} == {Verdict.PASSED}


def test_the_table_names_tests_that_exist():
    """A renamed test would lose its exception without a word."""
    tables = (EXPECTED.NOT_INTERPRETED, EXPECTED.SKIPPED, EXPECTED.SKIPPED_ON, EXPECTED.DECIDED_BY_DATA, EXPECTED.EXPECTED_TO_FAIL)
    named = {function_of(name) for table in tables for name in table}

    assert named <= set(functions())
    assert set(EXPECTED.COMPILED_FOR) <= set(kernels())
