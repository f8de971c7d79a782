"""Cases of a parametrised test that `nox -s tests` leaves out: they hold the same decision again, elsewhere or with other names."""

from collections.abc import Iterable
from typing import Any

import pytest


def slow_but(cases: Iterable[Any], soon: Iterable[Any]) -> list[Any]:
    """Return `cases` for `parametrize`, marked `slow` but for those in `soon`, each of which must be one of them."""
    cases, soon = list(cases), list(soon)
    assert all(one in cases for one in soon), f"not all of {soon} are among {cases}"
    return [case if case in soon else pytest.param(case, marks=pytest.mark.slow) for case in cases]
