"""Instructions that the core executes and no bundled kernel uses: each is stated a second time, and without a statement the test fails."""

from __future__ import annotations

import pytest
from held import unused, wrong_on
from machine_code import WAVES
from slow_cases import slow_but


@pytest.mark.parametrize("arch", slow_but(WAVES, ["gfx942", "gfx1201"]))
def test_every_unused_form_does_what_is_stated(arch):
    assert wrong_on(arch, unused(arch)) == []
