"""The colours of all drawings. Pure.

They are legible on light and dark grounds and distinct for colour-blind readers. In print, dashes and shapes distinguish the lines.
"""

from __future__ import annotations

from collections.abc import Mapping

# A hue per provider: blue for the kernel's own, then vermilion, green, violet, ochre, cyan, rose, grey.
LIGHT = {
    **{"ground": "#ffffff", "ink": "#16202b", "soft": "#5a6672", "grid": "#e6eaee", "axis": "#9aa5b0", "ceiling": "#626d78"},
    **{
        "s0": "#1558b0",
        "s1": "#c2410c",
        "s2": "#0f7b5f",
        "s3": "#7a3fa8",
        "s4": "#8a6a00",
        "s5": "#0b7f96",
        "s6": "#b8326f",
        "s7": "#59636e",
    },
}
DARK = {
    **{"ground": "#12171d", "ink": "#e8edf2", "soft": "#98a4b0", "grid": "#232c35", "axis": "#56626e", "ceiling": "#8a96a2"},
    **{
        "s0": "#6fb1ff",
        "s1": "#ff9a66",
        "s2": "#4fd0a5",
        "s3": "#c79bf2",
        "s4": "#e2bd4e",
        "s5": "#5cd0e6",
        "s6": "#ff8fbd",
        "s7": "#a8b3be",
    },
}
SANS = 'ui-sans-serif,system-ui,"Segoe UI","Helvetica Neue",Arial,"DejaVu Sans",sans-serif'
_DASHES = ("none", "7 4", "2 3", "9 3 2 3")


def variables(colours: Mapping[str, str]) -> str:
    """Return the colours as CSS variables: `--s0:#1558b0;…`."""
    return "".join(f"--{name}:{colour};" for name, colour in colours.items())


def rules(colours: Mapping[str, str] | None = None) -> str:
    """Return the CSS rules of a drawing's marks. They use CSS variables, or literal colours for SVG readers without variables."""

    def of(name: str) -> str:
        return colours[name] if colours else f"var(--{name})"

    found = [
        f".tick,.unit,.label,.ceiling-label,.key{{font:11px {SANS};fill:{of('soft')};font-variant-numeric:tabular-nums}}",
        f".label,.key{{fill:{of('ink')}}}",
        f".ceiling-label{{font-size:10.5px;fill:{of('ceiling')}}}",
        f".over{{fill:{of('soft')};stroke:{of('ground')};stroke-width:3px;paint-order:stroke}}",
        f".grid{{stroke:{of('grid')};stroke-width:1}}.axis{{stroke:{of('axis')};stroke-width:1}}",
        f".ceiling{{stroke:{of('ceiling')};stroke-width:1.4;fill:none}}",
        ".line{fill:none;stroke-width:1.9;stroke-linejoin:round;stroke-linecap:round}.band{stroke:none;fill-opacity:.17}",
        f".guide{{stroke:{of('axis')};stroke-width:1;visibility:hidden}}",
        ".whisker{stroke-width:1.5;stroke-opacity:.6}",
        f".dot{{stroke:{of('ground')};stroke-width:.8}}",
    ]
    for style in (f"s{number}" for number in range(8)):
        colour = of(style)
        found.append(f".line.{style},.whisker.{style}{{stroke:{colour}}}.band.{style},.dot.{style}{{fill:{colour}}}")
        found.append(f".dot.{style}.unsound{{fill:{of('ground')};stroke:{colour};stroke-width:1.4}}")
    found += [f".line.t{number},.ceiling.t{number}{{stroke-dasharray:{dash}}}" for number, dash in enumerate(_DASHES) if number]
    return "\n".join(found)
