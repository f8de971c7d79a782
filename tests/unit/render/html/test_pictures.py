"""One picture per kernel. All data is synthetic."""

import sys
from xml.etree import ElementTree

import pytest
from hostile import PAGE_NAMES, hostile
from synthetic import no_gpu, run, sample, two_targets, write_raw

from warpwave.__main__ import _run_cli
from warpwave.compare import compare
from warpwave.render.charts.pictures import pictures
from warpwave.render.charts.svg import DARK, LIGHT

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_a_picture_says_what_it_shows():
    """Kernel, providers, targets with their GPUs, and how to read it."""
    first, *others = pictures(compare(two_targets(), ["alpha", "beta"]))
    told = texts(first.svg)

    assert [picture.file for picture in (first, *others)] == ["vector_add", "softmax", "layer_norm", "cross_entropy"]
    for expected in ("vector_add", "triton", "torch", "alpha", "beta", "GB/s", "alpha copy, measured 4000"):
        assert expected in told
    assert "beta: Synthetic GPU B, Triton 3.9.1, 2026-01-02" in told
    assert "Line: median, band: 20th to 80th percentile, grey: copy measured in the same run" in told


@pytest.mark.parametrize(("theme", "grounds"), [("light", [LIGHT]), ("dark", [DARK]), ("auto", [LIGHT, DARK])])
def test_it_has_a_ground_of_its_own_in_light_and_in_dark(theme, grounds):
    """Wherever it is embedded, its colours match its background."""
    (picture,) = pictures(compare([run()]), theme)

    assert [f"fill:{colours['ground']};stroke:{colours['grid']}" in picture.svg for colours in (LIGHT, DARK)] == [
        colours in grounds for colours in (LIGHT, DARK)
    ]
    assert ("prefers-color-scheme:dark" in picture.svg) == (theme == "auto")
    assert "var(--" not in picture.svg


@pytest.mark.parametrize("name", PAGE_NAMES)
def test_names_stay_names(name):
    """The picture is well-formed, has only elements of drawings, and its file is in the right folder."""
    for picture in pictures(hostile(name)):
        kinds = {element.tag.removeprefix(SVG) for element in ElementTree.fromstring(picture.svg).iter()}
        assert kinds <= {"svg", "title", "style", "rect", "text", "path", "line", "circle", "polygon", "g"}
        assert picture.file.replace("-", "").replace("_", "").isalnum()


def test_two_kernels_never_share_a_file():
    """Two names may become equal when unsafe characters are removed."""
    found = pictures(compare([run(samples=tuple(sample(kernel=name) for name in ("a/b", "a.b", "../a", "…")))]))

    assert [picture.file for picture in found] == ["a-b", "a-b-2", "a", "kernel"]


def test_plot_writes_svg_and_png(tmp_path, capsys):
    """Both look the same. PNG needs an extra, and the error says so if it is missing."""
    pytest.importorskip("resvg_py", reason="the extra `png` is not installed")
    write_raw(tmp_path / "raw" / "alpha", run())
    assert _run_cli(["plot", str(tmp_path), "--png"]) == 0

    assert capsys.readouterr().out.split() == [str(tmp_path / "plots" / f"softmax.{kind}") for kind in ("svg", "png")]
    png = (tmp_path / "plots/softmax.png").read_bytes()
    assert png.startswith(b"\x89PNG")
    assert int.from_bytes(png[16:20], "big") == 2 * int(ElementTree.parse(tmp_path / "plots/softmax.svg").getroot().get("width"))


def test_png_without_its_extra_is_a_usage_error(tmp_path, monkeypatch, capsys):
    """The error names the command that installs it."""
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    write_raw(tmp_path / "raw" / "alpha", run())

    assert _run_cli(["plot", str(tmp_path), "--png"]) == 2
    assert "pip install resvg-py" in capsys.readouterr().err


def test_nothing_measured_is_a_usage_error(tmp_path, capsys):
    """A target without a GPU has no curve."""
    write_raw(tmp_path / "raw" / "cpu", no_gpu())

    assert _run_cli(["plot", str(tmp_path)]) == 2
    assert "There is nothing to draw." in capsys.readouterr().err
