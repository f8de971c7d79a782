"""Shapes of models that people run, and the sweep over them."""
