"""Comparison → `comparison.html`: one file without dependencies that opens with a double click, now or in ten years.

The drawings are SVG made here. So the page is complete without its script, prints well, and works with screen readers. The script adds a
read-out, switches and the long tables. The page carries their numbers once, as JSON.
"""

from harness.render.html.history import render_history
from harness.render.html.page import render_html
from harness.render.html.sections import render_sections

__all__ = ["render_history", "render_html", "render_sections"]
