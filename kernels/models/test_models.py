"""The list of points: what it covers, and how it is halved."""

from kernels.models.catalog import MODELS
from kernels.models.points import Point, for_tuning, points
from kernels.models.table import find, table


def sizes_of(op: str, name: str) -> set[int]:
    return {dict(point.sizes)[name] for point in points() if point.op == op}


def test_the_list_spans_the_sizes_that_models_have():
    """Were one end of a range taken out, nothing else would notice."""
    assert len(points()) >= 120
    hidden = sizes_of("layer_norm", "N") | sizes_of("rms_norm", "N")
    assert (min(hidden), max(hidden)) == (896, 18432)
    assert {32000, 50257, 128256, 262208} <= sizes_of("cross_entropy", "N")
    assert {64, 80, 96, 128, 192, 256} == sizes_of("attention", "D")
    assert {1, 1024, 32768} <= sizes_of("attention", "S") and 131072 in sizes_of("attention", "T")
    assert {1, 64} <= sizes_of("attention", "B")
    ratios = {dict(point.sizes)["H"] // dict(point.sizes)["KV"] for point in points() if point.op == "attention"}
    assert {1, 2, 4, 8, 16} <= ratios
    assert {1, 16, 32, 64, 128, 300} <= sizes_of("matmul", "M")


def test_half_of_each_op_is_for_tuning():
    """The draw is the same on each machine; another seed draws another half."""
    half = for_tuning()
    assert half == for_tuning() and half != for_tuning(seed=28)
    for op, direction in {(point.op, point.direction) for point in points()}:
        of_op = [point for point in points() if (point.op, point.direction) == (op, direction)]
        assert len([point for point in of_op if point in half]) == len(of_op) // 2


def test_every_model_has_a_point_and_a_source():
    assert {point.model for point in points()} == set(MODELS)
    assert all(model.source for model in MODELS.values())


def measured(point: Point, **medians_ms: float) -> dict:
    """One case of a run; the kernel moves 1 GiB a ms."""
    params = {**dict(point.sizes), "op": point.op, "provider": "x"}
    samples = {name: {"params": params, "median_ms": ms, "value": 2**30 / 1e6 / ms} for name, ms in medians_ms.items()}
    return {f"on_models/{point.op}-{point.direction}/x": samples}


def test_a_point_is_judged_by_the_copy_and_by_the_fastest_peer():
    norm = next(point for point in points() if point.op == "rms_norm")
    product = next(point for point in points() if point.op == "matmul" and min(dict(point.sizes).values()) >= 1024)
    found = find(measured(norm, triton=1.0, copy=0.95, torch=2.0, liger=0.8) | measured(product, triton=1.0, torch=0.9))
    assert [(each.point, each.of_copy, each.of_peer, each.peer) for each in found] == [
        (norm, 0.95, 0.8, "liger"),
        (product, None, 0.9, "torch"),
    ]
    text = table(found, frozenset([norm]))
    assert "| rms_norm forward | copy, from 64 MiB | 1 | 0.95, 0.95 | - |" in text
    assert "| matmul forward | best peer | 1 | - | 0.90, 0.90 |" in text
    assert "| matmul, M, N and K from 1024 | torch | 1 | 0.90, 0.90 |" in text and "| matmul, M below 512 | torch | 0 | - |" in text
    assert f"2 of {len(points())} points measured; 1 fall short." in text and "0.80 of liger" in text


def test_a_small_point_is_not_compared_with_a_copy():
    small = next(point for point in points() if point.op == "rms_norm")
    ((case, samples),) = measured(small, triton=1.0, copy=0.1).items()
    (found,) = find({case: {name: {**sample, "value": 1.0} for name, sample in samples.items()}})
    assert found.of_copy is None and not found.falls_short
