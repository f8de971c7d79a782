"""Exceptions in one line."""

from __future__ import annotations

import pytest

from warpwave.inside.process.outcomes import describe


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("out of memory\nmore of it", "ValueError: out of memory"),
        ("at 2:37:\n    x = load(p)\n        ^\nmask is not a block", "ValueError: mask is not a block (at 2:37)"),
        ("", "ValueError"),
        (
            "PTXAS error: Internal Triton PTX codegen error\n`ptxas` stderr:\nptxas /tmp/tmpa1.ptx, line 52; error   : '.cg' is refused\n"
            "ptxas fatal   : Ptx assembly aborted due to errors\n\nRepro command: ptxas -v",
            "ValueError: '.cg' is refused",
        ),
        ("Internal Triton PTX codegen error\n`ptxas` stderr:\nptxas fatal   : no memory", "ValueError: no memory"),
        ("broken\n`ptxas` stderr:\nKilled", "ValueError: broken"),
    ],
    ids=["first line", "compiler", "nothing said", "a tool's error", "a tool that ends", "a tool that says no error"],
)
def test_what_happened_is_reported(message, told):
    assert describe(ValueError(message)) == told


def test_what_happened_in_a_function_that_a_kernel_calls_is_reported():
    """Triton's compiler then only marks the call; what is wrong is in the cause, or in the cause's cause."""
    inner = ValueError("at 9:8:\ndef put(x):\n    add(x)\n    ^\nno attribute 'ir'")
    middle, outer = ValueError("at 3:4:\n    put(x)\n    ^"), ValueError("at 36:4:\n    finish(x)\n    ^")
    middle.__cause__, outer.__cause__ = inner, middle

    assert describe(outer) == "ValueError: no attribute 'ir' (at 9:8)"
    assert describe(ValueError("at 3:4:\n    put(x)\n    ^")) == "ValueError: ^ (at 3:4)"
