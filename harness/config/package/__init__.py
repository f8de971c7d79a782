"""The settings of the kernel package of a run: where its root is, what its own tools are set to, and its `[tool.warpwave]`."""
