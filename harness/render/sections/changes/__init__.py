"""Sections about what changed between two runs: speeds and tests."""
