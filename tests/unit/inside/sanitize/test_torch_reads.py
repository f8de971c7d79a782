"""What torch reads of memory that nobody wrote is reported; what copies it, chooses from it or uses a part of it is not."""

from __future__ import annotations

import json

import pytest

from warpwave.records import Stage

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

TESTS = """
import pytest, torch, triton, triton.language as tl
import torch.nn.functional as F

@triton.jit
def ones(x, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, 1.0, mask=i < n)

@triton.jit
def into_two(x, y, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(tl.where(i < n, x + i, y + (i - n)), 1.0, mask=i < 2 * n)

def made(how="empty"):
    card = torch.zeros(1, device="cuda")
    x = {
        "empty": lambda: torch.empty(17, device="cuda"),
        "empty_like": lambda: torch.empty_like(torch.ones(17, device="cuda")),
        "new_empty": lambda: card.new_empty(17),
        "new": lambda: card.new(17),
        "empty_strided": lambda: torch.empty_strided((17,), (2,), device="cuda"),
        "resize_": lambda: torch.empty(0, device="cuda").resize_(17),
        "FloatTensor": lambda: torch.cuda.FloatTensor(17),
        "int32": lambda: torch.empty(17, device="cuda", dtype=torch.int32),
    }[how]()
    ones[(1,)](x, 16 * x.stride(0), BLOCK=32)
    return x

WRITTEN = torch.arange(17, device="cuda") < 16
ROWS = torch.ones(17, 2, device="cuda")

@pytest.mark.parametrize("how", ["empty", "empty_like", "new_empty", "new", "empty_strided", "resize_", "FloatTensor", "int32"])
def test_wrong_made(how): partial = made(how); partial.sum()

@pytest.mark.parametrize("read", WRONG_ONES)
def test_wrong(read): eval(read, globals(), {"x": made()})

@pytest.mark.parametrize("use", RIGHT_ONES)
def test_right(use): eval(use, globals(), {"x": made()})

def test_right_kernel_that_chooses_between_tensors():
    x, y = torch.empty(16, device="cuda"), torch.empty(16, device="cuda")
    into_two[(1,)](x, y, 16, BLOCK=32)
    assert x.sum() + y.sum() == 32
"""
WRONG = """
x.sum()
torch.max(x)
1 + x
x * 2.0
x @ x
x.add_(1)
x == 3
x < 0
torch.softmax(x, 0)
F.relu(x)
torch.isclose(x, x)
torch.testing.assert_close(x, x, equal_nan=True)
torch.allclose(x, x)
x[16].item()
x.tolist()
bool((x > 0).all())
x.clone().sum()
x.cpu().sum()
x.half().mean()
torch.cat([x, x]).sum()
x.flip(0).cumsum(0)
F.pad(x, (0, 3)).sum()
x[None].expand(3, -1).reshape(-1).sum()
torch.zeros(17, device="cuda").copy_(x).sum()
[y := torch.zeros(20, device="cuda"), y.__setitem__(slice(0, 17), x), y.sum()]
torch.where(~WRITTEN, x, 0.0).sum()
(x * WRITTEN).sum()
(x * 2)[15:].sum()
x.split(16)[1].sum()
torch.sum(x, 0, out=torch.empty((), device="cuda"))
""".strip().splitlines()
RIGHT = """
x[:16].sum()
x[:16].view(4, 4).sum(1)
x.clone()[:16].sum()
(x * 2)[:16].sum()
torch.where(WRITTEN, x, 0.0).sum()
x.masked_fill(~WRITTEN, 0).sum()
x[WRITTEN].sum()
[x[16:].fill_(0), x.sum()]
[x.__setitem__(16, 3.0), x.sum()]
[x.copy_(torch.ones(17, device="cuda")), x.sum()]
[x.zero_(), x.sum()]
[x.scatter_(0, torch.tensor([16], device="cuda"), 1.0), x.sum()]
x.clone()
[x.shape, x.dtype, x.data_ptr(), print(x)]
x.cpu().numpy()[:16].sum()
torch.testing.assert_close(x[:16], torch.ones(16, device="cuda"))
torch.addmm(x[None].expand(17, 17), ROWS, ROWS.t(), beta=0).sum()
torch.empty(0, device="cuda").sum()
torch.empty(5, device="cuda").normal_().sum()
torch.nn.init.xavier_uniform_(torch.empty(5, 5, device="cuda")).sum()
torch.nn.Linear(4, 4, device="cuda")(torch.ones(1, 4, device="cuda")).sum()
[y := torch.empty(17, device="cuda"), torch.add(ROWS[:, 0], 1, out=y), y.sum()]
[torch.ones_like(x).sum(), torch.rand_like(x).sum()]
torch.stack([x, ROWS[:, 0]]).sum(1)[1].item()
ones[(1,)](x * 2, 16, BLOCK=32)
""".strip().splitlines()


def test_what_torch_reads(run_inside, tmp_path):
    text = TESTS.replace("WRONG_ONES", repr(WRONG)).replace("RIGHT_ONES", repr(RIGHT))
    (tmp_path / "test_a.py").write_text(text)
    output = run_inside(tmp_path, Stage.TEST, benches=())
    events = map(json.loads, (output / "test" / "journal.jsonl").read_text().splitlines())
    outcomes = {event["id"].partition("::test_")[2]: event for event in events if event["event"] == "finish"}
    silent = [name for name, event in outcomes.items() if name.startswith("wrong") and "uninitialised-read" not in event["message"]]
    alarms = {name: event["message"] for name, event in outcomes.items() if name.startswith("right") and event["outcome"] != "passed"}

    assert (silent, alarms) == ([], {})
    assert len(outcomes) == len(WRONG) + len(RIGHT) + 9
    expected = "uninitialised-read in torch.sum at test_a.py:34: reads partial[16], of shape [17], which nobody wrote: "
    assert expected in outcomes["wrong_made[empty]"]["message"]
