"""Tensors in files, pickles and queues: they come back to the card that they were on."""

import copy
import io
import pickle

import pytest
import torch
from small_kernels import add


def written(value, **options):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, **options)


def test_a_pickle(pair):
    x, y = pickle.loads(pickle.dumps(pair))
    assert x.is_cuda
    torch.testing.assert_close(add(x, y), x + y)


def test_a_file_of_both_sides(pair):
    loaded = written({"card": pair[0], "host": torch.ones(3), "weight": torch.nn.Parameter(torch.ones(3))}, weights_only=False)
    assert loaded["card"].is_cuda
    assert not loaded["host"].is_cuda
    assert not loaded["weight"].is_cuda
    torch.testing.assert_close(add(loaded["card"], pair[1]), pair[0] + pair[1])


def test_a_file_read_to_the_host(pair):
    x = written(pair[0], map_location="cpu")
    assert x.device.type == "cpu"
    y = written(pair[1], map_location=lambda storage, place: storage)
    assert y.device.type == "cpu"
    torch.testing.assert_close(add(x.cuda(), y.cuda()), sum(pair))


def test_a_file_of_the_host_read_to_the_card(pair):
    x = written(pair[0].cpu(), map_location="cuda")
    assert x.is_cuda
    assert written(torch.nn.Parameter(torch.ones(3)), map_location={"cpu": "cuda:0"}, weights_only=False).is_cuda
    torch.testing.assert_close(add(x, pair[1]), pair[0] + pair[1])


@pytest.mark.parametrize("weights_only", [True, False])
def test_a_state(weights_only, tmp_path, pair):
    model = torch.nn.Linear(4, 4, device="cuda")
    torch.save(model.state_dict(), tmp_path / "model.pt")
    state = torch.load(tmp_path / "model.pt", weights_only=weights_only)
    assert all(value.is_cuda for value in state.values())
    other = torch.nn.Linear(4, 4, device="cuda")
    other.load_state_dict(state)
    torch.testing.assert_close(other.weight, model.weight)
    torch.testing.assert_close(add(*pair), sum(pair))


def test_a_model(pair):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4)).cuda()
    for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), written(model, weights_only=False)):
        assert isinstance(again[0].weight, torch.nn.Parameter)
        assert again[1].weight.is_cuda
    torch.testing.assert_close(add(*pair), sum(pair))


def test_a_view_and_what_it_views(pair):
    x, part = written([pair[0], pair[0][:8]])
    assert part.is_cuda
    torch.testing.assert_close(add(x, pair[1]), sum(pair))
    part.zero_()
    torch.testing.assert_close(x[:8], torch.zeros_like(part))
