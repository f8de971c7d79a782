"""Instructions that the core executes and no bundled kernel uses: each is stated a second time, and without a statement the test fails."""

from __future__ import annotations

import pytest
from held import unused, wrong_on
from machine_code import WAVES


@pytest.mark.slow
@pytest.mark.parametrize("arch", WAVES)
def test_every_unused_form_does_what_is_stated(arch):
    assert wrong_on(arch, unused(arch)) == []
