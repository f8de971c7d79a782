"""The legs of a run: which there are, and how several of them run side by side."""
