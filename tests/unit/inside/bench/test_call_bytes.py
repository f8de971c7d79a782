"""What a call gives to kernels, and what autotuners choose for it; and the products that speeds are shared against."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")


@pytest.fixture
def launch(monkeypatch):
    """What Triton calls for each launch, without a card."""
    from triton.runtime.jit import JITFunction

    monkeypatch.setattr(JITFunction, "run", lambda self, *args, **kwargs: None)
    return lambda *args, **kwargs: JITFunction.run(None, *args, grid=(1,), warmup=False, **kwargs)


def test_each_tensor_counts_once_and_with_what_it_has_in_memory(launch):
    """Twice given is once moved; an expanded tensor has one element in memory; numbers have none."""
    from warpwave.inside.bench.timing import touched

    x, y = torch.zeros(1000), torch.zeros(10, dtype=torch.bfloat16)
    with touched() as found:
        launch(x, 1000, y=y)
        launch(x, torch.zeros(1).expand(100))

    assert found.nbytes == 4000 + 20 + 4


def test_a_call_without_a_launch_touches_nothing(launch):
    """And afterwards nothing is noted."""
    from triton.runtime.jit import JITFunction

    from warpwave.inside.bench.timing import touched

    before = JITFunction.run
    with touched() as found:
        pass
    launch(torch.zeros(8))

    assert found.nbytes is None
    assert JITFunction.run is before


def test_what_an_autotuner_chose_is_noted(monkeypatch):
    """By the name of its kernel."""
    from triton.runtime.autotuner import Autotuner

    from warpwave.inside.bench.timing import touched

    monkeypatch.setattr(Autotuner, "run", lambda self, *args, **kwargs: None)
    tuner = SimpleNamespace(base_fn=SimpleNamespace(__name__="add_kernel"), best_config="BLOCK: 64, num_warps: 4", fn=None)
    with touched() as found:
        Autotuner.run(tuner)

    assert found.tuned == {"add_kernel": "BLOCK: 64, num_warps: 4"}


@pytest.mark.parametrize(("units", "measured"), [({"GB/s", "ms"}, 0), ({"TFLOP/s"}, 4)])
def test_products_are_measured_only_where_a_unit_counts_operations(monkeypatch, tmp_path, units, measured):
    """One that the card, or its library, does not have is a row that says so, and stops nothing."""
    import triton

    from warpwave.inside.bench import ceilings
    from warpwave.inside.process.journal import Journal

    def refuse(*arguments):
        raise RuntimeError("no fp8 here")

    timing = SimpleNamespace(median_ms=1.0, quantile_ms=lambda q: 1.0)
    timer = SimpleNamespace(last=timing, do_bench=lambda fn, **more: fn(), busy_s=lambda: 0.0)
    active = SimpleNamespace(get_active_torch_device=lambda: "cpu")
    monkeypatch.setattr(triton.runtime, "driver", SimpleNamespace(active=active))
    monkeypatch.setattr(ceilings, "_SIDE", 8)
    monkeypatch.setattr(ceilings, "_SIDE_FP32", 8)
    monkeypatch.setattr(ceilings, "_time_fp8", refuse)
    monkeypatch.setattr(ceilings, "accelerator", lambda: None)
    precision = torch.get_float32_matmul_precision()
    ceilings.product_ceilings(Journal(tmp_path / "journal.jsonl"), timer, units, set())
    text = (tmp_path / "journal.jsonl").read_text() if (tmp_path / "journal.jsonl").exists() else ""
    ended = [event for event in map(json.loads, text.splitlines()) if event["event"] == "finish"]
    found = [json.loads(event["ceiling"]) for event in ended if "ceiling" in event]

    assert len(found) == measured
    assert {entry["dtype"] for entry in found} == ({"bf16", "fp16", "tf32", "fp32"} if measured else set())
    assert all(entry["flops"] == 2 * 8**3 for entry in found)
    assert [event["reason"] for event in ended if "ceiling" not in event] == (["RuntimeError: no fp8 here"] if measured else [])
    assert torch.get_float32_matmul_precision() == precision
