"""Every instruction that compiled kernels use, card by card, against a second statement of its meaning: without one, the test fails."""

from __future__ import annotations

import pytest
from held import CONTROL, PRODUCTS, used, wrong_on
from machine_code import WAVES
from slow_cases import slow_but


def stated_by(form: str) -> str:
    """Return which test holds a form."""
    if form.startswith(PRODUCTS):
        return "test_every_product_is_one"
    return "test_used_control" if form.startswith(CONTROL) else "test_every_used_form_does_what_is_stated"


@pytest.mark.parametrize("arch", slow_but(WAVES, ["gfx1201"]))
def test_every_used_form_does_what_is_stated(arch):
    assert wrong_on(arch, used(arch)) == []
