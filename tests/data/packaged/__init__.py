"""A kernel package that imports itself by its name, and whose kernel stands behind a registered, differentiable op."""
