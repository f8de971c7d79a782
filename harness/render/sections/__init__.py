"""Comparison → sections of tables and lines, the same for the terminal and for Markdown."""
