"""`warpwave upgrade` on runs that are there already, and the tuned configurations of a package."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from synthetic import compiled, run, write_raw

from warpwave.__main__ import _run_cli
from warpwave.config.pyproject import tuned_configurations
from warpwave.errors import ConfigError

TUNED = '[tool.warpwave]\ntuned = [{files = "configs/*.json", key = "tiles"}]\n'


@pytest.fixture
def package(tmp_path):
    (tmp_path / "ops" / "configs").mkdir(parents=True)
    (tmp_path / "ops" / "pyproject.toml").write_text(TUNED)
    (tmp_path / "ops" / "configs" / "H200.json").write_text(
        '{"tiles": {"16": {"BLOCK": 1024, "num_warps": 4}, "by_dtype": [{"BLOCK": 2}]}}'
    )
    return tmp_path / "ops"


def test_the_page_of_two_legs(tmp_path, package, capsys):
    """In four forms, with exit code 1 for a kernel that spills, and the tuned configuration that is stale by that."""
    for toolchain, spills in (("triton-3.8.0", 0), ("triton-3.9", 8)):
        made = run("cpu", gpu=None, samples=(), again=(), ceilings=(), compiled=(compiled(spills=spills),))
        record = replace(made.record, target=f"cpu@{toolchain}", toolchain=toolchain)
        write_raw(tmp_path / "run" / "raw" / record.target, replace(made, record=record))
    files = [str(tmp_path / name) for name in ("page.md", "page.html", "line.txt")]
    words = ["upgrade", "--from", "3.8.0", "--to", "triton-3.9", "--read", str(tmp_path / "run"), "--kernels", str(package), "--json"]
    code = _run_cli([*words, "--markdown", files[0], "--html", files[1], "--summary", files[2]])
    told = json.loads(capsys.readouterr().out)

    assert (code, told["exit_code"], told["stale"][0]["entry"]) == (1, 1, "16")
    assert "1 function spills more (sy_90), 1 tuned configuration is stale" in (tmp_path / "line.txt").read_text()
    for name in ("page.md", "page.html"):
        assert "What changes" in (tmp_path / name).read_text()


def test_speeds_without_tests_are_refused(tmp_path, package, capsys):
    """They would hold a card for minutes, and none of them would be compared."""
    words = ["upgrade", "cuda", "--from", "3.8.0", "--to", "3.9.0", "--stage", "bench", "--kernels", str(package)]

    assert _run_cli([*words, "--out", str(tmp_path / "o")]) == 2
    assert "--stage test,bench" in " ".join(capsys.readouterr().err.split())


def test_tuned_entries_at_any_depth(package):
    """Below the key, each innermost mapping is an entry with its path."""
    assert [(one.entry, one.values) for one in tuned_configurations(package)] == [
        ("16", {"BLOCK": 1024, "num_warps": 4}),
        ("by_dtype/0", {"BLOCK": 2}),
    ]


def test_a_tuned_file_that_is_none(package):
    """Three beats, with the file's name."""
    (package / "configs" / "H200.json").write_text("[]")
    with pytest.raises(ConfigError, match=r"H200\.json"):
        tuned_configurations(package)
    (package / "pyproject.toml").write_text('[tool.warpwave]\ntuned = ["configs/*.json"]\n')
    with pytest.raises(ConfigError, match="a list of tables"):
        tuned_configurations(package)
