"""Tests: the targets of one run side by side, and what changed between two runs."""
