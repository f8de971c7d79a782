"""The list of points: what it covers, and how it is halved."""

from __future__ import annotations

from kernels.models.catalog import MODELS
from kernels.models.points import for_tuning, points


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
