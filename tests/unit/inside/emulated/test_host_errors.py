"""Which failures on an emulated target are host code's own. An innocent twin could be the emulator's: a card may pass it."""

import types

import pytest

torch = pytest.importorskip("torch", reason="the inside needs torch; `nox -s tests` installs it")

from warpwave.inside.fake_gpu.launches import (
    Account,
    Fault,
)
from warpwave.inside.test.notes import raised_by_host


def raised(error, file="test_a.py"):
    """The error, as if a line of that file of the package had raised it."""
    code = compile("raise error", f"/package/{file}", "exec")
    with pytest.raises(type(error)) as caught:
        exec(code, {"error": error})
    return caught.value


def account(launches=1, read=True, fault=None):
    return types.SimpleNamespace(launches=launches, read=read, fault=fault)


@pytest.mark.parametrize(
    ("error", "file", "state", "why"),
    [
        (KeyError("hip"), "test_a.py", account(launches=0, read=False), "before the first launch"),
        (ValueError("n"), "test_a.py", account(launches=0, read=False), "before the first launch"),
        (KeyError("hip"), "test_a.py", account(), "by host code"),
        (NameError("n"), "test_a.py", account(), "by host code"),
        (ValueError("n"), "test_a.py", account(read=False), "before host code read a result"),
        (ValueError("waves_per_eu"), "triton/compiler.py", account(), "by Triton, before a launch"),
        (ValueError("n"), "test_a.py", account(), ""),
        (KeyError(3), "test_a.py", account(), ""),
        (AssertionError("not close"), "torch/testing/_comparison.py", account(read=False), ""),
        (AssertionError("not equal"), "numpy/testing/utils.py", account(read=False), ""),
        (KeyError("hip"), "test_a.py", account(fault=Fault("failed", "a trap")), ""),
    ],
)
def test_an_error_is_host_codes_own_if_no_number_can_be_its_cause(tmp_path, error, file, state, why):
    """A wrong number that a kernel made can end in anything that host code decides by what it read."""
    found = raised_by_host(raised(error, file), state, tmp_path)

    assert found == (f"{type(error).__name__} was raised {why}" if why else "")


@pytest.mark.parametrize("read", ["item", "tolist", "equal", "allclose", "numpy", "__bool__", "__array__"])
def test_what_turns_a_result_into_numbers_is_a_read(read):
    kept = Account("gfx942", 64, 60.0)
    function = getattr(torch.Tensor, read)
    kept.watch(function)
    before, kept.launches = kept.read, 1
    kept.watch(torch.Tensor.add)
    between = kept.read
    kept.watch(function)

    assert (before, between, kept.read) == (False, False, True)
    kept.begin()
    assert not kept.read, "the next test has read nothing"
