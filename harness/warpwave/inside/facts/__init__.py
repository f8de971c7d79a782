"""The facts stage: what this environment is, and whether it can run a kernel at all."""
