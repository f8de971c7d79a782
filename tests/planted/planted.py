"""The planted faults: what each is, and which finding it must give. `test_sanitizer.py` holds a run against it."""

from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Planted:
    """One fault: the finding that it must give (None: none), the tensor that this names (None: any), and the fault in words.

    `in_order`: whether the result is wrong also where programs run one after the other, in their order.
    """

    defect: str | None
    tensor: str | None
    words: str
    in_order: bool = True


TABLE: dict[str, Planted] = {}


def planted(defect, tensor, words, in_order=True):
    """Mark a test that takes `fault`: it runs with the fault, and as its right twin."""

    def mark(test):
        TABLE[f"{test.__module__}.py::{test.__name__}"] = Planted(defect, tensor, words, in_order)
        return pytest.mark.parametrize("fault", [True, False], ids=["fault", "twin"])(test)

    return mark
