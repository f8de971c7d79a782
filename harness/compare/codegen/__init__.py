"""Generated code: the launches of one run side by side, and what changed between two runs."""
