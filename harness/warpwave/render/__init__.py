"""Comparison → text. Returns strings or rich renderables and never touches files, the clock or the environment; `report` writes."""
