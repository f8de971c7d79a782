"""A value that nobody wrote is a fault where a kernel uses it, and none where it is dropped."""

from __future__ import annotations

import pytest

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")


@pytest.fixture
def blamed(monkeypatch):
    """A function that loads four values, of which nobody wrote the last two, and the builder; the positions that were reported."""
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    from warpwave.inside.sanitize.memory import patches, suspected

    found = []
    for owner, name, replacement in list(patches(interpreter.InterpreterBuilder)):
        monkeypatch.setattr(owner, name, replacement)
    value = interpreter.TensorHandle(np.arange(4, dtype=np.float32), tl.float32)
    loaded = suspected(value, ((np.array([2, 3]), lambda positions: found.extend(positions.tolist())),))

    def choice(*kept):
        return interpreter.TensorHandle(np.array([position in kept for position in range(4)]), tl.int1)

    return loaded, value, choice, interpreter.InterpreterBuilder(), found


@pytest.mark.parametrize(("kept", "reported"), [((0, 1), []), ((0, 3), [3]), ((0, 1, 2, 3), [2, 3]), ((), [])])
def test_what_a_choice_keeps_is_reported_once_it_is_used(blamed, kept, reported):
    """On either side of the choice, and after a conversion."""
    import triton.language as tl

    loaded, other, choice, builder, found = blamed
    converted = builder.create_fp_trunc(loaded, tl.float16)
    chosen = builder.create_select(choice(*kept), converted, builder.create_fp_trunc(other, tl.float16))

    assert found == []
    assert chosen.data.tolist() == [0, 1, 2, 3]
    assert found == reported
    found.clear()
    builder.create_select(choice(*(set(range(4)) - set(kept))), other, loaded).data.sum()
    assert found == reported


def test_any_other_use_reports_all_at_once(blamed):
    """And only the first."""
    loaded, other, choice, builder, found = blamed
    negative = builder.create_fsub(other, loaded)
    builder.create_select(choice(0, 1), negative, other).data.sum()
    assert found == []
    builder.create_exp(loaded)
    builder.create_exp(loaded)

    assert found == [2, 3]


def test_a_load_beyond_the_end_is_reported_at_any_use(blamed):
    """Not even a choice that drops it helps: a card loads it. A conversion alone is no use."""
    import numpy as np
    import triton.language as tl

    from warpwave.inside.sanitize.memory import AnyUse, suspected

    _, other, choice, builder, found = blamed
    beyond = suspected(other, ((np.array([1]), AnyUse(lambda positions: found.extend(positions.tolist()))),))
    converted = builder.create_fp_trunc(beyond, tl.float16)
    assert found == []
    builder.create_select(choice(0), converted, builder.create_fp_trunc(other, tl.float16))
    builder.create_fadd(converted, converted)

    assert found == [1]
