"""Every colour of a text has the contrast that WCAG 2.2 asks for (4.5), on the page's ground and on the ground of code, in both themes."""

import re
from importlib.resources import files

import pytest

from warpwave.render.charts.svg import DARK, LIGHT, rules

CSS = "".join(files("warpwave.render.html").joinpath("templates", name).read_text() for name in ("page.css", "comparison/comparison.css"))
TEXTS = ("soft", "ink", "ceiling", "good", "bad", "warn", "near", "short", "far")


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def mixed(ground: str, ink: str) -> str:
    """The ground of code: 94% of the ground, 6% of the ink."""
    return "#" + "".join(f"{round(0.94 * int(ground[at : at + 2], 16) + 0.06 * int(ink[at : at + 2], 16)):02x}" for at in (1, 3, 5))


@pytest.mark.parametrize(("colours", "theme"), [(LIGHT, ":root{"), (DARK, "[data-theme=dark]{")], ids=["light", "dark"])
def test_texts_can_be_read(colours, theme):
    own = dict(re.findall(r"--(\w+):(#\w{6})", "".join(part.partition("}")[0] for part in CSS.split(theme)[1:])))
    named = {**own, **colours}

    for name in TEXTS:
        for ground in (colours["ground"], mixed(colours["ground"], colours["ink"])):
            assert contrast(named[name], ground) >= 4.5, (name, ground)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_lines_and_marks_can_be_seen(colours):
    """Three is what WCAG asks of what is not a text; the colours of lines are also those of their marks."""
    assert set(re.findall(r"var\(--(s\d)\)", rules())) == {f"s{number}" for number in range(8)}
    for number in range(8):
        assert contrast(colours[f"s{number}"], colours["ground"]) >= 3, number
