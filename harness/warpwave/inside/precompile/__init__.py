"""Compile what tests and sweeps launch before the run takes its card."""
