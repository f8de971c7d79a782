"""A file that cannot be loaded without a card's data, or its vendor's libraries, has a row that says so, and has not failed."""

from __future__ import annotations

import json

import pytest

from warpwave.config.targets import load_targets
from warpwave.records import Stage

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

# What stands at the top of a file → its verdict and why it did not run, as a bench and as a file of tests.
FILES = {
    "by_data": ("if torch.ones(4, device='cuda').sum().item() > 3:\n    SIZE = 4\n", "not-run", "decided-by-data", "decided-by-data"),
    "library": (
        "raise RuntimeError('Could not find `libcublas.so`. Make sure it is in your LD_LIBRARY_PATH.')\n",
        *("not-run", "not-pretended", "not-pretended"),
    ),
    "own": ("raise ValueError('no such size')\n", "error", None, "import-failed"),
}


def test_a_file_that_needs_a_card_to_load_has_not_failed(run_inside, tmp_path):
    card = next(card for card in load_targets()["cpu"].architectures if card.name == "sm_90")
    (tmp_path / "package").mkdir()
    for name, (text, *_) in FILES.items():
        for kind in ("bench", "test"):
            (tmp_path / "package" / f"{kind}_{name}.py").write_text(f"import torch\n\n{text}")
    output = run_inside(tmp_path / "package", Stage.COMPILE, architectures=(card,), benches=("bench_*.py",))
    rows = [json.loads(line) for line in (output / "compile" / "kernels.jsonl").read_text().splitlines()]

    found = {row["origin"]: (row["verdict"], row["not_run"]) for row in rows}
    assert found == {
        origin: (verdict, why)
        for name, (_, verdict, of_bench, of_tests) in FILES.items()
        for origin, why in ((f"{name} [loading bench_{name}.py]", of_bench), (f"test_{name}.py", of_tests))
    }
