"""Programs that wait for later ones: what is reported while they take turns. tests/idioms/kernels/test_waiting.py has more of them."""

from __future__ import annotations

import json

import pytest

from warpwave.records import Stage

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

TESTS = """
import pytest, torch, triton, triton.language as tl

@triton.jit
def handed_over(x, flag, out, SEM: tl.constexpr, INDEX: tl.constexpr):
    if tl.program_id(0) == 0:
        while tl.atomic_cas(flag, 1, 1, sem=SEM) != 1:
            pass
        tl.store(out, tl.load(x))
    else:
        tl.store(x + INDEX, 7.0)
        tl.atomic_xchg(flag, 1)

def launch(sem, index=0):
    x, out, flag = torch.zeros(1, device="cuda"), torch.zeros(1, device="cuda"), torch.zeros(1, dtype=torch.int32, device="cuda")
    handed_over[(2,)](x, flag, out, SEM=sem, INDEX=index)
    return out.item()

def test_ordered(): assert launch("acq_rel") == 7
def test_relaxed(): launch("relaxed")
def test_out_of_bounds(): launch("acq_rel", 4)

@triton.jit
def both(x, flags, out):
    pid = tl.program_id(0)
    if pid == 0:
        while tl.atomic_cas(flags + 1, 1, 1, sem="acquire") != 1:
            pass
        tl.atomic_xchg(flags, 1, sem="relaxed")
        while tl.atomic_cas(flags + 2, 1, 1, sem="acquire") != 1:
            pass
        tl.store(out, tl.load(x + 1) + tl.load(x + 2))
    else:
        while (pid == 2) & (tl.atomic_cas(flags, 1, 1, sem="relaxed") != 1):
            pass
        tl.store(x + pid, 7.0)
        tl.atomic_xchg(flags + pid, 1)

def test_two_waits():
    x, out, flags = torch.zeros(3, device="cuda"), torch.zeros(1, device="cuda"), torch.zeros(3, dtype=torch.int32, device="cuda")
    both[(3,)](x, flags, out)
    assert out.item() == 14

@triton.jit
def broken(flag, out):
    if tl.program_id(0) == 0:
        while tl.atomic_cas(flag, 1, 1) != 1:
            pass
    else:
        tl.store(out, no_such_name)

def test_broken():
    with pytest.raises(Exception, match="no_such_name"):
        broken[(4,)](torch.zeros(1, dtype=torch.int32, device="cuda"), torch.zeros(4, dtype=torch.int32, device="cuda"))
    assert launch("acq_rel") == 7

@triton.jit
def added_up(x, out):
    tl.atomic_add(out, tl.load(x + tl.program_id(0)))

def sums(x):
    result = [torch.zeros(1, device="cuda", dtype=x.dtype) for _ in range(3)]
    for out in result:
        added_up[(x.numel(),)](x, out)
    return result

def floats(): return torch.randn(200, device="cuda", generator=torch.Generator("cuda").manual_seed(0)).exp()

def test_bits_of_first_launches():
    first, second, _ = sums(floats())
    assert torch.equal(first, second)

def test_bits_of_later_launches():
    _, second, third = sums(floats())
    assert torch.equal(second, third)

def test_close():
    first, *rest = sums(floats())
    for other in rest:
        torch.testing.assert_close(first, other)

def test_integers():
    first, *rest = sums((100 * floats()).int())
    assert all(torch.equal(first, other) for other in rest)
"""


def test_findings_and_failures_while_programs_take_turns(run_inside, tmp_path):
    """An atomic that orders nothing leaves a race, later programs are checked, too, and a failure in one ends the launch."""
    (tmp_path / "test_a.py").write_text(TESTS)
    output = run_inside(tmp_path, Stage.TEST, benches=())
    outcomes = {}
    for line in (output / "test" / "journal.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event["event"] == "finish":
            outcomes[event["id"].partition("::test_")[2]] = (event["outcome"], event.get("message", ""))

    assert [outcomes[name][0] for name in ("ordered", "two_waits", "broken")] == ["passed"] * 3, outcomes
    assert [outcomes[name][0] for name in ("close", "integers")] == ["passed"] * 2, outcomes
    for name in ("bits_of_first_launches", "bits_of_later_launches"):  # programs that add floats by atomics run in another order each time
        assert outcomes[name][0] == "failed"
        assert "added_up (test_a.py:59)" in outcomes[name][1].splitlines()[0]
    assert "race in handed_over" in outcomes["relaxed"][1]
    assert "tl.load(x)" in outcomes["relaxed"][1]
    assert "out-of-bounds in handed_over" in outcomes["out_of_bounds"][1]
