"""`--autotune all`: without a card, a test runs once with each configuration of its kernels."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest
from slow_cases import slow_but

from warpwave.records import Stage

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

# A kernel that is wrong with its third configuration: it then writes only every second element.
PACKAGE = """
import pytest, torch, triton, triton.language as tl
from collections import Counter

CONFIGS = [triton.Config({"BLOCK": block, "STEP": step}) for block, step in ((16, 1), (32, 1), (64, 2), (128, 1))]
SETUPS = Counter()

@triton.autotune(CONFIGS, key=["n"])
@triton.jit
def double(x, y, n, BLOCK: tl.constexpr, STEP: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, 2 * tl.load(x + i, mask=i < n), mask=(i < n) & (i % STEP == 0))

@triton.autotune(CONFIGS[:2], key=["n"])
@triton.jit
def good(x, y, n, BLOCK: tl.constexpr, STEP: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)

@triton.autotune(CONFIGS[:2], key=["n"])
@triton.jit
def grow(x, n, BLOCK: tl.constexpr, STEP: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)

@pytest.fixture
def fresh():
    SETUPS["function"] += 1
    yield []
    SETUPS["teardown"] += 1

@pytest.fixture(scope="module")
def shared():
    SETUPS["module"] += 1

def run(kernel):
    x = torch.ones(100, device="cuda")
    y = torch.zeros_like(x)
    kernel[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](x, y, 100)
    assert bool((y == 2).all())

def test_wrong(shared, fresh):
    run(double)

def test_good(shared, fresh):
    assert not fresh
    fresh.append(1)
    run(good)

def test_plain(shared, fresh, record_property):
    record_property("setups", str(dict(SETUPS)))

def test_in_place():
    x = torch.ones(100, device="cuda")
    grow[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](x, 100)
    assert bool((x == 2).all())

def test_skipped():
    run(good)
    pytest.skip("by its author")
"""


@pytest.mark.parametrize("autotune", slow_but(["one", "all"], ["all"]))
def test_a_wrong_configuration_is_found_and_named(run_inside, tmp_path, autotune):
    """With `one`, only the first configuration is tried, and the test passes."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "test_double.py").write_text(PACKAGE)
    output = run_inside(tmp_path / "package", Stage.TEST, benches=(), autotune=autotune)
    cases = {case.get("name"): case for case in ElementTree.parse(output / "test" / "junit.xml").getroot().iter("testcase")}
    properties = {name: {entry.get("name"): entry.get("value") for entry in case.iter("property")} for name, case in cases.items()}
    bad = [name for name, case in cases.items() if case.find("failure") is not None]

    every = autotune == "all"
    assert bad == (["test_wrong", "test_in_place"] if every else ["test_in_place"])
    said = cases["test_in_place"].find("failure").get("message")
    assert "`grow`" in said
    assert "`x`" in said
    assert "restore_value" in said
    assert "AssertionError" in said
    assert properties["test_wrong"]["configuration of double"].endswith("(3 of 4)" if every else "(1 of 4)")
    assert ("BLOCK: 64" in properties["test_wrong"]["configuration of double"]) is every
    assert properties["test_good"]["configuration of good"].endswith("(2 of 2)" if every else "(1 of 2)")
    # Each run has its own function-scoped fixtures; the module's is set up once.
    assert properties["test_plain"]["setups"] == str({"module": 1, "function": 6 if every else 3, "teardown": 5 if every else 2})
    assert len(cases) == 5
    assert cases["test_skipped"].find("skipped") is not None
