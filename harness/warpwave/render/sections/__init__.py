"""Comparison → sections of tables and lines, shared by the terminal and Markdown."""
