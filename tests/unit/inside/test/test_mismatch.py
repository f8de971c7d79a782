"""The numbers of a failed comparison stand in the first line of its message."""

import pytest

torch = pytest.importorskip("torch", reason="the inside needs torch; `nox -s tests` installs it")
np = pytest.importorskip("numpy")

from warpwave.inside.fake_gpu.launches import Launched
from warpwave.inside.test.mismatch import with_numbers
from warpwave.inside.test.pretend import words_of

WANT = torch.arange(6.0).reshape(2, 3)
GOT = WANT.clone()
GOT[1, 2], GOT[0, 1] = 7.0, 1.5
NUMBERS = "2 of 6 elements differ; greatest difference 2 at [1, 2]: "
KNOWN = f"{NUMBERS}expected 5, got 7"


def halved(x):
    return x / 2


def _by_torch():
    torch.testing.assert_close(GOT, WANT)


def _by_torch_with_own_words():
    torch.testing.assert_close(GOT, WANT, msg="wrong rows")


def _by_torch_in_lists():
    torch.testing.assert_close([WANT, {"out": GOT}], [WANT, {"out": WANT}])


def _by_numpy():
    np.testing.assert_allclose(GOT.numpy(), WANT.numpy(), rtol=1e-3)


def _by_numpy_exactly():
    np.testing.assert_array_equal(GOT.numpy(), WANT.numpy())


def _by_numpy_in_decimals():
    np.testing.assert_almost_equal(GOT.numpy(), WANT.numpy(), decimal=3)


@pytest.mark.parametrize(
    "fail", [_by_torch, _by_torch_with_own_words, _by_torch_in_lists, _by_numpy, _by_numpy_exactly, _by_numpy_in_decimals]
)
def test_of_torch_and_numpy(fail):
    assert _first_line(fail).endswith(KNOWN)


def _allclose():
    assert torch.allclose(halved(GOT) * 2, WANT)


def _allclose_of_names():
    got, want = GOT, WANT
    assert torch.allclose(got, want, atol=1e-3), "wrong rows"


def _method():
    got = GOT
    assert got.allclose(WANT)


def _equal():
    assert torch.equal(GOT, WANT), f"wrong {GOT.dtype}"


def _of_numpy():
    assert np.allclose(GOT.numpy(), WANT.numpy(), rtol=1e-3)


def _all():
    assert (GOT == WANT).all()


@pytest.mark.parametrize(
    ("fail", "told"),
    [
        (_allclose, f"assert torch.allclose(halved(GOT) * 2, WANT): {NUMBERS}7 in halved(GOT) * 2, 5 in WANT"),
        (_allclose_of_names, f"wrong rows: {NUMBERS}7 in got, 5 in want"),
        (_method, f"assert got.allclose(WANT): {NUMBERS}7 in got, 5 in WANT"),
        (_equal, f"wrong torch.float32: {NUMBERS}7 in GOT, 5 in WANT"),
        (_of_numpy, f"{NUMBERS}7 in GOT.numpy(), 5 in WANT.numpy()"),
        (_all, f"{NUMBERS}7 in GOT, 5 in WANT"),
    ],
)
def test_of_an_assertion(fail, told):
    assert _first_line(fail).endswith(told)


def test_of_a_difference():
    """What is allowed is not known, so it is not said how many elements differ."""

    def fail():
        assert (GOT - WANT).abs().max() < 1e-3

    assert _first_line(fail).endswith(": greatest difference 2 at [1, 2]: 7 in GOT, 5 in WANT")


def test_not_a_number_is_the_greatest_difference():
    def fail():
        torch.testing.assert_close(torch.tensor([1.0, float("nan"), 9.0]), torch.tensor([1.0, 2.0, 3.0]))

    assert _first_line(fail).endswith("2 of 3 elements differ; greatest difference inf at [1]: expected 2, got nan")


def test_shapes_that_differ_keep_torchs_words():
    def fail():
        torch.testing.assert_close(GOT[:1], WANT)

    assert "The values for attribute 'shape' do not match: torch.Size([1, 3]) != torch.Size([2, 3])." in _first_line(fail)


def _same_lengths():
    assert len([1]) == 2


def _no_values():
    raise AssertionError("the kernel is wrong")


@pytest.mark.parametrize("fail", [_same_lengths, _no_values, lambda: int("x")])
def test_other_failures_keep_their_message(fail):
    with pytest.raises((AssertionError, ValueError)) as caught:
        fail()

    assert with_numbers(caught.value, "as it was\nmore") == "as it was\nmore"
    assert with_numbers(None, "as it was") == "as it was"


def _first_line(fail) -> str:
    with pytest.raises(AssertionError) as caught:
        fail()
    return with_numbers(caught.value, f"AssertionError: {caught.value}").splitlines()[0]


def test_a_message_without_a_first_line_gets_one():
    """torch's own errors of other processes begin with empty lines."""
    below = "\n-- Process 0 terminated with the following error:\nTraceback (most recent call last):\nValueError: no such shape"
    said = words_of(RuntimeError(f"\n{below}"), f"torch.multiprocessing.spawn.ProcessRaisedException: \n{below}")

    assert said.splitlines()[0].startswith("RuntimeError: ValueError: no such shape")
    assert said.endswith(below)


# What a kernel stores in the order in which its programs come: sorting helps if the same values are there.


def _other_places():
    assert torch.equal(WANT.flip(0), WANT)


def _other_values():
    assert torch.equal(GOT, WANT)


def _a_number():
    assert len(GOT) == 3


@pytest.mark.parametrize(
    ("fail", "moved", "says"),
    [
        (_other_places, True, "Compare sorted values"),
        (_other_values, True, ""),
        (_a_number, True, "Compare sorted values"),
        (_other_places, False, "Make them independent"),
        (_other_values, False, "Make them independent"),
    ],
)
def test_who_is_told_to_sort(fail, moved, says, monkeypatch):
    monkeypatch.setattr(Launched, "kernels", {"take": Launched("take", 1, is_unordered=True, is_moved=moved)})
    with pytest.raises(AssertionError) as caught:
        fail()
    line = words_of(caught.value, str(caught.value))

    assert [hint for hint in ("Compare sorted values", "Make them independent") if hint in line] == [says] * bool(says)
