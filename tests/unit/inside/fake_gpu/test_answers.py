"""The table of what a pretended card replaces: how a row is applied, and that all is as before afterwards."""

from __future__ import annotations

import contextlib
import json
import os
from types import SimpleNamespace

import pytest

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")
pytest.importorskip("torch", reason="the inside needs torch and triton; `nox -s tests` installs them")

import command

from warpwave.config.targets import load_targets
from warpwave.inside.fake_gpu.answers import add, changes, fill, put, wrap
from warpwave.inside.fake_gpu.torch_device import apply
from warpwave.records import to_json


def test_a_row_changes_what_is_there_and_a_later_one_wraps_it():
    """`put` and `wrap` leave out what a release lacks, and `fill` what it has."""
    owner = SimpleNamespace(one=1, two=2)
    table = [
        put(owner, "one lacking", 10, ""),
        wrap(owner, "one two lacking", lambda value: value + 100, ""),
        fill(owner, "two more", 3, ""),
        add(owner, "more most", 4, ""),
    ]
    with contextlib.ExitStack() as undo:
        apply(changes(table), undo)
        assert vars(owner) == {"one": 110, "two": 102, "more": 4, "most": 4}
    assert vars(owner) == {"one": 1, "two": 2}


AS_BEFORE = """
import contextlib, json, sys
import torch, torch._dynamo
from warpwave.inside.fake_gpu import answers, card as door
from warpwave.records import Architecture, from_json

card = from_json(Architecture, sys.argv[1])
seen, changes = {}, answers.changes

def watched(table):
    for row in table:
        for name in row.names.split():
            seen.setdefault((id(row.owner), name), (row.owner, getattr(row.owner, name, None)))
        yield from changes([row])

answers.changes = watched
if sys.argv[2] == "interpreted":
    door.interpreted_device(card, ["cuda"])[1]()
else:
    with door.pretended_device(card, lambda binary: (32, 0, 1024)):
        assert torch.ones(1, device="cuda").is_cuda
left = sorted({f"{owner}.{name}" for (_, name), (owner, before) in seen.items() if getattr(owner, name, None) != before})
print(json.dumps([len(seen), left]))
"""


@pytest.mark.parametrize(("how", "card"), [("interpreted", "sm_90"), ("without data", "gfx942")])
def test_all_is_as_before_afterwards(how, card):
    """Other tests of a process, and other cards, start from torch's own."""
    found = next(each for each in load_targets()["cpu"].architectures if each.name == card)
    variables = {**os.environ, "TRITON_INTERPRET": str(int(how == "interpreted"))}
    done = command.python("-W", "ignore", "-c", AS_BEFORE, to_json(found), how, env=variables)

    assert done.returncode == 0, done.stderr
    rows, left = json.loads(done.stdout.splitlines()[-1])
    assert rows > 200
    assert left == []
