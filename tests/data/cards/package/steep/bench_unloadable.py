"""Does not load, on any card."""

raise ImportError("not here")
