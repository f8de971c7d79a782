"""`warpwave profile`: which emulated target a name means, and what is refused before anything runs."""

import pytest
from synthetic import write_whole

from warpwave.__main__ import cli
from warpwave.cli.profile import _profiles, target_of
from warpwave.errors import UsageError


@pytest.mark.parametrize("name", ["gfx942", "MI300X", "mi325x", "gfx942-emulated"])
def test_a_card_has_many_names(name):
    assert target_of(name, None) == "gfx942-emulated"


def test_a_card_without_an_emulator_is_refused():
    with pytest.raises(UsageError) as caught:
        target_of("h100", None)

    assert "MI300X" in caught.value.remedy


def test_counters_cannot_grow_since_no_run(tmp_path):
    with pytest.raises(UsageError, match="needs a run to compare with"):
        cli.main(["profile", "gfx942", "--kernels", str(tmp_path), "--must-not-grow", "lines64"], standalone_mode=False, obj={})


def test_a_run_without_counters_is_no_run_to_compare_with(tmp_path):
    (found,) = _profiles(write_whole(tmp_path / "whole"))

    assert found.function == "_softmax_fwd"
    (tmp_path / "whole" / "alpha" / "test" / "profile.jsonl").unlink()
    with pytest.raises(UsageError, match="has no profile"):
        _profiles(tmp_path / "whole")
