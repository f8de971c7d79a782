"""What Triton's interpreter computes here, and what the machine code of an AMD card does: the same, for each expression of a kernel."""

import json
import math

import expressions
import pytest

from warpwave.config.targets import load_targets
from warpwave.records import Stage

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")
pytest.importorskip("elftools", reason="the emulator's extra; `nox -s tests` installs it")

pytestmark = pytest.mark.slow

NEAR = 2e-6  # what functions such as tl.exp may differ by, relatively


@pytest.fixture(scope="module")
def found(run_inside, tmp_path_factory):
    """The numbers by expression, of the interpreter and of the emulated card."""
    both = []
    for options in ({}, {"interpret": False, "emulate": load_targets()["gfx942-emulated"].emulate}):
        package = tmp_path_factory.mktemp("expressions") / "package"
        expressions.write(package)
        run_inside(package, Stage.TEST, benches=(), test_s=300.0, **options)
        both.append(json.loads((package / "found.json").read_text()))
    return both


def is_same(one, other):
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return (one == other and math.copysign(1, one) == math.copysign(1, other)) or 0 < abs(one - other) <= NEAR * abs(other) < math.inf


def test_both_compute_the_same(found):
    interpreted, executed = found
    differing = {}
    for name, numbers in executed.items():
        wrong = [
            (place, interpreted[name][place], other) for place, other in enumerate(numbers) if not is_same(interpreted[name][place], other)
        ]
        if wrong:
            differing[name] = wrong[:3]

    assert len(executed) == len(interpreted) == len(expressions.cases()) > 500
    assert differing == {}
