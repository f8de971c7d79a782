"""Comparison → the files that other programs read: JSON with its schema, JUnit and CSV."""
