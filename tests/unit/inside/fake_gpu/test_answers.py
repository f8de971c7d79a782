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


ASKED = """
import json, os, sys
import torch
from warpwave.inside.fake_gpu import card as door
from torch.nn.utils.rnn import pack_padded_sequence as pack
from warpwave.records import Architecture, from_json

door.interpreted_device(from_json(Architecture, sys.argv[1]), ["cuda"])

class Moving(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return args[1] + torch.zeros_like(args[1]).copy_(args[0].as_subclass(torch.Tensor))

def two(device="cpu"):
    return torch.ones(2, device=device)

def moved(parameter):
    parameter.data = parameter.data.cuda()
    return parameter

def backward(host):
    (host.cuda() * two("cuda")).sum().backward()
    return host.grad

found = {}
for asked in json.loads(sys.argv[2]):
    try:
        found[asked] = repr(eval(asked))
    except Exception as error:
        found[asked] = type(error).__name__
print(json.dumps(found))
"""
ANSWERS = {
    "torch.backends.cuda.is_built()": "True",
    "torch.cuda.is_tf32_supported()": "True",
    "torch.cuda.cudart().cudaMemGetInfo(0)[1] > 0": "True",
    "torch.cuda.set_per_process_memory_fraction(0.5) or torch.cuda.get_per_process_memory_fraction()": "0.5",
    "torch.Stream(device='cuda').device.type": "'cuda'",
    "torch.Event('cuda', enable_timing=True).query()": "True",
    "torch.accelerator.set_device_index(0)": "None",
    "torch.zeros(1, device='cuda:0').is_cuda": "True",
    "torch.cuda.utilization()": "NeedsCard",
    "torch.cuda.list_gpu_processes()": "NotPretended",
    "torch.accelerator.set_device_index(7)": "NotPretended",
    "torch.cuda.set_device('cuda:1')": "NotPretended",
    "torch.zeros(1, device='cuda:1')": "NotPretended",
    # A tensor of the host meets one of the card, which torch refuses where both are sure to be there.
    "two() + two('cuda')": "RuntimeError",
    "two('cuda').numpy()": "TypeError",
    "two('cuda').numpy(force=True).sum() == 2": "np.True_",
    "(moved(torch.nn.Parameter(two())) + two('cuda')).is_cuda": "True",
    "(backward(two().requires_grad_()) + two()).is_cuda": "False",
    "(torch.FloatTensor([1, 2]) + two()).sum().item()": "5.0",
    "(torch.Tensor._make_subclass(Moving, two()) + two('cuda')).is_cuda": "True",
    "(pack(torch.ones(2, 3, 1, device='cuda'), torch.tensor([3, 2]), True).batch_sizes * torch.ones(3)).is_cuda": "False",
    "[(each.cuda() + two('cuda')).is_cuda for each in [torch.Tensor([1, 2])]]": "[True]",
    "[(each.cuda(), each + two())[1].sum().item() for each in [torch.Tensor([1, 2])]]": "[5.0]",
    # Who asks for the interpreter may have chosen the host. Who copies all variables, to start a process, has not asked.
    "(os.environ.copy(), {**os.environ}, list(os.environ.items()), os.environ | {}) and two() + two('cuda')": "RuntimeError",
    "os.environ['TRITON_INTERPRET'] and (two() + two('cuda')).sum().item()": "4.0",
}


def test_what_packages_ask_of_a_card():
    """The same as on a machine with one card, or that it is not pretended: never an error of a build for the CPU."""
    card = next(each for each in load_targets()["cpu"].architectures if each.name == "sm_90")
    done = command.python("-c", ASKED, to_json(card), json.dumps(list(ANSWERS)), env={**os.environ, "TRITON_INTERPRET": "1"})

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == ANSWERS


AS_BEFORE = """
import contextlib, json, sys
import torch
import torch._dynamo.device_interface as compiler
from warpwave.inside.fake_gpu import answers, card as door
from warpwave.records import Architecture, from_json

card = from_json(Architecture, sys.argv[1])
seen, changes = {}, answers.changes
interface = compiler.get_interface_for_device("cuda")
copies = dict(vars(interface))

def asked():
    # torch's compiler was imported before, and took copies of functions
    assert interface.get_device_properties().name == torch.cuda.get_device_properties().name == card.torch_properties["name"]
    assert interface.Stream is torch.cuda.Stream
    assert interface.device_count() == 1

def watched(table):
    for row in table:
        for name in row.names.split():
            seen.setdefault((id(row.owner), name), (row.owner, getattr(row.owner, name, None)))
        yield from changes([row])

answers.changes = watched
if sys.argv[2] == "interpreted":
    undo = door.interpreted_device(card, ["cuda"])[1]
    asked()
    undo()
else:
    with door.pretended_device(card, lambda binary: (32, 0, 1024)):
        assert torch.ones(1, device="cuda").is_cuda
        asked()
assert dict(vars(interface)) == copies
left = sorted({f"{owner}.{name}" for (_, name), (owner, before) in seen.items() if getattr(owner, name, None) != before})
print(json.dumps([len(seen), left]))
"""


@pytest.mark.parametrize(("how", "card"), [("interpreted", "sm_90"), ("without data", "gfx942")])
def test_all_is_as_before_afterwards(how, card):
    """Other tests of a process, and other cards, start from torch's own."""
    found = next(each for each in load_targets()["cpu"].architectures if each.name == card)
    variables = {"TRITON_INTERPRET": "1"} if how == "interpreted" else {}
    done = command.python("-c", AS_BEFORE, to_json(found), how, env={**os.environ, **variables})

    assert done.returncode == 0, done.stderr
    rows, left = json.loads(done.stdout.splitlines()[-1])
    assert rows > 200
    assert left == []
