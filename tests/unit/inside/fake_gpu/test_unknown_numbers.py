"""What is calculated with numbers that depend on data, and with those that are known, on a card without data."""

from __future__ import annotations

import operator
import textwrap

import pytest

torch = pytest.importorskip("torch", reason="the inside needs torch and triton; `nox -s tests` installs them")

from warpwave.inside.fake_gpu.assertions import code_of
from warpwave.inside.fake_gpu.host_side import known
from warpwave.inside.fake_gpu.no_data import WithoutData, no_numbers
from warpwave.inside.fake_gpu.unknown import Judged, UnknownTruth
from warpwave.inside.process.outcomes import DecidedByData

CARD = torch.device("cuda", 0)
NUMBERS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow]
BITS = [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift]


@pytest.fixture(autouse=True)
def _card():
    with WithoutData(torch.device("meta"), ("cuda",), CARD):
        yield


@pytest.mark.parametrize("ask", [lambda mask: mask.sum().item(), lambda mask: mask.float().mean().item()], ids=["whole", "float"])
@pytest.mark.parametrize("calculate", NUMBERS)
def test_with_a_tensor_it_is_a_tensor(calculate, ask):
    number, x = ask(torch.randn(9, device="cuda") > 0), torch.randn(4, device="cuda", dtype=torch.float16)
    for result in (calculate(x, number), calculate(number, x)):
        assert (result.dtype, result.shape, result.device) == (torch.float16, (4,), CARD)
    assert not isinstance(calculate(number, 2), torch.Tensor)


@pytest.mark.parametrize("calculate", [*NUMBERS, *BITS])
def test_whole_numbers_that_are_known_become_unknown(calculate):
    number, known_ones = (torch.randn(9, device="cuda") > 0).sum().item(), torch.tensor([1, 2, 3], device="cuda")
    assert known(known_ones) is not None
    for result in (calculate(known_ones, number), calculate(number, known_ones)):
        assert known(result) is None
        with pytest.raises(DecidedByData):
            bool(result[0] > 0)


@pytest.mark.parametrize("n", [1, 4, 24, 40])
def test_an_array_of_unknown_numbers_is_one_index(n):
    """torch takes a short one whose elements are arrays for several indices."""
    x, rows = torch.randn(64, 2, 3, device="cuda"), no_numbers(torch.zeros(64, dtype=torch.int32))[:n]
    x[rows] = 0.0

    assert x[rows].shape == (n, 2, 3)
    assert x[rows, 1].shape == (n, 3)


def test_known_numbers_meet_those_that_vmap_has_wrapped():
    """As in flex_attention's block masks, whose functions get indices."""
    rows, limits = torch.arange(4, device="cuda"), torch.arange(6, device="cuda")
    seen = torch.func.vmap(lambda row: row >= limits)(rows)
    assert (seen.dtype, seen.shape, seen.device) == (torch.bool, (4, 6), CARD)


def test_no_gradient_without_data_is_infinite():
    """Whoever asks: torch's GradScaler, or a package's own."""
    found = torch.full((), 0.0, device="cuda")
    torch._amp_foreach_non_finite_check_and_unscale_([torch.randn(9, device="cuda")], found, torch.ones((), device="cuda"))
    steps = 0
    if not sum(each.item() for each in [found]):
        steps += 1
    assert steps == 1


# A package's code, rewritten: `x` and `y` have no data, `n` is known. What only judges goes on; what decides ends the test.

HELPERS = """
def close(x, y):
    if (x - y).abs().max() > 1e-3:
        print("not close")
        return False
    return True

def launches(x):
    if x.max() > 0:
        return launch()
    return True

def checked(x):
    if float(x.sum()) != 0:
        raise ValueError(f"sum {x.sum():.3f}")
    return x
"""
GOES_ON = {
    "a comparison": "assert (x == y).all()",
    "a negated one": "assert not x.isnan().any(), x",
    "two of which one is negated": "assert equal(x, y) and not equal(x, x) or n == 4",
    "three in a row": "assert 0 < x.max().item() < 1",
    "a number of Python's": "error = float((x - y).norm()); assert error < 1e-5",
    "a truth that is kept": "bad = bool(x.isnan().any()); assert not bad",
    "all of several": "assert all(number == 6 for number in x.tolist())",
    "the largest": "assert max(x.max().item(), 1e-12) <= 1",
    "a helper": "assert close(x, y)",
    "a helper that raises": "assert checked(x) is x",
    "a library's helper that raises": "assert library(x)",
    "a branch that raises": "if x.max() > 1: raise ValueError",
    "a branch that fails": "if n != 4: pass\nelif not equal(x, y): fail()",
    "a branch that reports": "if equal(x, y): print('same')\nelse: print('different')",
    "a report": "print('%.3f' % x.max().item(), int(x.sum()))",
    "what is known": "assert n == 4; assert not (n == 3); assert max(n, 7) == 7; assert bool(n) is True",
}
DECIDES = {
    "a branch": "if x.max() > 0: launch()",
    "a branch that raises after a launch": "if x.max() > 0:\n    launch()\n    n += 1\nelse:\n    n = 0",
    "a verdict that is kept": "right = close(x, y); assert right",
    "a branch on a verdict": "if close(x, y): launch()",
    "a choice": "n = 2 if float(x.max()) > 0 else 3",
    "each number of a list": "rows = [float(cell) if cell != cell or cell > 0 else 0.0 for cell in x.tolist()]",
    "a list of what to launch": "chosen = []\nif x.max().item() > 0: chosen.append('a launch')",
    "a loop": "while x.max() > 0.1: x = x / 2",
    "a size": "n = list(range(int(x.sum())))",
    "a helper that launches": "assert launches(x)",
}


def run(body: str) -> None:
    source = f"{HELPERS}\ndef test(x, y, n):\n{textwrap.indent(body, '    ')}\n"
    names = {"equal": lambda x, y: UnknownTruth(), "launch": Judged.refuse_launch, "fail": lambda: pytest.fail("failed")}
    names["library"] = lambda x: 1 / 0 if x.max() > 0 else x
    exec(code_of(source, "/package/test_ops.py"), names)
    names["test"](torch.randn(4, device="cuda"), torch.randn(4, device="cuda"), 4)


@pytest.mark.parametrize("body", GOES_ON.values(), ids=GOES_ON)
def test_what_only_judges_goes_on(body):
    run(body)


@pytest.mark.parametrize("body", DECIDES.values(), ids=DECIDES)
def test_what_decides_ends_the_test(body):
    with pytest.raises(DecidedByData):
        run(body)


@pytest.mark.parametrize(
    "body", ["assert n == 5", "if n != 5: raise AssertionError", "assert not n", "assert n and not n", "assert equal(x, y) and n > 4"]
)
def test_what_is_wrong_by_known_numbers_fails(body):
    with pytest.raises(AssertionError):
        run(body)
