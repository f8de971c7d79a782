"""What is calculated with numbers that depend on data, and with those that are known, on a card without data."""

from __future__ import annotations

import operator

import pytest

torch = pytest.importorskip("torch", reason="the inside needs torch and triton; `nox -s tests` installs them")

from warpwave.inside.fake_gpu.host_side import known
from warpwave.inside.fake_gpu.no_data import WithoutData
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


def test_known_numbers_meet_those_that_vmap_has_wrapped():
    """As in flex_attention's block masks, whose functions get indices."""
    rows, limits = torch.arange(4, device="cuda"), torch.arange(6, device="cuda")
    seen = torch.func.vmap(lambda row: row >= limits)(rows)
    assert (seen.dtype, seen.shape, seen.device) == (torch.bool, (4, 6), CARD)


@pytest.mark.parametrize("package", ["tabulate", "ops"])
def test_code_that_asks_for_their_values_decides(package):
    """Whoever wrote it: no library is known by its name."""
    library = {"__name__": f"{package}.drawing"}
    code = "def draw(rows):\n    return [[float(cell) if cell != cell or cell > 0 else 0.0 for cell in row] for row in rows]\n"
    exec(compile(code, f"{package}/drawing.py", "exec"), library)
    with pytest.raises(DecidedByData):
        library["draw"]([torch.randn(4, device="cuda").tolist()])


def test_no_gradient_without_data_is_infinite():
    """Whoever asks: torch's GradScaler, or a package's own."""
    found = torch.full((), 0.0, device="cuda")
    torch._amp_foreach_non_finite_check_and_unscale_([torch.randn(9, device="cuda")], found, torch.ones((), device="cuda"))
    steps = 0
    if not sum(each.item() for each in [found]):
        steps += 1
    assert steps == 1


def test_what_goes_into_a_list_is_a_decision():
    """What is in it may be launched later: that is no report."""

    def choose(chosen):
        if torch.randn(4, device="cuda").max().item() > 0:
            chosen.append("a launch")

    with pytest.raises(DecidedByData):
        choose([])
