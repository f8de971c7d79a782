"""`warpwave profile`: which emulated target a name means, and what is refused before anything runs."""

import pytest
from synthetic import write_whole

from warpwave.__main__ import cli
from warpwave.cli.profile import _profiles, target_of
from warpwave.errors import UsageError


@pytest.mark.parametrize("name", ["gfx942", "MI300X", "mi325x", "gfx942-emulated"])
def test_a_card_has_many_names(name):
    """The architecture, a card of it, or the target."""
    assert target_of(name, None) == "gfx942-emulated"


def test_a_card_without_an_emulator_is_refused():
    """The message names those that have one."""
    with pytest.raises(UsageError) as caught:
        target_of("h100", None)

    assert "MI300X" in caught.value.remedy


@pytest.mark.parametrize(("counters", "said"), [("lines64", "needs a run to compare with"), ("lines64,line", "no counter 'line'")])
def test_counters_that_must_not_grow_are_known_and_have_a_run_to_compare_with(tmp_path, counters, said):
    """A misspelt one would never grow."""
    with pytest.raises(UsageError, match=said):
        cli.main(["profile", "gfx942", "--kernels", str(tmp_path), "--must-not-grow", counters], standalone_mode=False, obj={})


def test_a_run_without_counters_is_no_run_to_compare_with(tmp_path):
    """Its folder is named; a run that has them is read."""
    (found,) = _profiles(write_whole(tmp_path / "whole"))

    assert found.function == "_softmax_fwd"
    (tmp_path / "whole" / "alpha" / "test" / "profile.jsonl").unlink()
    with pytest.raises(UsageError, match="has no profile"):
        _profiles(tmp_path / "whole")
