"""Speeds: samples become rows, rows become ratios and summaries, and two runs become speed changes."""
