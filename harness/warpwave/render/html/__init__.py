"""Comparison → `comparison.html`: one file without dependencies that opens with a double click, now or in ten years.

The drawings are SVG made here. So the page is complete without its script, prints well, and works with screen readers. The script adds a
read-out, switches and the long tables. The page carries their numbers once, as JSON.
"""

from __future__ import annotations

from warpwave.render.html.page import render_html
from warpwave.render.html.shell import load, render_sections

__all__ = ["load", "render_html", "render_sections"]
