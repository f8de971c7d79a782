"""The random programs of `nox -s programs`: a right one agrees with numpy on a card, and a wrong one is reported."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2] / "fuzz"))
programs = pytest.importorskip("programs", reason="it needs torch, triton and the emulator's extra; `nox -s tests` installs them")


def on_the_card(function, tensors, warps):
    return programs.by_emulator(function, "gfx942", tensors, warps)


def test_a_program_agrees():
    assert programs.compared(3, on_the_card) == ""


def test_a_disagreement_is_reported(monkeypatch):
    _, plan, *_ = programs.drawn(3)
    last = plan[-1][0]
    text, _ = programs.WHOLE[last]
    monkeypatch.setitem(programs.WHOLE, last, (text, lambda a, b, k: np.zeros_like(a)))

    assert programs.compared(3, on_the_card).endswith("counts differ")
