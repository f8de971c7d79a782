"""Comparison → `comparison.html`: one file that needs nothing else, opened by a double click, now or in ten years.

The drawings are SVG made here, so that the page is whole without its script, prints, and can be read aloud; the script adds a read-out,
switches and the long tables, whose numbers the page carries once, as JSON.
"""

from harness.render.html.page import render_html
from harness.render.html.sections import render_sections

__all__ = ["render_html", "render_sections"]
